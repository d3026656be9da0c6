"""A program's text → tokens and statements. Text that is no token of the language gets an `ODD…` type, so the parser can report it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from foretell import terms
from foretell.lang.source import Source, Span
from foretell.lang.syntax import COUNTING

_PIECE = re.compile(
    r"""
    (?P<space>[\s\ufeff]+|%[^\n]*)
  | (?P<lives>(?<![\w'"-])for\s+(?P<amount>-?(?:[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+(?!\w))?[^\W\d_]*)+))
  | (?P<ODD_NUMBER>-?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?)
  | (?P<word>-?\w+)
  | (?P<STRING>'(?:[^'\\\n]|\\[^\n]|'')*+'|"(?:[^"\\\n]|\\[^\n]|"")*+")
  | (?P<ODD_QUOTE>['"][^\n]*)
  | (?P<ODD>/\*|//|\\==|\\=|\\\+|=\\=|=:=|:=|===|==>|==|=<|=>|<=>|<>|!==|-->|->|~=|\|\||&&)
  | (?P<mark>:-|<-|::|!=|<=|>=|(?<=\w)\.\.(?=[\w-])|[(),.:!=<>;])
  | (?P<odd>.)
    """,
    re.VERBOSE | re.DOTALL,
)
MARKS = {":-": "RULE", "<-": "ADD", "::": "_NAMES", ":": "_COLON", "!=": "UNEQUAL", "=": "EQUAL", "!": "BANG"}
MARKS |= {"<": "ORDER", "<=": "ORDER", ">": "ORDER", ">=": "ORDER", "..": "RANGE", ";": "SEMI"}
MARKS |= {"/": "SLASH", "(": "_OPEN", ")": "CLOSE", ",": "_COMMA", ".": "STOP"}
FUNCTORS = frozenset(("NAME", "INTEGER", "STRING"))
SIGNS = frozenset(("EQUAL", "UNEQUAL", "ORDER"))  # signs that compare
WORDS = frozenset(("NAME", "INTEGER", "VARIABLE", "ODD_WORD", "ODD_NUMBER"))


class Token:
    """A word or sign with its place. `type` is its name in the grammar."""

    __slots__ = ("end", "source", "start", "text", "type")

    def __init__(self, type: str, text: str, source: Source, start: int, end: int) -> None:
        self.type, self.text, self.source, self.start, self.end = type, text, source, start, end

    @property
    def span(self) -> Span:
        return Span(self.source, self.start, self.end)

    def __repr__(self) -> str:
        return f"{self.type}({self.text[:40]!r})"


def tokenize(source: Source) -> list[Token]:
    found: list[Token] = []
    depth = 0  # the number of open parentheses in the statement
    opened: list[int] = []  # the positions of the open parentheses
    closed = 0  # the position of the opening parenthesis that was closed last
    for match in _PIECE.finditer(source.text):
        kind, text = match.lastgroup, match.group()
        assert kind is not None
        if kind == "space":
            continue
        if kind == "lives":  # `for 30m`: a word before a number has no other meaning
            found.append(Token("FOR", "for", source, match.start(), match.start() + len("for")))
            found.append(Token("DURATION", match["amount"], source, match.start("amount"), match.end()))
            continue
        if kind == "word":
            kind = _word(text)
        elif kind == "mark":
            kind = MARKS[text]
            depth = depth + 1 if kind == "_OPEN" else max(0, depth - 1) if kind == "CLOSE" else depth
            if kind == "_OPEN":
                opened.append(len(found))
                if _is_declared(found, "never"):
                    found[-1].type = "NEVER"
            elif kind == "CLOSE":
                closed = opened.pop() if opened else 0
            elif kind in SIGNS and found and found[-1].type == "CLOSE" and closed:
                before = found[closed - 1]
                if before.type == "NAME" and before.text in COUNTING:
                    before.type = "COUNT"  # facts cannot be compared, so this is a count
            if kind == "STOP":
                kind = "ODD_DOT" if depth and _is_inner_dot(source.text, match.start(), found) else kind
                if kind == "STOP":
                    depth, opened, closed = 0, [], 0
        elif kind == "odd":
            kind = "SLASH" if text == "/" and _is_first_declared(found, match.end(), source.text) else "ODD"
        if found and found[-1].text == "not" and found[-1].type == "NAME" and (kind in FUNCTORS or kind == "VARIABLE"):
            found[-1].type = "NOT"  # two adjacent words have no other meaning
        found.append(Token(kind, text, source, match.start(), match.end()))
    return found


def _is_declared(found: list[Token], word: str) -> bool:
    """Whether `:- word` begins a statement."""
    if len(found) < 2 or found[-1].type != "NAME" or found[-1].text != word or found[-2].type != "RULE":
        return False
    return len(found) == 2 or found[-3].type == "STOP"


def _is_first_declared(found: list[Token], end: int, text: str) -> bool:
    """Whether a declared functor precedes this place and a number follows, as in `:- embed(forum/2`."""
    if len(found) < 4 or found[-1].type not in FUNCTORS or found[-2].type != "_OPEN" or found[-3].type != "NAME":
        return False
    starts = found[-4].type == "RULE" and (len(found) == 4 or found[-5].type == "STOP")
    return starts and text[end : end + 1].isdecimal()


def _is_inner_dot(text: str, place: int, found: list[Token]) -> bool:
    """Whether a dot is inside an argument without spaces, such as `staff.csv` or `../teams.ndtt`, and so does not end the statement."""
    after, last = text[place + 1 : place + 2], found[-1]
    if not after.isalnum() and (not after or after not in "_./"):
        return False
    return (last.type in WORDS and last.end == place) or last.type in ("_OPEN", "_COMMA", "ODD", "ODD_DOT")


def _word(text: str) -> str:
    first = text[0]
    if first == "_" or first.isupper():
        return "VARIABLE"
    if terms.is_integer(text):
        return "INTEGER"
    return "NAME" if terms.constant(text) == text else "ODD_WORD"


def statements(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    """Yield the range of tokens of each statement, with its full stop. Only the last statement may lack one."""
    start = 0
    for place, token in enumerate(tokens):
        # an unclosed quote extends to the end of its line; the statement ends there if the line ends with a full stop
        if token.type == "STOP" or (token.type == "ODD_QUOTE" and token.text.rstrip().endswith(".")):
            yield start, place + 1
            start = place + 1
    if start < len(tokens):
        yield start, len(tokens)


def spelling(token: Token) -> str:
    return terms.unquote(token.text) if token.type == "STRING" else token.text
