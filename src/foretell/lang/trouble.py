"""The place where the parser stopped: the rejected token, its neighbours, and the expected tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from foretell.lang.diagnostics import Diagnostic
from foretell.lang.source import Span
from foretell.lang.tokens import FUNCTORS, Token
from foretell.wording import LONGEST

ARROWS = frozenset(("RULE", "ADD"))
FAR = 200  # tokens that are searched after a mistake: enough for a statement, and bounded if full stops are missing


@dataclass(frozen=True)
class Trouble:
    """The parser accepted `tokens[start:place]` of a statement and rejected `tokens[place]`. `end` is past the last token."""

    tokens: list[Token]
    start: int
    place: int
    end: int
    expected: frozenset[str]

    @property
    def bad(self) -> Token | None:
        """The rejected token; None: the text ended."""
        return self.tokens[self.place] if self.place < self.end else None

    @property
    def type(self) -> str:
        return self.bad.type if self.bad is not None else "$END"

    @property
    def text(self) -> str:
        return self.bad.text if self.bad is not None else ""

    @property
    def before(self) -> Token | None:
        return self.tokens[self.place - 1] if self.place > self.start else None

    @property
    def after(self) -> Token | None:
        return self.tokens[self.place + 1] if self.place + 1 < self.end else None

    @property
    def at_end(self) -> bool:
        return self.bad is None or self.bad.type == "STOP"

    @property
    def span(self) -> Span:
        if self.bad is not None:
            return self.bad.span
        last = self.tokens[self.end - 1]
        return Span(last.source, last.end, last.end)

    @cached_property
    def arrow(self) -> str | None:
        """The type of the statement's arrow, if it was already read."""
        taken = self.tokens[self.start : self.place]
        return next((one.type for one in taken if one.type in ARROWS), None)

    @cached_property
    def open(self) -> list[int]:
        """The positions of the open parentheses."""
        found: list[int] = []
        for place in range(self.start, self.place):
            if self.tokens[place].type == "_OPEN":
                found.append(place)
            elif self.tokens[place].type == "CLOSE" and found:
                found.pop()
        return found

    @property
    def is_declaration(self) -> bool:
        return self.place > self.start and self.tokens[self.start].type == "RULE"

    def starts_line(self, place: int) -> bool:
        """Whether a token is the first one on its line."""
        token = self.tokens[place]
        if place == 0:
            return True
        return token.source.text.find("\n", self.tokens[place - 1].end, token.start) >= 0

    def closes_too_few(self) -> bool:
        """Whether the statement opens more parentheses than it closes."""
        found = [one.type for one in self.tokens[self.start : min(self.end, self.place + FAR)]]
        return found.count("_OPEN") > found.count("CLOSE")

    def arrow_ahead(self) -> bool:
        ahead = self.tokens[self.place : min(self.end, self.place + FAR)]
        return any(one.type in ARROWS for one in ahead)

    def say(
        self,
        code: str,
        message: str,
        hint: str | None = None,
        span: Span | None = None,
        meant: str | None = None,
        at: int = -1,
    ) -> Mistake:
        """Return a mistake at this token or at `span`. `meant` is the type that the token (or the one at position `at`) should have."""
        repair = None if meant is None else (self.place if at < 0 else at, meant)
        return Mistake(Diagnostic(code, span or self.span, message, hint), repair=repair)


@dataclass(frozen=True)
class Mistake:
    diagnostic: Diagnostic
    resume: int | None = None  # the token at which the next statement begins
    repair: tuple[int, str] | None = None  # (token, its intended type): with this type the rest can be parsed


def ends_something(token: Token | None) -> bool:
    """Whether a term or an atom can end with this token."""
    return token is not None and (token.type in FUNCTORS or token.type in ("CLOSE", "VARIABLE", "DURATION"))


def whole_argument(t: Trouble) -> Span:
    """Return the span of the whole argument around the place, between commas or parentheses."""
    ends = ("_OPEN", "_COMMA", "CLOSE", "STOP")
    first = t.place
    while first > t.start + 1 and t.tokens[first - 1].type not in ends:
        first -= 1
    last = t.place
    while last + 1 < min(t.end, t.place + FAR) and t.tokens[last + 1].type not in ends:
        last += 1
    return Span(t.span.source, t.tokens[first].start, t.tokens[last].end)


def glued(t: Trouble) -> str | None:
    """Return the text around the place without spaces, such as `8:30`, if there is a word on both sides; else None."""
    if not t.open or t.before is None or t.after is None:
        return None
    if t.before.end != t.span.start or t.span.end != t.after.start or t.before.type == "_OPEN":
        return None
    ends = ("_OPEN", "_COMMA", "CLOSE", "STOP", "STRING", "ODD_QUOTE", *ARROWS)
    if t.before.type in ends or t.after.type in ends:
        return None
    first, last = t.place - 1, t.place + 1
    while first > t.start and t.tokens[first - 1].end == t.tokens[first].start and t.tokens[first - 1].type not in ends:
        first -= 1
    stop = min(t.end, t.place + FAR)
    while last + 1 < stop and t.tokens[last].end == t.tokens[last + 1].start and t.tokens[last + 1].type not in ends:
        last += 1
    word = t.span.source.text[t.tokens[first].start : t.tokens[last].end]
    return word if len(word) <= LONGEST else None
