"""Hostile files that describe other things: manifests and columns of packed data, configurations, tables and logs of programs.

Each builder makes a case in a folder and returns what runs it, as those of `commands` do.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import tomllib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from foretell.data.packed.layout import MANIFEST, joined_checksum
from tests.cli.invoking import fine
from tests.hostile import structured
from tests.hostile.commands import ROWS, Case, command, home, of_kind, places

NUMBERED = [0, 1, -1, 2**31 - 1, -(2**31), 7]
TABLED = """:- event(a). :- event(b). mood. :- embed(mood, 2). :- embed(a, 2). :- embed(price, 2).
:- table(kind, "kinds.csv"). :- table(price, "prices.csv", features(amount)).
:- features(a, amount). a :- mood. b :- mood, price(_). a :- kind(_), price(_). mood <- a. !mood <- b. mood <- b.
"""
KINDS_CSV, PRICES_CSV = "name\na\nb\nx\n", "name,amount\na,1.5\nb,2\n"
CONFIG = """[data]
path = "dated.csv"
covariates = ["amount"]
columns = {time = "time"}
[model]
kind = "anhp"
dim = 4
layers = 1
[train]
epochs = 1
lr = 0.01
batch = 8
seed = 1
"""
SPACE = """[data]
path = "dated.csv"
[model]
kind = "poisson"
[train]
epochs = 1
lr = [0.01, 0.1]
"""
LONG = {"epochs", "layers", "patience", "trials", "jobs", "processes"}  # how long it takes is for the user to say
_packed: list[tempfile.TemporaryDirectory[str]] = []


def packed() -> Path:
    """Packed data; made once per process."""
    if not _packed:
        _packed.append(tempfile.TemporaryDirectory(prefix="foretell-hostile-"))
        folder = Path(_packed[0].name)
        (folder / "sets").mkdir()
        for split in ("train", "dev", "test"):
            (folder / "sets" / f"{split}.csv").write_text(ROWS if split == "train" else ROWS.replace("s1", "t1"))
        (folder / "sets" / "dataset.toml").write_text('name = "x"\ncovariates = ["amount", "channel"]\n')
        fine("data", "pack", folder / "sets", folder / "packed")
    return Path(_packed[0].name) / "packed"


def tabled() -> Path:
    """A run whose program has tables; made once per process."""
    run = packed().parent / "tabled"
    if not run.exists():
        rules = run.parent / "rules"
        rules.mkdir()
        (rules / "p.ndtt").write_text(TABLED)
        (rules / "kinds.csv").write_text(KINDS_CSV)
        (rules / "prices.csv").write_text(PRICES_CSV)
        size = ("--dim", "4", "--epochs", "1", "--quiet", "--no-floors")
        fine(
            "train",
            "--data",
            home() / "dated.csv",
            "--program",
            rules / "p.ndtt",
            "--model",
            "andtt",
            "--out",
            run,
            *size,
        )
    return run


def a_packed_folder(draw: random.Random, folder: Path) -> Case:
    """A manifest that says something else, or columns with other values, under checksums that are right."""
    from tests.hostile.cases import damaged

    copy = folder / "packed"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(packed(), copy)
    files = [one for one in sorted(copy.rglob("*")) if one.is_file()]
    manifest = copy / MANIFEST
    how = draw.random()
    if how < 0.4:
        said = structured.with_other_values(json.loads(manifest.read_bytes()), draw)
        manifest.write_text(json.dumps(said))
    elif how < 0.5:
        one = draw.choice(files)
        one.write_bytes(damaged(one.read_bytes(), draw))
    else:
        _other_column(draw, copy)
    words = draw.choice(
        [
            ["data", "describe", "D"],
            ["data", "convert", "D", "O"],
            ["data", "pack", "D", "O"],
            ["evaluate", "R", "D", "--no-times"],
            ["predict", "R", "D", "--split", "train"],
            ["train", "--data", "D", "--model", "poisson", "--out", "O", "--quiet"],
            ["replay", "P", "D", "--split", "train", "--quiet"],
        ]
    )
    return command(words, places(folder, D=copy, R=of_kind("anhp", folder)[0]))


def _other_column(draw: random.Random, copy: Path) -> None:
    """Values of a column are hostile, and the checksum of its split is that of the new values."""
    split = copy / draw.choice(["train", "dev", "test"])
    one = draw.choice([one for one in sorted(split.iterdir()) if one.stat().st_size])
    kind, size = one.suffix[1], int("".join(filter(str.isdigit, one.suffix))) // 8
    dtype = np.dtype({"f": f"f{size}", "i": f"i{size}"}.get(kind, "u1"))
    values = np.frombuffer(one.read_bytes(), dtype=dtype).copy()
    where = draw.sample(range(len(values)), min(len(values), draw.choice([1, 3, len(values)])))
    with np.errstate(all="ignore"):
        for place in where:
            numbers = (
                structured.NUMBERS
                if dtype.kind == "f"
                else [one % 256 if dtype.kind == "u" else one for one in NUMBERED]
            )
            values[place] = draw.choice(numbers)
    one.write_bytes(values.tobytes())
    manifest = json.loads((copy / MANIFEST).read_bytes())
    from foretell.data.packed.layout import read_split

    entry = read_split(copy / MANIFEST, split.name, manifest["splits"][split.name])
    parts = (zlib.crc32((split / file.name).read_bytes()) for file in entry.files())
    for shard in manifest["splits"][split.name]["shards"]:
        shard[4] = joined_checksum(parts)
    (copy / MANIFEST).write_text(json.dumps(manifest))


def a_configuration(draw: random.Random, folder: Path) -> Case:
    """A configuration of `train` or `tune` whose values make no sense."""
    import matplotlib.font_manager  # starts a program, the first time  # noqa: F401
    import tomli_w

    from tests.hostile.cases import damaged

    path = folder / "x.toml"
    place = draw.choice([CONFIG, CONFIG, SPACE])
    whole = place.replace("dated.csv", str(home() / "dated.csv"))
    if draw.random() < 0.2:
        path.write_bytes(damaged(whole.encode(), draw))
    else:
        said = structured.toml_values(tomllib.loads(whole), draw)
        path.write_text(tomli_w.dumps(_short(said)))
    words = ["train", "C", "--out", "O", "--quiet", "--no-floors"]
    if place is SPACE:
        words = ["tune", "C", "--out", "O", "--trials", "1", "--quiet"]
    return command(words, places(folder, C=path))


def _short(said: Any) -> Any:
    """Numbers that say how much is to be done are small."""
    if not isinstance(said, dict):
        return said
    return {
        name: min(value, 2) if name in LONG and type(value) in (int, float) else _short(value)
        for name, value in said.items()
    }


def tables_of_a_program(draw: random.Random, folder: Path) -> Case:
    """A program with tables, features and lifetimes, whose tables are hostile, or other ones given with `--table`."""
    from tests.hostile.cases import damaged

    where = folder / "rules"
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    files = {"kinds.csv": KINDS_CSV, "prices.csv": PRICES_CSV, "other.csv": draw.choice([KINDS_CSV, PRICES_CSV])}
    for name, text in files.items():
        changed = (
            structured.cells(text, draw).encode("utf-8", "surrogatepass")
            if draw.random() < 0.5
            else damaged(text.encode(), draw)
        )
        (where / name).write_bytes(changed if draw.random() < 0.6 else text.encode())
    program = where / "p.ndtt"
    written = damaged(TABLED.encode(), draw, 2) if draw.random() < 0.4 else TABLED.encode()
    program.write_bytes(written)
    table = (
        ["--table", f"{draw.choice(['kind', 'price', 'none', ''])}={where / 'other.csv'}"]
        if draw.random() < 0.6
        else []
    )
    words = draw.choice(
        [
            ["check", "C"],
            ["check", "C", "--show", "plan"],
            ["fmt", "C", "--diff"],
            ["replay", "C", "D", "--quiet", *table],
            ["plan", "C", "D"],
            ["why", "C", "D", "a", "--at", "3"],
            [
                "train",
                "--data",
                "D",
                "--program",
                "C",
                "--model",
                draw.choice(["andtt", "s2ndtt"]),
                "--out",
                "O",
                "--epochs",
                "1",
                "--dim",
                "4",
                "--quiet",
                "--no-floors",
            ],
            ["predict", "R", "E", *table],
        ]
    )
    return command(words, places(folder, C=program, D=home() / "dated.csv", E=home() / "dated.csv", R=tabled()))


KINDS: dict[str, Callable[[random.Random, Path], Case]] = {
    "packed": a_packed_folder,
    "configuration": a_configuration,
    "tables": tables_of_a_program,
}
