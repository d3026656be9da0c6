"""An NHP through the commands: trained, scored, asked, sampled from, embedded, written down and read again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from foretell.data import load
from foretell.models.build import load_model
from foretell.models.recurrent.nhp import NHP
from tests.cli.invoking import fine, refused

HISTORY = ([1.0, 2.0, 2.0, 5.0], ["0", "1", "0", "1"])


@pytest.fixture(scope="module")
def nhp(bursts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "nhp"
    fine("train", "--model", "nhp", "--data", bursts, "--out", run, "--dim", 6, "--epochs", 3, "--quiet")
    return run


def test_a_run_holds_an_nhp_whose_unit_is_the_mean_gap(nhp: Path, bursts: Path):
    model = load_model(nhp / "model.safetensors")
    assert isinstance(model, NHP) and model.dim == 6 and model.fitted
    train = load(bursts).train
    assert train is not None
    assert model.time_scale == pytest.approx(np.concatenate([np.diff(one.times) for one in train]).mean())


def test_evaluation_has_a_likelihood_next_times_and_next_types(nhp: Path):
    found = fine("evaluate", nhp, "--json").json
    assert found["model"] == "NHP"
    for score in ("log_likelihood", "rmse", "error_rate"):
        assert found[score]["low"] <= found[score]["value"] <= found[score]["high"]


def test_predictions_have_times_and_types(nhp: Path, events):
    (found,) = fine("predict", nhp, events(HISTORY), "--json").json
    low, high = found["interval_90"]
    assert 8.0 < low < found["median"] < high and found["possible"] == 2
    (drawn,) = fine("predict", nhp, events(HISTORY), "--by", "samples", "--n", 500, "--json").json
    assert drawn["median"] == pytest.approx(found["median"], rel=0.1)


def test_futures_are_sampled_with_proved_bounds(nhp: Path, events):
    (found,) = fine("sample", nhp, "--history", events(HISTORY), "--n", 5, "--horizon", 20, "--json").json
    assert found["cost"]["accepted"] == sum(len(future["events"]) for future in found["futures"]) > 0
    assert found["cost"]["proposals"] < 3 * found["cost"]["accepted"]


def test_an_event_is_embedded_by_its_types_vector_and_by_the_cell_after_it(nhp: Path, events):
    path = events(HISTORY, ([], []))
    whole = fine("embed", nhp, path, "--json").json
    top = fine("embed", nhp, path, "--output-layers", "top", "--json").json
    assert np.array(whole[0]["embeddings"]).shape == (4, 12) and np.array(top[0]["embeddings"]).shape == (4, 6)
    both = np.array(whole[0]["embeddings"])
    np.testing.assert_array_equal(both[:, 6:], top[0]["embeddings"])
    np.testing.assert_array_equal(both[0, :6], both[2, :6])  # both are events of type 0
    assert whole[1]["embeddings"] == []


def test_parameters_go_out_and_come_back_with_their_unit(nhp: Path, tmp_path: Path, events):
    run = Path(shutil.copytree(nhp, tmp_path / "copied"))
    written = fine("params", run).json
    assert (written["model"], written["dim"]) == ("nhp", 6)
    assert written["time"]["scale"] == load_model(run / "model.safetensors").time_scale
    asked = ("intensity", run, events(HISTORY), "--at", "0.5,3,7", "--json")
    before = fine(*asked).json
    c = 4.0  # the same process in a unit four times as large: only `w`, `τ` and the scale are other numbers
    written["time"]["scale"] /= c
    for name, value in written["parameters"].items():
        if name.startswith("intensity."):
            written["parameters"][name] = (np.array(value) * c).tolist()
    (tmp_path / "p.json").write_text(json.dumps(written))
    fine("params", run, "--load", tmp_path / "p.json")
    quarter = ([time / c for time in HISTORY[0]], HISTORY[1])
    asked = ("intensity", run, events(quarter), "--at", f"{0.5 / c},{3 / c},{7 / c}", "--json")
    for one, two in zip(before[0]["queries"], fine(*asked).json[0]["queries"], strict=True):
        for name, value in one["intensities"].items():
            assert two["intensities"][name] == pytest.approx(c * value, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time": {"scale": 0.0}}, '"time" is'),
        ({"time": 3}, '"time" is'),
        ({"dim": 7}, "`dim` is 7, but the model has 6"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(nhp: Path, tmp_path: Path, change: dict[str, object], message: str):
    run = Path(shutil.copytree(nhp, tmp_path / "copied"))
    written = {**fine("params", run).json, **change}
    (tmp_path / "p.json").write_text(json.dumps(written))
    assert message in refused("params", run, "--load", tmp_path / "p.json")


def test_a_report_is_written(nhp: Path, tmp_path: Path):
    fine("report", nhp, "-o", tmp_path / "report.html")
    assert "NHP" in (tmp_path / "report.html").read_text()


def test_a_size_that_is_none_is_refused(bursts: Path, tmp_path: Path):
    message = refused("train", "--model", "nhp", "--data", bursts, "--out", tmp_path / "r", "--dim", 0)
    assert "dim = 0: expected 1 or more" in message
    message = refused("train", "--model", "nhp", "--data", bursts, "--out", tmp_path / "r", "--layers", 2)
    assert "layers" in message
