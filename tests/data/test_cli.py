"""`foretell data …` does what it says, and a mistake stops it before anything is written."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from foretell.cli.data import app
from foretell.data import load, load_file
from foretell.errors import ForetellError

LINE = {"id": "a", "times": [0.5, 1.0, 1.0], "events": ["x", "y", "x"], "t_end": 2.0}


def run(*arguments: object) -> str:
    """The output of a command; the mistakes of the user's come through as they are raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_describe_shows_counts_lengths_gaps_types_ties_and_grid() -> None:
    shown = run("describe", "robocup")
    for expected in ("2,192", "816", "778", "1,336", "7.567", "298 of 528", "whole units", "kick(purple10)", "cycles"):
        assert expected in shown


def test_describe_as_json_is_json_and_nothing_else(jsonl) -> None:
    report = json.loads(run("describe", jsonl(LINE), "--json"))
    split = report["splits"]["train"]
    assert split["sequences"] == 1 and split["events"] == 3 and split["ties"] == 0.5 and split["grid"] == 0.1
    assert split["gaps"] == {"min": 0.0, "quantile_01": pytest.approx(0.005), "median": 0.25, "mean": 0.25, "max": 0.5}
    assert report["most_frequent"][0] == {"event": "x", "count": 2} and report["types_used"] == 2


def test_describe_copes_with_sequences_without_events(jsonl) -> None:
    path = jsonl({"times": [], "types": [], "t_end": 2.0})
    assert json.loads(run("describe", path, "--json"))["splits"]["train"]["gaps"] is None
    assert "–" in run("describe", path)


def test_describe_reads_mapped_columns_and_foreign_files(tmp_path) -> None:
    (tmp_path / "log.csv").write_text("patient,when,code\np,1,a\n")
    assert "events" in run("describe", tmp_path / "log.csv", "--columns", "sequence=patient,time=when,event=code")
    (tmp_path / "train.pkl").write_bytes(pickle.dumps([[{"name": "a", "time": 1.0}]]))
    assert "events" in run("describe", tmp_path / "train.pkl")


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_describe_draws_a_picture(jsonl, tmp_path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    for source in ("robocup", jsonl(LINE), jsonl({"times": [], "types": [], "t_end": 2.0}, name="e.jsonl")):
        picture = tmp_path / f"picture{suffix}"
        assert str(picture) in run("describe", source, "--plot", picture).replace("\n", "")
        assert picture.stat().st_size > 5000
        picture.unlink()


def test_a_picture_of_an_unknown_kind_is_refused(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ForetellError, match=r"ends in \.png, \.svg, \.pdf"):
        run("describe", "robocup", "--plot", tmp_path / "picture.docx")


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch) -> None:
    for module in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ForetellError, match=r"foretell\[report\]"):
        run("describe", "robocup", "--plot", tmp_path / "picture.png")


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.jsonl.gz"])
def test_convert_changes_the_format_of_a_file(jsonl, tmp_path, name: str) -> None:
    run("convert", jsonl(LINE), tmp_path / name)
    again = load_file(tmp_path / name)
    assert again.names_of(again[0]) == ["x", "y", "x"] and again[0].times.tolist() == [0.5, 1.0, 1.0]


def test_convert_takes_a_folder_of_foreign_files_to_a_data_set(tmp_path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for split in ("train", "dev"):
        rows = [[{"time_since_start": 0.0, "type_event": 1}, {"time_since_start": 2.0, "type_event": 0}]]
        (source / f"{split}.pkl").write_bytes(pickle.dumps({"dim_process": 3, split: rows}))
    run("convert", source, tmp_path / "out", "--origin", "first-event", "--format", "csv")
    dataset = load(tmp_path / "out")
    assert list(dataset.splits()) == ["train", "dev"] and len(dataset.vocabulary) == 3
    assert dataset.card.origin == "first-event" and (tmp_path / "out/train.csv").is_file()


def test_convert_with_a_named_reader(tmp_path) -> None:
    (tmp_path / "x.pkl").write_bytes(pickle.dumps([[{"name": "a", "time": 1.0}, {"name": "eos", "time": 3.0}]]))
    shown = json.loads(run("convert", tmp_path / "x.pkl", tmp_path / "x.jsonl", "--input-format", "ndtt", "--json"))
    assert (
        shown["splits"] == {"train": {"sequences": 1, "events": 1}} and load_file(tmp_path / "x.jsonl")[0].t_end == 3.0
    )


def test_a_mistake_in_the_input_writes_nothing(jsonl, tmp_path) -> None:
    source = jsonl({**LINE, "t_end": 0.1})
    for target in ("out.csv", "out"):
        with pytest.raises(ForetellError, match="after t_end"):
            run("convert", source, tmp_path / target)
        assert not (tmp_path / target).exists()


def test_convert_refuses_targets_that_cannot_hold_the_data(jsonl, tmp_path) -> None:
    with pytest.raises(ForetellError, match="OUT must be a folder"):
        run("convert", load("robocup").path, tmp_path / "out.csv")
    with pytest.raises(ForetellError, match="written are"):
        run("convert", jsonl(LINE), tmp_path / "out.json")
    with pytest.raises(ForetellError, match="--format"):
        run("convert", jsonl(LINE), tmp_path / "out", "--format", "xlsx")
    with pytest.raises(ForetellError, match="no such file"):
        run("convert", tmp_path / "nothing.jsonl", tmp_path / "out")
    with pytest.raises(ForetellError, match="no such file"):
        run("convert", tmp_path / "nothing.pkl", tmp_path / "out", "--input-format", "ndtt")


def test_simulate_writes_the_same_file_for_the_same_seed(tmp_path) -> None:
    for name in ("one.jsonl", "two.jsonl"):
        run(
            "simulate",
            "poisson",
            "-o",
            tmp_path / name,
            "--sequences",
            5,
            "--t-end",
            10,
            "--seed",
            3,
            "--rate",
            "0.5,1",
        )
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    data = load_file(tmp_path / "one.jsonl")
    assert len(data) == 5 and data[0].t_end == 10.0 and isinstance(data[0].metadata["nll_true"], float)


def test_simulate_splits_a_folder_and_says_the_true_likelihood(tmp_path) -> None:
    alpha = tmp_path / "alpha.json"
    alpha.write_text("[[0.3, 0.1], [0.0, 0.4]]")
    shown = json.loads(
        run("simulate", "hawkes", "-o", tmp_path / "set", "--sequences", 10, "--t-end", 20, "--mu", "0.5,0.2",
            "--alpha", alpha, "--beta", "1.5", "--json")
    )  # fmt: skip
    dataset = load(tmp_path / "set")
    assert [len(data) for data in dataset.splits().values()] == [6, 2, 2] and len(dataset.vocabulary) == 2
    total = sum(one.metadata["nll_true"] for data in dataset.splits().values() for one in data)
    events = sum(data.event_count for data in dataset.splits().values())
    assert shown["nll_true_per_event"] == pytest.approx(total / events)


def test_simulate_takes_rates_repeated_and_the_self_correcting_process(tmp_path) -> None:
    run("simulate", "poisson", "-o", tmp_path / "p.csv", "--sequences", 3, "--rate", "1", "--rate", "2", "--rate", "3")
    assert load_file(tmp_path / "p.csv").vocabulary.names == ("0", "1", "2")
    run("simulate", "self-correcting", "-o", tmp_path / "s.parquet", "--sequences", 3, "--mu", "1", "--alpha", "0.5")
    assert np.mean(load_file(tmp_path / "s.parquet").lengths) == pytest.approx(200, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("poisson", "--beta", "1"), "poisson has no --beta"),
        (("poisson", "--rate", "x"), "--rate is 'x'"),
        (("hawkes", "--alpha", "[[2]]"), "explodes"),
        (("hawkes", "--alpha", "missing.json"), "there is no such file"),
        (("self-correcting", "--mu", "fast"), "--mu is 'fast'"),
        (("poisson", "--t-end", "-1"), "t_end"),
    ],
)
def test_simulate_refuses_parameters_that_make_no_sense(tmp_path, arguments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ForetellError, match=reason):
        run("simulate", *arguments, "-o", tmp_path / "out.jsonl")
    assert not list(tmp_path.iterdir())


def test_simulate_refuses_a_folder_for_too_few_sequences(tmp_path: Path) -> None:
    with pytest.raises(ForetellError, match="cannot be split"):
        run("simulate", "poisson", "-o", tmp_path / "set", "--sequences", 2)
