"""Where shards are worked on: the value of `--on` → a `WorkPlace`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import Literal

from foretell.errors import ForetellError

EXPECTED = "expected this, processes, processes:N, ray, ray:N or ray://HOST:PORT"


@dataclass(frozen=True)
class WorkPlace:
    """This process, several processes of this machine, or Ray."""

    kind: Literal["this", "processes", "ray"] = "this"
    size: int | None = None  # shards at a time; None: as many as there are cores
    address: str | None = None  # of a Ray cluster that is running; None: one is started on this machine

    def __str__(self) -> str:
        if self.address is not None:
            return self.address if self.address.startswith("ray://") else f"ray:{self.address}"
        return self.kind if self.size is None else f"{self.kind}:{self.size}"

    @property
    def cores(self) -> int:
        """Shards at a time on this machine."""
        return 1 if self.kind == "this" else self.size or usable_cores()


THIS_PROCESS = WorkPlace()


def with_jobs(place: WorkPlace, jobs: int) -> WorkPlace:
    """A place with so many shards at a time; several in no named place are processes of this machine."""
    if jobs == 1:
        return place
    if place.size is not None:
        raise ForetellError(f"`jobs={jobs}`: `on={place}` says how many already; leave one of them out")
    return replace(place, kind="processes" if place.kind == "this" else place.kind, size=jobs)


def usable_cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def parse_place(text: str) -> WorkPlace:
    """A place as it is written on the command line.

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
