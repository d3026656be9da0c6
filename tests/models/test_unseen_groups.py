"""Parameter groups that training never met are the mean of the trained ones, whatever these become; they are counted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import foretell as ft
from foretell.data import EventData
from foretell.lang.program import Program
from foretell.models.rules.rule_model import RuleModel
from foretell.models.rules.sampler_parameters import RuleParameters
from foretell.train.splits import in_vocabulary
from tests.ground.timelines import event_data
from tests.samples import randomise_rules

SHOP = """
:- event(buy, 3).
:- event(rest, 1).
:- exogenous(arrive, 0).
:- embed(user, 2).
:- embed(item, 2).
item(milk). item(tea).
user(U) <- arrive(U) :: v(U).
buy(U, I) : e(U) :- user(U), item(I) :: w(U).
rest :- item(milk).
"""
TRAIN = [["arrive(u1)", "buy(u1,milk)", "arrive(u2)", "buy(u2,tea)", "rest"], ["arrive(u2)", "buy(u2,tea)"]]
DEV = [["arrive(u1)", "buy(u1,milk)", "arrive(u8)", "buy(u8,tea)"]]
TEST = [["arrive(u9)", "buy(u9,milk)", "arrive(u1)", "buy(u1,tea)", "buy(u9,tea)", "rest"]]
KINDS = [ft.ANDTT, ft.NDTT, ft.S2NDTT]


def data_of(sequences: list[list[str]]) -> EventData:
    return event_data(*sequences)


def seen_by(model: RuleModel, sequences: list[list[str]]) -> EventData:
    data = data_of(sequences)
    model.widen(data.vocabulary.names)
    return in_vocabulary(data, model.vocabulary)


@pytest.fixture(params=KINDS, ids=[kind.__name__ for kind in KINDS])
def model(request: pytest.FixtureRequest) -> RuleModel:
    both = data_of([*TRAIN, *DEV])
    made = request.param(Program.from_text(SHOP), both.vocabulary, dim=2, seed=1, dtype=torch.float64)
    ft.fit(made, in_vocabulary(data_of(TRAIN), both.vocabulary), in_vocabulary(data_of(DEV), both.vocabulary), epochs=3)
    return made


def of_user(arrays: dict[str, Tensor], user: str) -> dict[str, Tensor]:
    return {name.replace(user, "U"): value for name, value in arrays.items() if f"({user})" in name}


def check_means(model: RuleModel, user: str) -> None:
    arrays = model.named_arrays()
    first, second, unseen = (of_user(arrays, one) for one in ("u1", "u2", user))
    assert first.keys() == unseen.keys() and {name.split(".")[1] for name in unseen} == {"v(U)", "w(U)", "e(U)"}
    for name, value in unseen.items():
        torch.testing.assert_close(value, (first[name] + second[name]) / 2.0, rtol=0.0, atol=1e-14)
        assert not torch.equal(first[name], second[name]) or name.endswith(".beta")


def test_groups_of_dev_are_the_mean_of_what_training_made_of_the_trained_ones(model: RuleModel):
    check_means(model, "u8")


def test_a_group_that_is_met_later_starts_from_the_mean_and_predicts_as_a_typical_one(model: RuleModel, tmp_path: Path):
    test = seen_by(model, TEST)
    before = model.possible_intensities(test[0], [1.2])[0]
    check_means(model, "u9")
    ft.save_model(model, tmp_path / "model.safetensors")
    loaded = ft.load_model(tmp_path / "model.safetensors")
    assert isinstance(loaded, RuleModel)
    assert loaded.possible_intensities(seen_by(loaded, TEST)[0], [1.2])[0] == before
    randomise_rules(loaded, 3)  # training goes on: what is not trained follows
    loaded.eval()
    check_means(loaded, "u9")


def test_they_are_counted_with_the_events_that_depend_on_them(model: RuleModel):
    found = model.unseen_groups(seen_by(model, TEST))
    assert found.names == ("v(u9)", "w(u9)") and found.events == 2  # bought by u9
    assert model.unseen_groups(seen_by(model, TRAIN)).names == ()
    assert model.unseen_groups(seen_by(model, DEV)).events == 1
    evaluation = ft.evaluate(model, seen_by(model, TEST), times=False)
    assert (evaluation.unseen_groups, evaluation.unseen_group_events) == (2, 2)
    assert evaluation.to_json()["unseen_groups"] == 2
    assert "unseen_groups" not in ft.evaluate(model, seen_by(model, TRAIN), times=False).to_json()


def test_samples_see_the_mean(model: RuleModel):
    parameters = RuleParameters(model)
    parameters.book.admit("deduce.w(u9).W")
    mean = sum(model.named_arrays()[f"deduce.w({user}).W"] for user in ("u1", "u2")) / 2.0
    torch.testing.assert_close(parameters.array("deduce.w(u9).W"), mean, rtol=0.0, atol=1e-14)


def test_parameters_that_were_loaded_are_not_replaced_by_a_mean(model: RuleModel):
    model.ground(seen_by(model, TEST))
    arrays = {name: value + 0.25 if "(u9)" in name else value for name, value in model.named_arrays().items()}
    model.load_named_arrays(arrays)
    model.eval()
    for name, value in of_user(model.named_arrays(), "u9").items():
        torch.testing.assert_close(value, of_user(arrays, "u9")[name])


def test_before_training_parameters_are_drawn_from_the_seed_and_the_name():
    made = [ft.NDTT(Program.from_text(SHOP), data_of(one).vocabulary, dim=2, seed=1) for one in (TRAIN, TRAIN)]
    made[0].ground(data_of(TRAIN))
    made[1].ground(seen_by(made[1], [*DEV, *TRAIN]))
    arrays = [one.named_arrays() for one in made]
    assert all(torch.equal(value, arrays[1][name]) for name, value in arrays[0].items())
