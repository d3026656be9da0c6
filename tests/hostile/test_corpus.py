"""Crash classes that were found once, each as the smallest input that showed it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from foretell.data import EventSequence, ReadOptions, Vocabulary, load_file
from foretell.data.csv_files import csv_table
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.build import load_model, save_model
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.last_event.thp import THP
from foretell.models.recurrent.nhp import NHP
from foretell.train.file_lock import FileLock
from foretell.train.floor_fits import kept_floors
from foretell.train.run import RunFolder
from tests.cli.invoking import foretell, refused

PAST = EventSequence([0.5, 1.0], [1, 0], 2.0)
WORDS = Vocabulary(("a", "b"))
SMALL = {
    "anhp": lambda: ANHP(WORDS, dim=4),
    "nhp": lambda: NHP(WORDS, dim=4),
    "thp": lambda: THP(WORDS, dim=4),
    "poisson": lambda: Poisson(WORDS),
}


def test_times_as_text_in_one_sequence_and_numbers_in_another_are_a_message(tmp_path: Path):
    rows = [{"times": [1.0, 2.0], "events": ["a", "b"]}, {"times": ["2021-01-01", "2021-01-02"], "events": ["a", "a"]}]
    for order in (rows, rows[::-1]):
        (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in order))
        with pytest.raises(ForetellError, match="times"):
            load_file(tmp_path / "x.jsonl")


@pytest.mark.parametrize("name", ["x" * 100_000, f"f({','.join('a' * 50_000)})"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_file_whose_every_event_name_is_too_long_is_a_short_message(suffix: str, name: str, tmp_path: Path):
    path = tmp_path / f"x.{suffix}"
    rows = {"csv": f'sequence,time,event\na,1,"{name}"\n', "jsonl": json.dumps({"times": [1.0], "events": [name]})}
    path.write_text(rows[suffix])
    with pytest.raises(ForetellError, match="characters") as caught:
        load_file(path)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("fast", [True, False])
def test_a_table_of_endless_columns_is_a_message_before_it_is_parsed(fast: bool, tmp_path: Path, monkeypatch):
    path = tmp_path / "x.csv"
    path.write_text(f"sequence,time,event,{','.join(f'c{number}' for number in range(200_000))}\na,1,x\n")
    with monkeypatch.context() as patched:
        patched.setattr("foretell.data.csv_files.TextTable", None)  # nothing is made of it
        (problem,) = csv_table(path, ReadOptions(), fast).problems
    assert problem.text.startswith("200,003 columns; expected")


@pytest.mark.parametrize(("name", "value"), [("mu", -1.0), ("alpha", -1e300), ("beta", 0.0), ("beta", -1.0)])
def test_a_hawkes_process_with_rates_that_none_has_is_not_loaded(name: str, value: float, tmp_path: Path):
    model = Hawkes(WORDS)
    with torch.no_grad():
        getattr(model, name).fill_(value)
    save_model(model, tmp_path / "model.safetensors")
    with pytest.raises(ForetellError, match=f"not a foretell model.*{name}"):
        load_model(tmp_path / "model.safetensors")


def large(model: IntensityModel, value: float) -> IntensityModel:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(value * torch.sign(parameter + 1e-30))
    return model.eval()


@pytest.mark.parametrize("value", [1e30, 1e150, 1e300])
@pytest.mark.parametrize("kind", ["anhp", "nhp", "thp", "poisson"])
def test_drawing_from_parameters_that_overflow_ends_soon_in_draws_or_a_message(kind: str, value: float):
    model = large(SMALL[kind](), value)
    try:
        model.sample(PAST, horizon=0.5, n=2, seed=0, events=20)
    except ForetellError as error:
        assert "nothing can be drawn" in str(error)


def test_a_poisson_process_whose_rates_underflow_draws_nothing():
    model = Poisson(WORDS)
    with torch.no_grad():
        model.log_rate.fill_(-1e30)
    futures = model.sample(PAST, horizon=0.5, n=2, seed=0)
    assert all(len(one.times) == 0 for one in futures.futures)


ENCODED = '<?xml version="1.0" encoding="{}"?><log><trace><string key="concept:name" value="\u00e9"/></trace></log>'


@pytest.mark.parametrize("name", ["utf-7", "idna", "undefined", "punycode", "big5", "bz2", "rot13", "cp037"])
def test_an_encoding_that_is_none_for_xml_is_a_message(name: str, tmp_path: Path):
    (tmp_path / "x.xes").write_bytes(ENCODED.format(name).encode("latin-1"))
    with pytest.raises(ForetellError, match="not XML that can be read"):
        load_file(tmp_path / "x.xes")


@pytest.mark.parametrize("form", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_text_in_utf_16_is_told_as_such(suffix: str, form: str, tmp_path: Path):
    text = "sequence,time,event\na,1,x\n"
    (tmp_path / f"x.{suffix}").write_bytes(text.encode(form) if form == "utf-16" else b"\xfe\xff" + text.encode(form))
    with pytest.raises(ForetellError, match="UTF-16 text; save it as UTF-8"):
        load_file(tmp_path / f"x.{suffix}")


def test_a_view_in_a_database_reads_no_other_file(tmp_path: Path):
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "secret").write_text("TOP-SECRET")
    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        connection.execute(
            f"create view v as select 'a' as sequence, 1.0 as time, content as event from read_text('{tmp_path}/secret')"
        )
    said = refused("data", "describe", "--sql", "SELECT * FROM v", "--database", tmp_path / "x.duckdb")
    assert "TOP-SECRET" not in said and "disabled" in said


def test_a_lock_that_is_a_link_or_a_pipe_is_not_written_through(tmp_path: Path):
    kept, path = tmp_path / "kept", tmp_path / ".lock"
    kept.write_text("precious")
    path.symlink_to(kept)
    with pytest.raises(ForetellError, match="it is a link"):
        FileLock(path).try_acquire()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ForetellError, match="no ordinary file"):
        FileLock(path).try_acquire()
    assert kept.read_text() == "precious"


def test_a_lock_that_cannot_be_written_names_its_place_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full() -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("socket.gethostname", full)
    with pytest.raises(ForetellError, match="run: cannot be written: No space left"):
        FileLock(tmp_path / "run" / ".lock").try_acquire()
    assert not (tmp_path / "run").exists()


WRONG_FACTS: list[Any] = [
    *({"reading": 5}, {"reading": {"columns": {}}}, {"reading": {"start": []}}, {"reading": {"sorted": True}}),
    *({"clock": 3}, {"clock": {"unit": 1}}, {"clock": {"seconds_per_unit": -1.0, "zone": "UTC"}}),
    *(
        {"clock": {"seconds_per_unit": None, "zone": "UTC"}},
        {"clock": {"absolute": "x"}},
        {"time_unit": 5},
        {"origin": []},
    ),
    *({"clock": {"zone": "../../etc/passwd", "seconds_per_unit": 1.0}}, 3),
]


@pytest.mark.parametrize("facts", WRONG_FACTS)
def test_facts_of_a_run_that_are_none_are_a_message(facts: Any, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(Path(__file__).parents[1] / "frozen" / "runs" / "finished" / "poisson", run)
    (run / "environment.json").write_text(json.dumps({"data": facts}))
    with pytest.raises(ForetellError, match=r"environment\.json: .*expected"):
        RunFolder.open(run).reading()


@pytest.mark.parametrize("trained", [-1, 1000, "x", 0.5, []])
def test_a_model_of_rules_that_trained_more_names_than_it_has_is_not_loaded(trained: Any, tmp_path: Path):
    path = tmp_path / "model.safetensors"
    whole = (Path(__file__).parents[1] / "frozen" / "runs" / "finished" / "andtt" / "model.safetensors").read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    about = json.loads(header["__metadata__"]["foretell"])
    about["spec"]["trained"] = trained
    header["__metadata__"]["foretell"] = json.dumps(about)
    written = json.dumps(header).encode()
    path.write_bytes(len(written).to_bytes(8, "little") + written + whole[8 + size :])
    with pytest.raises(ForetellError, match="trained is"):
        load_model(path)


def test_thousands_of_unknown_names_cost_linear_time():
    text = f"a :- {', '.join(f'b{number}' for number in range(6_000))}.\n"
    began = time.process_time()
    with pytest.raises(ForetellError):
        Program.from_text(text)
    assert time.process_time() - began < 15.0  # about one second; it was a minute


def test_data_whose_name_is_no_unicode_do_not_become_a_run(tmp_path: Path):
    data = os.fsencode(tmp_path) + b"/x\xff.csv"
    with open(data, "wb") as file:
        file.write(b"sequence,time,event\n" + b"".join(b"a,%d,x\n" % number for number in range(1, 20)))
    said = refused("train", "--data", os.fsdecode(data), "--model", "poisson", "--out", tmp_path / "run", "--quiet")
    assert "is not Unicode" in said and not (tmp_path / "run").exists()


def ended(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-"])
def test_a_stream_that_is_closed_is_an_empty_one(closed: str):
    words = "from foretell.cli.main import run; run()"
    found = ended(["sh", "-c", f'"$0" -c "$1" check - </dev/null {closed}', sys.executable, words])
    assert found.returncode in (0, 1) and "Traceback" not in found.stderr


def test_letters_that_a_terminal_does_not_know_are_escaped(tmp_path: Path):
    (tmp_path / "x.csv").write_text("sequence,time,event\na,1,\u00e9\u2603\na,2,b\n", encoding="utf-8")
    words = ["-m", "foretell", "data", "describe", str(tmp_path / "x.csv")]
    found = ended([sys.executable, *words], PYTHONIOENCODING="ascii")
    assert found.returncode == 0 and "\\xe9" in found.stdout, found.stderr


@pytest.mark.parametrize(
    "floors", [3, [], {"floors": "x"}, {"floors": {"Poisson": "x"}}, {"floors": {"Poisson": {"score": "y"}}}]
)
def test_floors_of_a_run_that_are_none_are_a_message(floors: Any, tmp_path: Path):
    (tmp_path / "floors.json").write_text(json.dumps(floors))
    with pytest.raises(ForetellError, match=r"floors\.json: its floors"):
        kept_floors(RunFolder(tmp_path))


def test_an_endless_limit_of_a_replay_is_a_wrong_option():
    for limit in ("inf", "1e308", "nan"):
        assert foretell("replay", "robocup", "robocup", "--limit", limit, "--quiet").code in (1, 2)


NINES = "9" * 5_000


@pytest.mark.parametrize(
    "text",
    [
        f"level(1..{NINES}).",
        f"level({NINES}..{NINES}).",
        "level(1..99999999999999999999).",
        f"level(1..{'9' * 900}).",
        f"a(1).\nb(X) :- a(X), X < {NINES}.",
        f"a(1).\nb :- count(a(_)) >= {NINES}.",
    ],
)
def test_an_endless_integer_of_a_program_is_a_short_message(text: str):
    with pytest.raises(ForetellError) as caught:
        Program.from_text(text)
    assert len(str(caught.value)) < 5_000


@pytest.mark.parametrize("kind", ["anhp", "nhp", "thp"])
def test_a_unit_that_is_a_huge_integer_is_a_number_like_any_other(kind: str):
    model = SMALL[kind]()
    again = type(model).from_spec({**model.spec(), "time_scale": 10**90}, WORDS)
    assert isinstance(again.units()["time_scale"], float)
