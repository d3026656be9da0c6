"""Check of the lines of `metrics.jsonl`, which may come from an untrusted file: objects with an epoch and plain values."""

from __future__ import annotations

import math
import sys
from typing import Any

NUMERIC = ("train", "dev", "nce", "lr", "train_seconds", "dev_seconds", "best_epoch", "dev_accuracy", "step")


def check_records(records: list[Any]) -> None:
    """Raise an error unless every line of `metrics.jsonl` is an object with an epoch and plain values."""
    for place, one in enumerate(records, start=1):
        if not isinstance(one, dict) or type(one.get("epoch")) is not int or not 0 <= one["epoch"] < 2**62:
            raise ValueError(f"record {place} has no epoch")
        for key, value in one.items():
            number = isinstance(value, int | float) and abs(value) <= sys.float_info.max
            if key in NUMERIC and not (value is None or number or value in (math.inf, -math.inf)):
                raise ValueError(f"record {place}: {key} is {str(value)[:40]!r}, expected a number")
            if not isinstance(value, int | float | str | None):
                raise ValueError(f"record {place}: {key[:40]!r} is no plain value")
