"""What a search may choose from: how a configuration with lists and ranges is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.train.config import ConfigError, read_config
from foretell.train.space import Choices, Range, Space

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "pyproject.toml").exists())
SPACES = sorted((ROOT / "experiments").glob("*/space*.toml"))


@pytest.mark.parametrize("path", SPACES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_spaces_of_the_experiments_can_be_searched(path: Path):
    table = read_config(path)
    table.pop("search", None)  # of crossvalidate.py
    space = Space.read(table, str(path))
    assert space.open and (space.size() or 0) > 1


def test_a_list_is_choices_and_a_table_with_ends_is_a_range():
    space = Space.read(
        {"model": {"dim": [4, 8]}, "train": {"lr": {"low": 1e-3, "high": 0.1, "log": True}, "epochs": 3}}
    )
    assert space.open == {"model.dim": Choices((4, 8)), "train.lr": Range(1e-3, 0.1, False, True)}
    config = space.config({"model.dim": 8, "train.lr": 0.01})
    assert (config.model.dim, config.train.lr, config.train.epochs) == (8, 0.01, 3)
    assert space.size() is None and space.endless() == ["train.lr"]


def test_a_key_that_is_a_list_itself_is_searched_by_a_list_of_lists():
    assert "model.edges" not in Space.read({"model": {"edges": ["a <- b"], "dim": [4, 8]}}).open
    space = Space.read({"model": {"edges": [["a <- b"], ["a <- b", "b <- a"]]}})
    assert [setting["model.edges"] for setting in space.settings()] == [["a <- b"], ["a <- b", "b <- a"]]


def test_a_table_of_words_is_a_value():
    space = Space.read({"model": {"coarse": {"low": "x", "high": "y"}, "dim": [4, 8]}})
    assert space.config({"model.dim": 4}).model.coarse == {"low": "x", "high": "y"}


def test_whole_numbers_and_steps_are_finite():
    space = Space.read(
        {"model": {"layers": {"low": 1, "high": 3}}, "train": {"decay": {"low": 0.0, "high": 0.3, "step": 0.1}}}
    )
    assert space.size() == 12
    assert [one["model.layers"] for one in space.settings()][::4] == [1, 2, 3]
    assert [round(one["train.decay"], 9) for one in space.settings()][:4] == [0.0, 0.1, 0.2, 0.3]


def test_each_kind_of_model_has_its_own_settings():
    table = {"model": {"kind": ["anhp", "nhp", "hawkes"], "dim": [4, 8], "layers": [1, 2], "decays": 3}}
    space = Space.read(table)
    assert space.size() == 4 + 2 + 1
    settings = list(space.settings())
    assert settings[-1] == {"model.kind": "hawkes"} and space.config(settings[-1]).model.decays == 3
    assert space.config(settings[4]).model.kind == "nhp"


def test_one_choice_is_no_choice():
    assert Space.read({"model": {"dim": [16], "layers": [1, 2]}}).fixed["model"] == {"dim": 16}


@pytest.mark.parametrize(("kind", "size"), [("anhp", 36), ("thp", 36), ("nhp", 6)])
def test_the_grid_of_the_paper_is_over_what_the_model_has(kind: str, size: int):
    space = Space.read({"model": {"kind": kind}})
    assert space.from_paper and space.size() == size


def test_every_mistake_is_told_at_once():
    with pytest.raises(ConfigError) as error:
        Space.read({"model": {"dim": [0.5, "x"]}, "train": {"lr": [-1.0, 1e-3], "epoch": 3}})
    said = str(error.value)
    assert all(part in said for part in ("model.dim = 0.5", "model.dim = 'x'", "did you mean `epochs`"))
