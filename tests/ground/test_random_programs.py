"""Facts, possible events, proofs and additions of random programs: the engine, the slow twin, and clingo."""

from __future__ import annotations

import re
from functools import partial

import pytest

from foretell.lang.program import Program
from foretell.reference.database import states
from tests.ground.clingo_states import clingo_states
from tests.ground.random_programs import random_case
from tests.ground.timelines import additions_at, fact_of, names_at, proofs_at, replay_of

QUICK, ALL, BLOCK = 200, 1000, 20


def _agree(seed: int, numbers: bool = False) -> None:
    """Three sequences, so that going back to the start is tested too."""
    case = random_case(seed, numbers=numbers)
    sequences = [case.events, case.events[: len(case.events) // 2], case.events]
    for timeline, events in zip(replay_of(case.program, *sequences).timelines, sequences, strict=True):
        second = clingo_states(case.program, events)
        for state, slow in enumerate(states(case.program, events)):
            facts = [fact_of(timeline.grounding, fact) for fact in timeline.facts_at(state)]
            assert len(facts) == len(set(facts)), (seed, state)
            assert set(facts) == slow.facts == second[state], (seed, state, case.text)
            possible = {fact for fact in slow.facts if case.program.functors[fact[0]].kind == "event"}
            grounding = timeline.grounding
            assert {
                fact_of(grounding, fact) for fact in timeline.facts_at(state) if grounding.is_event(fact)
            } == possible
            proofs = proofs_at(timeline, state)
            expected = [(one.rule, one.head, one.body, one.parameters) for one in slow.proofs]
            assert sorted(proofs) == sorted(expected), (seed, state, case.text)
            wanted = [
                (one.rule, one.head, one.body, one.parameters, added.event)
                for added in slow.additions
                for one in [added.instantiation]
            ]
            assert sorted(additions_at(timeline, state)) == sorted(wanted), (seed, state, case.text)


@pytest.mark.parametrize("block", range(QUICK // BLOCK))
def test_replay_equals_recomputation_and_clingo_after_every_event(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        _agree(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(QUICK // BLOCK, ALL // BLOCK))
def test_replay_equals_recomputation_and_clingo_on_all_thousand_programs(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        _agree(seed)


@pytest.mark.parametrize("block", range(3))
def test_comparisons_counts_and_short_forms_agree(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        _agree(seed, numbers=True)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(3, ALL // BLOCK))
def test_comparisons_counts_and_short_forms_agree_on_all_thousand_programs(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        _agree(seed, numbers=True)


def test_names_with_several_numbers_of_arguments_are_functors_apart() -> None:
    """A program in which such names are one name has the facts of the program in which they differ."""
    told = 0
    for seed in range(60):
        case = random_case(seed)
        arity = {name: one.arity for name, one in case.program.functors.items()}
        merged = {}
        for letter in "sdqex":
            for name in sorted(one for one in arity if one[0] == letter and one[1:].isdigit()):
                taken = {arity[other] for other, what in merged.items() if what == letter}
                merged[name] = letter if arity[name] not in (*taken, None) else name
        apart = re.compile(rf"(?<!\w)({'|'.join(merged)})(?!\w)")
        rename = partial(apart.sub, lambda match, merged=merged: merged[match[0]])
        program = Program.from_text(rename(case.text))
        told += bool(program.several_arities)
        first, second = (
            replay_of(one, events).timelines[0]
            for one, events in ((case.program, case.events), (program, [*map(rename, case.events)]))
        )
        for state in range(first.states):
            wanted = sorted(map(rename, names_at(first, state)))
            assert names_at(second, state) == wanted, (seed, state, case.text)
    assert told > 20


def test_random_programs_with_numbers_use_every_feature() -> None:
    texts = [random_case(seed, numbers=True).text for seed in range(100)]
    for feature in ("count(", "min(", "max(", " < ", " >= ", "0..2"):
        assert sum(feature in text for text in texts) > 10, feature


def test_random_programs_use_every_feature_of_the_language() -> None:
    texts = [random_case(seed).text for seed in range(100)]
    recursive = sum(any(one.recursive for one in random_case(seed).program.components) for seed in range(100))
    assert recursive > 5
    for feature in ("not ", "!=", " = ", "!d", "<- bos", ":: w", "_"):
        assert sum(feature in text for text in texts) > 10, feature
