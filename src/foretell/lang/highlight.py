"""A program's text → Pygments tokens, for pages and terminals. It uses the language's own lexer, so both always agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pygments.lexer import Lexer
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

from foretell.lang.declarations import DECLARATIONS
from foretell.lang.formatter import COMMENT
from foretell.lang.source import Source
from foretell.lang.tokens import MARKS, Token, statements, tokenize

Kind = Any  # a Pygments token type
PUNCTUATION = frozenset("(),.;")
KINDS: dict[str, Kind] = {
    **{kind: Punctuation if text in PUNCTUATION else Operator for text, kind in MARKS.items()},
    "NAME": Name,
    "INTEGER": Number.Integer,
    "STRING": String,
    "VARIABLE": Name.Variable,
    "NOT": Operator.Word,
    "COUNT": Keyword,
    "NEVER": Keyword.Declaration,
    "FOR": Keyword,
    "DURATION": Number,
}


class NdttLexer(Lexer):
    """The Pygments lexer with the name `ndtt`, for files `*.ndtt`."""

    name = "NDTT"
    aliases: ClassVar = ["ndtt"]
    filenames: ClassVar = ["*.ndtt"]
    mimetypes: ClassVar = ["text/x-ndtt"]

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Kind, str]]:
        source = Source("<text>", text)
        tokens = tokenize(source)
        starts = {start for start, _ in statements(tokens)}
        last = 0
        for place, token in enumerate(tokens):
            yield from _between(text, last, token.start)
            yield token.start, _kind(tokens, place, starts), token.text
            last = token.end
        yield from _between(text, last, len(text))


def _kind(tokens: list[Token], place: int, starts: set[int]) -> Kind:
    token = tokens[place]
    if token.type in ("NAME", "INTEGER", "STRING"):
        declares = place - 1 in starts and tokens[place - 1].type == "RULE"
        if declares and token.text in DECLARATIONS:
            return Keyword.Declaration
        if place + 1 < len(tokens) and tokens[place + 1].text == "(":
            return Name.Function
    return KINDS.get(token.type, Error)


def _between(text: str, start: int, end: int) -> Iterator[tuple[int, Kind, str]]:
    """Yield the spaces and comments between two offsets."""
    for match in COMMENT.finditer(text, start, end):
        if match.start() > start:
            yield start, Whitespace, text[start : match.start()]
        yield match.start(), Comment.Single, match.group()
        start = match.end()
    if start < end:
        yield start, Whitespace, text[start:end]
