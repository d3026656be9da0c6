"""What an A-NDTT attends to and is made of at one time, against the slow twin on random programs, and by hand on small ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from foretell.data import EventData, EventSequence, load_file
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.rules import andtt_explain
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.andtt_attention import Head, Look, look_back
from foretell.models.rules.andtt_explain import Anatomy, take_apart
from foretell.reference import andtt as twin
from foretell.reference import ruled
from foretell.reference.database import Fact
from foretell.terms import split
from tests.ground.timelines import event_data, fact_of
from tests.models.rule_twin import settings_of
from tests.plan.rich_programs import rich_case
from tests.samples import randomise

REL, ABS = 1e-9, 1e-12
SEEDS = (0, 1, 6, 14, 15, 36, 37)  # some programs, and some whose events look back
PROGRAMS = Path(__file__).resolve().parents[2] / "programs"


def opened_twin(model: ANDTT, data: EventData, row: int, look: Look) -> twin._Model:
    sequence = data[row]
    settings = settings_of(model)
    assert isinstance(settings, twin.Settings)
    return twin._open(
        model.program,
        settings,
        model.named_arrays(),
        list(data.names_of(sequence)),
        sequence.times.tolist(),
        look.seen,
        look.time,
    )


def fact(look: Look, number: int) -> Fact:
    return fact_of(look.timeline.grounding, number)


def slow_weights(slow: twin._Model, added: list, head: Fact, time: float, layer: int) -> tuple[dict, float]:
    """`α / (1 + Σ α)` of every addition, and what the 1 keeps: the equations, with the twin's embeddings."""
    state = len(slow.states) - 1
    stem = f"add.{ruled.matrix_name(slow.program, added[0].instantiation)}.{layer}"
    Q, K = (slow.parameters[f"{stem}.{letter}"] for letter in "QK")  # noqa: N806
    query = Q @ ruled.with_one(slow.time_embedding(time), slow.embedding(head, time, state, layer - 1))
    alpha = {}
    for one in added:
        key = K @ slow.past(one, layer - 1)
        alpha[one.event, one.instantiation.body] = math.exp(float(key @ query) / math.sqrt(len(key)))
    whole = 1.0 + sum(alpha.values())
    return {name: value / whole for name, value in alpha.items()}, 1.0 / whole


def fast_weights(look: Look, head: Head, layer: int) -> dict:
    grounding = look.timeline.grounding
    bodies = [tuple(fact(look, one) for one in grounding.body[instance]) for instance in head.instances]
    return dict(zip(zip(head.events, bodies, strict=True), head.layers[layer - 1].weights.tolist(), strict=True))


def check_heads(slow: twin._Model, look: Look, facts: list[int]) -> int:
    """Of these facts every head of the twin, and no other; returns how many weights were compared."""
    compared = 0
    for number in facts:
        name = fact(look, number)
        expected = slow.states[-1].additions.get(name, {})
        heads = look.heads.get(number, ())
        assert len(heads) == len(expected)
        for head in heads:
            first = look.timeline.grounding.rule[head.instances[0]]
            (added,) = [
                added
                for (rule, _), added in expected.items()
                if rule == first and {one.event for one in added} == set(head.events) and _same_r(look, head, added)
            ]
            assert [one.layer for one in head.layers] == list(range(1, slow.settings.layers + 1))
            for at_layer in head.layers:
                weights, kept = slow_weights(slow, added, name, look.time, at_layer.layer)
                assert fast_weights(look, head, at_layer.layer) == pytest.approx(weights, rel=REL, abs=ABS)
                assert at_layer.kept == pytest.approx(kept, rel=REL, abs=ABS)
                assert at_layer.kept + at_layer.weights.sum() == pytest.approx(1.0, abs=1e-12)
                compared += len(weights)
    return compared


def _same_r(look: Look, head: Head, added: list) -> bool:
    bodies = {tuple(fact(look, one) for one in look.timeline.grounding.body[each]) for each in head.instances}
    return bodies == {one.instantiation.body for one in added}


def slow_norms(slow: twin._Model, name: Fact, time: float) -> Iterator[tuple[float, ...]]:
    """Of every pool and head of a fact, layer by layer."""
    state, layers = len(slow.states) - 1, slow.settings.layers
    if name in slow.table:
        own = float((slow.parameters[f"deduce.{ruled.spelled(name)}.W"] @ ruled.with_one()).norm())
        yield (own,) * (layers + 1)
    for proofs in slow.states[-1].proofs.get(name, {}).values():
        W = slow.parameters[f"deduce.{ruled.matrix_name(slow.program, proofs[0])}.W"]  # noqa: N806
        found = []
        for layer in range(layers + 1):
            entries = [W @ ruled.with_one(*(slow.embedding(g, time, state, layer) for g in one.body)) for one in proofs]
            beta = slow.parameters.get(f"deduce.{ruled.beta_name(slow.program, proofs[0])}.beta")
            found.append(float((entries[0] if len(entries) == 1 else ruled.pool(entries, beta)).norm()))  # pyright: ignore[reportArgumentType]
        yield tuple(found)
    for added in slow.states[-1].additions.get(name, {}).values():
        attended = [float(slow.attended(added, name, time, state, layer).norm()) for layer in range(1, layers + 1)]
        yield (0.0, *attended)


def check_anatomy(slow: twin._Model, look: Look, anatomy: Anatomy) -> None:
    name = fact(look, anatomy.event)
    expected = float(slow.intensity(name, look.time, len(slow.states) - 1))
    assert math.exp(anatomy.log_intensity) == pytest.approx(expected, rel=REL, abs=ABS)
    for number, parts in anatomy.facts.items():
        if anatomy.dims[number]:
            one = sorted(part.norms for part in parts)
            two = sorted(slow_norms(slow, fact(look, number), look.time))
            assert np.asarray(one) == pytest.approx(np.asarray(two), rel=1e-8, abs=1e-10)
        assert [part.norm for part in parts] == sorted((part.norm for part in parts), reverse=True)


def agrees(model: ANDTT, data: EventData) -> int | None:
    """How many weights were compared; None where the twin refuses, because some embedding needs itself."""
    compared = 0
    for row, sequence in enumerate(data):
        own = sequence.times[len(sequence) // 2 :][:1].tolist()  # the time of an event, which does not see it
        for at in [*own, 0.7 * sequence.t_end, sequence.t_end]:
            try:
                look = look_back(model, sequence, at)
                slow = opened_twin(model, data, row, look)
            except ForetellError as error:
                assert "needs itself" in str(error)
                return None
            needed: set[int] = set()
            for event in slow.possible(len(slow.states) - 1)[:8]:
                number = look.timeline.grounding.find(event[0], event[1:])
                assert number is not None
                anatomy = take_apart(model, look, number)
                check_anatomy(slow, look, anatomy)
                needed.update(one for one in anatomy.facts if anatomy.dims[one])
            compared += check_heads(slow, look, sorted(needed))
    return compared


def test_weights_contributions_and_intensities_of_random_programs_are_those_of_the_twin():
    found = [agrees((case := rich_case(seed)).model(seed), case.data) for seed in SEEDS]
    assert sum(one is None for one in found) <= 2  # these have proofs that need themselves
    assert sum(one or 0 for one in found) > 50


@pytest.mark.parametrize("name", ["library", "forum", "outage", "ward", "email"])
def test_weights_contributions_and_intensities_of_shipped_programs_are_those_of_the_twin(name: str):
    data = load_file(PROGRAMS / name / "example.jsonl")
    program = Program.from_file(PROGRAMS / f"{name}.ndtt", dim=3)
    model = ANDTT(program, data.vocabulary, dim=3, layers=2, time_dim=4, dtype=torch.float64)
    model.ground(data)
    randomise(model, 5)
    model.time.set_range(0.4, 20.0)
    assert (agrees(model, data) or 0) > 30


# --- small programs --------------------------------------------------------------------------------------------------


def small(text: str, events: list[str], times: list[float] | None = None, **options) -> tuple[ANDTT, EventSequence]:
    rough = event_data(events)
    sequence = EventSequence(rough[0].times if times is None else np.asarray(times), rough[0].types, 99.0, "s")
    settings = {"dim": 2, "layers": 1, "dtype": torch.float64, **options}
    model = ANDTT(Program.from_text(text, dim=2), rough.vocabulary, **settings)
    model.ground(rough)
    model.time.set_range(0.4, 5.0)
    return randomise(model, 8), sequence


def number_of(look: Look, name: str) -> int:
    found = look.timeline.grounding.find(*split(name))
    assert found is not None
    return found


def shown(look: Look, name: str) -> list[tuple[int, ...]]:
    return [head.events for head in look.heads.get(number_of(look, name), ())]


LIGHT = ":- event(g). :- event(on). :- event(off).\non. off.\nlit <- on.\nlit <- bos.\n!lit <- off.\ng.\ng :- lit.\n"


def test_a_removal_erases_what_is_attended_to():
    model, sequence = small(LIGHT, ["on", "on", "off", "on"])
    assert shown(look_back(model, sequence, 2.5), "lit") == [(1, 2), (0,)]
    assert shown(look_back(model, sequence, 3.5), "lit") == []
    assert shown(look_back(model, sequence, 4.5), "lit") == [(4,)]


def test_an_event_that_removes_and_adds_is_attended_to_alone():
    model, sequence = small(":- event(g). :- event(on).\non.\ng <- on.\n!g <- on.\ng <- bos.\n", ["on", "on", "on"])
    assert shown(look_back(model, sequence, 3.5), "g") == [(3,)]


def test_events_at_the_very_time_are_not_seen_and_events_at_one_time_all_are():
    model, sequence = small(LIGHT, ["on", "on", "on"], times=[1.0, 2.0, 2.0])
    assert shown(look_back(model, sequence, 2.0), "lit") == [(1,), (0,)]
    assert shown(look_back(model, sequence, 2.1), "lit") == [(1, 2, 3), (0,)]


def test_times_are_those_of_the_history_and_not_of_another_with_the_same_events():
    model, sequence = small(LIGHT, ["on", "on"])
    later = EventSequence(sequence.times + 3.0, sequence.types, 99.0, "later")
    first, second = look_back(model, sequence, 6.0), look_back(model, later, 6.0)
    assert second.timeline.times.tolist() == [4.0, 5.0] and second.timeline.sequence == "later"
    lit = number_of(first, "lit")
    assert first.heads[lit][0].layers[0].weights.tolist() != second.heads[lit][0].layers[0].weights.tolist()


@pytest.mark.parametrize("scales", [0, 3])
def test_an_effect_is_what_the_log_intensity_loses_without_the_contribution(scales: int):
    text = ":- event(g). :- exogenous(e).\ng.\ng <- e.\n"
    model, sequence = small(text, ["e", "e"], intensity_scales=scales)
    elapsed = 2.5 - float(sequence.times[-1])
    look = look_back(model, sequence, 2.5)
    anatomy = take_apart(model, look, number_of(look, "g"))
    arrays = model.named_arrays()
    own = arrays["deduce.g.W"][:, 0]
    attended = look.heads[anatomy.event][0].layers[0].value

    def log_intensity(own: torch.Tensor, attended: torch.Tensor) -> float:
        embedding = own.tanh() + (own + attended).tanh()
        w, tau = arrays["intensity.g.w"], float(arrays["intensity.g.tau"])
        factor = 1.0
        for number, scale in enumerate(model.mixture.scales.scales.tolist()):
            v = arrays["intensity.g.mixture"][number]
            factor += math.log1p(math.exp(float(v[0] + v[1:] @ embedding))) * math.exp(-elapsed / scale) / scale
        return math.log(factor * tau * math.log1p(math.exp(float(w[0] + w[1:] @ embedding) / tau)))

    whole = log_intensity(own, attended)
    effects = {"own" if part.head is None else "add": part.effect for part in anatomy.facts[anatomy.event]}
    assert anatomy.log_intensity == pytest.approx(whole)
    assert effects["add"] == pytest.approx(whole - log_intensity(own, 0 * attended))
    assert effects["own"] == pytest.approx(whole - log_intensity(0 * own, attended))


def test_with_very_many_contributions_only_the_strongest_have_effects(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(andtt_explain, "MOST_LEFT_OUT", 3)
    monkeypatch.setattr(andtt_explain, "LEFT_OUT_AT_A_TIME", 2)
    model, sequence = small(":- event(g).\np(a). p(b). p(c). p(d).\ng :- p(X).\ng <- g.\n", ["g"])
    look = look_back(model, sequence, 2.0)
    parts = [one for parts in take_apart(model, look, number_of(look, "g")).facts.values() for one in parts]
    ranked = sorted(parts, key=lambda one: -one.norm)
    assert [one.effect is None for one in ranked] == [False] * 3 + [True] * 3


def test_an_event_without_an_embedding_has_proofs_and_no_more():
    model, sequence = small(":- event(g). :- embed(g, 0).\np(a).\ng :- p(X).\ng <- g.\n", ["g"])
    look = look_back(model, sequence, 2.0)
    anatomy = take_apart(model, look, number_of(look, "g"))
    ((part,),) = anatomy.facts.values()
    assert part.norms == (0.0, 0.0) and part.effect == 0.0 and len(part.proofs) == 1 and not look.heads


def test_looking_changes_nothing_of_the_model():
    model, sequence = small(LIGHT, ["on", "on"])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    look = look_back(model, sequence, 2.5)
    take_apart(model, look, number_of(look, "g"))
    assert model.training
    after = model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
