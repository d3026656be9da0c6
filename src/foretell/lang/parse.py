"""Source → statements, mistakes, and the words of the statements that could not be read. One bad statement does not hide the next."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer

from foretell.lang.diagnostics import Diagnostic
from foretell.lang.mistakes import name_mistake
from foretell.lang.source import Source, Span
from foretell.lang.statement import DECLARATIONS, StatementError, read
from foretell.lang.syntax import SourceFile, Statement
from foretell.lang.tokens import FUNCTORS, Builder, Token, Written, WrittenRule, spelling, statements, tokenize
from foretell.lang.trouble import Trouble
from foretell.wording import as_functor

_SURROGATE = re.compile("[\ud800-\udfff]")
MOST_REPAIRS = 20  # of one statement, which is read again after each
MOST_ERRORS = 100  # of one file; after so many, the text is probably no program at all


@dataclass(frozen=True)
class ParseResult:
    file: SourceFile
    errors: tuple[Diagnostic, ...]
    unread: frozenset[str]  # words of statements that could not be read: nothing is known about them
    is_complete: bool  # False: part of the text was not looked at


class _NoLexer(Lexer):
    """The parser is fed tokens; it never reads text."""

    def __init__(self, config: object) -> None:
        del config

    def lex(self, lexer_state: object, parser_state: object) -> Any:
        raise AssertionError("tokens are made by foretell.lang.tokens")


@cache
def _parser() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer=_NoLexer, transformer=Builder(), maybe_placeholders=True)


@cache
def _fresh() -> Any:
    """The parser's state before the first token; each statement starts from a copy."""
    return _parser().parse_interactive().parser_state


def parse(source: Source) -> ParseResult:
    surrogate = _SURROGATE.search(source.text)
    if surrogate:
        message = f"U+{ord(surrogate.group()):04X} is half a character: this is no Unicode text"
        error = Diagnostic(
            "unreadable-file", Span(source, surrogate.start(), surrogate.end()), message, "save it as UTF-8"
        )
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
                    found.append(read(outcome))
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
    """What is wrong with a statement, and where the next one begins.

    A word or sign of another language is taken for what was meant by it, so that the next of its kind is found, too. What
    is wrong in other ways after such a repair may follow from it, and is not said.
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
    """A statement, its full stop included; `Trouble` says at which of its tokens the parser gave up."""
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
    """`empl(eve)` without its full stop makes a rule of the declaration on the next line; layout tells."""
    if not isinstance(written, WrittenRule) or written.kind != "deduce" or len(written.body) != 1:
        return None
    arrow = next(place for place in range(start, end) if tokens[place].type == "RULE")
    token, word = tokens[arrow], tokens[arrow + 1]
    source = token.source
    at_margin = token.start == 0 or source.text[token.start - 1] == "\n"
    if not at_margin or arrow == start or word.type != "NAME" or word.text not in DECLARATIONS:
        return None
    return Trouble(tokens, start, arrow, end, frozenset(("STOP",)))


def _words(tokens: list[Token], start: int, end: int) -> set[str]:
    """Those that a repair made functors also as they should have been written."""
    found = {spelling(tokens[place]) for place in range(start, end) if tokens[place].type in FUNCTORS}
    return found | {as_functor(word) for word in found if word[0].isupper()}
