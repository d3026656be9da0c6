"""A trained model with other rows for a table: parameters stay, new rows are the mean of the trained ones, or come from their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foretell as ft
from foretell.data import EventData
from foretell.lang.program import Program
from foretell.models.rules.rule_model import RuleModel
from foretell.plan.feature_rows import feature_inputs
from foretell.train.splits import in_vocabulary
from tests.ground.timelines import event_data

SHOP = """
:- table(user, "users.csv").
:- table(item, "items.csv", features(price)).
:- event(buy, 2).
:- embed(item, 2).
:- embed(user, 2).
:- embed(seen, 2).
user(guest).
buy(U, I) :- user(U), item(I) :: w(U).
buy(U, I) :- seen(U), item(I).
seen(U) <- buy(U, _), user(U).
"""
TRAIN = [["buy(u1,milk)", "buy(u2,tea)", "buy(guest,tea)"], ["buy(u2,tea)"]]
TEST = [["buy(u9,milk)", "buy(u2,tea)", "buy(u9,cake)"], ["buy(u2,tea)"]]
KINDS = [ft.ANDTT, ft.NDTT, ft.S2NDTT]
TIMES = np.linspace(0.2, 4.2, 6)


def write(folder: Path, users: list[str], items: dict[str, str]) -> dict[str, Path]:
    folder.mkdir(exist_ok=True)
    (folder / "users.csv").write_text("\n".join(["name", *users]) + "\n")
    (folder / "items.csv").write_text(
        "\n".join(["name,price", *(f"{one},{price}" for one, price in items.items())]) + "\n"
    )
    return {"user": folder / "users.csv", "item": folder / "items.csv"}


def seen_by(model: RuleModel, sequences: list[list[str]]) -> EventData:
    data = event_data(*sequences)
    model.widen(data.vocabulary.names)
    return in_vocabulary(data, model.vocabulary)


@pytest.fixture(params=KINDS, ids=[kind.__name__ for kind in KINDS])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    write(tmp_path, ["u1", "u2"], {"milk": "1.0", "tea": "3.0"})
    program = Program.from_text(SHOP, folder=tmp_path, dim=2)
    train = event_data(*TRAIN)
    made = request.param(program, train.vocabulary, dim=2, seed=1, dtype=torch.float64)
    ft.fit(made, train, epochs=3, lr=0.05, progress=False)
    return made


def test_rows_are_replaced_and_the_model_itself_is_unchanged(model: Any, tmp_path: Path) -> None:
    files = write(tmp_path / "new", ["u2", "u9"], {"milk": "1.0", "tea": "3.0", "cake": "8.0"})
    before = model.possible_intensities(event_data(*TRAIN)[0], [0.5])[0]
    other = model.with_tables(files)
    found = other.possible_intensities(seen_by(other, TEST)[0], [0.5])[0]
    people, things = ({name[4:-1].split(",")[place] for name in found} for place in (0, 1))
    assert (people, things) == ({"guest", "u2", "u9"}, {"milk", "tea", "cake"})
    for name in ("buy(u2,milk)", "buy(guest,tea)"):
        assert found[name] == pytest.approx(before[name], rel=1e-12)
    assert model.possible_intensities(event_data(*TRAIN)[0], [0.5])[0] == before
    assert [one.rows for one in model.program.tables] == [[("u1",), ("u2",)], [("milk",), ("tea",)]]


def test_new_rows_are_the_mean_of_the_trained_ones_and_are_counted(model: Any, tmp_path: Path) -> None:
    other = model.with_tables({"user": write(tmp_path / "new", ["u2", "u9"], {})["user"]})
    arrays = other.named_arrays()
    for name in ("user", "w"):
        trained = [arrays[f"deduce.{name}({user}).W"] for user in ("guest", "u1", "u2")]
        torch.testing.assert_close(arrays[f"deduce.{name}(u9).W"], sum(trained) / 3.0, rtol=0.0, atol=1e-14)
    found = other.unseen_groups(seen_by(other, [["buy(u9,milk)", "buy(u2,tea)", "buy(u9,tea)"]]))
    assert found.names == ("user(u9)", "w(u9)") and found.events == 2


def test_a_new_row_with_features_has_the_vector_of_its_numbers(model: Any, tmp_path: Path) -> None:
    """As they count in training; a row that is known may have other numbers now."""
    files = {"item": write(tmp_path / "new", [], {"cake": "8.0", "tea": "", "milk": "1.0"})["item"]}
    other = model.with_tables(files)
    W, columns = other.named_arrays()["deduce.features(item).W"], model.book.columns["item"]
    (family,) = [one for one in other.book.families.values() if one.stem == "row"]
    assert float(W.abs().max()) > 0.01
    for name, price in (("cake", 8.0), ("tea", np.nan), ("milk", 1.0)):
        wanted = W @ torch.from_numpy(feature_inputs(columns, np.array([price])))
        found = other.rule_network.vector_of_numbers(family, family.index[f"item({name})"])
        torch.testing.assert_close(found[:, 0], wanted, rtol=1e-12, atol=1e-14)
    other.intensity(seen_by(other, [["buy(u1,cake)"]])[0], TIMES)


def test_it_is_the_model_that_was_trained_with_these_rows_where_all_have_been_met(model: Any, tmp_path: Path) -> None:
    """Fewer rows than in training: the model of the smaller program with the same parameters."""
    files = write(tmp_path / "new", ["u2"], {"tea": "3.0"})
    other, data = model.with_tables(files), event_data(["buy(u2,tea)", "buy(guest,tea)"])
    program = Program.from_text(SHOP, folder=tmp_path / "new", dim=2)
    make: Any = type(model)
    small = make(program, data.vocabulary, dim=2, dtype=torch.float64)
    small.prepare(data)
    arrays = other.named_arrays()
    small.load_named_arrays({name: arrays[name] for name in small.named_arrays()})
    small.set_units(model.units())
    small.book.use_columns(model.book.columns)
    small.rule_network.forget_inputs()
    small.eval()
    wanted = dict(zip(small.vocabulary.names, small.intensity(data[0], TIMES).T, strict=True))
    mine = seen_by(other, [["buy(u2,tea)", "buy(guest,tea)"]])
    found = dict(zip(other.vocabulary.names, other.intensity(mine[0], TIMES).T, strict=True))
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12, err_msg=name)


def test_it_is_saved_with_its_rows_and_goes_back_to_others(model: Any, tmp_path: Path) -> None:
    other = model.with_tables(write(tmp_path / "new", ["u2", "u9"], {"milk": "1.0", "tea": "3.0", "cake": "8.0"}))
    wanted = other.intensity(seen_by(other, TEST)[0], TIMES)
    ft.save_model(other, tmp_path / "model.safetensors")
    loaded: Any = ft.load_model(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.intensity(seen_by(loaded, TEST)[0], TIMES), wanted)
    back = loaded.with_tables({"user": tmp_path / "users.csv", "item": tmp_path / "items.csv"})
    data = event_data(*TRAIN)
    there = dict(zip(back.vocabulary.names, back.intensity(seen_by(back, TRAIN)[0], TIMES).T, strict=True))
    for name, values in zip(model.vocabulary.names, model.intensity(data[0], TIMES).T, strict=True):
        np.testing.assert_allclose(there[name], values, rtol=1e-12)


def test_a_table_from_a_log_takes_other_rows_and_sequences_still_bring_theirs(tmp_path: Path) -> None:
    text = ":- table(user, from_log(buy, 1)).\n:- event(buy, 2).\n:- embed(user, 2).\nbuy(U) :- user(U)."
    model: Any = ft.ANDTT(Program.from_text(text, dim=2), dim=2, dtype=torch.float64)
    ft.fit(model, event_data(["buy(u1)", "buy(u2)"]), epochs=1, progress=False)
    (tmp_path / "users.csv").write_text("name\nu2\nu3\n")
    other = model.with_tables({"user": tmp_path / "users.csv"})
    found = other.possible_intensities(seen_by(other, [["buy(u8)"]])[0], [0.5])[0]
    assert set(found) == {"buy(u2)", "buy(u3)", "buy(u8)"}
    assert found["buy(u3)"] == found["buy(u8)"] != found["buy(u2)"]


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("usr", "name\nu1\n", "did you mean `user`"),
        ("person", "name\nu1\n", "there is `user` and `item`"),
        ("user", "name,age\nu1,3\n", "takes 1"),
        ("user", "name\n\n ,\n", "cell"),
        ("item", "name,cost\nmilk,3\n", "no column `price`"),
        ("user", None, "no such file"),
    ],
)
def test_what_does_not_fit_is_refused(model: Any, tmp_path: Path, name: str, text: str | None, part: str) -> None:
    path = tmp_path / "given.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ft.ForetellError) as found:
        model.with_tables({name: path})
    assert part in str(found.value)
