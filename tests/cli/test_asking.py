"""`foretell intensity`, `embed` and `params`: documented shapes, and parameters that go out and come back."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from foretell.models.build import load_model
from tests.cli.invoking import fine, refused
from tests.train.small import same_tensors

HISTORY = ([1.0, 2.0, 2.0, 5.0], ["0", "1", "0", "1"])


def test_intensities_as_json_have_the_documented_shape(anhp: Path, events):
    path = events(HISTORY, ([], []), ([3.0], ["1"]))
    found = fine("intensity", anhp, path, "--at", "2,0.5,7,2.5,0", "--json").json
    assert [one["sequence"] for one in found] == ["s0", "s1", "s2"]
    for one in found:
        assert one.keys() == {"sequence", "queries"}
        assert [query["time"] for query in one["queries"]] == [2.0, 0.5, 7.0, 2.5, 0.0], "the order asked for is kept"
        for query in one["queries"]:
            assert query.keys() == {"time", "index", "intensities"}
            assert list(query["intensities"]) == ["0", "1"]
            assert all(0.0 < value < math.inf for value in query["intensities"].values())


def test_the_index_is_one_more_than_the_events_with_a_smaller_time(anhp: Path, events):
    (found,) = fine("intensity", anhp, events(HISTORY), "--at", "2,0.5,7,2.5,0,1", "--json").json
    assert [query["index"] for query in found["queries"]] == [2, 1, 5, 4, 1, 1]


def test_intensities_do_not_depend_on_what_comes_later(anhp: Path, events):
    (whole,) = fine("intensity", anhp, events(HISTORY), "--at", "1.5,2", "--json").json
    (cut,) = fine("intensity", anhp, events(([1.0], ["0"])), "--at", "1.5,2", "--json").json
    for one, two in zip(whole["queries"], cut["queries"], strict=True):
        assert one["intensities"] == pytest.approx(two["intensities"], rel=1e-5)


def test_one_sequence_is_chosen_by_id_or_by_place(anhp: Path, events):
    path = events(HISTORY, ([], []), ([3.0], ["1"]))
    for chosen in ("s2", "2"):
        (found,) = fine("intensity", anhp, path, "--sequence", chosen, "--at", "1", "--json").json
        assert found["sequence"] == "s2"
    assert "no sequence '3'; there are 3" in refused("intensity", anhp, path, "--sequence", "3", "--at", "1")


def test_without_data_the_test_split_of_the_run_is_asked(anhp: Path):
    assert len(fine("intensity", anhp, "--at", "1", "--json").json) == 8
    assert len(fine("intensity", anhp, "--split", "train", "--at", "1", "--json").json) == 24


def test_a_grid_and_a_table_and_a_picture(anhp: Path, events, tmp_path: Path):
    path, picture = events(HISTORY), tmp_path / "p.svg"
    shown = fine("intensity", anhp, path, "--grid", 5, "--top", 1, "--plot", picture).out
    assert "sequence s0" in shown and "highest 1" in shown and picture.stat().st_size > 5000
    (found,) = fine("intensity", anhp, path, "--grid", 5, "--json").json
    assert [query["time"] for query in found["queries"]] == [0.0, 2.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "say when: --at 0.5,1.2 or --grid 100"),
        (["--at", "1", "--grid", "5"], "say when"),
        (["--at", "1,soon"], "expected a number or a time such as"),
        (["--at", "1,-2"], "expected a time from 0 on"),
        (["--at", "nan"], "expected a time from 0 on"),
        (["--at", "inf"], "expected a time from 0 on"),
        (["--grid", "1"], "grid = 1: expected 2 times or more"),
        (["--grid", "-4"], "grid = -4: expected 2 times or more"),
        (["--at", "1", "--plot", "p.gif"], "p.gif: expected a name that ends in .png, .svg, .pdf"),
    ],
)
def test_times_that_are_none_are_refused(more: list[str], message: str, anhp: Path):
    assert message in refused("intensity", anhp, *more)


def test_embeddings_of_all_layers_end_with_those_of_the_top(anhp: Path, events):
    path = events(HISTORY, ([], []))
    whole = fine("embed", anhp, path, "--json").json
    top = fine("embed", anhp, path, "--output-layers", "top", "--json").json
    assert np.array(whole[0]["embeddings"]).shape == (4, 12) and np.array(top[0]["embeddings"]).shape == (4, 4)
    assert np.array_equal(np.array(whole[0]["embeddings"])[:, 8:], top[0]["embeddings"])
    assert whole[0]["times"] == HISTORY[0] and whole[0]["events"] == HISTORY[1]
    assert whole[1]["embeddings"] == []


def test_embeddings_in_a_file_are_those_on_stdout(anhp: Path, events, tmp_path: Path):
    path = events(HISTORY, ([3.0], ["1"]))
    printed = fine("embed", anhp, path, "--json").json
    fine("embed", anhp, path, "-o", tmp_path / "e.jsonl")
    assert [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()] == printed
    assert "5 events of 2 sequences" in fine("embed", anhp, path, "-o", tmp_path / "e.parquet").out
    table = parquet.read_table(tmp_path / "e.parquet").to_pydict()
    assert table["sequence"] == ["s0"] * 4 + ["s1"] and table["index"] == [0, 1, 2, 3, 0]
    assert table["embedding"] == printed[0]["embeddings"] + printed[1]["embeddings"]


def test_embeddings_that_cannot_be_had_are_refused(trained: dict[str, Path], tmp_path: Path):
    assert "say where to" in refused("embed", trained["anhp"])
    assert "expected all or top" in refused("embed", trained["anhp"], "--json", "--output-layers", "middle")
    assert "expected a name that ends in" in refused("embed", trained["anhp"], "-o", tmp_path / "e.txt")
    assert "Hawkes has no embeddings of events" in refused("embed", trained["hawkes"], "--json")


# Parameters


def written(path: Path, table: dict[str, Any]) -> Path:
    path.write_text(json.dumps(table))
    return path


@pytest.mark.parametrize("kind", ["anhp", "hawkes", "poisson"])
def test_parameters_go_out_and_come_back_without_a_change(kind: str, trained: dict[str, Path], tmp_path: Path):
    run = Path(shutil.copytree(trained[kind], tmp_path / "run"))
    before = load_model(run / "model.safetensors")
    printed = fine("params", run).json
    fine("params", run, "-o", tmp_path / "p.json")
    assert json.loads((tmp_path / "p.json").read_text()) == printed
    outcome = fine("params", run, "--load", tmp_path / "p.json")
    assert outcome.out == "" and "loaded into" in outcome.err
    after = load_model(run / "model.safetensors")
    for (name, one), (_, two) in zip(before.state_dict().items(), after.state_dict().items(), strict=True):
        assert one.allclose(two, rtol=1e-6, atol=2e-7), name  # float32: the logarithm of a scale near 1
    again = fine("params", run).json
    for name, value in printed["parameters"].items():
        np.testing.assert_allclose(again["parameters"][name], value, rtol=1e-6)
    assert {key: printed[key] for key in printed if key != "parameters"} == {
        key: again[key] for key in again if key != "parameters"
    }


def test_parameters_carry_the_range_of_the_time_embedding(anhp: Path):
    found = fine("params", anhp).json
    assert found["format"] == 2 and found["model"] == "anhp" and found["dim"] == 4 and found["layers"] == 2
    assert found["time"] == {"dim": 4, "m": 0.5, "M": 8.0}
    assert len(found["parameters"]["intensity.0.w"]) == 5 and found["parameters"]["intensity.0.tau"] > 0.0


def test_edited_parameters_change_the_intensities(copied: Path, events, tmp_path: Path):
    path = events(HISTORY)
    table = fine("params", copied).json
    table["parameters"]["intensity.0.w"] = [3.0, 0.0, 0.0, 0.0, 0.0]
    table["parameters"]["intensity.0.tau"] = 2.0
    fine("params", copied, "--load", written(tmp_path / "p.json", table))
    (found,) = fine("intensity", copied, path, "--at", "1.5,4", "--json").json
    for query in found["queries"]:
        assert query["intensities"]["0"] == pytest.approx(2.0 * math.log1p(math.exp(1.5)), rel=1e-5)


def test_an_edited_rate_is_the_rate(trained: dict[str, Path], tmp_path: Path):
    run = Path(shutil.copytree(trained["poisson"], tmp_path / "run"))
    table = fine("params", run).json
    table["parameters"]["rate.1"] = 0.125
    fine("params", run, "--load", written(tmp_path / "p.json", table))
    (found, *_) = fine("intensity", run, "--at", "1", "--json").json
    assert found["queries"][0]["intensities"]["1"] == pytest.approx(0.125)


def without(name: str):
    return lambda table: table["parameters"].pop(name)


def with_value(name: str, value: object):
    return lambda table: table["parameters"].update({name: value})


WRONG = {
    "parameter `embed.0` is missing": without("embed.0"),
    "unknown parameter `embed.9`": with_value("embed.9", [0.0] * 4),
    "`embed.0`: found shape [3], expected finite numbers of shape [4]": with_value("embed.0", [0.0] * 3),
    "`embed.1`: found shape [], expected finite numbers of shape [4]": with_value("embed.1", 1.0),
    "`embed.0`: found numbers of one shape": with_value("embed.0", [0.0, 1.0, 2.0, math.nan]),
    "`intensity.0.w`: found numbers of one shape": with_value("intensity.0.w", [math.inf] * 5),
    "`intensity.1.w`: found numbers of one shape": with_value("intensity.1.w", [1e300] * 5),  # not in float32
    "`embed.1`: found numbers of one shape": with_value("embed.1", ["a"] * 4),
    "`intensity.0.tau`: found numbers of one shape": with_value("intensity.0.tau", None),
    "`intensity.1.tau`: found numbers of one shape": with_value("intensity.1.tau", 10**400),
    "intensity.1.tau = -1.0: expected a number above 0": with_value("intensity.1.tau", -1.0),
    "intensity.0.tau = 0.0: expected a number above 0": with_value("intensity.0.tau", 0.0),
    "`dim` is 8, but the model has 4": lambda table: table.update(dim=8),
    "`model` is 'hawkes', but the model has 'anhp'": lambda table: table.update(model="hawkes"),
    '"format" is 3, expected 2 or 1': lambda table: table.update(format=3),
    '"time" is 3': lambda table: table.update(time=3),
    "expected dim 4 and positive m and M": lambda table: table["time"].update(m=0.0),
}


@pytest.mark.parametrize("message", WRONG)
def test_parameters_that_do_not_fit_are_refused_and_nothing_is_changed(message: str, copied: Path, tmp_path: Path):
    table = fine("params", copied).json
    WRONG[message](table)
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    assert message in refused("params", copied, "--load", written(tmp_path / "p.json", table))
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before


def test_all_parameters_that_do_not_fit_are_reported_at_once(copied: Path, tmp_path: Path):
    table = fine("params", copied).json
    del table["parameters"]["embed.0"]
    table["parameters"]["embed.x"] = table["parameters"]["embed.1"] = [1.0]
    assert len(refused("params", copied, "--load", written(tmp_path / "p.json", table)).splitlines()) == 3


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1, "parameters": []}', "[" * 100_000, "\ud800"])
def test_a_file_that_holds_no_parameters_is_refused(content: str, copied: Path, tmp_path: Path):
    path = tmp_path / "p.json"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    assert str(path) in refused("params", copied, "--load", path)


def test_a_model_in_memory_is_not_half_changed_by_parameters_that_do_not_fit(anhp: Path):
    from foretell.errors import ForetellError
    from foretell.models.attention.anhp import ANHP
    from foretell.models.parameters import load_parameters, parameters_json

    model = load_model(anhp / "model.safetensors")
    assert isinstance(model, ANHP)
    table = parameters_json(model)
    table["time"] = {"dim": 4, "m": 0.125, "M": 99.0}
    table["parameters"]["embed.0"] = [9.0] * 4
    table["parameters"]["intensity.1.tau"] = -1.0
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ForetellError):
        load_parameters(model, table, "table")
    assert same_tensors(model.state_dict(), before) and (model.time.m, model.time.M) == (0.5, 8.0)
