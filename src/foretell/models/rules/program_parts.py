"""A program inside a model's file: its rules and declarations as text, the rows of its tables, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foretell.lang.check import check
from foretell.lang.load import gather
from foretell.lang.program import FactTable, Program
from foretell.lang.source import Source, Span
from foretell.lang.syntax import pretty_rule


def program_parts(program: Program) -> dict[str, Any]:
    declared = []
    for functor in program.functors.values():
        if functor.kind != "fact":
            declared.append(f":- {functor.kind}({functor.name}).")
        if functor.dim is not None:
            declared.append(f":- embed({functor.name}, {functor.dim}).")
        if functor.key is not None:
            declared.append(f":- key({functor.name}, {functor.key}).")
    rules = [pretty_rule(one.rule) for one in program.rules]
    return {
        "text": "\n".join([*declared, *rules]) + "\n",
        "tables": [{"functor": one.functor, "arity": one.arity, "rows": one.rows} for one in program.tables],
        "undeclared": program.undeclared,
    }


def program_from_parts(parts: dict[str, Any], dim: int) -> Program:
    source = Source("program.ndtt", parts["text"])
    span = Span(source, 0, 0)
    tables = tuple(
        FactTable(one["functor"], int(one["arity"]), [tuple(map(str, row)) for row in one["rows"]], span, "", ())
        for one in parts["tables"]
    )
    gathered = replace(gather(source, None), tables=tables)
    return check(gathered, undeclared=parts["undeclared"], dim=dim)
