"""Options renamed since 0.1: the old name still works for one release, with a warning that gives the new one."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand

log = logging.getLogger("foretell")

OUT = {"--run": "--out"}
# By command: the old and the new name of an option.
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
    """A command that also accepts the old names of its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse with the new names; warn once about each old name."""
        new = in_new_words(self.name or "", args)
        if not ctx.resilient_parsing:  # not during completion
            for old, now in zip(args, new, strict=True):
                if old != now:
                    name, became = (one.partition("=")[0] for one in (old, now))
                    log.warning("%s is called %s now; the old name goes with the next release", name, became)
        return super().parse_args(ctx, new)


def in_new_words(command: str, arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command with old option names replaced."""
    renamed = RENAMED.get(command, {})
    new, plain = [], False
    for one in arguments:
        plain = plain or one == "--"  # arguments after `--` are not options
        name, equals, value = one.partition("=")
        new.append(one if plain or name not in renamed else f"{renamed[name]}{equals}{value}")
    return new
