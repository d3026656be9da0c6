"""Colours: the lexer of Pygments and the TextMate grammar agree with the language, and with each other."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

from foretell.lang.declarations import DECLARATIONS
from foretell.lang.highlight import NdttLexer
from foretell.lang.textmate import UPPER, WORD, grammar

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "programs").glob("*.ndtt"), *(ROOT / "src/foretell/programs").glob("*.ndtt")])
SCOPES = {
    "comment.line.percentage.ndtt": Comment.Single,
    "string.quoted.ndtt": String,
    "keyword.other.ndtt": Keyword,
    "keyword.declaration.ndtt": Keyword.Declaration,
    "keyword.operator.word.ndtt": Operator.Word,
    "variable.other.ndtt": Name.Variable,
    "constant.numeric.integer.ndtt": Number.Integer,
    "entity.name.function.ndtt": Name.Function,
    "constant.other.ndtt": Name,
    "keyword.operator.ndtt": Operator,
    "punctuation.separator.ndtt": Punctuation,
}


def lexed(text: str) -> list[tuple[object, str]]:
    return [(kind, part) for kind, part in NdttLexer(stripnl=False, ensurenl=False).get_tokens(text)]


def coloured(text: str) -> list[tuple[object, str]]:
    """What an editor makes of the TextMate grammar, whose patterns are all within a line."""

    def compiled(pattern: str) -> re.Pattern[str]:
        return re.compile(pattern.replace(WORD, r"\w").replace(UPPER, r"(?:_|(?=[^\W\d])(?![a-zà-ÿ])\w)"))

    patterns = [(compiled(one["match"]), one) for one in grammar()["patterns"]]
    found = []
    for line in text.splitlines():
        place = 0
        while place < len(line):
            matches = [(match, one) for pattern, one in patterns if (match := pattern.search(line, place))]
            if not matches:
                break
            match, one = min(matches, key=lambda pair: pair[0].start())
            parts = one.get("captures") or {"0": one}
            found += [(SCOPES[part["name"]], match.group(int(group))) for group, part in parts.items()]
            place = match.end()
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_programs_are_coloured_alike_and_without_errors(path: Path):
    text = path.read_text(encoding="utf-8")
    tokens = lexed(text)
    assert "".join(part for _, part in tokens) == text
    assert all(kind is not Error for kind, _ in tokens)
    assert coloured(text) == [(kind, part) for kind, part in tokens if kind is not Whitespace]


def test_kinds_of_words():
    found = dict(
        (part, kind) for kind, part in lexed(":- event(watch, 8).\nwatch(U, 'New York') :- not seen(U), b. % x")
    )
    assert found["event"] is Keyword.Declaration and found["watch"] is Name.Function
    assert found["U"] is Name.Variable and found["8"] is Number.Integer and found["'New York'"] is String
    assert (
        found["not"] is Operator.Word
        and found[":-"] is Operator
        and found["b"] is Name
        and found["% x"] is Comment.Single
    )


def test_counts_ranges_orders_and_promises_are_coloured_alike():
    text = (
        "size(1..3; x).\na(X), b :- c(X), count(d(X, _)) >= 2, X < -1.\n:- never(a(X), max(d(X, _)) != X).\nmin(x).\n"
    )
    tokens = [(kind, part) for kind, part in lexed(text) if kind is not Whitespace]
    assert coloured(text) == tokens
    assert (Keyword, "count") in tokens and (Keyword, "max") in tokens and (Keyword.Declaration, "never") in tokens
    assert (Name.Function, "min") in tokens and (Operator, "..") in tokens and (Number.Integer, "-1") in tokens


def test_a_functor_called_event_is_no_declaration():
    assert (Keyword.Declaration, "event") not in lexed("a(X) :- event(X).") + coloured("a(X) :- event(X).")


def test_what_is_no_token_is_an_error():
    assert (Error, "&&") in lexed("a :- b && c.")


def test_the_grammar_file_is_what_the_language_says_and_names_every_declaration():
    path = ROOT / "editors/vscode/syntaxes/ndtt.tmLanguage.json"
    assert json.loads(path.read_text(encoding="utf-8")) == grammar()
    assert all(word in grammar()["patterns"][0]["match"] for word in DECLARATIONS)


def test_pygments_is_told_of_the_lexer():
    points = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    assert points["pygments.lexers"] == {"ndtt": f"{NdttLexer.__module__}:{NdttLexer.__name__}"}
