"""A file, or a text and its folder → all statements with their includes and tables → a checked program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from foretell.errors import ForetellError
from foretell.lang.check import check
from foretell.lang.diagnostics import Diagnostic, ProgramError
from foretell.lang.parse import parse
from foretell.lang.program import FactTable, NumberedRule, Program, UncheckedProgram
from foretell.lang.source import Source, Span, UnreadableFile, neighbours, read_text
from foretell.lang.syntax import Include, Rule, Statement, Table
from foretell.lang.tables import LOOKED_FOR, read_table
from foretell.options import Undeclared
from foretell.wording import did_you_mean, shown

SHIPPED = Path(__file__).parents[1] / "programs"  # each for the embedded data of the same name
DATA = (".csv", ".jsonl", ".parquet", ".gz")  # ends of names that event data have, and programs have not


def names() -> tuple[str, ...]:
    """The programs that ship inside the package: their names stand for them without a file."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.ndtt")))


def file_of(name: str) -> Path | None:
    """The file of a shipped program, or None if there is none of this name."""
    return SHIPPED / f"{name}.ndtt" if name in names() else None


def load_program(path: Path, *, undeclared: Undeclared, dim: int) -> Program:
    """A file, or else a shipped program by its name; raises `ProgramError` with every mistake of it and of what it includes."""
    if file_of(str(path)) is not None and not path.is_file():
        return load_shipped(str(path), undeclared=undeclared, dim=dim)
    try:
        return check(gather_file(path), undeclared=undeclared, dim=dim)
    except ProgramError as error:
        found = list(error.diagnostics)
        first = next(place for place, one in enumerate(found) if one.severity == "error")
        if not path.name.lower().endswith(DATA) or found[first].code == "missing-file":
            raise
        said = f"{shown(path.name)} looks like data by its name; the program comes first, then the data"
        found[first] = replace(found[first], hint=said)
        raise ProgramError(found) from None


def load_shipped(name: str, *, undeclared: Undeclared, dim: int) -> Program:
    """In messages it is `robocup.ndtt`, wherever the package is installed."""
    path = file_of(name)
    if path is None:
        hint = did_you_mean(name, names(), before="; ")
        raise ForetellError(f"no program {shown(name)} ships with foretell: there is {', '.join(names())}{hint}")
    return check(gather(Source(path.name, read_text(path)), path.parent, path), undeclared=undeclared, dim=dim)


def read_program(source: Source, folder: Path, *, undeclared: Undeclared, dim: int) -> Program:
    return check(gather(source, folder), undeclared=undeclared, dim=dim)


def gather_file(path: Path) -> UncheckedProgram:
    try:
        text = read_text(path)
    except UnreadableFile as error:
        source = Source(str(path), "", is_read=False)
        code = "missing-file" if error.missing else "unreadable-file"
        hint = _near(path) or _nameless(path) if error.missing else error.hint
        raise ProgramError([Diagnostic(code, Span(source, 0, 0), str(error), hint)]) from None
    return gather(Source(str(path), text), path.parent, path)


@dataclass
class _Open:
    """A file whose statements are being taken."""

    source: Source
    folder: Path
    identity: Path | None
    statements: Iterator[Statement]


@dataclass
class _Gathering:
    rules: list[NumberedRule] = field(default_factory=list)
    declarations: list[Statement] = field(default_factory=list)
    tables: list[FactTable] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    found: list[Diagnostic] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    is_complete: bool = True
    first_read: dict[tuple[str, Path], Span] = field(default_factory=dict)
    rows_of: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    open: list[_Open] = field(default_factory=list)
    entered: set[Path] = field(default_factory=set)  # those of `open`
    first_included: dict[Path, Span] = field(default_factory=dict)

    def enter(self, source: Source, folder: Path, identity: Path | None) -> None:
        parsed = parse(source)
        self.sources.append(source)
        self.found += parsed.errors
        self.unread |= parsed.unread
        self.is_complete = self.is_complete and parsed.is_complete
        self.open.append(_Open(source, folder, identity, iter(parsed.file.statements)))
        if identity is not None:
            self.entered.add(identity)

    def include(self, one: Include, folder: Path) -> None:
        path = folder / one.path
        self.is_complete = self._include(one, path) and self.is_complete

    def _include(self, one: Include, path: Path) -> bool:
        def refuse(code: str, message: str, hint: str | None = None) -> bool:
            self.found.append(Diagnostic(code, one.span, f"{shown(one.path)}: {message}", hint))
            return False

        try:
            text = read_text(path)
            identity = path.resolve()
        except UnreadableFile as error:
            if error.missing:
                return refuse("missing-file", str(error), _near(path) or LOOKED_FOR)
            return refuse("unreadable-file", str(error), error.hint)
        if identity in self.entered:
            refuse("include-cycle", "the file includes itself, directly or by others", "remove one of the includes")
            return True
        if identity in self.first_included:
            place = self.first_included[identity].place
            refuse("include-twice", f"the file is included already, at {place}", "remove one of the includes")
            return True
        self.first_included[identity] = one.span
        self.enter(Source(str(path), text), path.parent, identity)
        return True

    def table(self, one: Table, folder: Path) -> None:
        path = folder / one.path
        if self._is_second(one, path):
            return
        table, found = read_table(one, path, self.rows_of.get(one.functor, frozenset()))
        self.found += found
        if table is None:
            self.unread.add(one.functor)
        else:
            self.tables.append(table)
            self.rows_of.setdefault(one.functor, set()).update(table.rows)

    def _is_second(self, one: Table, path: Path) -> bool:
        try:
            key = one.functor, path.resolve()
        except (OSError, ValueError):
            return False  # the reader says what is wrong with it
        first = self.first_read.setdefault(key, one.span)
        if first is one.span:
            return False
        message = f"{shown(one.path)}: the table is read already, at {first.place}"
        self.found.append(Diagnostic("include-twice", one.span, message, "remove one of the declarations"))
        return True


def gather(source: Source, folder: Path, path: Path | None = None) -> UncheckedProgram:
    """All statements in order, an included file's at its place. No recursion: files may include files to any depth."""
    state = _Gathering()
    state.enter(source, folder, path.resolve() if path is not None else None)
    while state.open:
        file = state.open[-1]
        statement = next(file.statements, None)
        if statement is None:
            state.open.pop()
            if file.identity is not None:
                state.entered.discard(file.identity)
        elif isinstance(statement, Rule):
            state.rules.append(NumberedRule(len(state.rules) + 1, statement))
        elif isinstance(statement, Include):
            state.include(statement, file.folder)
        else:
            state.declarations.append(statement)
            if isinstance(statement, Table):
                state.table(statement, file.folder)
    return UncheckedProgram(
        tuple(state.rules),
        tuple(state.declarations),
        tuple(state.tables),
        tuple(state.sources),
        tuple(state.found),
        frozenset(state.unread),
        state.is_complete,
    )


def _nameless(path: Path) -> str:
    """A bare word may have been meant as the name of a shipped program."""
    if path.suffix or len(path.parts) != 1:
        return "look at the path"
    shipped = names()
    known = did_you_mean(
        path.name, shipped, otherwise=f"of those that ship with foretell there is {', '.join(shipped)}"
    )
    return f"give a file, P.ndtt, or the name of a program: {known}"


def _near(path: Path) -> str | None:
    return did_you_mean(path.name, neighbours(path)) or None
