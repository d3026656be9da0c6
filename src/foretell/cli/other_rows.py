"""`--table user=new.csv` and `--undeclared`: other rows for tables of a program or run, and the treatment of undeclared events."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretell.cli import flags
from foretell.errors import ForetellError
from foretell.terms import bare
from foretell.wording import counted

if TYPE_CHECKING:
    from foretell.data import EventData
    from foretell.lang.program import Program
    from foretell.models.build import Network


def table_files(given: Sequence[str] | None) -> dict[str, str]:
    """Return the files of `--table`, by name of their table."""
    found: dict[str, str] = {}
    for text in given or ():
        name, path = flags.pair(text, "--table")
        if name in found:
            raise ForetellError(
                f"--table {text}: {name} has rows from {found[name]} already; give one file for a table"
            )
        found[name] = path
    return found


def program_with(program: Program, given: Sequence[str] | None) -> Program:
    from foretell.lang.other_rows import with_tables

    files = table_files(given)
    made = with_tables(program, files) if files else program
    _say(program, made, files, "in the program's own")
    return made


@dataclass(frozen=True)
class OtherRules:
    """Changes to the rules of a run: rows of tables, and the treatment of undeclared events (None: as in training)."""

    tables: Sequence[str] | None = None
    undeclared: flags.UndeclaredChoice | None = None

    @property
    def first(self) -> str:
        """Return the first requested change, as written on the command line."""
        if self.tables:
            return f"--table {self.tables[0]}"
        return "" if self.undeclared is None else f"--undeclared {self.undeclared.value}"


AS_TRAINED = OtherRules()


def model_with(model: Network, asked: OtherRules) -> None:
    """Apply changes of rules to a model that was just loaded."""
    from foretell.lang.other_rows import with_tables, with_undeclared
    from foretell.models.rules.other_rows import use_program
    from foretell.models.rules.rule_model import RuleModel

    files = table_files(asked.tables)
    if not asked.first:
        return
    if not isinstance(model, RuleModel):
        raise ForetellError(f"{asked.first}: {model.title} has no rules and no tables; leave it out")
    before = model.program
    made = with_tables(before, files)
    made = made if asked.undeclared is None else with_undeclared(made, asked.undeclared.value)
    use_program(model, made)
    _say(before, made, files, "in training")


def say_undeclared(model: Network, data: EventData) -> None:
    """Print the number of undeclared events, which are treated as exogenous."""
    from foretell.ground.impossible import check_declared
    from foretell.models.rules.rule_model import RuleModel

    count = check_declared(model.program, data) if isinstance(model, RuleModel) else 0
    if count:
        sys.stderr.write(f"{data.name}: {counted(count, 'event')} that nothing declares, taken to be exogenous\n")


def _say(before: Program, after: Program, files: dict[str, str], where: str) -> None:
    """Print the number of rows, the number of new rows, and warnings about the files, on stderr."""
    from foretell.lang.other_rows import new_rows

    for one in after.warnings[len(before.warnings) :]:
        sys.stderr.write(f"{one.render()}\n")
    for functor, path in files.items():
        rows = sum(len(one.rows) for one in after.tables if functor in (one.functor, bare(one.functor)))
        new = len(new_rows(before, after, functor))
        sys.stderr.write(f"{functor}: {counted(rows, 'row')} from {path}, {new:,} of them not {where}\n")
