"""S2-NDTT on the command line: trained, written, read again as parameters of a program, and sampled from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.invoking import fine, refused
from tests.cli.test_ndtt import LIBRARY, LOANS

SIZES = ["--dim", 3, "--layers", 2, "--set", "model.states=2", "--set", "model.intensity_shape=2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("s2ndtt") / "run"
    options = ["--model", "s2ndtt", "--program", LIBRARY, "--data", LOANS, *SIZES, "--epochs", 2, "--quiet"]
    fine("train", *options, "--out", place)
    return place


def test_parameters_of_a_run_make_the_same_model_of_the_program(run: Path, tmp_path: Path):
    printed = fine("params", run).json
    assert (printed["model"], printed["dim"], printed["layers"], printed["states"]) == ("s2ndtt", 3, 2, 2)
    names = {name.rsplit(".", 1)[-1] for name in printed["parameters"] if name.startswith("state.reader.2.")}
    assert names == {"decay", "frequency", "B", "C", "step_bias"}
    assert "intensity.borrow.shape" in printed["parameters"]
    (tmp_path / "params.json").write_text(json.dumps(printed))
    asked = ["--at", "3.5", "--json"]
    of_run = fine("intensity", run, LOANS, *asked).json
    options = ["--program", LIBRARY, "--params", tmp_path / "params.json", "--dtype", "float64"]
    of_program = fine("intensity", LOANS, *options, *asked).json
    for one, other in zip(of_run, of_program, strict=True):
        assert one["queries"][0]["intensities"] == pytest.approx(other["queries"][0]["intensities"], rel=1e-4)


def test_futures_are_sampled(run: Path):
    found = fine("sample", run, "--history", LOANS, "--n", 2, "--horizon", 3, "--json").json
    assert len(found[0]["futures"]) == 2


def test_a_decay_that_is_not_above_zero_is_refused(run: Path, tmp_path: Path):
    printed = fine("params", run).json
    printed["parameters"]["state.reader.1.decay"] = [0.0, 1.0]
    (tmp_path / "params.json").write_text(json.dumps(printed))
    assert "state.reader.1.decay: expected numbers above 0" in refused(
        "params", run, "--load", tmp_path / "params.json"
    )


def test_sizes_below_one_are_refused(tmp_path: Path):
    options = ["--model", "s2ndtt", "--program", LIBRARY, "--data", LOANS, "--out", tmp_path / "none"]
    assert "states = 0: expected 1 or more" in refused("train", *options, "--set", "model.states=0")
    assert "intensity_shape = -1: expected 0" in refused("train", *options, "--set", "model.intensity_shape=-1")


def test_what_additions_have_left_in_states_is_explained(run: Path):
    (found,) = fine("explain", run, LOANS, "--sequence", "may", "--at", 9.5, "--json").json
    kinds = {one["kind"] for fact in found["facts"] for one in fact["contributions"]}
    assert found["layers"] == 0 and "add" in kinds
    text = fine("explain", run, LOANS, "--sequence", "may", "--at", 9.5).out
    assert "what past events have left in cells and states" in text and "1 keeps" not in text
