"""Sentences for readers: rates are "per", and a docstring says what a thing is."""

import ast
import re

from tests.lint.source import LIBRARY, trees

ROOT = LIBRARY.parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.ipynb")),
]
RATES = re.compile(
    r"\b(nats|points|draws|nodes|pieces|windows|proposals)\s+an?\s+(event|gap|query|step)\b|\bevents\s+a\s+(second|sequence)\b"
)
UNSAID = re.compile(r'"""(Of|The same) ')


def test_rates_are_per():
    for path in [*PAGES, *sorted(LIBRARY.rglob("*.py"))]:
        found = RATES.search(path.read_text(encoding="utf-8"))
        assert not found, f"{path}: {found.group()!r}: write `per`"


def test_no_docstring_leaves_out_what_it_speaks_of():
    for path in sorted(LIBRARY.rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not UNSAID.search(line), f"{path}:{number}: {line.strip()}"


def test_such_sentences_would_be_found():
    assert RATES.search("two points a\ngap") and not RATES.search("two points per gap")
    assert UNSAID.search('"""Of each event."""') and not UNSAID.search('"""The times of each event."""')


# its own command line, without typer
COMMANDS = ("cli/", "reproduce/__main__.py")
OPTION = re.compile(r"(?<![\w-])--([a-z]|$)")


def options_in(tree: ast.Module) -> list[int]:
    """Lines of the texts, docstrings left out, that have an option of the command line in them."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    texts = [one for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return [
        one.lineno for one in texts if id(one) not in docstrings and one.value != "--" and OPTION.search(str(one.value))
    ]


def test_the_library_does_not_speak_of_options_of_the_command_line():
    found = [
        f"{file}:{line}" for file, tree in trees().items() if not file.startswith(COMMANDS) for line in options_in(tree)
    ]
    assert found == [], "name settings as arguments, `start=`: cli/option_words.py makes options of them"


def test_an_option_in_a_text_would_be_found():
    assert options_in(ast.parse('"""Of --this."""\ndef f():\n    raise E(f"use --{x} or {y}: --that {z}")')) == [3, 3]
    assert options_in(ast.parse('x = f"by --{x}"')) == [1] and options_in(ast.parse('style = "--"')) == []
    assert options_in(ast.parse('x = 1\nx = "two words--joined"')) == []
