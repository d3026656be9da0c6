"""Options that had another name in 0.1: the old one works for a release, with a warning that says the new one."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand

log = logging.getLogger("foretell")

OUT = {"--run": "--out"}
# By command: what an option was called, and what it is called now.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "train": {**OUT, "--history": "--context"},
    "pretrain": OUT,
    "demo": OUT,
    "sample": {"--output": "--out", "--shown": "--top"},
    "intensity": {"--times": "--at"},
    "embed": {"--history": "--context", "--layers": "--output-layers"},
    "explain": {"--covariates": "--covariate-effects"},
    "report": {"--start": "--from"},
    "replay": {"--workers": "--jobs"},
    "check": {"--graph": "--plot"},
    "convert": {"--from": "--input-format"},
    "pack": {"--split": "--shares"},
}


class RenamedOptions(TyperCommand):
    """A command that takes its options by their old names, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse with new names; say once which old ones were used."""
        new = in_new_words(self.name or "", args)
        if not ctx.resilient_parsing:  # not while Tab completes
            for old, now in zip(args, new, strict=True):
                if old != now:
                    name, became = (one.partition("=")[0] for one in (old, now))
                    log.warning("%s is called %s now; the old name goes with the next release", name, became)
        return super().parse_args(ctx, new)


def in_new_words(command: str, arguments: Sequence[str]) -> list[str]:
    """Arguments of a command with the new names of its options."""
    renamed = RENAMED.get(command, {})
    new, plain = [], False
    for one in arguments:
        plain = plain or one == "--"  # what follows are no options
        name, equals, value = one.partition("=")
        new.append(one if plain or name not in renamed else f"{renamed[name]}{equals}{value}")
    return new
