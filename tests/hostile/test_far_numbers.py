"""Numbers at the edge: times beyond all dates, whole numbers beyond 64 bits, intensities that are none, sizes that no memory holds."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from foretell.data import Vocabulary
from foretell.data.clock import Clock
from foretell.data.frame_output import NO_ORIGIN, FrameFormat
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.parameters import load_parameters, parameters_json
from foretell.options import ConfigError
from foretell.sampling.core import thinning
from foretell.sampling.core.sampler import Bounds
from foretell.sampling.core.thinning import IntensityOverflow
from foretell.train.config import make_config
from foretell.train.loggers import _ids
from foretell.train.space import Space
from tests.cli.invoking import fine, foretell, refused
from tests.hostile.commands import NUMBERS, ROWS

HOURS = Clock.of_unit("hours", absolute=True)
FAR = [1e9, 1e30, 1e300, 1.7e308, -1e30, math.inf, math.nan]


@pytest.mark.parametrize("time", FAR)
def test_a_time_beyond_all_dates_has_none_and_is_shown_as_a_number(time: float):
    assert HOURS.iso(time, 0) is None and HOURS.short(time, 0) is None
    assert HOURS.shown(time, 0) == f"{time:g} hours"


def test_dates_of_the_years_that_have_them_are_told():
    assert HOURS.iso(1.0, 0) == "1970-01-01T01:00:00Z"
    assert str(HOURS.iso(24.0 * 365.25 * 8000.0, 0)).startswith("9970-")


def test_times_that_int64_has_no_nanoseconds_for_are_refused_or_kept_in_microseconds():
    far = 24.0 * 365.25 * 2000.0
    with pytest.raises(ForetellError, match="1678 to 2262"):
        HOURS.instants(np.array([1.0, far]), 0)
    dates = FrameFormat(NO_ORIGIN, HOURS, 0).times([1.0, far, 1e30, None])
    assert [str(one)[:10] for one in dates] == ["1970-01-01", "3970-01-16", "NaT", "NaT"]


@pytest.mark.parametrize("command", ["predict", "intensity", "sample"])
@pytest.mark.parametrize("time", ["1e30", "1e308"])
def test_a_command_at_a_time_beyond_all_dates_ends_in_an_answer_or_a_message(
    command: str, time: str, run: tuple[Path, Path]
):
    words: dict[str, list[Any]] = {
        "predict": ["predict", *run, "--from", time],
        "intensity": ["intensity", *run, "--at", time],
        "sample": ["sample", run[0], "--history", run[1], "--horizon", "1", "--from", time, "--n", "1"],
    }
    assert foretell(*words[command]).code in (0, 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run on data with dates, and the data."""
    folder = tmp_path_factory.mktemp("far")
    (folder / "dated.csv").write_text(ROWS)
    fine("train", "--data", folder / "dated.csv", "--model", "poisson", "--out", folder / "run", "--quiet")
    return folder / "run", folder / "dated.csv"


@pytest.mark.parametrize("value", [2**63, -(2**63), 10**400])
def test_a_whole_number_beyond_64_bits_is_none_of_a_configuration(value: int):
    with pytest.raises(ConfigError, match="below 2\\^63"):
        make_config({"train": {"epochs": value}})
    assert make_config({"train": {"lr": 1}}).train.lr == 1.0


def test_a_rate_that_is_an_endless_integer_is_refused():
    with pytest.raises(ConfigError, match="expected a number"):
        make_config({"train": {"lr": 10**400}})


@pytest.mark.parametrize("part", [1e308, "x", [], True])
def test_a_part_of_a_search_that_is_no_table_is_a_message(part: Any):
    for name in ("model", "train", "data"):
        with pytest.raises(ConfigError):
            Space.read({"model": {"dim": [2, 4]}, "train": {"lr": [0.1, 0.2]}, name: part})


def test_a_model_that_no_memory_holds_is_one_line(tmp_path: Path):
    (tmp_path / "x.jsonl").write_text(NUMBERS)
    wanted = ("--model", "anhp", "--dim", 10**12, "--out", tmp_path / "run", "--quiet")
    assert "not enough memory" in refused("train", "--data", tmp_path / "x.jsonl", *wanted)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("short", "long"), [(2.0**31, 16.0), (1e-300, 16.0), (1.0, 1e300)])
def test_scales_of_time_that_none_has_are_no_parameters(short: float, long: float):
    model = ANHP(Vocabulary(("a", "b")), dim=4, intensity_scales=3)
    found = parameters_json(model)
    before = model.units()
    found["time"] |= {"short": short, "long": long}
    with pytest.raises(ForetellError, match='"time"'):
        load_parameters(model, found, "x.json")
    assert model.units() == before


@pytest.mark.parametrize("now", [10.0, 3.3, 1.7e9, 0.1])
def test_a_piece_as_short_as_time_can_be_is_known_as_such_however_its_edges_are_rounded(now: float):
    """Else it is cut again and again, for ever."""
    edges = torch.tensor([[now, now + thinning.SHORTEST * now]], dtype=torch.float64)
    loose = Bounds(torch.full((1, 1), math.inf, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))
    with pytest.raises(IntensityOverflow):
        thinning._judged(loose, edges, 1e-3, 0.2)


def test_an_intensity_that_is_no_number_is_not_drawn_from():
    found = torch.tensor([[[math.nan, 1.0]]], dtype=torch.float64)
    sampler: Any = SimpleNamespace(count=1, intensities=lambda times: found)
    window: Any = SimpleNamespace(upper=torch.full((1, 1), 5.0, dtype=torch.float64))
    none = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(IntensityOverflow):
        thinning._rates(sampler, window, none, none, torch.ones(1, dtype=torch.float64))


@pytest.mark.parametrize("shares", ["x", [[1.0, "x"]], [[1.0, [1]]], [["x", 1.0]], [[{}, 1.0]], [[1.0, 1e999]], 5])
def test_what_a_manifest_of_packed_data_says_of_a_grid_is_not_believed(shares: Any, tmp_path: Path):
    (tmp_path / "x.jsonl").write_text(NUMBERS)
    fine("data", "pack", tmp_path / "x.jsonl", tmp_path / "packed")
    manifest = json.loads((tmp_path / "packed" / "packed.json").read_text())
    for split in manifest["splits"].values():
        split["report"]["grid_shares"] = shares
    (tmp_path / "packed" / "packed.json").write_text(json.dumps(manifest))
    fine("data", "describe", tmp_path / "packed")


@pytest.mark.parametrize("kind", [[], {}, None, 3, "other"])
def test_an_attribute_of_a_manifest_whose_kind_is_none_is_a_message(kind: Any, tmp_path: Path):
    (tmp_path / "x.csv").write_text(ROWS)
    fine("data", "pack", tmp_path / "x.csv", tmp_path / "packed")
    manifest = json.loads((tmp_path / "packed" / "packed.json").read_text())
    for split in manifest["splits"].values():
        split["attributes"][0]["kind"] = kind
    (tmp_path / "packed" / "packed.json").write_text(json.dumps(manifest))
    assert "attributes" in refused("data", "describe", tmp_path / "packed")


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "\x00", '{"mlflow": ' + "9" * 5_000 + "}"])
def test_what_a_run_remembers_of_loggers_is_read_within_limits(text: str, tmp_path: Path):
    (tmp_path / "loggers.json").write_text(text)
    with pytest.raises(ForetellError, match=r"loggers\.json.*remove it"):
        _ids(tmp_path)


def test_a_run_that_is_a_link_around_is_a_message(tmp_path: Path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "loop" in refused("report", tmp_path / "loop", "-o", tmp_path / "page.html")


def test_a_number_of_processes_that_is_none_is_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "abc")
    (tmp_path / "x.jsonl").write_text(NUMBERS)
    wanted = ("--model", "anhp", "--dim", 4, "--out", tmp_path / "run", "--quiet")
    assert "WORLD_SIZE is 'abc'" in refused("train", "--data", tmp_path / "x.jsonl", *wanted)


@pytest.mark.parametrize("kind", ["anhp", "nhp", "hawkes"])
@pytest.mark.parametrize(("times", "t_end"), [([0.0, 1e308], 1.7e308), ([0.0, 1e-308], 2e-308), ([0.0, 0.0], 0.0)])
def test_times_that_no_quotient_holds_are_a_message_or_a_run(
    kind: str, times: list[float], t_end: float, tmp_path: Path
):
    row = json.dumps({"times": times, "events": ["a", "b"], "t_end": t_end})
    (tmp_path / "x.jsonl").write_text(f"{row}\n" * 3)
    outcome = foretell(
        "train", "--data", tmp_path / "x.jsonl", "--model", kind, "--epochs", "1", "--out", tmp_path / "run", "--quiet"
    )
    assert outcome.code in (0, 1) and outcome.err


def test_ids_of_sequences_have_a_largest_length(tmp_path: Path):
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet as parquet

    ids = pyarrow.array(["z" * 1_000_000] * 2_000).dictionary_encode()  # 60 KB that would be 2 GB of CSV
    columns = {"sequence": ids, "time": np.arange(2_000.0), "event": ["a"] * 2_000}
    parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet")
    assert "1,000,000 characters" in refused("data", "convert", tmp_path / "x.parquet", tmp_path / "x.csv")


def test_reading_a_database_makes_no_file_beside_it(tmp_path: Path):
    import sqlite3

    from foretell.data.sources.sqlite_files import read_only

    path, copy = tmp_path / "x.sqlite", tmp_path / "copy" / "x.sqlite"
    copy.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table t(a text)")
        connection.execute("insert into t values('x')")
        connection.commit()
        for end in ("", "-wal"):
            copy.with_name(f"x.sqlite{end}").write_bytes(path.with_name(f"x.sqlite{end}").read_bytes())
        with read_only(path) as reader:  # while another program has it open
            assert reader.execute("select a from t").fetchall() == [("x",)]
    connection.close()
    with pytest.raises(ForetellError, match=r"still in x\.sqlite-wal"), read_only(copy):
        pass
    assert sorted(one.name for one in copy.parent.iterdir()) == ["x.sqlite", "x.sqlite-wal"]
    with read_only(path) as reader:
        assert reader.execute("select a from t").fetchall() == [("x",)]
    assert [one.name for one in tmp_path.glob("x.*")] == ["x.sqlite"]


def test_a_database_whose_formulas_make_a_gigabyte_of_nothing_is_a_message(tmp_path: Path):
    import sqlite3

    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("create table t(a, b text generated always as (printf('%.*c', 900000000, 'x')))")
        connection.execute("insert into t(a) values(1)")
    connection.close()
    said = refused(
        "data", "describe", "--sql", "select b as event, 1.0 as time, a as sequence from t", "--database", path
    )
    assert "is empty" in said


def scored(run: tuple[Path, Path], folder: Path) -> Path:
    """A copy of the run that has an evaluation."""
    copy = folder / "run"
    shutil.copytree(run[0], copy)
    fine("evaluate", copy, "--no-times")
    return copy


@pytest.mark.parametrize("name", ["evaluation.json", "scores.parquet"])
@pytest.mark.parametrize("what", ["pipe", "device", "deep", "endless", "text", "folder"])
def test_an_evaluation_that_a_run_was_sent_with_is_not_believed(
    name: str, what: str, run: tuple[Path, Path], tmp_path: Path
):
    copy = scored(run, tmp_path)
    victim = copy / name
    assert victim.exists()
    victim.unlink()
    contents = {"deep": "[" * 100_000, "endless": '{"computed_from": ' + "9" * 5_000 + "}", "text": "x"}
    if what in contents:
        victim.write_text(contents[what])
    else:
        {"pipe": os.mkfifo, "device": lambda to: to.symlink_to("/dev/zero"), "folder": Path.mkdir}[what](victim)
    assert foretell("evaluate", copy, "--no-times").code in (0, 1)


def test_a_table_of_scores_with_more_rows_than_events_is_not_read(run: tuple[Path, Path], tmp_path: Path):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from foretell.evaluate.record import _read

    table = scored(run, tmp_path) / "scores.parquet"
    rows = parquet.read_metadata(table).num_rows
    assert len(_read(table, rows)["index"]) == rows
    with pytest.raises(ValueError, match="more rows"):
        _read(table, rows - 1)
