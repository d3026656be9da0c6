"""Parameters of a program alone, without data, are all that anyone needs to recompute what a model expects: random programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from foretell.cli.program_model import fresh_model
from foretell.errors import ForetellError
from foretell.ground.possible_groups import possible_groups
from foretell.lang.program import Program
from foretell.models.parameters import parameters_json
from foretell.reference import andtt as twin
from foretell.reference.database import states
from foretell.reference.ruled import spelled
from tests.cli.invoking import fine, foretell
from tests.cli.test_andtt import _shaped, _twin_of
from tests.ground.random_programs import CONSTANTS, random_case
from tests.plan.rich_programs import rich_case

ROOMS = """\
:- event(near). :- event(go). :- exogenous(renamed).
person(a). person(b). room(x). room(y).
in(P,x) <- bos, person(P).
in(P,R) <- go(P,R).
!in(P,R) <- go(P,S), in(P,R), R != S.
go(P,R) :- person(P), room(R), not in(P,R).
near(P,Q) : b(P) :- in(P,R), in(Q,R), P != Q :: w3(R).
alias(P,N) <- renamed(P,N), person(P) :: w4(P).
near(P,P) :- alias(P,_), in(P,R), not alias(_,R) :: w5(R).
"""


def names_of(text: str, happened: list[str] | None = None) -> set[tuple[str, tuple[str, ...]]]:
    program = Program.from_text(text)
    found = possible_groups(program, happened)
    return {(str(program.rules[place].rule.matrix), values) for place, values in found}


def test_groups_are_those_of_all_events_and_not_of_the_beginning_alone() -> None:
    found = names_of(ROOMS)
    assert {values for name, values in found if name == "w3(R)"} == {
        (room, one) for room in "xy" for one in "ab"
    }  # of the matrix, then of the exponent
    assert {values for name, values in found if name == "w5(R)"} == {("x",), ("y",)}
    assert {values for name, values in found if name == "w4(P)"} == {("a",), ("b",)}


def test_with_data_exogenous_events_are_those_that_happen() -> None:
    found = names_of(ROOMS, ["renamed(b,c)", "go(a,y)"])
    assert {values for name, values in found if name == "w4(P)"} == {("b",)}
    assert {values for name, values in names_of(ROOMS, []) if name in ("w4(P)", "w5(R)")} == set()


def test_what_nothing_can_make_true_has_no_groups() -> None:
    text = ":- event(e). p(a). q(b).\ne(X) :- p(X).\nr(X) <- e(X), q(X).\ne(X) :- r(X) :: w(X).\n"
    assert names_of(text) == set()
    assert names_of(text.replace("q(b)", "q(a)")) == {("w(X)", ("a",))}


@pytest.mark.parametrize("block", range(6))
def test_whatever_holds_in_any_state_is_among_the_groups(block: int) -> None:
    """Of 300 random programs, each with its events, by recomputation after every event."""
    for seed in range(50 * block, 50 * (block + 1)):
        case = random_case(seed)
        program = Program.from_text(case.text + known())
        possible = set(possible_groups(program))
        with_data = set(possible_groups(program, case.events))
        for state in states(program, case.events):
            held = [*state.proofs, *(added.instantiation for added in state.additions)]
            met = {(one.rule, one.parameters) for one in held if one.parameters}
            assert met <= possible, (seed, met - possible)
            assert met <= with_data, (seed, met - with_data)
        assert with_data <= possible, seed


def known() -> str:
    """A program whose constants are all that its events are about."""
    return "".join(f"known({one}).\n" for one in CONSTANTS)


@pytest.mark.parametrize("block", range(4))
def test_intensities_are_those_of_an_evaluator_that_has_only_the_parameters(block: int, tmp_path: Path) -> None:
    agreed = [agrees(seed, "paper" if seed % 2 else None, tmp_path) for seed in range(8 * block, 8 * (block + 1))]
    assert sum(agreed) >= 6  # in the others an embedding needs itself


def agrees(seed: int, preset: str | None, tmp_path: Path) -> bool:
    case = rich_case(1000 + seed)
    program, data, file = (tmp_path / name for name in ("p.ndtt", "d.jsonl", "params.json"))
    program.write_text(case.text + known())
    rows = [{"events": events, "times": times, "t_end": end} for events, times, end in case.sequences if events]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows or [{"events": [], "times": [], "t_end": 1.0}]))
    sizes = ("--dim", case.settings.dim, "--layers", case.settings.layers, "--time-dim", case.settings.time_dim)
    chosen = () if preset is None else ("--preset", preset)
    fine("params", "--program", program, *sizes, "--seed", seed, *chosen, "-o", file)
    times = [round(0.4 * case.sequences[0][2] + 0.01, 6), round(case.sequences[0][2], 6)]
    asked = ("intensity", data, "--program", program, "--params", file, "--at", ",".join(map(str, times)))
    outcome = foretell(*asked, "--json")
    checked = Program.from_file(program, dim=case.settings.dim)
    settings, parameters = _twin_of(json.loads(file.read_text()))
    for place, row in enumerate(rows):
        shaped = _shaped(checked, settings, dict(parameters), row["events"])
        for number, time in enumerate(times):
            try:
                slow = twin.intensities(checked, settings, shaped, row["events"], row["times"], time)
            except ForetellError as error:  # an embedding that needs itself
                assert "needs itself" in str(error) or "cycl" in str(error), error
                return False
            assert outcome.code == 0, outcome.err
            found = outcome.json[place]["queries"][number]["intensities"]
            assert found == {spelled(fact): pytest.approx(float(value), rel=1e-9) for fact, value in slow.items()}
    return True


def test_parameters_do_not_depend_on_whether_data_were_given(tmp_path: Path) -> None:
    program, data = tmp_path / "p.ndtt", tmp_path / "d.jsonl"
    program.write_text(ROOMS)
    data.write_text(json.dumps({"events": ["go(a,y)", "renamed(a,b)"], "times": [1.0, 2.0], "t_end": 3.0}) + "\n")
    sizes = {"dim": 2, "layers": 1, "time_dim": 2}
    alone, given = (
        parameters_json(fresh_model(program, one, "andtt", sizes, 3, "float64"))["parameters"]
        for one in (None, str(data))
    )
    assert given.keys() < alone.keys()
    assert all(torch.equal(torch.tensor(alone[name]), torch.tensor(given[name])) for name in given)
