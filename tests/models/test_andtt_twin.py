"""The fast A-NDTT against its slow twin, on random programs and on small ones that each show one thing: values and gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.build import load_model, save_model
from foretell.models.rules.andtt import ANDTT
from tests.ground.timelines import event_data
from tests.models.rule_twin import (
    BLOCK,
    by_quadrature,
    check_block,
    check_intensities,
    check_loss,
    slow_intensities,
)
from tests.models.small_programs import ROUND, SMALL
from tests.models.small_programs import small_andtt as small
from tests.plan.rich_programs import RichCase, rich_case
from tests.samples import randomise

QUICK, ALL = 60, 500


@pytest.mark.parametrize("block", range(QUICK // BLOCK))
def test_intensities_loss_and_gradients_of_random_programs_are_those_of_the_twin(block: int):
    check_block(RichCase.model, block)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(QUICK // BLOCK, ALL // BLOCK))
def test_intensities_loss_and_gradients_of_all_random_programs_are_those_of_the_twin(block: int):
    check_block(RichCase.model, block)


def test_rich_programs_use_all_that_matters_to_a_network():
    cases = [rich_case(seed) for seed in range(QUICK)]
    for feature in (":- key(", ", 0).", ":: s(a)", ":: w", " : b(a)", " : b(X)"):
        assert sum(feature in case.text for case in cases) > 5, feature
    assert sum(len(set(times)) < len(times) for case in cases for _, times, _ in case.sequences) > 30
    assert sum(any(name.startswith("x") for name in case.sequences[0][0]) for case in cases) > 30
    assert any(case.time_scale == 1.0 for case in cases) and any(case.time_scale != 1.0 for case in cases)


# --- small programs, each for one thing --------------------------------------------------------------------------------


@pytest.mark.parametrize("what", SMALL)
def test_small_programs_agree_with_the_twin(what: str):
    text, *sequences = SMALL[what]
    model, data = small(text, *sequences, [], sequences[0][:1])
    check_intensities(model, data, 1)
    check_loss(model, data, 2)


@pytest.mark.parametrize("what", SMALL)
def test_every_name_stands_for_one_parameter(what: str):
    model, _ = small(SMALL[what][0], *SMALL[what][1:])
    names = [
        name for family in model.book.families.values() for name in family.names if family.stem in ("own", "deduce")
    ]
    assert len(names) == len(set(names))
    numbers = sum(array.numel() for array in model.named_arrays().values())
    assert numbers == sum(parameter.numel() for parameter in model.parameters())


# --- cycles ------------------------------------------------------------------------------------------------------------


def refusals(text: str, events: list[str]) -> tuple[str, str]:
    model, data = small(text, events)
    asked = 0.7 * len(events) + 0.3
    with pytest.raises(ForetellError) as fast:
        model.intensity(data[0], [asked])
    with pytest.raises(ForetellError) as slow:
        slow_intensities(model, data, 0, asked)
    return str(fast.value), str(slow.value)


def test_an_embedding_that_needs_itself_is_refused_in_the_words_of_the_twin():
    fast, slow = refusals(ROUND, ["e", "link(b,b)", "e"])
    assert fast == slow
    assert fast.startswith("<program>:7:1: the embedding of `near(b,b)` needs itself after event 2 (`link(b,b)`): ")
    assert "near(b,b) is deduced from near(b,b) (rule3, <program>:7:1)" in fast


def test_a_longer_cycle_is_told_fact_by_fact():
    fast, _ = refusals(ROUND, ["link(b,c)", "link(c,a)"])
    first, *steps, hint = fast.splitlines()
    assert "needs itself after event 2 (`link(c,a)`)" in first
    assert len(steps) == 3 and all("(rule3, <program>:7:1)" in step for step in steps)
    for one, two in zip(steps, [*steps[1:], steps[0]], strict=True):
        assert one.split(" is deduced from ")[1].split(" (")[0] == two.strip().split(" is ")[0]
    assert ":- embed(near, 0)." in hint


def test_proofs_that_never_change_are_refused_before_the_first_event():
    fast, slow = refusals(":- event(e).\nq(a). p(X) :- q(X), r(X).\nr(X) :- p(X). p(X) :- q(X).\ne :- r(X).\n", [])
    assert "needs itself before the first event" in fast and "needs itself before the first event" in slow
    assert {line.split(" (")[0] for line in fast.splitlines()[1:3]} == {
        "  p(a) is deduced from r(a)",
        "  r(a) is deduced from p(a)",
    }


def test_a_cycle_that_nothing_asks_about_is_no_error():
    model, data = small(ROUND.replace("e :- near(X,Y).", "e."), ["link(b,a)", "e"])
    assert model.intensity(data[0], [2.0]).shape == (1, 2)


# --- in and out --------------------------------------------------------------------------------------------------------


def test_an_exponent_below_one_is_refused_and_nothing_is_changed():
    model, _ = small(SMALL["an event that happens in two ways at once"][0], ["g"])
    arrays = {name: array.clone() for name, array in model.named_arrays().items()}
    wrong = {name: array + 1.0 for name, array in arrays.items()} | {"deduce.rule1.beta": torch.tensor(0.5)}
    with pytest.raises(ForetellError, match=r"deduce\.rule1\.beta: found 0\.5, expected a pool exponent of 1 or more"):
        model.load_named_arrays(wrong)
    assert all(torch.equal(array, arrays[name]) for name, array in model.named_arrays().items())


def test_a_saved_model_keeps_the_rows_of_its_tables(tmp_path: Path):
    (tmp_path / "t.csv").write_text("who,where\na,New York\nb,c\n", encoding="utf-8")
    program = Program.from_text(
        ':- event(p). :- table(p, "t.csv").\n:- embed(q, 1).\nq(X) <- p(X,_) :: w(X).\np(X,c) <- p(X,c), q(X).\n',
        folder=tmp_path,
        dim=2,
    )
    rough = event_data(["p(b,c)", "p(a,'New York')", "p(b,c)"])
    model = ANDTT(program, rough.vocabulary, dim=2, layers=1, dtype=torch.float64)
    model.ground(rough)
    randomise(model, 3)
    assert "deduce.p(a,'New York').W" in model.named_arrays()
    check_loss(model, rough, 1)
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert isinstance(again, ANDTT)
    assert torch.equal(by_quadrature(again, rough, [0]), by_quadrature(model, rough, [0]))
