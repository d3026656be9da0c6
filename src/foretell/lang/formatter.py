"""Formats a program's text: one statement per line, or one condition per line if the statement is too long. Comments are kept.

Only spaces and line ends change; the tokens stay the same. Signs that are not surrounded by spaces are listed in a table below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from foretell.lang.diagnostics import ProgramError
from foretell.lang.load import parse
from foretell.lang.source import Source
from foretell.lang.tokens import MARKS, Token, statements, tokenize

WIDTH = 120  # the maximal width of a line of code; comments may be longer
ALIGNED = 64  # comments after longer code are not aligned with those of neighbouring lines
INDENT = "    "
TIGHT_BEFORE = frozenset((",", ")", ".", ";", "..", "/"))
TIGHT_AFTER = frozenset(("(", "!", "..", "/"))
SIGNS = frozenset(MARKS.values())  # after these, a parenthesis does not open arguments
COMMENT = re.compile(r"%[^\n]*")
_COMMENT_OR_END = re.compile(r"%[^\n]*|\n")


def format_program(source: Source) -> str:
    """Return the formatted text. Raises `ProgramError` if a statement cannot be read. Other mistakes are not checked."""
    parsed = parse(source)
    if parsed.errors:
        raise ProgramError(parsed.errors)
    text = "".join(f"{line}\n" for line in _aligned(_lines(source)))
    assert parse(Source(source.name, text)).file == parsed.file, f"{source.name} would read differently"
    return text.replace("\n", "\r\n") if re.match(r"[^\n]*\r\n", source.text) else text


@dataclass
class _Comment:
    text: str
    column: int  # column in the source, from 0
    own_line: bool
    after_blank: bool


@dataclass
class _Line:
    code: str
    comment: _Comment | None = None
    indent: str = ""  # indent of the code, or of a comment on its own line
    blank_before: bool = False
    continues: bool = False  # True for a comment that continues the comment of the line above


def _lines(source: Source) -> list[_Line]:
    tokens = tokenize(source)
    found: list[_Line] = []
    last = 0
    for start, end in statements(tokens):
        blank = _between(source, last, tokens[start].start, found)
        shown = _statement(source, tokens[start:end])
        shown[0].blank_before = blank and bool(found)
        for line in shown:
            _append(found, line)
        last = tokens[end - 1].end
    _between(source, last, len(source.text), found)
    return found


def _between(source: Source, start: int, end: int, found: list[_Line]) -> bool:
    """Add the comments between two statements to the lines. Returns whether the second statement follows a blank line."""
    comments, blank = _comments(source, start, end, bool(found))
    for one in comments:
        if one.own_line:
            _append(found, _Line("", one, blank_before=one.after_blank and bool(found)))
        else:
            if found[-1].comment is not None:  # only one comment fits on a line
                last = found.pop()
                _append(found, _Line("", last.comment, last.indent, last.blank_before))
                last.blank_before = False
                found.append(last)
            found[-1].comment = one
    return blank


def _append(found: list[_Line], line: _Line) -> None:
    above = found[-1] if found else None
    if not line.code and line.comment and above and above.comment and not line.blank_before:
        line.continues = (bool(above.code) or above.continues) and above.comment.column == line.comment.column
    found.append(line)


def _comments(source: Source, start: int, end: int, after_code: bool) -> tuple[list[_Comment], bool]:
    """Return the comments between two offsets that have no tokens between them, and whether a blank line follows them."""
    found: list[_Comment] = []
    line_ends = 0 if after_code else 1
    for match in _COMMENT_OR_END.finditer(source.text, start, end):
        if match.group() == "\n":
            line_ends += 1
            continue
        column = source.line_column(match.start())[1] - 1
        found.append(_Comment(match.group().rstrip(), column, line_ends > 0, line_ends > 1))
        line_ends = 0
    return found, line_ends > 1


@dataclass
class _Piece:
    """One line of a statement that is split into several lines."""

    indent: str
    tokens: list[Token] = field(default_factory=list)
    above: list[_Comment] = field(default_factory=list)
    beside: _Comment | None = None

    def lift(self) -> None:
        """Move the comment beside the code to the lines above, because only one comment fits beside it."""
        if self.beside is not None:
            self.above.append(self.beside)
            self.beside = None


def _statement(source: Source, tokens: list[Token]) -> list[_Line]:
    pieces = list(_pieces(tokens))
    placed = [(piece, token) for piece in pieces for token in piece.tokens]
    for (piece, token), (below, following) in pairwise(placed):
        for one in _comments(source, token.end, following.start, True)[0]:
            if one.own_line:
                if below is piece:
                    piece.lift()
                below.above.append(one)
            else:
                piece.lift()
                piece.beside = one
    whole = _spaced(tokens)
    inside = [*(piece.above for piece in pieces[1:]), *(piece.beside for piece in pieces[:-1])]
    if len(whole) <= WIDTH and not any(inside):
        return [*(_Line("", one) for one in pieces[0].above), _Line(whole, pieces[-1].beside)]
    found: list[_Line] = []
    for piece in pieces:
        found += [_Line("", one, piece.indent) for one in piece.above]
        found.append(_Line(piece.indent + _spaced(piece.tokens), piece.beside, piece.indent))
    return found


def _pieces(tokens: list[Token]) -> Iterator[_Piece]:
    """Split a statement into lines: rules after the arrow and each condition, before `for` and `::`; declarations after each argument."""
    is_declaration = tokens[0].type == "RULE"
    inner = 1 if is_declaration else 0  # the parenthesis depth of commas that end a line
    in_body = False
    depth = 0
    piece = _Piece("")
    for token in tokens:
        closes = token.text == ")"
        depth -= closes
        ends_declaration = is_declaration and closes and depth == 0
        if piece.tokens and (ends_declaration or (token.type in ("FOR", "_NAMES") and depth == 0)):
            yield piece
            piece = _Piece("" if ends_declaration else INDENT)
        piece.tokens.append(token)
        depth += token.text == "("
        is_arrow = token.type in ("RULE", "ADD") and depth == 0 and not is_declaration
        in_body = in_body or is_arrow or is_declaration
        opens = is_declaration and depth == 1 and token.text == "("
        if is_arrow or opens or (in_body and depth == inner and token.text == ","):
            yield piece
            piece = _Piece(INDENT)
    yield piece


def _spaced(tokens: list[Token]) -> str:
    parts: list[str] = []
    for place, token in enumerate(tokens):
        before = tokens[place - 1].text if place else ""
        calls = token.text == "(" and place > 0 and tokens[place - 1].type not in SIGNS
        if place and token.text not in TIGHT_BEFORE and before not in TIGHT_AFTER and not calls:
            parts.append(" ")
        parts.append(token.text)
    return "".join(parts)


def _aligned(lines: list[_Line]) -> Iterator[str]:
    """Yield lines with aligned comments. A blank line, or a comment on its own line, starts a new alignment."""
    paragraph: list[_Line] = []
    for line in lines:
        apart = line.comment is not None and not line.code and not line.continues
        if apart or line.blank_before:
            yield from _paragraph(paragraph)
            paragraph = []
        if line.blank_before:
            yield ""
        if apart and line.comment is not None:
            yield f"{line.indent}{line.comment.text}"
        else:
            paragraph.append(line)
    yield from _paragraph(paragraph)


def _paragraph(lines: list[_Line]) -> Iterator[str]:
    widths = [len(line.code) for line in lines if line.comment is not None and len(line.code) <= ALIGNED]
    common = column = max(widths, default=0) + 2
    for line in lines:
        if not line.continues:
            column = common if len(line.code) <= ALIGNED else len(line.code) + 2
        yield line.code if line.comment is None else f"{line.code:<{column}}{line.comment.text}"
