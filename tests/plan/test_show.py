"""What is printed of a plan: kept as text for every shipped program, and true to the model that is built."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import foretell as ft
from foretell.plan.parameters import DimensionLayout, ParameterBook
from foretell.plan.plan import make_plan
from foretell.plan.show import alike_of, network_lines, sizes_of, tensors_of
from foretell.plan.slots import sequence_slots
from tests.cli.invoking import fine
from tests.plan.golden_plans import FILES, HERE, example, planned


@pytest.mark.parametrize("name", FILES)
def test_the_plan_of_a_shipped_program_is_the_one_that_is_kept(name: str):
    kept = (HERE / f"{name}.plan").read_text(encoding="utf-8")
    assert planned(name) == kept, (
        "meant to change? .venv/bin/python -m tests.plan.golden_plans, and read the difference"
    )


def test_every_kept_plan_belongs_to_a_program():
    assert {path.stem for path in HERE.glob("*.plan")} == set(FILES)


@pytest.mark.parametrize("name", ["forum", "library", "outage", "ward"])
def test_the_named_parameters_have_as_many_numbers_as_the_model(name: str):
    data = ft.load_file(str(example(name)[0]))
    model = ft.ANDTT.preset("plain", FILES[name], data.vocabulary, dim=5, layers=3, time_dim=4)
    model.ground(data)
    counted = sum(one.numbers for one in alike_of(model.layout, model.book, 3))
    assert counted == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", ["forum", "library", "outage", "ward"])
def test_the_tensors_that_are_listed_are_those_of_the_model(name: str):
    data = ft.load_file(str(example(name)[0]))
    model = ft.ANDTT(FILES[name], data.vocabulary, dim=5, layers=3, time_dim=4)
    model.ground(data)
    listed = sorted((one.rows, *one.shape) for one in tensors_of(model.book, 3))
    assert listed == sorted(tuple(one.shape) for one in model.network.stacks.values() if one.numel())


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("f(X) :- g(X) :: w(X).", True),
        ("f(X) :- g(X) :: w(X). h(X) :- g(X) :: w(a).", True),
        ("f(X) :- g(X) :: w(a). h(X) :- g(X) :: w(X).", True),
        ("f(X) :- g(X) :: w(a).", False),
    ],
)
def test_a_name_with_a_variable_waits_for_data_whatever_else_has_its_functor(written: str, said: bool):
    text = f":- event(e). e <- bos. g(a). g(b). {written}"
    layout = DimensionLayout(ft.Program.from_text(text), 2)
    book = ParameterBook(layout, 2)
    waits = "w(X): as many as data give values to X"
    assert (waits in "\n".join(network_lines(layout, book, 1))) == said
    data = ft.EventData.from_names([["e"]], [[1.0]])
    book.read(ft.replay(layout.program, data).timelines[0].grounding)
    assert waits not in "\n".join(network_lines(layout, book, 1))


@pytest.mark.parametrize("name", ["forum", "library", "outage", "ward"])
def test_the_parts_of_a_plan_add_up_to_its_sizes(name: str):
    program = ft.Program.from_file(FILES[name], dim=4)
    layout = DimensionLayout(program, 4)
    for timeline in ft.replay(program, ft.load_file(str(example(name)[0]))).timelines:
        slots = sequence_slots(timeline, layout, np.repeat(np.arange(1, timeline.states), 2))
        found = sizes_of(timeline, slots, layout)
        sizes = make_plan([slots], layout, ParameterBook(layout, 4), torch.device("cpu")).sizes()
        assert (found.points, found.slots, found.levels) == (sizes["points"], sizes["slots"], sizes["levels"])
        assert (found.ranges, found.possible) == (sizes["ranges attended to"], sizes["possible events"])
        assert sum(found.slots_by_functor.values()) == found.slots
        assert sum(found.proofs_by_rule.values()) == found.proofs
        assert sum(found.additions_by_rule.values()) == found.additions
        assert sum(found.ranges_by_rule.values()) == found.ranges
        assert sum(found.pairs_by_rule.values()) == found.pairs >= found.ranges


def test_the_json_of_a_plan_has_a_sequence_an_object_and_the_network_in_each():
    told = fine("plan", FILES["library"], *example("library"), "--json", "--tiles").json
    assert [one["sequence"] for one in told] == ["may", "june"]
    for one in told:
        assert one["tile_pairs"] >= one["pairs"] > 0 and one["tiles"] > 0
        assert one["network"]["parameters"] == sum(kind["parameters"] for kind in one["network"]["kinds"])
        assert {"key": "vectors_32", "shape": [32], "rows": 10, "parameters": 320} in one["network"]["tensors"]
        assert {"functor": "lent/2", "kind": "fact", "dim": 32, "changes": True} in one["network"]["functors"]
    assert "tiles of attention" in fine("plan", FILES["library"], *example("library"), "--tiles").out


def test_check_shows_what_a_plan_is_without_data_and_without_torch():
    shown = fine("check", FILES["forum"], "--show", "plan", "--dim", 8).out
    assert "rule10  add: V 8 × 17, K 8 × 17, Q 8 × 17 for each C" in shown
    assert "post(C): as many as data give values to C" in shown
    whole = (HERE / "forum.plan").read_text(encoding="utf-8")
    assert whole.startswith(shown[: shown.index("parameters (")])
    told = fine("check", FILES["forum"], "--show", "plan", "--json").json
    assert told["plan"]["parameters"] > 0 and "post(joke)" not in str(told["plan"])
    code = (
        "import sys; sys.argv = ['foretell', 'check', 'robocup', '--show', 'plan']\n"
        "from foretell.cli.main import app\n"
        "try: app()\nexcept SystemExit: assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
