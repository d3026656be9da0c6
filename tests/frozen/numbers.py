"""The frozen numbers: written once, and compared with what today's code gives.

python -m tests.frozen.numbers --write    numbers.json anew
python -m tests.frozen.numbers --exact    every bit, on the machine that wrote them; without --exact, to 1e-12 (samples 1e-9, float32 1e-5)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from tests.frozen.cases import CASES, FLOAT32, SAMPLES, Found

FILE = Path(__file__).with_name("numbers.json")
CLOSE = 1e-12
LESS_CLOSE = {SAMPLES: 1e-9, FLOAT32: 1e-5}  # below these keys
MOST_SHOWN = 10


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Sums do not depend on how many threads share them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compute(name: str) -> Found:
    """As JSON gives it back, which keeps every bit of a number."""
    with one_thread():
        return json.loads(json.dumps(CASES[name]()))


def read() -> dict[str, Found]:
    return json.loads(FILE.read_text(encoding="utf-8"))


def differences(found: Any, frozen: Any, close: float = CLOSE, where: str = "") -> Iterator[str]:
    """Where the two are not the same up to `close`, relative where numbers are above 1; digests are not looked at."""
    if isinstance(frozen, dict) and isinstance(found, dict):
        if "size" in frozen and "sum" in frozen:
            yield from _tensor(found, frozen, close, where)
            return
        if found.keys() != frozen.keys():
            yield f"{where}: keys {sorted(found)} and not {sorted(frozen)}"
        for key in frozen.keys() & found.keys() - {"digest"}:
            inner = max(close, LESS_CLOSE.get(key, 0.0)) if close else 0.0
            yield from differences(found[key], frozen[key], inner, f"{where}/{key}")
    elif isinstance(frozen, list) and isinstance(found, list):
        if len(found) != len(frozen):
            yield f"{where}: {len(found)} values and not {len(frozen)}"
        for place, (one, other) in enumerate(zip(found, frozen, strict=False)):
            yield from differences(one, other, close, f"{where}/{place}")
    elif isinstance(frozen, float) and isinstance(found, float):
        if not abs(found - frozen) <= close * max(1.0, abs(frozen)) and not (math.isnan(found) and math.isnan(frozen)):
            yield f"{where}: {found!r} and not {frozen!r}"
    elif type(found) is not type(frozen) or found != frozen:
        yield f"{where}: {found!r} and not {frozen!r}"


def _tensor(found: Found, frozen: Found, close: float, where: str) -> Iterator[str]:
    """A sum may cancel: what is close is told by the size of what is summed."""
    if found["shape"] != frozen["shape"]:
        yield f"{where}: shape {found['shape']} and not {frozen['shape']}"
    for key in ("sum", "size"):
        if not abs(found[key] - frozen[key]) <= close * max(1.0, frozen["size"]):
            yield f"{where}/{key}: {found[key]!r} and not {frozen[key]!r}"


def bits(found: Any, frozen: Any) -> Iterator[str]:
    """Where anything differs at all."""
    if json.dumps(found, sort_keys=True) != json.dumps(frozen, sort_keys=True):
        yield from list(differences(found, frozen, 0.0)) or ["/parameters: other bits, with the same sums"]


def write() -> None:
    text = json.dumps({name: compute(name) for name in CASES}, indent=None, separators=(",", ":"))
    FILE.write_text(text.replace('},"', '},\n"') + "\n", encoding="utf-8")


def compare(exact: bool) -> int:
    """One line a case; how many differ."""
    frozen, wrong = read(), 0
    for name in CASES:
        began = time.monotonic()
        found = compute(name)
        told = list(bits(found, frozen[name]) if exact else differences(found, frozen[name]))
        wrong += bool(told)
        sys.stdout.write(f"{time.monotonic() - began:6.2f} s  {name}: {'differs' if told else 'same'}\n")
        sys.stdout.writelines(f"    {line}\n" for line in told[:MOST_SHOWN])
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the frozen numbers, or compare with them.")
    parser.add_argument("--write", action="store_true", help="write numbers.json anew")
    parser.add_argument("--exact", action="store_true", help="compare every bit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, FORETELL_CACHE=cache):
        if options.write:
            write()
            return
        sys.exit(bool(compare(options.exact)))


if __name__ == "__main__":
    main()
