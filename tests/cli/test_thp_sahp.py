"""THP and SAHP through the commands: trained, scored, asked, sampled from, drawn, written down and read again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from foretell.models.build import load_model
from foretell.models.last_event.sahp import SAHP
from foretell.models.last_event.thp import THP
from tests.cli.invoking import fine, refused

HISTORY = ([1.0, 2.0, 2.0, 5.0], ["0", "1", "0", "1"])
CLASSES = {"thp": THP, "sahp": SAHP}


@pytest.fixture(scope="module")
def runs(bursts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("runs")
    sizes = ("--dim", 4, "--layers", 2, "--epochs", 2, "--set", "model.heads=2", "--quiet")
    for kind in CLASSES:
        fine("train", "--model", kind, "--data", bursts, "--out", place / kind, *sizes)
    return {kind: place / kind for kind in CLASSES}


@pytest.fixture(params=list(CLASSES))
def run(request: pytest.FixtureRequest, runs: dict[str, Path]) -> Path:
    return runs[request.param]


def test_a_run_holds_the_model_with_the_sizes_that_were_asked_for(run: Path):
    model = load_model(run / "model.safetensors")
    assert isinstance(model, CLASSES[run.name])
    assert (model.dim, model.layers, model.heads, model.options.feed_forward, model.fitted) == (4, 2, 2, 8, True)


def test_the_same_seed_gives_the_same_run_with_dropout_too(run: Path, bursts: Path, tmp_path: Path):
    sizes = ("--dim", 4, "--epochs", 1, "--set", "model.dropout=0.1", "--quiet")
    for place in ("one", "two"):
        fine("train", "--model", run.name, "--data", bursts, "--out", tmp_path / place, *sizes)
    one, two = (load_model(tmp_path / place / "model.safetensors").state_dict() for place in ("one", "two"))
    assert all(bool((one[name] == two[name]).all()) for name in one)


def test_evaluation_has_a_likelihood_next_times_and_next_types(run: Path):
    found = fine("evaluate", run, "--json").json
    assert found["model"] == CLASSES[run.name].title
    for score in ("log_likelihood", "rmse", "error_rate"):
        assert found[score]["low"] <= found[score]["value"] <= found[score]["high"]


def test_predictions_by_quadrature_and_by_samples_agree(run: Path, events):
    (found,) = fine("predict", run, events(HISTORY), "--json").json
    low, high = found["interval_90"]
    assert 8.0 < low < found["median"] < high and found["possible"] == 2
    (drawn,) = fine("predict", run, events(HISTORY), "--by", "samples", "--n", 2000, "--json").json
    assert drawn["median"] - 8.0 == pytest.approx(found["median"] - 8.0, rel=0.2)


def test_futures_take_about_one_proposal_and_one_bound_an_event(run: Path, events):
    (found,) = fine("sample", run, "--history", events(HISTORY), "--n", 5, "--horizon", 20, "--json").json
    cost = found["cost"]
    assert cost["accepted"] == sum(len(future["events"]) for future in found["futures"]) > 0
    assert cost["proposals"] + cost["bounds"] < 4 * cost["accepted"]


def test_events_are_embedded_layer_by_layer(run: Path, events):
    path = events(HISTORY, ([], []))
    whole = fine("embed", run, path, "--json").json
    top = fine("embed", run, path, "--output-layers", "top", "--json").json
    assert np.array(whole[0]["embeddings"]).shape == (4, 12)
    np.testing.assert_array_equal(np.array(whole[0]["embeddings"])[:, 8:], top[0]["embeddings"])
    assert whole[1]["embeddings"] == []


def test_parameters_go_out_and_come_back(run: Path, tmp_path: Path, events):
    copied = Path(shutil.copytree(run, tmp_path / "copied"))
    table = fine("params", copied).json
    assert (table["model"], table["dim"], table["layers"], table["time"]["dim"]) == (run.name, 4, 2, 4)
    before = fine("intensity", copied, events(HISTORY), "--at", 6, "--json").json
    fine("params", copied, "-o", tmp_path / "p.json")
    fine("params", copied, "--load", tmp_path / "p.json")
    after = fine("intensity", copied, events(HISTORY), "--at", 6, "--json").json
    rates = [list(answer[0]["queries"][0]["intensities"].values()) for answer in (before, after)]
    np.testing.assert_allclose(rates[1], rates[0], rtol=1e-5)
    table["parameters"]["intensity.1.tau"] = -1.0
    (tmp_path / "p.json").write_text(json.dumps(table))
    assert "intensity.1.tau = -1.0: expected a number above 0" in refused(
        "params", copied, "--load", tmp_path / "p.json"
    )


def test_a_report_stands_beside_that_of_another_model(runs: dict[str, Path], tmp_path: Path):
    fine("report", runs["thp"], runs["sahp"], "-o", tmp_path / "report.html", "--quiet")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "THP" in text and "SAHP" in text


def test_a_run_starts_from_what_another_has_learned(run: Path, bursts: Path, tmp_path: Path):
    fine(
        "train",
        "--init",
        run,
        "--data",
        bursts,
        "--out",
        tmp_path / "next",
        "--epochs",
        1,
        "--set",
        "train.lr=1e-30",
        "--quiet",
    )
    one, two = (load_model(place / "model.safetensors").state_dict() for place in (run, tmp_path / "next"))
    assert all(bool((one[name] == two[name]).all()) for name in one)


def test_options_that_fit_no_model_are_refused(bursts: Path, tmp_path: Path):
    asked = ("train", "--model", "thp", "--data", bursts, "--out", tmp_path / "run", "--quiet")
    assert "heads = 3: expected a divisor of dim = 4" in refused(*asked, "--dim", 4, "--set", "model.heads=3")
    assert "did you mean `heads`" in refused(*asked, "--set", "model.head=2").replace("'", "`")
