"""Where shards are computed: the value of `--on` → a `WorkPlace`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import Literal

from foretell.errors import ForetellError

EXPECTED = "expected this, processes, processes:N, ray, ray:N or ray://HOST:PORT"


@dataclass(frozen=True)
class WorkPlace:
    """Where shards are computed: this process, several processes of this machine, or Ray."""

    kind: Literal["this", "processes", "ray"] = "this"
    size: int | None = None  # number of simultaneous shards; None: the number of cores
    address: str | None = None  # address of a running Ray cluster; None: start one on this machine

    def __str__(self) -> str:
        if self.address is not None:
            return self.address if self.address.startswith("ray://") else f"ray:{self.address}"
        return self.kind if self.size is None else f"{self.kind}:{self.size}"

    @property
    def cores(self) -> int:
        """The number of simultaneous shards on this machine."""
        return 1 if self.kind == "this" else self.size or usable_cores()


THIS_PROCESS = WorkPlace()


def with_jobs(place: WorkPlace, jobs: int) -> WorkPlace:
    """Return the place with `jobs` simultaneous shards; if no place was named and there are several, use processes of this machine."""
    if jobs == 1:
        return place
    if place.size is not None:
        raise ForetellError(f"`jobs={jobs}`: `on={place}` says how many already; leave one of them out")
    return replace(place, kind="processes" if place.kind == "this" else place.kind, size=jobs)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not available on this system
        return os.cpu_count() or 1


def parse_place(text: str) -> WorkPlace:
    """Parse a place from the command line.

    `ray://HOST:PORT` is Ray's client; `ray:HOST:PORT` and `ray:auto` join a cluster from one of its own machines.
    """
    if text in ("", "this"):
        return THIS_PROCESS
    if text.startswith("ray://"):
        if not re.fullmatch(r"ray://[^/:]+:\d+/?", text):
            raise ForetellError(f"`on={text}`: expected ray://HOST:PORT")
        return WorkPlace("ray", None, text.rstrip("/"))
    kind, _, rest = text.partition(":")
    if kind == "ray" and (rest == "auto" or re.fullmatch(r"[^/:]+:\d+", rest)):
        return WorkPlace("ray", None, rest)
    if kind in ("processes", "ray") and (not rest or rest.isdecimal()):
        if rest and int(rest) < 1:
            raise ForetellError(f"`on={text}`: expected 1 or more after the colon")
        return WorkPlace("ray" if kind == "ray" else "processes", int(rest) if rest else None)
    raise ForetellError(f"`on={text}`: {EXPECTED}")
