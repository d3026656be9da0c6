"""Hostile input by seed: damaged data files, archives, pickles, programs and run folders, and what happens when they are read.

`outcome(kind, seed, folder)` makes one case in `folder`, reads it in this process, and returns what came of it. A case is fine if it is
read, or refused with a `ForetellError` whose message is short and harmless; within 5 seconds of CPU and 1 GiB of memory.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from unittest.mock import patch

from foretell.data import load, load_file
from foretell.data.foreign import load_foreign
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.reading import limits
from tests.hostile import commands, described, structured
from tests.hostile.outside import watching

ROOT = Path(__file__).parents[1]
SECONDS, MEMORY = 5, 1 << 30
CACHES = ("FORETELL_CACHE", "XDG_CACHE_HOME", "MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR")  # the user's to place
TOKENS = [
    *(
        "NaN",
        "-Infinity",
        "1e999",
        "-1",
        "1e-320",
        "9" * 400,
        "9" * 5_000,
        "null",
        "true",
        '""',
        "{}",
        "[]",
        "[" * 40,
        "[" * 3_000,
    ),
    *(
        '{"a":' * 80,
        "\x00",
        "\x1b[2J",
        "\u202e",
        "\ud83d\ude00",
        "'",
        '"',
        "\\",
        "\\u0000",
        "=cmd()",
        "\n",
        "\r",
        "\r\n",
        "\t",
        ",",
        ";",
        "|",
    ),
    *(
        "#",
        "-",
        "--",
        "0x10",
        "1_000",
        "1,5",
        "2021-13-45T99:99",
        "2021-01-01T00:00:00Z",
        "1" * 20,
        "(",
        ")",
        "f(a,",
        "a(b(c))",
        "\ufeff",
    ),
    *(
        "x" * 50_000,
        "a," * 5_000,
        "a.b." * 200,
        "π",
        "\u0130",
        " " * 1_000,
        "inf",
        "1e308",
        "-0.0",
        "0.1e",
        "..",
        "/etc/passwd",
        "../../x",
    ),
]
SEQUENCES = [
    {
        "id": f"s{n}",
        "times": [0.5, 1.0, 1.0, 2.25],
        "events": ["a", "pass(x,y)", "b", "a"],
        "t_end": 3.0,
        "class": n % 2,
    }
    for n in range(6)
]
JSONL = "".join(json.dumps(one) + "\n" for one in SEQUENCES)
CSV = "sequence,time,event,arg1\n" + "".join(f"s{n},{t},go,x{n}\n" for n in range(6) for t in (0.5, 1.25, 3.0))
DATED = "sequence,time,event,t_end,amount\n" + "".join(
    f"s{n},2024-03-0{n + 1}T{hour}:30:00Z,go,2024-04-01,{n}.5\n" for n in range(6) for hour in (10, 12, 23)
)
EASY = json.dumps([{"time_since_start": [0.0, 1.5], "type_event": [0, 1], "seq_len": 2, "dim_process": 3}] * 4)
GATECH = pickle.dumps({"dim_process": 2, "train": [[{"time_since_start": 0.5, "type_event": 1}] * 3] * 3}, protocol=2)


def damaged(text: bytes, draw: random.Random, most: int = 4) -> bytes:
    """Bytes changed, cut out, repeated, put in from elsewhere, or a token in place of a value."""
    for _ in range(draw.randint(1, most)):
        start = draw.randrange(len(text) + 1)
        end = min(len(text), start + draw.choice([0, 0, 1, 2, 5, 30]))
        how = draw.random()
        if how < 0.45:
            middle = draw.choice(TOKENS).encode("utf-8", "surrogatepass")
        elif how < 0.65:
            middle = bytes(draw.randrange(256) for _ in range(draw.randint(1, 4)))
        elif how < 0.8:
            middle = text[start:end] * draw.choice([2, 3, 50])
        else:
            other = draw.randrange(len(text) + 1)
            middle = text[other : other + draw.choice([1, 10, 100])]
        text = text[:start] + middle + text[end:]
        if draw.random() < 0.05:
            text = text[: draw.randrange(len(text) + 1)]
        if len(text) > 2_000_000:
            text = text[:2_000_000]
    return text


def a_file(draw: random.Random, folder: Path) -> Callable[[], object]:
    name, whole = draw.choice([("x.jsonl", JSONL), ("x.csv", CSV), ("x.tsv", CSV.replace(",", "\t")), ("x.json", EASY)])
    path = folder / name
    path.write_bytes(damaged(whole.encode(), draw))
    return lambda: load_foreign(path) if name == "x.json" else load_file(path)


def an_archive(draw: random.Random, folder: Path) -> Callable[[], object]:
    name, whole = draw.choice([("x.jsonl.gz", JSONL), ("x.csv.gz", CSV)])
    path = folder / name
    packed = gzip.compress(damaged(whole.encode(), draw), mtime=0)
    path.write_bytes(packed if draw.random() < 0.5 else damaged(packed, draw, 2))
    return lambda: load_file(path)


def a_parquet(draw: random.Random, folder: Path) -> Callable[[], object]:
    path = folder / "x.parquet"
    path.write_bytes(damaged(_parquet(), draw, 3))
    return lambda: load_file(path)


def _parquet(made: dict[str, bytes] = {}) -> bytes:  # noqa: B006 (kept from case to case)
    if not made:
        import io

        import pyarrow
        import pyarrow.parquet as parquet

        out = io.BytesIO()
        columns = {"sequence": ["a"] * 3 + ["b"] * 3, "time": [0.5, 1.0, 2.0] * 2, "event": ["go", "stop", "go"] * 2}
        parquet.write_table(pyarrow.table(columns), out)
        made["x"] = out.getvalue()
    return made["x"]


XES = """<?xml version="1.0" encoding="UTF-8"?>
<log xes.version="1.0" xmlns="http://www.xes-standard.org/">
<trace><string key="concept:name" value="case1"/>
<event><string key="concept:name" value="register"/><date key="time:timestamp" value="2020-01-01T10:00:00.000+01:00"/></event>
<event><string key="concept:name" value="pay &amp; go"/><date key="time:timestamp" value="2020-01-02T10:00:00Z"/>
<int key="n" value="3"/></event>
</trace>
<trace><string key="concept:name" value="case2"/>
<event><string key="concept:name" value="register"/><date key="time:timestamp" value="2020-01-03T10:00:00Z"/></event>
</trace>
</log>
"""
OCEL = json.dumps(
    {
        "objectTypes": [{"name": "order", "attributes": []}],
        "eventTypes": [{"name": "place", "attributes": []}, {"name": "pay", "attributes": []}],
        "objects": [{"id": "o1", "type": "order"}, {"id": "o2", "type": "order"}],
        "events": [
            {
                "id": f"e{n}",
                "type": kind,
                "time": f"2022-01-0{n}T10:00:00Z",
                "relationships": [{"objectId": "o1", "qualifier": "q"}],
            }
            for n, kind in ((1, "place"), (2, "pay"), (3, "place"))
        ],
    }
)


def a_log(draw: random.Random, folder: Path) -> Callable[[], object]:
    """XES and OCEL."""
    name, whole = draw.choice([("x.xes", XES), ("x.xes.gz", XES), ("x.jsonocel", OCEL)])
    content = damaged(whole.encode(), draw)
    if draw.random() < 0.1:
        content = content.replace(b"?>\n", b'?>\n<!DOCTYPE log [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>\n', 1)
    path = folder / name
    path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    return lambda: load_file(path)


def a_database(draw: random.Random, folder: Path) -> Callable[[], object]:
    """OCEL in SQLite, and MEDS in a folder."""
    path = folder / "x.sqlite"
    path.write_bytes(damaged(_database(), draw, 3))
    return lambda: load_file(path)


def _database(made: dict[str, bytes] = {}) -> bytes:  # noqa: B006 (kept from case to case)
    if not made:
        import sqlite3

        with tempfile.TemporaryDirectory() as folder:
            connection = sqlite3.connect(Path(folder) / "x.sqlite")
            connection.executescript(
                "create table event(ocel_id text, ocel_type text); create table object(ocel_id text, ocel_type text);"
                "create table event_object(ocel_event_id text, ocel_object_id text, ocel_qualifier text);"
                "create table event_map_type(ocel_type text, ocel_type_map text);"
                "create table event_place(ocel_id text, ocel_time text);"
                "insert into event values('e1','place'),('e2','place'); insert into object values('o1','order');"
                "insert into event_object values('e1','o1','q'),('e2','o1','q');"
                "insert into event_map_type values('place','place');"
                "insert into event_place values('e1','2022-01-01T10:00:00Z'),('e2','2022-01-02T10:00:00Z');"
            )
            connection.commit()
            connection.close()
            made["x"] = (Path(folder) / "x.sqlite").read_bytes()
    return made["x"]


def a_medical(draw: random.Random, folder: Path) -> Callable[[], object]:
    """MEDS: shards of Parquet in a folder."""
    import pyarrow
    import pyarrow.parquet as parquet

    shard = folder / "meds" / "data" / "train" / "0.parquet"
    shard.parent.mkdir(parents=True, exist_ok=True)
    times = pyarrow.array([0, 86_400_000_000], pyarrow.timestamp("us"))
    ids, codes = pyarrow.array([1, 1], pyarrow.int64()), pyarrow.array(["A", "B"])
    parquet.write_table(pyarrow.table({"subject_id": ids, "time": times, "code": codes}), shard)
    (folder / "meds" / "metadata").mkdir(exist_ok=True)
    (folder / "meds" / "metadata" / "dataset.json").write_bytes(damaged(b'{"dataset_name": "x"}', draw))
    if draw.random() < 0.8:
        shard.write_bytes(damaged(shard.read_bytes(), draw, 2))
    return lambda: load(folder / "meds")


def a_pickle(draw: random.Random, folder: Path) -> Callable[[], object]:
    path = folder / "train.pkl"
    path.write_bytes(damaged(GATECH, draw, 6))
    return lambda: load_foreign(path)


def a_program(draw: random.Random, folder: Path) -> Callable[[], object]:
    texts = _programs()
    text = damaged(draw.choice(texts), draw).decode("utf-8", "replace")
    (folder / "files").mkdir(exist_ok=True)
    (folder / "files" / "teammate.csv").write_bytes(damaged(b"a,b\nx,y\nz,w\n", draw))
    return lambda: Program.from_text(text, folder=folder, undeclared=draw.choice(["error", "exogenous"]))


def _programs(made: list[bytes] = []) -> list[bytes]:  # noqa: B006 (kept from case to case)
    if not made:
        made += [
            path.read_bytes()
            for path in sorted((ROOT / "lang" / "golden").glob("*.ndtt"))
            if path.stat().st_size < 5_000
        ]
        made += [b':- table(t, "files/teammate.csv").\n:- event(e).\na(X) :- t(X, Y).\ne(X) :- a(X).\n']
    return made


def a_run(draw: random.Random, folder: Path) -> Callable[[], object]:
    copy = _run_folder(draw, folder)
    victim = draw.choice(sorted(copy.iterdir()))
    whole = victim.read_bytes()
    if victim.suffix == ".safetensors" and draw.random() < 0.8:
        size = int.from_bytes(whole[:8], "little")
        header = damaged(whole[8 : 8 + size], draw, 2)
        if draw.random() < 0.5:
            header = _other_number(whole[8 : 8 + size], draw)
        victim.write_bytes(len(header).to_bytes(8, "little") + header + whole[8 + size :])
    else:
        victim.write_bytes(damaged(whole, draw))
    return lambda: open_run(copy)


def _run_folder(draw: random.Random, folder: Path) -> Path:
    """A copy of a whole run, finished or not."""
    runs = [one for part in ("finished", "unfinished") for one in sorted((ROOT / "frozen" / "runs" / part).iterdir())]
    copy = folder / "run"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(draw.choice(runs), copy)
    return copy


def _other_number(header: bytes, draw: random.Random) -> bytes:
    """One number of the description replaced."""
    import re

    found = list(re.finditer(rb"(?<=[:\[, ])-?\d+\.?\d*(?:e-?\d+)?", header))
    one = draw.choice(found)
    new = draw.choice(
        ["-1", "0", "1e300", "1e-300", "NaN", "3.5", "9" * 30, "100000", "true", "null", '\\"x\\"', "[[]]"]
    )
    return header[: one.start()] + new.encode() + header[one.end() :]


def open_run(path: Path) -> None:
    """Everything that commands do with a run folder before they answer, and a few answers."""
    import numpy as np
    import torch

    from foretell.data import EventSequence
    from foretell.models.base import IntensityModel
    from foretell.train.checkpoint import load_checkpoint
    from foretell.train.run import RunFolder

    run = RunFolder.open(path)
    run.config(), run.metrics(), run.origin(), run.time_unit(), run.noise()
    if run.checkpoint.exists():
        load_checkpoint(run.checkpoint)
    network = run.network()
    if isinstance(network, IntensityModel):
        types = min(1, network.types - 1)
        past = EventSequence(np.array([0.5, 1.0]), np.array([types, 0], dtype=np.int32), 2.0)
        network.intensity(past, [1.5, 3.0])
        torch.manual_seed(0)
        network.sample(past, horizon=0.5, n=2, seed=0, events=50)


def a_value(draw: random.Random, folder: Path) -> Callable[[], object]:
    """Well-formed documents and tables with wrong values."""
    name = draw.choice(["x.jsonl", "x.csv", "x.tsv", "x.json", "x.jsonocel"])
    path = folder / name
    if name == "x.jsonl":
        text = structured.json_lines(JSONL, draw)
    elif name in ("x.csv", "x.tsv"):
        text = structured.cells(draw.choice([CSV, DATED]), draw)
        text = text.replace(",", "\t") if name == "x.tsv" else text
    else:
        text = json.dumps(structured.with_other_values(json.loads(EASY if name == "x.json" else OCEL), draw))
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return lambda: load_foreign(path) if name == "x.json" else load_file(path)


def a_setting(draw: random.Random, folder: Path) -> Callable[[], object]:
    """A run folder whose configuration, numbers or parameters say something else, each in the right form."""
    import tomli_w

    copy = _run_folder(draw, folder)
    victim = draw.choice(
        [one for one in sorted(copy.iterdir()) if one.suffix in (".toml", ".json", ".jsonl", ".safetensors")]
    )
    whole = victim.read_bytes()
    if victim.suffix == ".safetensors":
        victim.write_bytes(structured.tensors(whole, draw))
    elif victim.suffix == ".toml":
        victim.write_text(tomli_w.dumps(structured.toml_values(tomllib.loads(whole.decode()), draw)))
    elif victim.suffix == ".json":
        victim.write_text(json.dumps(structured.with_other_values(json.loads(whole), draw)))
    else:
        victim.write_text(structured.json_lines(whole.decode(), draw))
    return lambda: open_run(copy)


KINDS: dict[str, Callable[[random.Random, Path], Callable[[], object]]] = {
    "file": a_file,
    "archive": an_archive,
    "parquet": a_parquet,
    "pickle": a_pickle,
    "log": a_log,
    "database": a_database,
    "medical": a_medical,
    "program": a_program,
    "run": a_run,
    "value": a_value,
    "setting": a_setting,
    **commands.KINDS,
    **described.KINDS,
}


class TooLong(BaseException):
    """A case took more CPU than it may."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    def stop(signum: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def outcome(kind: str, seed: int, folder: Path) -> str:
    """`read`, `refused`, or what is wrong."""
    draw = random.Random(f"{kind} {seed}")
    act = KINDS[kind](draw, folder)
    caches, outside = dict.fromkeys(CACHES, str(folder / "cache")), []
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with bounded(SECONDS), limits(), patch.dict(os.environ, caches), watching([folder]) as outside:
            act()
        said = "read"
    except ForetellError as error:
        text = str(error)
        clean = all(one.isprintable() or one == "\n" for one in text)
        said = "refused" if text and clean and len(text) < 100_000 else "a message that is empty, endless or unclean"
    except TooLong:
        said = "too long: " + "".join(traceback.format_exc().splitlines(keepends=True)[-8:])
    except Exception:
        said = "traceback: " + "".join(traceback.format_exc().splitlines(keepends=True)[-8:])
    if (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) * 1024 > MEMORY:
        said = f"too much memory ({said[:40]})"
    if outside:
        said = f"outside: {outside[:3]} ({said[:40]})"
    return said


def main() -> None:
    """`python -m tests.hostile.cases KIND FIRST LAST`: counts, and what was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    given = parser.parse_args()
    import logging

    import torch

    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)  # processor time is that of all threads
    counts: collections.Counter[str] = collections.Counter()
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.first, given.last):
            said = outcome(given.kind, seed, Path(folder))
            counts[said.partition(":")[0]] += 1
            if said not in ("read", "refused"):
                sys.stdout.write(f"{given.kind} {seed}: {said}\n")
    sys.stdout.write(f"{given.kind}: {dict(counts)} in {time.process_time() - began:.0f} s of CPU\n")


if __name__ == "__main__":
    main()
