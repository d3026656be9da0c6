"""Messages of the library, which name settings as arguments of Python → the words of the command line.

`` `start="day"` `` is `--start day`, `` `max_events=` `` is `--max-events`, and so is `` `foretell.reading.limits(max_events=…)` ``.
"""

from __future__ import annotations

import re

# settings whose option has their name
SETTINGS = frozenset(
    {
        "allow",
        "carry_events",
        "columns",
        "covariates",
        "data",
        "database",
        "device",
        "downsample",
        "epochs",
        "events",
        "fit",
        "gpu_jobs",
        "horizon",
        "impossible",
        "init",
        "jobs",
        "label",
        "limit",
        "max_bytes",
        "max_events",
        "minutes",
        "model",
        "models",
        "observed_until",
        "on",
        "out",
        "participants",
        "processes",
        "program",
        "publish",
        "quick",
        "results",
        "resume",
        "seeds",
        "shares",
        "sorted",
        "split",
        "sql",
        "start",
        "static",
        "storage",
        "time_format",
        "timezone",
        "undeclared",
        "unknown",
        "window_events",
    }
)

OTHERWISE = {"rules": "limit"}  # settings whose option has another name

_SETTING = re.compile(r"`(?:[\w.]+\((?=[^`]*\)`))?([a-z_]+)=([^`]*?)(?<!\()\)?`")
_COLUMN = re.compile(r"""["'](\w+)["']: """)


def as_options(message: str) -> str:
    """A message with names of settings replaced by options of the command; other names are not changed."""
    return _SETTING.sub(_option, message)


def _option(found: re.Match[str]) -> str:
    name, value = OTHERWISE.get(found[1], found[1]), found[2]
    if name not in SETTINGS:
        return found[0]
    if value == "False":
        return f"--no-{name}"
    option = f"--{name.replace('_', '-')}"
    if value in ("", "…", "True"):
        return option
    return f"{option} {_plain(value)}"


def _plain(value: str) -> str:
    """`["amount"]` and `"amount"` are `amount`, `{"time": when}` is `time=when`; other values are as they are."""
    if value.startswith("{") and value.endswith("}"):
        return _COLUMN.sub(r"\1=", value[1:-1]).replace(", ", ",").replace('"', "")
    for before, after in (('["', '"]'), ("['", "']"), ('"', '"')):
        if len(value) > len(before + after) and value.startswith(before) and value.endswith(after):
            return value[len(before) : -len(after)]
    return value
