"""Whatever comes in, what comes out is a program or a message: no traceback, no hang, no page of noise."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.lang.diagnostics import ProgramError
from foretell.lang.program import Program
from tests.lang.reading import write

GOLDEN = Path(__file__).parent / "golden"
LONG = 50_000
PIECES = [*"abXY_'\"(),.:-<!=%; \n\\3{}[]~|&#\t\0é", "not ", ":- ", "event", " <- ", "embed", "bos", "eos", " :: "]
HANG = 30.0  # seconds; the slowest of these takes about one


def outcome(text: str, **options) -> str:
    """The message of a program that is refused, or nothing."""
    start = time.monotonic()
    try:
        Program.from_text(text, **options)
        message = ""
    except ProgramError as error:
        message = str(error)
        for one in error.diagnostics:
            one.to_json()
    assert time.monotonic() - start < HANG
    message.encode("utf-8")
    assert max(map(len, message.splitlines()), default=0) < 700, "a line of a message is too long to read"
    return message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("(" * LONG, "syntax"),
        ("a(" * LONG, "unclosed-parenthesis"),
        ("a(" * LONG + "x" + ")" * LONG + ".", "parenthesis"),
        ("\0" * LONG, "odd-character"),
        ("a('\ud800').", "unreadable-file"),
        ("'" * (LONG + 1), "unclosed-quote"),
        ("a('" + "\\" * LONG, "unclosed-quote"),
        ("a('x\n" * LONG, "unclosed-quote"),
        ("a(x)\n" * LONG, "too-many-errors"),
        ("a " * LONG, "missing-comma"),
        ("." * LONG, "too-many-errors"),
        (":-" * LONG, "syntax"),
        ("a :- " + "b," * LONG, "syntax"),
        (":- embed(a, " + "9" * LONG + ").", "bad-dimension"),
        ("b(" + "X" * LONG + ") :- c.", "unbound-head"),
        ("a" * LONG + ". b :- " + "a" * (LONG - 1) + "b.", "never-true"),
        ("[" * LONG, "odd-character"),
        ("a(" + "." * LONG, "bad-word"),
        ("a(x" + ".b" * LONG + ").", "bad-word"),
        ("a(x" + ":b" * LONG + ").", "unclosed-parenthesis"),
        (":- table(t, x" + "/y" * LONG + ".csv).", "bad-declaration"),
        (":- event " + "a " * LONG, "bad-declaration"),
        ("a :- " + "Foo(X), " * LONG + "b.", "upper-case-functor"),
        ("a :- " + "X == y, " * LONG + "b.", "comparison-sign"),
        ("a :- b" + " and b" * LONG + ".", "missing-comma"),
        ("Foo(x)\n" * LONG, "too-many-errors"),
        ("a :- b :: " + "w," * LONG + "w.", "parameter-names"),
        ("a(\x1b[31mred).", "odd-character"),
        ('x. :- include("a\0b").', "missing-file"),
        (':- include("' + "a" * LONG + '").', "missing-file"),
        (':- include("/dev/zero"). :- table(t, "/dev/zero").', "outside-folder"),
    ],
    ids=lambda value: repr(value[:16]),
)
def test_hostile_text_is_refused_in_time_and_in_few_words(text: str, code: str):
    assert code in outcome(text)


@pytest.mark.parametrize(
    "text",
    [
        "a" * LONG + "(x). b(X) :- " + "a" * LONG + "(X).",
        "a(" + "9" * LONG + ").",
        "%" * LONG,
        "''" * 3 + ".",
        "a. " * LONG,
        "b. a :- " + ", ".join(["b"] * 20_000) + ".",
        "b(x). a(X0) :- b(X0), " + ", ".join(f"X{n} = X{n + 1}" for n in range(5_000, -1, -1)) + ".",
    ],
    ids=lambda value: repr(value[:16]),
)
def test_long_programs_are_programs(text: str):
    assert outcome(text) == ""


def test_messages_hold_nothing_that_a_terminal_obeys():
    message = outcome("a(\x1b]0;title\x07x).\nb('\x1b[31m', 3 4).\n:- include('\x1b[2J').")
    assert message and all(one.isprintable() or one == "\n" for one in message)


def test_files_that_include_each_other_in_a_ring_end(tmp_path: Path):
    count = 500
    write(tmp_path, {f"f{n}.ndtt": f':- include("f{(n + 1) % count}.ndtt").\na{n}.' for n in range(count)})
    with pytest.raises(ProgramError) as caught:
        Program.from_file(tmp_path / "f0.ndtt")
    assert [one.code for one in caught.value.diagnostics] == ["include-cycle"]


def test_two_thousand_typos_are_reported_in_time():
    text = "".join(f"base{n}.\n" for n in range(2_000)) + "".join(f"x{n} :- bsae{n}.\n" for n in range(2_000))
    assert "did you mean `base0`?" in outcome(text) and "more" in outcome(text)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_text_is_a_program_or_a_message(text: str):
    outcome(text)


def test_mutated_programs_are_programs_or_messages():
    generator = random.Random(7)
    texts = [
        path.read_text(encoding="utf-8") for path in sorted(GOLDEN.glob("*.ndtt")) if path.stem != "too-many-errors"
    ]
    for _ in range(1_500):
        text = generator.choice(texts)
        for _ in range(generator.randint(1, 4)):
            start = generator.randrange(len(text) + 1)
            end = min(len(text), start + generator.choice([0, 0, 1, 3, 20]))
            other = generator.choice(texts)
            middle = generator.choice(PIECES) if generator.random() < 0.8 else other[: generator.randrange(len(other))]
            text = text[:start] + middle + text[end:]
        outcome(text, folder=GOLDEN, undeclared=generator.choice(["error", "exogenous"]))
