"""Tokens → the occurrences of names in a program, each as a functor, parameter name, variable or constant.

This works on tokens and not on the syntax tree, so it also covers unfinished statements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOf

from foretell.lang.declarations import DECLARATIONS
from foretell.lang.source import Source, Span
from foretell.lang.syntax import COUNTING, PARAMETERS
from foretell.lang.tokens import FUNCTORS, Token, spelling, statements, tokenize

Role = OneOf["head", "removed", "body", "declared", "parameter", "variable", "constant", "path", "word"]
FUNCTOR_ROLES = frozenset(("head", "removed", "body", "declared"))


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A name at one position. For arguments: the functor to which they belong, and their place from 0."""

    role: Role
    name: str  # the normalised name
    span: Span
    statement: int  # the number of its statement in the text
    arity: int | None = None  # the number of arguments, for functors and parameter names
    functor: str | None = None
    place: int = 0

    @property
    def is_functor(self) -> bool:
        return self.role in FUNCTOR_ROLES


@dataclass(slots=True)
class _Opening:
    """An open parenthesis: its functor, and the number of arguments so far."""

    functor: str | None
    role: Role
    place: int = 0


def occurrences(source: Source) -> list[Occurrence]:
    tokens = tokenize(source)
    found: list[Occurrence] = []
    for number, (start, end) in enumerate(statements(tokens)):
        found += _of_statement(tokens[start:end], number)
    return found


def _of_statement(tokens: list[Token], number: int) -> Iterator[Occurrence]:
    is_declaration = tokens[0].type == "RULE"
    section: Role = "declared" if is_declaration else "head"
    opened: list[_Opening] = []
    for place, token in enumerate(tokens):
        text, before = token.text, tokens[place - 1] if place else None
        if text == "(":
            functor = before is not None and before.type in (*FUNCTORS, "VARIABLE") and spelling(before)
            opened.append(_Opening(functor or None, section))
        elif text == ")":
            del opened[-1:]
        elif text == "," and opened:
            opened[-1].place += 1
        elif text == ";" and opened:
            opened[-1].place = 0
        elif token.type in ("RULE", "ADD") and place:
            section = "body"
        elif token.type in ("_NAMES", "_COLON") and not opened:
            section = "parameter"
        elif token.type in ("COUNT", "NEVER"):
            yield Occurrence("word", token.text, token.span, number)
        elif before is not None and before.type == "SLASH":
            continue  # the number in `watch/2`
        elif token.type in (*FUNCTORS, "VARIABLE"):
            role = _role(tokens, place, section, opened)
            arity = _arity(tokens, place) if role in (*FUNCTOR_ROLES, "parameter") else None
            outer = opened[-1] if opened else None
            within = (outer.functor, outer.place) if outer else (None, 0)
            yield Occurrence(role, spelling(token), token.span, number, arity, *within)


def _role(tokens: list[Token], place: int, section: Role, opened: list[_Opening]) -> Role:
    token = tokens[place]
    calls = place + 1 < len(tokens) and tokens[place + 1].text == "("
    if token.type == "VARIABLE":
        return "variable"
    if section == "declared":
        return _declared_role(tokens, place, opened, calls)
    if section == "parameter":
        is_word = token.text in PARAMETERS and calls
        return "word" if is_word else "parameter" if not opened or _wraps(opened) else "constant"
    if opened:
        return "body" if calls else "constant"
    if token.text in COUNTING and calls and any(one.text == "(" for one in tokens[place + 3 : place + 4]):
        return "word"
    if section == "head":
        return "removed" if place and tokens[place - 1].text == "!" else "head"
    before = tokens[place - 1].text
    after = tokens[place + 1].text if place + 1 < len(tokens) else "."
    is_condition = calls or (before in (":-", "<-", ",", "not") and after in (",", ".", "::"))
    return "body" if is_condition else "word" if before == "for" or token.text == "for" else "constant"


def _wraps(opened: list[_Opening]) -> bool:
    """Whether this is the parenthesis of `:: mparams(post(C))`, which contains a parameter name."""
    return len(opened) == 1 and opened[0].functor in PARAMETERS


def _declared_role(tokens: list[Token], place: int, opened: list[_Opening], calls: bool) -> Role:
    if not opened:
        return "word"
    word = tokens[1].text
    if word == "never":
        return "body" if calls or (len(opened) == 1 and tokens[place + 1].text in ",)") else "constant"
    if tokens[place].type == "STRING" and word in ("include", "table") and len(opened) == 1:
        return "path"
    inner = opened[-1]
    if len(opened) == 1 and inner.place == 0 and word in DECLARATIONS:
        return "declared"
    if len(opened) == 1 and calls:
        return "word"  # features(…), from_log(…)
    return "declared" if inner.functor == "from_log" and inner.place == 0 else "constant"


def _arity(tokens: list[Token], place: int) -> int | None:
    """Return the number of arguments here, or None if a declaration names only the functor."""
    if place + 2 < len(tokens) and tokens[place + 1].type == "SLASH" and tokens[place + 2].type == "INTEGER":
        return int(tokens[place + 2].text[:4])
    if place + 1 >= len(tokens) or tokens[place + 1].text != "(":
        return None if tokens[0].type == "RULE" and place > 1 else 0
    depth = commas = 0
    for token in tokens[place + 1 :]:
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            break
        if token.text == ";" and depth == 1:  # several facts; each has this number of arguments
            break
        commas += token.text == "," and depth == 1
    return commas + 1
