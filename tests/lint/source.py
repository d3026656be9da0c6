"""The library's own source as syntax trees, for the tests beside this file; nothing of it is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "src" / "foretell"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def trees() -> dict[str, ast.Module]:
    """File, as seen from the library's folder → its tree."""
    paths = sorted(LIBRARY.rglob("*.py"))
    return {path.relative_to(LIBRARY).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def public_classes() -> Iterator[tuple[str, str]]:
    """File and name of every public class, the slow twins' left out."""
    for file, tree in trees().items():
        if not file.startswith("reference/"):
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield file, node.name


def functions() -> Iterator[tuple[str, str, Function]]:
    """File, name with its class in front, and tree of every function and method."""
    for file, tree in trees().items():
        yield from ((file, name, node) for name, node in _functions(tree, ""))


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield prefix + node.name, node
            yield from _functions(node, f"{prefix}{node.name}.")
        else:
            yield from _functions(node, f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix)


def parameters(function: Function) -> int:
    """How many a caller can give; `self` and `cls` are not counted."""
    given = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len(given) - (given[:1] in (["self"], ["cls"]))


def is_command(file: str, function: Function) -> bool:
    """A command of the command line, `cli/NAME.py:NAME` or one of `cli/data.py`: its parameters are its flags."""
    folder, _, name = file.removesuffix(".py").rpartition("/")
    decorated = any("command" in ast.unparse(one) for one in function.decorator_list)
    return folder == "cli" and (function.name == name or decorated)


def lines(file: str, function: Function) -> int:
    """How many lines of code a function has: its docstring is not counted, and of a command its body alone."""
    first = function.body[0].lineno if is_command(file, function) else function.lineno
    text = function.body[0] if ast.get_docstring(function) is not None else None
    words_for_readers = 0 if text is None else (text.end_lineno or 0) - text.lineno + 1
    return (function.end_lineno or 0) - first + 1 - words_for_readers


def words(name: str) -> list[str]:
    """`RunFolder` → run, folder; `ANHPOptions` → anhp, options; `S2P2` → s2p2."""
    return [word.lower() for word in re.findall(r"[A-Z][A-Z0-9]*(?![a-z])|[A-Z][a-z0-9]*|[a-z0-9]+", name)]
