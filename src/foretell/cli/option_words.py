"""Translates messages of the library, which name settings as Python arguments, to the options of the command line.

Examples: `` `start="day"` `` → `--start day`; `` `max_events=` `` and `` `foretell.reading.limits(max_events=…)` `` → `--max-events`.
"""

from __future__ import annotations

import re

# settings that are options of the same name
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

OTHERWISE = {"rules": "limit"}  # settings that are options of another name

_SETTING = re.compile(r"`(?:[\w.]+\((?=[^`]*\)`))?([a-z_]+)=([^`]*?)(?<!\()\)?`")
_COLUMN = re.compile(r"""["'](\w+)["']: """)


def as_options(message: str) -> str:
    """Return a message with settings replaced by command-line options; other names are not changed."""
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
    """Translate `["amount"]` and `"amount"` to `amount`, and `{"time": when}` to `time=when`; other values are unchanged."""
    if value.startswith("{") and value.endswith("}"):
        return _COLUMN.sub(r"\1=", value[1:-1]).replace(", ", ",").replace('"', "")
    for before, after in (('["', '"]'), ("['", "']"), ('"', '"')):
        if len(value) > len(before + after) and value.startswith(before) and value.endswith(after):
            return value[len(before) : -len(after)]
    return value
