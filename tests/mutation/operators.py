"""Small mistakes, made on purpose: a function's syntax tree in, one changed copy per place that can be changed out.

Numbers, truth values, comparisons, arithmetic, `and`/`or`, `not`, `any`/`all`, `min`/`max` and the branches of conditions are changed;
texts are not, since messages are for readers.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NAMES = {"any": "all", "all": "any", "min": "max", "max": "min", "maximum": "minimum", "minimum": "maximum"}


@dataclass(frozen=True)
class Mutant:
    function: str  # qualified name
    line: int
    what: str  # "`<` → `<=`"
    number: int  # among those of its function


def mutants_of(function: ast.AST, name: str) -> Iterator[tuple[Mutant, ast.AST]]:
    """Each mutant with its tree; the function itself is left as it is. `strict=True` guards against mistakes of ours, like `assert`."""
    guards = {
        id(one.value)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        for one in call.keywords
        if one.arg == "strict"
    }
    places = list(_walk(function))
    for number, (place, change, what) in enumerate(_changes(function)):
        if id(places[place]) in guards:
            continue
        tree = copy.deepcopy(function)
        node = list(_walk(tree))[place]
        change(node)
        yield Mutant(name, getattr(node, "lineno", function.lineno), what, number), tree  # pyright: ignore


def statement_lines(function: ast.AST, line: int) -> range:
    """The lines of the innermost statement around a line; of a condition or a loop, those of its head."""
    found = range(line, line + 1)
    for node in ast.walk(function):  # outer ones come first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            if line <= max(last, node.lineno):
                found = range(node.lineno, max(last, node.lineno) + 1)
    return found


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Everything in the body, in a fixed order; no annotations, no decorators, no nested texts."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            parts = [
                *(*node.args.defaults, *node.args.kw_defaults),  # the code of a function does not hold them
                *node.decorator_list,
                node.returns,
                *(one.annotation for one in (*node.args.args, *node.args.kwonlyargs)),
            ]
            skipped |= {id(inner) for part in parts if part is not None for inner in ast.walk(part)}
        if isinstance(node, ast.AnnAssign):
            skipped |= {id(inner) for inner in ast.walk(node.annotation)}
        if isinstance(node, ast.Assert | ast.JoinedStr):
            skipped |= {id(inner) for inner in ast.walk(node)}
        if id(node) not in skipped:
            yield node


def _changes(tree: ast.AST) -> Iterator[tuple[int, object, str]]:
    for place, node in enumerate(_walk(tree)):
        for change, what in _of_node(node):
            yield place, change, what


def _of_node(node: ast.AST) -> Iterator[tuple[object, str]]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            other = COMPARISONS[type(operator)]
            yield (lambda n, p=place, o=other: n.ops.__setitem__(p, o())), f"{_sign(operator)} → {_sign(other())}"
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC:
        other = ARITHMETIC[type(node.op)]
        yield (lambda n, o=other: setattr(n, "op", o())), f"{_sign(node.op)} → {_sign(other())}"
    elif isinstance(node, ast.BoolOp):
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield (lambda n, o=other: setattr(n, "op", o())), "and → or" if other is ast.Or else "or → and"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        sign = "not" if isinstance(node.op, ast.Not) else "-"
        other = ast.UAdd if sign == "-" else None
        yield (lambda n, o=other: setattr(n, "op", o()) if o else _positive(n)), f"{sign} dropped"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield (lambda n: setattr(n, "value", not n.value)), f"{node.value} → {not node.value}"
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        value = node.value + 1 if isinstance(node.value, int) else node.value * 2.0 if node.value else 1.0
        yield (lambda n, v=value: setattr(n, "value", v)), f"{node.value} → {value}"
    elif isinstance(node, ast.IfExp):
        yield _swap_branches, "branches swapped"
    elif isinstance(node, ast.If | ast.While):
        yield (lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))), "condition negated"
    elif isinstance(node, ast.Name) and node.id in NAMES:
        yield (lambda n: setattr(n, "id", NAMES[n.id])), f"{node.id} → {NAMES[node.id]}"
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield (lambda n: setattr(n, "attr", NAMES[n.attr])), f".{node.attr} → .{NAMES[node.attr]}"


def _swap_branches(node: ast.IfExp) -> None:
    node.body, node.orelse = node.orelse, node.body


def _positive(node: ast.UnaryOp) -> None:
    """`not x` becomes `not not x`, that is `bool(x)`."""
    node.operand = ast.UnaryOp(ast.Not(), node.operand)


def _sign(operator: ast.AST) -> str:
    return type(operator).__name__
