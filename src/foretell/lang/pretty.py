"""Syntax tree → text: one layout for every statement, which reads back as the same tree."""

from __future__ import annotations

from collections.abc import Iterable

from foretell.lang.statement import PARAMETERS
from foretell.lang.syntax import (
    ANONYMOUS,
    Atom,
    Compare,
    Embed,
    EventDeclaration,
    Include,
    Key,
    Literal,
    Not,
    Rule,
    SourceFile,
    Statement,
)

ARROWS = {"deduce": ":-", "add": "<-", "remove": "<-"}


def pretty(program: SourceFile | Iterable[Statement]) -> str:
    statements = program.statements if isinstance(program, SourceFile) else program
    return "".join(f"{pretty_statement(one)}\n" for one in statements)


def pretty_statement(statement: Statement) -> str:
    if isinstance(statement, Rule):
        return pretty_rule(statement)
    return f":- {_declaration(statement)}."


def pretty_rule(rule: Rule) -> str:
    head = f"{'!' if rule.kind == 'remove' else ''}{pretty_atom(rule.head)}"
    if rule.beta is not None:
        head += f" : {pretty_atom(rule.beta)}"
    body = f" {ARROWS[rule.kind]} {', '.join(map(pretty_literal, rule.body))}" if rule.body else ""
    return f"{head}{body}{f' :: {_name(rule.matrix)}' if rule.matrix is not None else ''}."


def pretty_literal(literal: Literal) -> str:
    if isinstance(literal, Compare):
        return str(literal)
    return f"not {pretty_atom(literal.atom)}" if isinstance(literal, Not) else pretty_atom(literal)


def pretty_atom(atom: Atom) -> str:
    """`not` as a functor is put in quotes: before a word it would negate."""
    functor = "'not'" if atom.functor == "not" else atom.functor
    return f"{functor}({', '.join(map(str, atom.args))})" if atom.args else functor


def _name(atom: Atom) -> str:
    """Quotes keep a matrix that is itself called `mparams(w)` from being read as the naming of one."""
    text = pretty_atom(atom)
    return f"'{atom.functor}'{text[len(atom.functor) :]}" if atom.functor in PARAMETERS and atom.args else text


def _declaration(statement: Statement) -> str:
    if isinstance(statement, Embed):
        return f"embed({ANONYMOUS if statement.functor is None else statement.functor}, {statement.dim})"
    if isinstance(statement, EventDeclaration):
        word = "exogenous" if statement.exogenous else "event"
        places = f"({', '.join(f'X{n + 1}' for n in range(statement.arity))})" if statement.arity else ""
        dim = "" if statement.dim is None else f", {statement.dim}"
        return f"{word}({statement.functor}{places}{dim})"
    if isinstance(statement, Key):
        return f"key({statement.functor}, {statement.length})"
    if isinstance(statement, Include):
        return f"include({_quoted(statement.path)})"
    assert not isinstance(statement, Rule)
    return f"table({statement.functor}, {_quoted(statement.path)})"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
