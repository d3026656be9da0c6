"""A file, or a text with its folder → all statements, with included files and tables → a checked program.

Each statement is parsed separately, so a mistake in one does not hide the next. The words of unreadable statements are kept,
because they may define names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer

from foretell.errors import ForetellError
from foretell.lang.check import check
from foretell.lang.declarations import DECLARATIONS, StatementError
from foretell.lang.diagnostics import Diagnostic, ProgramError
from foretell.lang.fact_table import FactTable, Numbers
from foretell.lang.mistakes import name_mistake
from foretell.lang.program import Program, UncheckedProgram
from foretell.lang.source import Source, Span, neighbours, read_text
from foretell.lang.statement import read
from foretell.lang.syntax import Include, LogPlace, Promise, Rule, SourceFile, Statement, Table
from foretell.lang.tables import LOOKED_FOR, read_table
from foretell.lang.tokens import FUNCTORS, Token, spelling, statements, tokenize
from foretell.lang.trouble import Trouble
from foretell.lang.written import Builder, Written, WrittenRule
from foretell.options import Undeclared
from foretell.reading import UnreadableFile, read_limits
from foretell.wording import as_functor, did_you_mean, shown

_SURROGATE = re.compile("[\ud800-\udfff]")
MOST_REPAIRS = 20  # per statement, which is parsed again after each repair
MOST_ERRORS = 100  # per file; a text with more mistakes is probably no program


@dataclass(frozen=True)
class ParseResult:
    file: SourceFile
    errors: tuple[Diagnostic, ...]
    unread: frozenset[str]  # words of unreadable statements; nothing is known about these names
    is_complete: bool  # False: part of the text was not read


class _NoLexer(Lexer):
    """A placeholder: the parser gets tokens and never reads text."""

    def __init__(self, config: object) -> None:
        del config

    def lex(self, lexer_state: object, parser_state: object) -> Any:
        raise AssertionError("tokens are made by foretell.lang.tokens")


@cache
def _fresh() -> Any:
    """Return the parser's state before the first token. Each statement starts from a copy."""
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    parser = Lark(grammar, parser="lalr", lexer=_NoLexer, transformer=Builder(), maybe_placeholders=True)
    return parser.parse_interactive().parser_state


def parse(source: Source) -> ParseResult:
    surrogate = _SURROGATE.search(source.text)
    if surrogate:
        message = f"U+{ord(surrogate.group()):04X} is half a character: this is no Unicode text"
        error = Diagnostic("unreadable-file", Span(source, *surrogate.span()), message, "save it as UTF-8")
        return ParseResult(SourceFile(source, ()), (error,), frozenset(), is_complete=False)
    tokens = tokenize(source)
    found: list[Statement] = []
    errors: list[Diagnostic] = []
    unread: set[str] = set()
    for start, end in statements(tokens):
        while start < end and len(errors) < MOST_ERRORS:
            outcome = _statement(tokens, start, end)
            cut = end
            if isinstance(outcome, Trouble):
                said, cut = _mistakes(tokens, outcome)
                errors += said[: MOST_ERRORS - len(errors)]
                unread.update(_words(tokens, start, cut))
            else:
                try:
                    found += read(outcome)
                except StatementError as refused:
                    errors.append(refused.diagnostic)
                    unread.update(_words(tokens, start, end))
            start = cut
    if len(errors) == MOST_ERRORS:
        last = errors[-1].span
        message = f"{MOST_ERRORS} mistakes: the rest of the file was not read"
        errors.append(Diagnostic("too-many-errors", Span(source, last.end, last.end), message, "is this a program?"))
    return ParseResult(SourceFile(source, tuple(found)), tuple(errors), frozenset(unread), len(errors) < MOST_ERRORS)


def _mistakes(tokens: list[Token], trouble: Trouble) -> tuple[list[Diagnostic], int]:
    """Return the mistakes of a statement, and where the next statement begins.

    A word or sign of another language is replaced by the one that was probably meant, so that later mistakes are found too. Other
    mistakes after such a repair may be caused by it and are not reported.
    """
    start, end = trouble.start, trouble.end
    mistake = name_mistake(trouble)
    said = [mistake.diagnostic]
    while mistake.repair is not None and len(said) < MOST_REPAIRS:
        place, type = mistake.repair
        wrong = tokens[place]
        tokens[place] = Token(type, wrong.text, wrong.source, wrong.start, wrong.end)
        outcome = _statement(tokens, start, end)
        if not isinstance(outcome, Trouble):
            break
        mistake = name_mistake(outcome)
        if mistake.repair is not None or mistake.resume is not None:
            said.append(mistake.diagnostic)
    return said, mistake.resume or end


def _statement(tokens: list[Token], start: int, end: int) -> Written | Trouble:
    """Parse a statement with its full stop. Returns `Trouble` with the token that the parser did not accept."""
    state = copy(_fresh())
    place = start
    try:
        for place in range(start, end):
            token = tokens[place]
            if token.type == "STOP":
                break
            state.feed_token(token)
        else:
            place = end
        last = tokens[end - 1]
        written: Written = state.feed_token(Token("$END", "", last.source, last.end, last.end), True)
    except UnexpectedToken as error:
        return Trouble(tokens, start, place, end, frozenset(error.expected))
    if place == end:
        return Trouble(tokens, start, end, end, frozenset(("STOP",)))
    return _swallowed(tokens, start, end, written) or written


def _swallowed(tokens: list[Token], start: int, end: int, written: Written) -> Trouble | None:
    """Detect a missing full stop before a declaration. `empl(eve)` on one line and `:- event(…).` on the next would parse as a rule. But a
    `:-` at the start of a line shows that this was not meant."""
    if not isinstance(written, WrittenRule) or len(written.body) != 1 or not _deduces(written):
        return None
    arrow = next(place for place in range(start, end) if tokens[place].type == "RULE")
    token, word = tokens[arrow], tokens[arrow + 1]
    source = token.source
    at_margin = token.start == 0 or source.text[token.start - 1] == "\n"
    if not at_margin or arrow == start or word.type != "NAME" or word.text not in DECLARATIONS:
        return None
    return Trouble(tokens, start, arrow, end, frozenset(("STOP",)))


def _deduces(written: WrittenRule) -> bool:
    return written.arrow is not None and written.arrow.type == "RULE"


def _words(tokens: list[Token], start: int, end: int) -> set[str]:
    """Return the functors of these tokens. For upper-case words, the lower-case spelling is included."""
    found = {spelling(tokens[place]) for place in range(start, end) if tokens[place].type in FUNCTORS}
    return found | {as_functor(word) for word in found if word[0].isupper()}


SHIPPED = Path(__file__).parents[1] / "programs"  # one program for each embedded data set, with the same name
DATA = (".csv", ".jsonl", ".parquet", ".gz")  # suffixes of data files, which are no programs


def names() -> tuple[str, ...]:
    """Return the names of the programs that are part of the package."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.ndtt")))


def file_of(name: str) -> Path | None:
    """Return the file of a shipped program, or None if this name is unknown."""
    return SHIPPED / f"{name}.ndtt" if name in names() else None


def load_program(path: Path, *, undeclared: Undeclared, dim: int) -> Program:
    """Load a program from a file, or a shipped program by its name. Raises `ProgramError` with all mistakes in it and in included files."""
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
    """Load a shipped program. Messages call it `robocup.ndtt`, without the path of the package."""
    path = file_of(name)
    if path is None:
        hint = did_you_mean(name, names(), before="; ")
        raise ForetellError(f"no program {shown(name)} ships with foretell: there is {', '.join(names())}{hint}")
    return check(gather(Source(path.name, read_text(path)), path.parent, path), undeclared=undeclared, dim=dim)


def gather_file(path: Path) -> UncheckedProgram:
    return gather(read_source(path), path.parent, path)


def read_source(path: Path) -> Source:
    """Read a source file. Raises `ProgramError` if it cannot be read."""
    try:
        return Source(str(path), read_text(path))
    except UnreadableFile as error:
        source = Source(str(path), "", is_read=False)
        code = "missing-file" if error.missing else "unreadable-file"
        hint = _near(path) or _nameless(path) if error.missing else error.hint
        raise ProgramError([Diagnostic(code, Span(source, 0, 0), error.reason, hint)]) from None


@dataclass
class _Open:
    """A file whose statements are being read."""

    source: Source
    folder: Path
    identity: Path | None
    statements: Iterator[Statement]


@dataclass(eq=False)
class _Gathering(UncheckedProgram):
    allowed: tuple[Path, ...] = ()  # folders that may contain included files and tables
    first_read: dict[tuple[str, Path | LogPlace], Span] = field(default_factory=dict)
    rows_of: dict[str, dict[tuple[str, ...], Numbers]] = field(default_factory=dict)
    open: list[_Open] = field(default_factory=list)
    entered: set[Path] = field(default_factory=set)  # resolved paths of the files in `open`
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

    def outside(self, one: Include | Table, path: Path) -> bool:
        """Whether a file is outside the folders that the program may read; the file is not opened."""
        try:
            whole = path.resolve()
            if any(whole.is_relative_to(folder) for folder in self.allowed):
                return False
        except (OSError, ValueError):
            return False  # an invalid path; reading it reports the error
        except RuntimeError:  # a loop of symbolic links
            pass
        message = f"{shown(one.path)}: this file lies outside the program's folder"
        hint = "move it there, or allow its folder with `foretell.reading.limits(allow=…)`"
        self.found.append(Diagnostic("outside-folder", one.span, message, hint))
        return True

    def include(self, one: Include, folder: Path) -> None:
        path = folder / one.path
        if self.outside(one, path):
            self.is_complete = False
            return
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
                return refuse("missing-file", error.reason, _near(path) or LOOKED_FOR)
            return refuse("unreadable-file", error.reason, error.hint)
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
        if one.log is not None:
            if not self._is_repeated(one, (one.functor, one.log), f"`{one.log}`"):
                self.tables.append(FactTable(one.functor, 1, [], one.span, "", (), log=one.log, waits=True))
            return
        path = folder / one.path
        if self.outside(one, path):
            self.unread.add(one.functor)
            return
        if self._is_second(one, path):
            return
        table, found = read_table(one, path, self.rows_of.get(one.functor, {}))
        self.found += found
        if table is None:
            self.unread.add(one.functor)
        else:
            self.tables.append(table)
            numbers = table.numbers or [()] * len(table.rows)
            self.rows_of.setdefault(one.functor, {}).update(zip(table.rows, numbers, strict=True))

    def _is_second(self, one: Table, path: Path) -> bool:
        try:
            key = one.functor, path.resolve()
        except (OSError, ValueError):
            return False  # reading it reports the error
        return self._is_repeated(one, key, shown(one.path))

    def _is_repeated(self, one: Table, key: tuple[str, Path | LogPlace], source: str) -> bool:
        first = self.first_read.setdefault(key, one.span)
        if first is one.span:
            return False
        message = f"{source}: the table is read already, at {first.place}"
        self.found.append(Diagnostic("include-twice", one.span, message, "remove one of the declarations"))
        return True


def gather(source: Source, folder: Path | None, path: Path | None = None) -> UncheckedProgram:
    """Return all statements in order, with included files in their place. Not recursive, so includes may be nested to any depth.

    Files are read from `folder` and from the folders in `reading.limits`. Without `folder`, no files are read.
    """
    allowed = () if folder is None else tuple(one.resolve() for one in (folder, *read_limits().allow))
    state = _Gathering(allowed=allowed)
    folder = folder or Path()
    state.enter(source, folder, path.resolve() if path is not None else None)
    while state.open:
        file = state.open[-1]
        statement = next(file.statements, None)
        if statement is None:
            state.open.pop()
            if file.identity is not None:
                state.entered.discard(file.identity)
        elif isinstance(statement, Rule):
            state.take(statement)
        elif isinstance(statement, Include):
            state.include(statement, file.folder)
        else:
            state.declarations.append(statement)
            if isinstance(statement, Promise):
                state.promises.append(statement)
            if isinstance(statement, Table):
                state.table(statement, file.folder)
    return state


def _nameless(path: Path) -> str:
    """Return a hint. A bare word may be meant as the name of a shipped program."""
    if path.suffix or len(path.parts) != 1:
        return "look at the path"
    known = f"of those that ship with foretell there is {', '.join(names())}"
    known = did_you_mean(path.name, names(), otherwise=known)
    return f"give a file, P.ndtt, or the name of a program: {known}"


def _near(path: Path) -> str | None:
    return did_you_mean(path.name, neighbours(path)) or None
