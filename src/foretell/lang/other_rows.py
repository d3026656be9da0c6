"""A checked program and files → the same program with other rows in some of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from foretell.errors import ForetellError
from foretell.lang.diagnostics import Diagnostic, ProgramError
from foretell.lang.fact_table import FactTable
from foretell.lang.program import Program
from foretell.lang.source import Source, Span
from foretell.lang.syntax import Table
from foretell.lang.tables import read_table
from foretell.options import Undeclared
from foretell.terms import bare
from foretell.wording import counted, did_you_mean, listed, shown


def with_tables(program: Program, files: Mapping[str, str | Path]) -> Program:
    """Replace the rows of tables by files, given by functor. If a functor has several tables, the file replaces the rows of all of them.

    A file must have the columns of the table that it replaces: the same number of arguments, and the features by name. Facts in the
    program's text stay.

    Args:
        program: the rules.
        files: CSV or Parquet files by the functor of their table.

    Returns:
        The program with other rows; its `warnings` include warnings about the files.

    Raises:
        ForetellError: there is no such table, or its file cannot be read or has other columns.
    """
    made = program
    for functor, path in files.items():
        made = _with_table(made, functor, Path(path))
    return made


def with_undeclared(program: Program, undeclared: Undeclared) -> Program:
    """Return the program with another treatment of events that it does not declare."""
    digest = sha256(f"{program.digest} undeclared={undeclared}".encode()).hexdigest()
    return program if undeclared == program.undeclared else replace(program, undeclared=undeclared, digest=digest)


def new_rows(before: Program, after: Program, functor: str) -> list[tuple[str, ...]]:
    """Return the rows that the tables of a functor have in `after` and not in `before`."""
    known = {row for one in before.tables if functor in (one.functor, bare(one.functor)) for row in one.rows}
    after_rows = (row for one in after.tables if functor in (one.functor, bare(one.functor)) for row in one.rows)
    return [row for row in after_rows if row not in known]


def _with_table(program: Program, functor: str, path: Path) -> Program:
    own = [one for one in program.tables if functor in (one.functor, bare(one.functor))]
    if len({one.functor for one in own}) > 1:
        known = listed(list(dict.fromkeys(one.functor for one in own)))
        raise ForetellError(f"table {functor}={path}: there are several tables of this name, {known}: say which")
    if not own:
        names = list(dict.fromkeys(one.functor for one in program.tables))
        there = f"there is {listed(names, most=10)}" if names else "the program has no table"
        hint = did_you_mean(functor, names, otherwise=there)
        raise ForetellError(f"table {functor}={path}: no table of the program is called {shown(functor)}; {hint}")
    first = own[0]
    span = Span(Source(str(path), "", is_read=False), 0, 0)
    functor = first.functor
    found, said = read_table(Table(functor, str(path), first.features, span), path, {})
    if found is None:
        raise ProgramError(said)
    _check_columns(found, first, path)
    changed = {"rows": found.rows, "numbers": found.numbers, "header": found.header}
    fresh = replace(first, **changed, waits=False, trained=first.trained or first)
    others = {id(one) for one in own[1:]}
    tables = [
        fresh
        if one is first
        else replace(one, rows=[], numbers=[], waits=False, trained=one.trained or one)
        if id(one) in others
        else one
        for one in program.tables
    ]
    digest = sha256(f"{program.digest} {functor} {found.rows} {found.numbers}".encode("utf-8", "surrogatepass"))
    warnings: tuple[Diagnostic, ...] = (*program.warnings, *said)
    return replace(program, tables=tuple(tables), warnings=warnings, digest=digest.hexdigest())


def _check_columns(found: FactTable, wanted: FactTable, path: Path) -> None:
    if found.arity == wanted.arity:
        return
    beside = f" beside {listed(wanted.features)}" if wanted.features else ""
    named = f" ({listed(found.header, most=10)})" if found.header else ""
    raise ForetellError(
        f"table {wanted.functor}={path}: the file has {counted(found.arity, 'column')} of arguments{beside}{named}, "
        f"and {shown(f'{bare(wanted.functor)}/{wanted.arity}')} takes {wanted.arity}"
    )
