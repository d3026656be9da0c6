"""A program in a model's file: rules and declarations as text, and rows of tables; and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foretell.lang.check import check
from foretell.lang.load import gather
from foretell.lang.program import FactTable, Program
from foretell.lang.source import Source, Span
from foretell.lang.syntax import FeatureDeclaration, LogPlace, pretty_rule, pretty_statement
from foretell.terms import bare


def program_parts(program: Program) -> dict[str, Any]:
    brought = set(program.brought)  # the statements that they stand for declare them again
    declared = [f":- given({program.functors[name]})." for name in program.given]
    for functor in program.functors.values():
        if functor.name in brought:
            continue
        if functor.kind != "fact":
            declared.append(f":- {functor.kind}({functor.name}).")
        if functor.dim is not None:
            declared.append(f":- embed({functor.name}, {functor.dim}).")
        if functor.key is not None:
            declared.append(f":- key({functor.name}, {functor.key}).")
    for name, columns in program.features.items():
        declared.append(pretty_statement(FeatureDeclaration(name, columns, Span(program.sources[0], 0, 0))))
    rules = [pretty_rule(one.rule) for one in program.rules if not one.is_made]
    return {
        "text": "\n".join([*declared, *rules]) + "\n",
        "tables": [_table_parts(one.trained or one) for one in program.tables],
        "undeclared": program.undeclared,
        **(
            {"rows": [_table_parts(one) for one in program.tables]}
            if any(one.trained is not None for one in program.tables)
            else {}
        ),
    }


def _table_parts(table: FactTable) -> dict[str, Any]:
    found: dict[str, Any] = {"functor": bare(table.functor), "arity": table.arity, "rows": table.rows}
    if table.log is not None:
        found["log"] = [table.log.functor, table.log.place]
        found["waits"] = table.waits
    return {**found, "features": table.features, "numbers": table.numbers} if table.features else found


def _table(parts: dict[str, Any], span: Span) -> FactTable:
    rows = [tuple(map(str, row)) for row in parts["rows"]]
    numbers = [tuple(None if one is None else float(one) for one in row) for row in parts.get("numbers", [])]
    features = tuple(map(str, parts.get("features", [])))
    if features and [len(row) for row in numbers] != [len(features)] * len(rows):
        raise ValueError("the numbers of its tables are not those of its rows")
    log = None if parts.get("log") is None else LogPlace(str(parts["log"][0]), int(parts["log"][1]))
    waits = log is not None and parts.get("waits") is True
    return FactTable(parts["functor"], int(parts["arity"]), rows, span, "", (), features, numbers, log, waits=waits)


def program_from_parts(parts: dict[str, Any], dim: int) -> Program:
    source = Source("program.ndtt", parts["text"])
    span = Span(source, 0, 0)
    tables = [_table(one, span) for one in parts["tables"]]
    gathered = replace(gather(source, None), tables=tables)
    return check(gathered, undeclared=parts["undeclared"], dim=dim)


def with_saved_rows(program: Program, parts: dict[str, Any]) -> Program:
    """Return the program of training with the table rows of the saved model, if they differ from those of training."""
    if "rows" not in parts:
        return program
    span = Span(program.sources[0], 0, 0)
    rows = [replace(_table(one, span), trained=table) for one, table in zip(parts["rows"], program.tables, strict=True)]
    return replace(program, tables=tuple(rows))
