"""Hostile runs, data, paths and options under the commands themselves: what `foretell …` prints, and how it ends.

`cases` reads damaged input through the library; here whole commands meet it, with everything that they do afterwards. Each builder makes a
case in a folder and returns what runs it; a command that ends with exit code 1 or 2 raises the `ForetellError` of its message.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foretell.errors import ForetellError
from tests.cli.invoking import fine, foretell
from tests.hostile import structured

Case = Callable[[], object]
RULES = (
    ":- event(a). :- event(b). mood. :- embed(mood, 2).\na :- mood. b :- mood.\nmood <- a. !mood <- b.\nmood <- b.\n"
)
ROWS = "sequence,time,event,amount,channel\n" + "".join(
    f"s{n},2024-03-0{n % 9 + 1}T{hour:02}:{(7 * n) % 60:02}:00Z,{'ab'[(n + hour) % 2]},{n}.{hour},{'xyz'[n % 3]}\n"
    for n in range(14)
    for hour in (1, 3, 4, 9, 17)
)
NUMBERS = "".join(
    json.dumps(
        {
            "id": f"s{n}",
            "times": [0.5, 1.0 + n / 9, 4.0],
            "events": ["a", "ab"[n % 2], "b"],
            "t_end": 5.0,
            "grade": "uv"[n % 2],
        }
    )
    + "\n"
    for n in range(14)
)
TRAINED = {
    "poisson": [],
    "hawkes": [],
    "anhp": ["--covariates", "amount,channel"],
    "nhp": [],
    "s2p2": ["--dim", "4", "--layers", "1"],
    "thp": [],
    "rmtpp": [],
    "andtt": ["--program", "rules.ndtt"],
    "s2ndtt": ["--program", "rules.ndtt"],
}
SECRET = "TOP-SECRET,of,nobody\n" * 3
# `R`: a run, `D`: data, `O`: where output goes, `P`: a program
READING: list[list[str]] = [
    ["evaluate", "R", "--no-times"],
    ["evaluate", "R", "D", "--no-times", "--json"],
    ["predict", "R", "D"],
    ["predict", "R", "D", "--json", "--unknown", "skip"],
    ["sample", "R", "--history", "D", "--horizon", "1", "--n", "1", "--events", "20"],
    ["intensity", "R", "D", "--at", "4.5"],
    ["embed", "R", "D", "--out", "O.jsonl"],
    ["params", "R"],
    ["report", "R", "-o", "O.html"],
    ["compare", "R", "R"],
    ["explain", "R", "D", "--at", "3"],
    ["explain", "R", "D", "--at", "0.2", "--event", "a", "--json"],
    ["train", "--resume", "R", "--quiet"],
    ["plan", "P", "D"],
    ["check", "P", "--show", "plan"],
    ["replay", "P", "D"],
    ["train", "--data", "D", "--init", "R", "--out", "O", "--epochs", "1", "--quiet", "--no-floors"],
]
OF_DATA: list[list[str]] = [
    ["data", "describe", "D"],
    ["data", "convert", "D", "O.csv"],
    ["data", "convert", "D", "O.parquet"],
    ["data", "convert", "D", "O.xes"],
    ["data", "convert", "D", "O.jsonl.gz"],
    ["data", "convert", "D", "O"],
    ["train", "--data", "D", "--model", "poisson", "--out", "O", "--quiet"],
    ["train", "--data", "D", "--model", "hawkes", "--out", "O", "--quiet", "--no-floors"],
    ["replay", "P", "D"],
    ["plan", "P", "D"],
    ["why", "P", "D", "mood", "--at", "3"],
    ["evaluate", "R", "D", "--no-times"],
    ["predict", "R", "D"],
]
WORDS = [
    *("", "x", "-1", "0", "1", "1e400", "nan", "inf", "-inf", "9" * 400, "1" * 5_000, "0x1", "1e308", "1e-320"),
    *("10d", "-3h", "1e9y", "99999999999d", "1d1d", "2024-01-01", "0001-01-01", "9999-12-31", "2024-13-45T99:99"),
    *("\x1b[2J", "\u202e", "é", "a=b", "a=b=c", "=,=", ",,,", "sequence=sequence", "time=event,event=time", "../../x"),
    *("Mars/Base", "/etc/localtime", "../../etc/passwd", "UTC", "%Y", "%", "%Q%%%", "(", "a(", "f(a,", "s1", "all"),
    *(
        "[",
        "{",
        '{"a":' * 90,
        "/dev/zero",
        "/dev/stdin",
        "/",
        ".",
        "-",
        "--",
        "hf:x",
        "sql:",
        "postgresql://127.0.0.1:1/x",
    ),
]
_made: list[tempfile.TemporaryDirectory[str]] = []


def home() -> Path:
    """Data, a program and trained runs of several kinds; made once per process."""
    if not _made:
        _made.append(tempfile.TemporaryDirectory(prefix="foretell-hostile-"))
        folder = Path(_made[0].name)
        (folder / "rules.ndtt").write_text(RULES)
        (folder / "secret").write_text(SECRET)
        (folder / "dated.csv").write_text(ROWS)
        (folder / "plain.jsonl").write_text(NUMBERS)
        for kind, more in TRAINED.items():
            options = [str(folder / one) if one == "rules.ndtt" else one for one in more]
            small = [] if kind in ("poisson", "hawkes") else ["--epochs", "1"]
            data = folder / ("plain.jsonl" if kind in ("nhp", "s2ndtt") else "dated.csv")
            run = ["--out", folder / kind, "--quiet", *small, *([] if kind == "nhp" else ["--no-floors"])]
            fine("train", "--data", data, "--model", kind, *options, *run)
        # What a process imports once is not counted for a case: on a busy machine it takes seconds.
        run = folder / "poisson"
        fine("evaluate", run)
        fine("predict", run, folder / "dated.csv", "--json")
        fine("report", run, "-o", folder / "report.html")
    return Path(_made[0].name)


def command(words: list[str], where: dict[str, Path], *, shows: bool = True) -> Case:
    """What runs the command; a message becomes a `ForetellError`, and what it prints must be harmless.

    Where the user did not name the file with the secret, nothing that is printed `shows` it.
    """
    arguments: list[str] = []
    for word in words:
        stem, dot, suffix = word.partition(".")
        arguments.append(f"{where[stem]}{dot}{suffix}" if stem in where and len(stem) == 1 else word)

    def act() -> None:
        with contextlib.chdir(where["O"].parent):  # options name files, too
            outcome = foretell(*arguments)
        assert outcome.code in (0, 1, 2), outcome
        for text in (outcome.out, outcome.err):
            unclean = {one for one in text if not one.isprintable() and one not in "\n\t"}
            assert not unclean, (unclean, text[:500])
            assert shows or SECRET.split()[0] not in text, "the content of a file that nobody named"
        if outcome.code:
            assert outcome.err.strip(), "no message"
            raise ForetellError(outcome.err.replace("\t", " "))

    return act


def places(folder: Path, **more: Path) -> dict[str, Path]:
    shutil.rmtree(folder / "out", ignore_errors=True)
    (folder / "out").mkdir()
    return {"O": folder / "out" / "made", "P": home() / "rules.ndtt", **more}


def _copied(draw: random.Random, folder: Path) -> tuple[Path, Path]:
    """A run, and data that it can read."""
    return of_kind(draw.choice(sorted(TRAINED)), folder)


def of_kind(kind: str, folder: Path) -> tuple[Path, Path]:
    run = folder / "run"
    _removed(run)
    shutil.copytree(home() / kind, run)
    return run, home() / ("plain.jsonl" if kind in ("nhp", "s2ndtt") else "dated.csv")


def _removed(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def a_damaged_run(draw: random.Random, folder: Path) -> Case:
    """One file of a run says something else, in the right form or damaged, and a command uses the run."""
    import tomli_w

    from tests.hostile.cases import damaged

    run, data = _copied(draw, folder)
    victim = draw.choice(
        [one for one in sorted(run.iterdir()) if one.suffix not in (".ndtt", "") or draw.random() < 0.2]
    )
    whole = victim.read_bytes()
    if draw.random() < 0.2:
        victim.write_bytes(damaged(whole, draw))
    elif victim.suffix == ".safetensors":
        victim.write_bytes(
            structured.description(whole, draw) if draw.random() < 0.5 else structured.tensors(whole, draw)
        )
    elif victim.suffix == ".toml":
        victim.write_text(tomli_w.dumps(structured.toml_values(tomllib.loads(whole.decode()), draw)))
    elif victim.suffix == ".json":
        victim.write_text(json.dumps(structured.with_other_values(json.loads(whole), draw)))
    elif victim.suffix == ".jsonl":
        victim.write_text(structured.json_lines(whole.decode(), draw))
    else:
        victim.write_bytes(damaged(whole or b"x", draw))
    return command(draw.choice(READING), places(folder, R=run, D=data))


def a_wrong_path(draw: random.Random, folder: Path) -> Case:
    """A file of a run, or the data, is a folder, a pipe, a device, a link that leads nowhere or around, empty, or of another kind."""
    run, data = _copied(draw, folder)
    copy = folder / data.name
    _removed(copy)
    shutil.copy(data, copy)
    victim = draw.choice([copy, *sorted(run.iterdir())])
    other = draw.choice(sorted(run.iterdir())).read_bytes()
    _removed(victim)
    kinds: dict[str, Callable[[], object]] = {
        "folder": lambda: victim.mkdir(),
        "pipe": lambda: os.mkfifo(victim),
        "device": lambda: victim.symlink_to("/dev/zero"),
        "nowhere": lambda: victim.symlink_to(folder / "nothing"),
        "around": lambda: victim.symlink_to(victim.name),
        "secret": lambda: victim.symlink_to(home() / "secret"),
        "missing": lambda: None,
        "empty": lambda: victim.write_bytes(b""),
        "zeros": lambda: victim.write_bytes(bytes(5_000)),
        "other": lambda: victim.write_bytes(other),
        "inside": lambda: (victim.mkdir(), victim.joinpath("train.csv").symlink_to(victim)),
    }
    draw.choice(list(kinds.values()))()
    act = command(draw.choice([*READING, *OF_DATA]), places(folder, R=run, D=copy), shows=victim == copy)

    def acting() -> None:
        try:
            act()
        finally:
            assert (home() / "secret").read_text() == SECRET, "written through a link"

    return acting


def data_for_a_command(draw: random.Random, folder: Path) -> Case:
    """Data that are well-formed and wrong, or a splice of two kinds of file, and a command that works on them."""
    from tests.hostile import cases

    name = draw.choice(["x.jsonl", "x.csv", "x.tsv", "x.xes", "x.jsonocel", "x.parquet", "x.xes.gz"])
    path = folder / name
    _removed(path)
    if name == "x.parquet":
        structured.parquet(path, draw)
    elif name == "x.jsonl":
        path.write_text(structured.json_lines(draw.choice([NUMBERS, cases.JSONL]), draw))
    elif name in ("x.csv", "x.tsv"):
        text = structured.cells(draw.choice([ROWS, cases.DATED, cases.CSV]), draw, most=1, below=1)
        path.write_text(text.replace(",", "\t") if name == "x.tsv" else text, errors="surrogatepass")
    elif name == "x.jsonocel":
        path.write_text(json.dumps(structured.with_other_values(json.loads(cases.OCEL), draw)))
    else:
        text = structured.markup(cases.XES, draw).encode("utf-8", "surrogatepass")
        import gzip

        path.write_bytes(gzip.compress(text, mtime=0) if name.endswith("gz") else text)
    if draw.random() < 0.1:  # two kinds of file in one
        path.write_bytes(path.read_bytes() + draw.choice([b"PK\x03\x04", b"SQLite format 3\x00", b"PAR1", b"\x1f\x8b"]))
    return command(draw.choice(OF_DATA), places(folder, R=home() / draw.choice(sorted(TRAINED)), D=path))


def a_card(draw: random.Random, folder: Path) -> Case:
    """A folder of data whose card, or list of types, says something else."""
    import tomli_w

    whole = folder / "cards"
    _removed(whole)
    whole.mkdir()
    for split in ("train", "dev", "test"):
        (whole / f"{split}.jsonl").write_text(NUMBERS)
    card: dict[str, Any] = {
        "name": "x",
        "origin": "window",
        "time_unit": "days",
        "time_format": "number",
        "timezone": "UTC",
        "start": "day",
        "types": 2,
        "covariates": ["amount"],
        "static": ["grade"],
        "source": "y",
    }
    kept = {name: value for name, value in card.items() if draw.random() < 0.7} or card
    (whole / "dataset.toml").write_text(tomli_w.dumps(structured.toml_values(kept, draw)))
    if draw.random() < 0.4:
        (whole / "types.json").write_text(json.dumps(structured.with_other_values(["a", "b", "c"], draw)))
    return command(draw.choice(OF_DATA), places(folder, R=home() / "poisson", D=whole))


def an_option(draw: random.Random, folder: Path) -> Case:
    """A whole run and whole data, and options whose values make no sense."""
    words = list(draw.choice([*READING, *OF_DATA]))
    for _ in range(draw.choice([1, 1, 2])):
        words += [draw.choice(_options(words)), draw.choice(WORDS)]
    run, data = _copied(draw, folder)
    return command(words, places(folder, R=run, D=data))


def _options(words: list[str]) -> list[str]:
    """All options of a command that take a value, but those that start as many processes as they are told."""
    import typer

    from foretell.cli.main import app  # pyright: ignore[reportAttributeAccessIssue]

    found: Any = typer.main.get_command(app)
    for word in words[: 2 if words[0] == "data" else 1]:
        found = found.commands[word]
    left_out = {"--jobs", "--processes", "--allow", "--cache"}
    return [
        one.opts[0]
        for one in found.params
        if one.opts[0][:2] == "--" and not one.is_flag and one.opts[0] not in left_out
    ]


def a_parameter_file(draw: random.Random, folder: Path) -> Case:
    """Parameters as JSON, changed, put into a model."""
    kind = draw.choice(sorted(TRAINED))
    path, changed = folder / "whole.json", folder / "changed.json"
    for one in (path, changed):
        _removed(one)
    fine("params", home() / kind, "--out", path)
    changed.write_text(json.dumps(structured.with_other_values(json.loads(path.read_text()), draw)))
    words = ["params", "R", "--load", "C"]
    if kind in ("andtt", "s2ndtt") and draw.random() < 0.7:
        words = ["intensity", "D", "--program", "P", "--params", "C", "--at", "4.5"]
    run, data = of_kind(kind, folder)
    return command(words, places(folder, R=run, C=changed, D=data))


KINDS: dict[str, Callable[[random.Random, Path], Case]] = {
    "run of a command": a_damaged_run,
    "path": a_wrong_path,
    "data of a command": data_for_a_command,
    "card": a_card,
    "option": an_option,
    "parameters": a_parameter_file,
}
