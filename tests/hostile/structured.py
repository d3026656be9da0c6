"""Documents that are well-formed and wrong: values of JSON and TOML, cells of tables, and parameters replaced by hostile ones.

Damaged bytes are mostly refused by a parser. These go further in, to what is made of the values.
"""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

VALUES: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        1,
        2**31,
        2**63,
        10**30,
        1e308,
        -1e308,
        1e-320,
        float("nan"),
        float("inf"),
        float("-inf"),
        0.1,
    ),
    *("", "x", "NaN", "1e999", "9" * 400, "f(a", "a(b(c))", "\x1b[2J", "\u202e", "x" * 20_000, "2021-13-45"),
    *("2021-01-01T00:00:00Z", "0000-00-00", "9999-12-31T23:59:60Z", "../../etc/passwd", "cuda", "auto", "float16"),
    *([], {}, [[]], {"a": []}, [None], [1, "x"], ["x"] * 2_000, {"": ""}),
]
NUMBERS = [0.0, -1.0, 1e3, 1e30, -1e30, 1e300, -1e300, 1e-300, float("nan"), float("inf"), float("-inf")]
PLACES = 300  # of a document, among which one is drawn


def with_other_values(document: Any, draw: random.Random) -> Any:
    """A document with one to three of its values, at any depth, replaced, removed, repeated or put under another key."""
    for _ in range(draw.randint(1, 3)):
        places = _places(document, draw)
        if not places:
            return draw.choice(VALUES)
        home, key = draw.choice(places)
        how = draw.random()
        if how < 0.7:
            home[key] = copy.deepcopy(draw.choice(VALUES))
        elif how < 0.8:
            del home[key]
        elif isinstance(home, list):
            home.insert(key, copy.deepcopy(draw.choice(home)))
        else:
            home[draw.choice(["x", "id", "times", "types", "t_end"])] = copy.deepcopy(home[key])
    return document


def _places(document: Any, draw: random.Random) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting and len(found) < PLACES:
        home = waiting.pop(draw.randrange(len(waiting)))
        keys = list(home) if isinstance(home, dict) else list(range(len(home))) if isinstance(home, list) else []
        found += [(home, key) for key in keys]
        waiting += [home[key] for key in keys]
    return found


def json_lines(text: str, draw: random.Random) -> str:
    """JSON lines with values replaced in some of them."""
    lines = with_other_values([json.loads(line) for line in text.splitlines()], draw)
    return "".join(json.dumps(one) + "\n" for one in (lines if isinstance(lines, list) else [lines]))


def cells(text: str, draw: random.Random, *, most: int = 5, below: int = 0) -> str:
    """A table with up to `most` cells replaced, in rows from `below` on, or rows repeated, removed or moved."""
    separator = ","
    rows = [line.split(separator) for line in text.splitlines()]
    for _ in range(draw.randint(1, most)):
        row = draw.choice(rows[below:])
        row[draw.randrange(len(row))] = str(draw.choice([*VALUES[:-8], *NUMBERS])).replace("\n", " ")
    if draw.random() < 0.3:
        rest = rows[below:]
        draw.shuffle(rest)
        rows = rows[:below] + rest
    return "".join(separator.join(row) + "\n" for row in rows if below or draw.random() < 0.98)


def toml_values(table: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """A configuration with other values, of those that TOML can write."""
    import tomli_w

    found = with_other_values(copy.deepcopy(table), draw)
    try:
        tomli_w.dumps(found)
    except (TypeError, AttributeError, ValueError):
        return toml_values(table, draw)
    return found


def tensors(whole: bytes, draw: random.Random) -> bytes:
    """A safetensors file in which numbers of one tensor are hostile; all of it stays well-formed."""
    from safetensors.numpy import load, save

    size = int.from_bytes(whole[:8], "little")
    about = json.loads(whole[8 : 8 + size]).get("__metadata__")
    found = {name: value.copy() for name, value in load(whole).items()}
    kinds = [name for name, value in sorted(found.items()) if value.size and value.dtype.kind in "fi"]
    for name in draw.sample(kinds, min(len(kinds), draw.choice([1, 1, 2, len(kinds)]))):
        value = found[name]
        where = np.random.default_rng(draw.randrange(1 << 30)).random(value.shape) < draw.choice([0.05, 0.5, 1.0])
        with np.errstate(all="ignore"):
            number = draw.choice(NUMBERS)
            value[where] = (
                np.array(number).astype(value.dtype) if value.dtype.kind == "f" else draw.randrange(-5, 1 << 30)
            )
    return save(found, about)


def description(whole: bytes, draw: random.Random) -> bytes:
    """A safetensors file whose own description of the model, JSON inside its header, says something else."""
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    about = header.get("__metadata__", {})
    for name, text in list(about.items()):
        about[name] = json.dumps(with_other_values(json.loads(text), draw))
    written = json.dumps(header).encode()
    return len(written).to_bytes(8, "little") + written + whole[8 + size :]


def markup(text: str, draw: random.Random) -> str:
    """XML whose attributes have other values, or whose elements are repeated, removed or put inside each other."""
    for _ in range(draw.randint(1, 4)):
        how = draw.random()
        if how < 0.6:
            found = list(re.finditer(r'(?<==")[^"]*(?=")', text))
            new = quoteattr(str(draw.choice([*VALUES[:-8], *NUMBERS])), {"\x1b": "&#27;"})[1:-1]
        elif how < 0.8:
            found = list(re.finditer(r"<(string|date|int) [^>]*/>", text))
            new = draw.choice(
                ["", '<list key="x"><values><int key="a" value="9"/></values></list>', '<id key="" value=""/>']
            )
        else:
            found = list(re.finditer(r"</?(event|trace)>", text))
            new = draw.choice(["", "<event>", "</trace><trace>", "<event>" * 200, "<global scope='event'>"])
        one = draw.choice(found)
        text = text[: one.start()] + new + text[one.end() :]
    return text


def parquet(path: Path, draw: random.Random) -> None:
    """A table whose columns have types, and values, that a table of events has not."""
    import pyarrow
    from pyarrow import parquet as files

    def column(good: Any) -> Any:
        dates = pyarrow.array([0, -1, 2**52, 5], pyarrow.timestamp(draw.choice(["s", "ms", "us", "ns"])))
        others = [
            *(
                pyarrow.nulls(4),
                dates,
                dates.cast("int64").cast(pyarrow.duration("s")),
                pyarrow.array([b"\xff", b"", None, b"a"]),
            ),
            *(
                pyarrow.array([[1], [], None, [2]]),
                pyarrow.array([{"a": 1}, {}, None, {"a": 2}]),
                pyarrow.array([1, 2, 3, 4], "uint64"),
            ),
            *(pyarrow.array([0.5, float("nan"), float("inf"), None]), pyarrow.array([True, False, None, True])),
            *(pyarrow.array(["a", "", None, "x" * 20_000]), pyarrow.array(["a", "b", "a", None]).dictionary_encode()),
            *(pyarrow.array([2**63, 1, 2, 2**64 - 1], "uint64"), pyarrow.array([-(2**31), 2**40, 0, None], "int64")),
            *(pyarrow.array([1, 2, None, 4], "int8"), pyarrow.array([1, 2, 3, 4], pyarrow.decimal128(38, 5))),
            *(
                pyarrow.array([1, 2, 3, 4], pyarrow.time32("s")),
                pyarrow.array([10**6, -(10**6), 0, 1], pyarrow.date32()),
            ),
        ]
        return good if draw.random() < 0.6 else draw.choice(others)

    good: dict[str, Any] = {
        "sequence": ["a", "a", "b", "b"],
        "time": [1.0, 2.0, 0.5, 4.0],
        "event": ["a", "b", "a", "b"],
    }
    for name in ("arg1", "t_start", "t_end", "score_from", "metadata", "amount", ""):
        if draw.random() < 0.2:
            good[name] = pyarrow.nulls(4)
    files.write_table(pyarrow.table({name: column(value) for name, value in good.items()}), path)
