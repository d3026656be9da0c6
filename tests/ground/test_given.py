"""`:- given(…).`: facts that come with a sequence, in the database, in models, and in what samples see."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import foretell as ft
from foretell.data import EventData, EventSequence
from foretell.errors import DataError
from foretell.ground.explain import why
from foretell.ground.replay import replay
from foretell.lang.program import Program
from foretell.models.build import load_model, save_model
from foretell.models.rules.rule_model import RuleModel
from foretell.reference.database import states
from foretell.sampling.core.futures import futures_as_data, sample_futures
from tests.cli.invoking import fine, refused
from tests.ground.random_programs import random_case
from tests.ground.timelines import event_data, fact_of, names_at, proofs_at

TEXT = """
:- event(visit).
:- exogenous(leave).
:- given(age).
:- given(start).
room(hall). room(yard).
visit(P, R) :- age(P, old), in(P, R) :: w(R).
visit(P, R) :- age(P, A), A != old, in(P, _), room(R).
in(P, R) <- bos, start(P, R), age(P, _).
in(P, R) <- visit(P, R).
!in(P, R) <- leave(P), in(P, R).
"""
EVENTS = [["visit(p1,hall)", "leave(p1)"], ["visit(p2,yard)", "visit(p2,hall)"], ["leave(p1)"]]
FACTS = [["age(p1, old)", "start(p1,hall)"], ["age(p2,young)", "start(p2,yard)", "start(p2,hall)"], []]


def given_data(events: list[list[str]], facts: list[list[str]]) -> EventData:
    plain = event_data(*events)
    return EventData(
        [replace(one, t_end=20.0, metadata={"facts": given}) for one, given in zip(plain, facts, strict=True)],
        plain.vocabulary,
    )


def test_given_facts_are_true_in_their_sequence_alone_and_from_the_start() -> None:
    first, second, third = replay(Program.from_text(TEXT), given_data(EVENTS, FACTS)).timelines
    always = ["room(hall)", "room(yard)"]
    assert names_at(first, 0) == sorted(["age(p1,old)", "start(p1,hall)", *always])
    assert "visit(p1,hall)" in names_at(first, 1) and "in(p1,hall)" not in names_at(first, 3)
    assert "age(p1,old)" in names_at(first, 3) and "age(p1,old)" not in names_at(second, 0)
    assert names_at(third, 2) == always
    assert next(len(facts) for _, facts in first.walk()) == 4


def test_why_says_that_a_fact_came_with_the_sequence_or_did_not() -> None:
    first, second, _ = replay(Program.from_text(TEXT), given_data(EVENTS, FACTS)).timelines
    assert "given with the sequence" in str(why(first, "visit(p1,hall)", 1))
    assert "given age" not in str(why(first, "visit(p1,hall)", 1))
    assert "has no such fact" in str(why(second, "age(p2,old)", 1))


@pytest.mark.parametrize("block", range(2))
def test_random_programs_with_given_facts_agree_with_the_slow_twin(block: int) -> None:
    """Facts of the program that come with the sequence instead."""
    used = 0
    for seed in range(block * 40, (block + 1) * 40):
        case = random_case(seed, numbers=True)
        names = {one.rule.head.functor for one in case.program.rules if one.rule.is_fact}
        dropped = [str(one.rule.head) for one in case.program.rules if one.rule.is_fact]
        lines = [line for line in case.text.splitlines() if ":-" in line or "<-" in line]
        text = "\n".join([*lines, *(f":- given({name})." for name in sorted(names) if name[0] != "e")])
        given = [one for one in dropped if one[0] != "e"]
        program = Program.from_text(text, undeclared="error") if _is_fine(text) else None
        if program is None or not program.given:
            continue
        given = [one for one in given if one.split("(")[0] in program.given]
        data = given_data([case.events, case.events], [given, []])
        timelines = replay(program, data, impossible="exogenous").timelines
        for timeline, facts in zip(timelines, (given, []), strict=True):
            for number, state in enumerate(states(program, case.events, facts)):
                hidden = program.given.values()
                found = {fact_of(timeline.grounding, fact) for fact in timeline.facts_at(number)}
                assert found == {one for one in state.facts if one[0] not in hidden}, (seed, number)
                proofs = {(one.rule, one.head, one.body, one.parameters) for one in state.proofs}
                assert set(proofs_at(timeline, number)) == proofs, (seed, number)
        used += bool(given)
    assert used > 10


def _is_fine(text: str) -> bool:
    try:
        Program.from_text(text)
    except ft.ForetellError:
        return False
    return True


@pytest.mark.parametrize("kind", ["andtt", "ndtt"])
def test_a_model_is_that_of_the_program_with_the_facts_written_into_it(kind: str) -> None:
    data = given_data(EVENTS[:2], FACTS[:2])
    times = np.linspace(0.1, 4.5, 7)
    for place, facts in enumerate(FACTS[:2]):
        one = data.select([place])
        lines = [f"{fact} :: given({fact.split('(')[0]})." for fact in facts]
        text = "\n".join([*(line for line in TEXT.splitlines() if "given(" not in line), *lines])
        given, written = (_model(kind, program, one) for program in (TEXT, text))
        arrays = given.named_arrays()
        written.load_named_arrays({name: arrays[name] for name in written.named_arrays()})
        found, wanted = (
            dict(zip(model.vocabulary.names, model.intensity(one[0], times).T, strict=True))
            for model in (given, written)
        )
        assert wanted and any(np.ptp(row) > 1e-6 for row in wanted.values())
        for name, row in wanted.items():
            np.testing.assert_allclose(found[name], row, rtol=1e-12, err_msg=name)


def _model(kind: str, text: str, data: EventData) -> RuleModel:
    program = Program.from_text(text, dim=3)
    made = {"andtt": ft.ANDTT, "ndtt": ft.NDTT}[kind](program, data.vocabulary, dim=3).double()
    made.prepare(data)
    return made


def test_a_saved_model_still_knows_what_sequences_bring(tmp_path: Path) -> None:
    data = given_data(EVENTS, FACTS)
    made = _model("andtt", TEXT, data)
    save_model(made, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert isinstance(again, RuleModel) and again.program.given == made.program.given
    assert list(again.named_arrays()) == list(made.named_arrays())
    times = np.linspace(0.1, 4.5, 7)
    np.testing.assert_array_equal(again.intensity(data[0], times), made.intensity(data[0], times))


def test_sampled_futures_see_what_was_given_and_carry_it_on() -> None:
    data = given_data(EVENTS[:2], FACTS[:2])
    model = ft.ANDTT(Program.from_text(TEXT, dim=3), data.vocabulary, dim=3)
    model.prepare(data)
    pasts = [one.first(0, 0.5) for one in data]
    found = sample_futures(model, pasts, n=5, horizon=20.0, seed=1)
    told = futures_as_data(found, pasts, model.vocabulary)
    assert sum(map(len, told)) > 10
    for one in told:
        model.histories.timeline(told.vocabulary, one)  # an impossible event is an error here
    assert {name.split("(")[1].split(",")[0] for future in found[1].futures for name in future.events} == {"p2"}


@pytest.mark.parametrize(
    ("facts", "part"),
    [
        (["agee(p1,old)"], "did you mean `age`"),
        (["room(hall)"], "no `:- given(room).`"),
        (["age(p1)"], "has 1 argument"),
        ([3], "is no text"),
        (["age(P,old)"], "facts[0]"),
        ("age(p1,old)", "expected a list"),
    ],
)
def test_wrong_facts_are_refused(facts: object, part: str) -> None:
    plain = event_data(["leave(p1)"])
    data = EventData([replace(plain[0], metadata={"facts": facts})], plain.vocabulary)
    with pytest.raises(DataError, match="sequence s0") as found:
        replay(Program.from_text(TEXT), data)
    assert part in str(found.value)


def test_the_command_line_reads_facts_of_json_lines_and_of_a_table(tmp_path: Path) -> None:
    program = tmp_path / "p.ndtt"
    program.write_text(TEXT)
    lines, table = tmp_path / "d.jsonl", tmp_path / "d.csv"
    record = {"id": "x", "times": [1.0], "events": ["visit(p1,hall)"], "t_end": 3.0}
    lines.write_text(json.dumps({**record, "facts": FACTS[0]}) + "\n")
    about = json.dumps({"facts": FACTS[0]}).replace('"', '""')
    table.write_text(f'sequence,time,event,t_end,metadata\nx,1.0,"visit(p1,hall)",3.0,"{about}"\n')
    found = [fine("replay", program, path, "--no-cache", "--json").json for path in (lines, table)]
    assert found[0] == found[1]
    lines.write_text(json.dumps({**record, "facts": ["age(p1)"]}) + "\n")
    assert "has 1 argument" in refused("replay", program, lines, "--no-cache")


def test_what_is_given_is_no_event() -> None:
    with pytest.raises(ft.ForetellError, match="happen at no time"):
        Program.from_text(":- event(a). :- given(a). b :- a.")


def test_sequences_with_the_same_events_and_other_facts_are_told_apart() -> None:
    events = [["visit(p1,hall)"], ["visit(p1,hall)"]]
    data = given_data(events, [FACTS[0], ["age(p1,young)", "start(p1,yard)"]])
    model = ft.ANDTT(Program.from_text(TEXT, dim=3), data.vocabulary, dim=3)
    model.prepare(data)
    one, other = (model.histories.timeline(data.vocabulary, sequence)[1] for sequence in data)
    assert names_at(one, 0) != names_at(other, 0)
    assert isinstance(data[0], EventSequence)


def test_a_kept_replay_is_not_that_of_other_facts(tmp_path: Path) -> None:
    events, program = [["visit(p1,hall)"]], Program.from_text(TEXT)
    for facts in (FACTS[0], ["age(p1,young)", "start(p1,yard)"]):
        (timeline,) = replay(program, given_data(events, [facts]), cache=tmp_path).timelines
        assert set(names_at(timeline, 0)) == {*(one.replace(" ", "") for one in facts), "room(hall)", "room(yard)"}


def test_parameters_are_listed_for_all_that_could_be_given(tmp_path: Path) -> None:
    """Any constant of the program without data; with them, what they bring."""
    program, data = tmp_path / "p.ndtt", tmp_path / "d.jsonl"
    program.write_text(TEXT)
    row = {"id": "x", "times": [], "events": [], "t_end": 1.0, "facts": ["start(p1,cellar)", "age(p2,old)"]}
    other = {"id": "y", "times": [], "events": [], "t_end": 1.0, "facts": ["age(p1,old)"]}
    data.write_text(f"{json.dumps(row)}\n{json.dumps(other)}\n")
    asked = ("params", "--program", program, "--dim", "2", "--seed", "0")
    alone, brought = (fine(*asked, *more).json["parameters"] for more in ((), ("--data", data)))
    assert {"deduce.w(hall).W", "deduce.w(yard).W"} <= alone.keys() and "deduce.w(cellar).W" not in alone
    assert "deduce.w(cellar).W" in brought  # no sequence has all of it, but one could
