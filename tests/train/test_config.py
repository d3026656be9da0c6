"""Configurations: every mistake is refused, all at once, with the key it is in; what is right survives being written down."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any, cast

import pytest

from foretell.errors import ForetellError
from foretell.models.registry import ModelOptions, ModelSpec, find_model, model_kinds, model_specs
from foretell.options import ConfigError, check_choice
from foretell.train.config import (
    LARGEST_SEED,
    RunConfig,
    make_config,
    read_config,
    to_toml,
)

FULL: dict[str, Any] = {
    "data": {
        "path": 'a "quoted" näme\\x.csv',
        "columns": {"sequence": "patient id", "time": "when"},
        "split": [0.5, 0.3, 0.2],
    },
    "model": {
        "kind": "anhp",
        "dim": 8,
        "heads": 2,
        "coarse": {"pass(a,b)": "pass", "kick(a)": "kick"},
        "edges": ["pass(a,b) <- kick(a)"],
        "bos": True,
        "dropout": 0.25,
        "shortest_wave": 1e-07,
    },
    "train": {
        "epochs": 7,
        "lr": 1e-5,
        "clip": float("inf"),
        "integral": "uniform",
        "dtype": "float64",
        "capture": False,
    },
}


def mistakes(table: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        make_config(table, "run.toml")
    return str(caught.value).splitlines()


def test_defaults_make_an_anhp_with_the_likelihood_of_everything():
    config = make_config({})
    assert config == RunConfig()
    assert config.model.kind == "anhp" and config.train.window == "all" and config.train.integral == "stratified"


@pytest.mark.parametrize(
    ("key", "meant"), [("train.epocs", "epochs"), ("model.layer", "layers"), ("data.pth", "path"), ("trian", "train")]
)
def test_a_misspelt_key_is_refused_with_the_nearest_one(key: str, meant: str):
    section, _, name = key.partition(".")
    (found,) = mistakes({section: {name: 1} if name else {}})
    assert found == f"run.toml: unknown key `{key}`; did you mean `{meant}`?"


def test_a_key_that_resembles_none_is_refused_with_all_that_there_are():
    (found,) = mistakes({"model": {"kind": "hawkes", "zzz": 1}})
    assert found == "run.toml: unknown key `model.zzz`; known are decays, shrinkage"


def test_an_option_of_another_model_is_an_unknown_key():
    assert mistakes({"model": {"kind": "poisson", "dim": 4}})[0].startswith("run.toml: unknown key `model.dim`")


def test_all_mistakes_are_reported_at_once():
    found = mistakes({"data": {"path": 3}, "model": {"kind": "anph"}, "train": {"epochs": 1.5, "batsch": 2, "lr": "x"}})
    assert len(found) == 5
    for part in ("data.path", "did you mean `anhp`", "train.epochs", "did you mean `batch`", "train.lr"):
        assert sum(part in line for line in found) == 1


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("train.epochs", 2.0, "a whole number"),
        ("train.epochs", True, "a whole number"),
        ("train.epochs", "2", "a whole number"),
        ("train.lr", True, "a number"),
        ("train.lr", "1e-3", "a number"),
        ("train.capture", 1, "true or false"),
        ("train.device", 0, "a string"),
        ("train.integral", "strat", '"stratified" or "uniform" or "quadrature"'),
        ("train.dtype", "float16", '"float32" or "float64"'),
        ("data.split", 0.8, "a list of numbers"),
        ("data.split", ["a"], "a list of numbers"),
        ("data.columns", {"time": 3}, "a table of strings"),
        ("model.edges", "a <- b", "a list of strings"),
        ("model.coarse", {"a": 1}, '"one" or "none" or a table of strings'),
        ("model.shortest_wave", "max", '"quantile" or "min" or a number'),
        ("model.time_dim", [1], 'a whole number or "dim"'),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_what_was_expected(key: str, value: object, expected: str):
    section, name = key.split(".")
    (found,) = mistakes({section: {name: value}})
    assert found.startswith(f"run.toml: {key} = {value!r}: expected ") and found.endswith(expected)


@pytest.mark.parametrize("section", ["data", "model", "train"])
def test_a_section_that_is_no_table_is_refused(section: str):
    assert mistakes({section: 5}) == [f"run.toml: [{section}] is 5: expected a table"]


@pytest.mark.parametrize("kind", ["gru", 3, None])
def test_an_unknown_model_is_refused_with_the_models_there_are(kind: object):
    (found,) = mistakes({"model": {"kind": kind}})
    assert ", ".join(model_kinds()) in found


@pytest.mark.parametrize(
    ("section", "wrong"),
    [
        ("train", {"epochs": 0}),
        ("train", {"batch": 0}),
        ("train", {"lr": 0.0}),
        ("train", {"lr": float("nan")}),
        ("train", {"lr": float("inf")}),
        ("train", {"decay": float("nan")}),
        ("train", {"patience": -1}),
        ("train", {"points": 0}),
        ("train", {"seed": -1}),
        ("train", {"seed": LARGEST_SEED + 1}),
        ("train", {"checkpoint_seconds": -1}),
        ("data", {"split": [0.5, 0.5]}),
        ("data", {"split": [0.5, 0.4, 0.2]}),
        ("data", {"split": [0.0, 0.5, 0.5]}),
        ("data", {"split": [1.2, -0.1, -0.1]}),
        ("data", {"split": [float("nan"), 0.1, 0.1]}),
        ("data", {"split_seed": -1}),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(section: str, wrong: dict[str, object]):
    (found,) = mistakes({section: wrong})
    assert found.startswith(f"{section}.{next(iter(wrong))} = ")


def test_values_that_make_no_sense_are_reported_together():
    assert len(mistakes({"train": {"epochs": 0, "batch": 0, "clip": -1}, "data": {"split": [1.0]}})) == 4


def test_a_whole_number_may_stand_for_a_number_and_nothing_else_bends():
    assert make_config({"train": {"lr": 1}}).train.lr == 1.0


@pytest.mark.parametrize("table", [{}, FULL, *({"model": {"kind": kind}} for kind in model_kinds())])
def test_a_configuration_written_as_toml_reads_back_to_the_same(table: dict[str, Any], tmp_path):
    config = make_config(table)
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert make_config(read_config(path)) == config


def test_what_is_written_names_every_option_so_that_later_defaults_change_nothing():
    text = to_toml(make_config({}))
    for name in ("kind", "dim", "layers", "seed", "cool", "pseudo_count", "split_seed", "window", "dev_points"):
        assert f"\n{name} = " in text


def test_every_model_has_options():
    for spec in model_specs():
        assert issubclass(spec.options, ModelOptions) and spec.options.kind == spec.kind


@pytest.mark.parametrize("content", [b"[train", b"a = \xff", b"[train]\nlr = 1\nlr = 2\n"])
def test_a_file_that_is_no_toml_is_refused_by_name(content: bytes, tmp_path):
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(ForetellError, match=r"run\.toml: (not TOML|it is not UTF-8)"):
        read_config(path)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(ForetellError, match=r"gone\.toml: there is no such file"):
        read_config(tmp_path / "gone.toml")


def test_a_word_that_is_no_choice_is_refused_with_the_nearest():
    from foretell.options import Window

    with pytest.raises(ConfigError, match=r"window = al: expected one of all, events-2-to-I; did you mean `all`\?"):
        check_choice("window", "al", Window)


def test_the_page_lists_every_model_as_it_is_registered():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
    for spec in model_specs():
        assert f"| `{spec.kind}` | {spec.title} | {spec.summary} | {spec.citation} |" in page


@pytest.mark.parametrize("spec", model_specs(), ids=lambda spec: spec.kind)
def test_a_constructor_shows_every_option_with_its_default_and_refuses_others(spec: ModelSpec):
    model = find_model(spec.kind)
    shown = inspect.signature(model).parameters
    for option in dataclasses.fields(spec.options):
        if option.name != "program":  # which comes first, as a path or a program
            assert shown[option.name].default == option.default
    first = ["P.ndtt"] if spec.has_rules else [3]
    with pytest.raises(ConfigError, match=f"{spec.title}: unknown key `zzz`"):
        cast("Any", model)(*first, zzz=1)


def test_the_preset_of_the_paper_sets_model_and_training_and_what_stands_beside_it_wins():
    found: Any = make_config({"preset": "paper", "model": {"dim": 8, "heads": 2}, "train": {"lr": 0.5}})
    model, train = found.model, found.train
    assert (model.heads, model.head_size, model.head_decay, model.elapsed, model.intensity_scales) == (
        2,
        "full",
        False,
        0,
        0,
    )
    assert (model.layer_norm, model.feed_forward, model.shortest_wave, model.fading, model.echo) == (
        False,
        0,
        "min",
        0.0,
        0.0,
    )
    assert (train.lr, train.integral, train.points, train.clip, train.cool, train.decay) == (
        0.5,
        "uniform",
        1,
        0.0,
        0,
        0.0,
    )
    alone = make_config({"model": {"preset": "paper"}})
    assert alone.train == make_config({}).train and cast(Any, alone.model).heads == 1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"preset": "papr"}, "did you mean `paper`"),
        ({"preset": "paper", "model": {"kind": "nhp"}}, "'nhp' has no presets"),
    ],
)
def test_a_preset_that_there_is_not_is_refused(table: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        make_config(table, "run.toml")
