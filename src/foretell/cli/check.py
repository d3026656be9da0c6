"""`foretell check P.ndtt`: print all mistakes of a program or, if it has none, its contents. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretell.cli import flags
from foretell.terms import bare

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from foretell.lang.counts import Counts
    from foretell.lang.diagnostics import Diagnostic
    from foretell.lang.fact_table import FactTable
    from foretell.lang.program import Program

Option = typer.Option


class ShownStage(StrEnum):
    """The stages that `--show` can print."""

    ast = "ast"
    rules = "rules"
    graph = "graph"
    plan = "plan"


def check(
    program: Annotated[
        Path, typer.Argument(metavar="P.ndtt", help="A program: a file, or the name of a shipped one (robocup).")
    ],
    as_json: Annotated[
        bool, Option("--json", help="Print JSON, and nothing else, on stdout; with --show, the stage, too.")
    ] = False,
    as_sarif: Annotated[
        bool, Option("--sarif", help="Print what is wrong as SARIF 2.1.0, and nothing else, on stdout.")
    ] = False,
    show: Annotated[
        ShownStage | None, Option(help="Print a stage instead of the summary: ast, rules, graph or plan.")
    ] = None,
    plot: Annotated[Path | None, Option(help="Draw predicates and rules into this SVG file.")] = None,
    dim: Annotated[int, Option(min=0, help="The dimension of functors that declare none.")] = 32,
    layers: Annotated[int, Option(min=0, help="Layers of attention, for counting parameters.")] = 2,
    time_dim: Annotated[int | None, Option(min=0, help="The dimension of times; default: that of --dim.")] = None,
    undeclared: Annotated[
        flags.UndeclaredChoice,
        Option(help="Events that the program waits for and does not declare: an error, or exogenous."),
    ] = flags.UndeclaredChoice.error,
) -> None:
    """Check a program: report all mistakes at once, or list its facts, rules, events, dimensions, parameters and strata."""
    from foretell.cli.show import print_json
    from foretell.lang.counts import count_parameters
    from foretell.lang.diagnostics import ProgramError
    from foretell.lang.program import Program

    if as_json and as_sarif:
        raise typer.BadParameter("choose one of --json and --sarif")
    try:
        checked = Program.from_file(program, undeclared=undeclared.value, dim=dim)
    except ProgramError as error:
        if as_sarif:
            _print_sarif(error.diagnostics)
        elif not as_json:
            raise
        else:
            print_json({"ok": False, **_diagnostics(error.diagnostics)})
        raise typer.Exit(1) from None
    if as_sarif:
        _print_sarif(checked.warnings)
        return
    if plot is not None:
        _draw(checked, plot, Path(checked.sources[0].name).name)
    parts = checked.rules, checked.tables, checked.functors, checked.features
    counts = count_parameters(*parts, dim=dim, layers=layers, time_dim=time_dim)
    if as_json:
        report = _summary(checked, counts, dim, layers, dim if time_dim is None else time_dim)
        planned = {"plan": _network(checked, dim, layers, time_dim, True)} if show is ShownStage.plan else {}
        print_json({**report, **_diagnostics(checked.warnings), **_stage(checked, show), **planned})
        return
    for one in checked.warnings:
        typer.echo(one.render(), err=True)
    if show is ShownStage.plan:
        typer.echo("\n".join(_network(checked, dim, layers, time_dim, False)))
    elif show is not None:
        typer.echo("\n".join(_stage_lines(checked, show)))
    else:
        _show(checked, counts, str(program), dim)
    if plot is not None:
        typer.echo(f"picture: {plot}", err=show is not None)


def _print_sarif(found: Sequence[Diagnostic]) -> None:
    from importlib import metadata

    from foretell.cli.show import print_json
    from foretell.lang.sarif import sarif

    print_json(sarif(found, metadata.version("foretell")))


def _draw(program: Program, path: Path, title: str) -> None:
    from foretell.data.files import text_file
    from foretell.errors import ForetellError
    from foretell.lang.graph import graph_of
    from foretell.lang.svg import draw

    if path.suffix.lower() != ".svg":
        raise ForetellError(f"--plot {path}: the picture is an SVG; give a name that ends in .svg")
    with text_file(path) as file:
        file.write(draw(graph_of(program), title))


def _diagnostics(found: Any) -> dict[str, Any]:
    return {
        "errors": [one.to_json() for one in found if one.severity == "error"],
        "warnings": [one.to_json() for one in found if one.severity == "warning"],
    }


# --- stages ----------------------------------------------------------------------------------------------------------


def _stage(program: Program, show: ShownStage | None) -> dict[str, Any]:
    from foretell.lang.graph import graph_json, graph_of
    from foretell.lang.syntax import pretty_rule
    from foretell.lang.tree import tree

    if show is ShownStage.ast:
        return {"ast": tree(_statements(program))}
    if show is ShownStage.rules:
        return {"listing": [{"rule": one.name, "text": pretty_rule(one.rule)} for one in program.rules]}
    return {"graph": graph_json(graph_of(program))} if show is ShownStage.graph else {}


def _stage_lines(program: Program, show: ShownStage) -> list[str]:
    from foretell.lang.graph import graph_lines, graph_of
    from foretell.lang.syntax import pretty_rule
    from foretell.lang.tree import tree, tree_lines

    if show is ShownStage.ast:
        return list(tree_lines(tree(_statements(program))))
    if show is ShownStage.graph:
        return list(graph_lines(graph_of(program)))
    width = len(f"rule{sum(not one.rule.is_fact for one in program.rules)}")
    lines = [f"{'fact' if one.rule.is_fact else one.name:{width}}  {pretty_rule(one.rule)}" for one in program.rules]
    tables = (f"{'table':{width}}  {bare(one.functor)}/{one.arity}, {_rows(one)}" for one in program.tables)
    return [*lines, *tables]


def _rows(table: FactTable) -> str:
    return f"{table.log}, with the rows of training" if table.waits else f"{len(table.rows):,} rows"


def _network(program: Program, dim: int, layers: int, time_dim: int | None, as_json: bool) -> Any:
    """Return the network of the rules without data; `foretell plan` also gives its size for given events."""
    from foretell.plan.parameters import DimensionLayout, ParameterBook
    from foretell.plan.show import network_json, network_lines

    layout = DimensionLayout(program, dim)
    book = ParameterBook(layout, max(dim, 1) if time_dim is None else time_dim)
    return (network_json if as_json else network_lines)(layout, book, layers)


def _statements(program: Program) -> list[Any]:
    """Return the statements of all files, in the order in which they were read."""
    from foretell.lang.load import parse

    return [statement for source in program.sources for statement in parse(source).file.statements]


# --- the summary -----------------------------------------------------------------------------------------------------


def _summary(program: Program, counts: Counts, dim: int, layers: int, time_dim: int) -> dict[str, Any]:
    from foretell.lang.program import dimension
    from foretell.lang.syntax import pretty_atom, pretty_rule

    kinds = ("deduce", "add", "remove")
    return {
        "ok": True,
        "digest": program.digest,
        "dim": dim,
        "layers": layers,
        "time_dim": time_dim,
        "facts": sum(one.rule.is_fact for one in program.rules),
        "tables": [
            {
                "functor": one.functor,
                "arity": one.arity,
                "file": one.path,
                "rows": len(one.rows),
                "header": list(one.header),
                **({} if one.log is None else {"log": {"functor": one.log.functor, "place": one.log.place}}),
            }
            for one in program.tables
        ],
        "rules": {kind: sum(one.rule.kind == kind and not one.rule.is_fact for one in program.rules) for kind in kinds},
        "functors": [
            {
                "functor": name,
                "arity": one.arity,
                "kind": one.kind,
                "dim": dimension(program.functors, name, dim),
                "key": one.key,
                "stratum": program.stratum.get(name, 0),
            }
            for name, one in program.functors.items()
            if name not in program.brought
        ],
        "strata": _strata(program),
        "recursive": [list(one.functors) for one in program.components if one.recursive],
        "parameters": {
            "rules": [
                {
                    "rule": count.rule.name,
                    "text": pretty_rule(count.rule.rule),
                    "name": pretty_atom(count.shapes.name),
                    "matrices": {letter: list(shape) for letter, shape in count.shapes.matrices.items()},
                    "parameters": count.parameters,
                    "shared_with": count.shared_with,
                    "per_value_of": list(count.shapes.groups),
                }
                for count in counts.rules
            ],
            "tables": counts.tables,
            "intensities": counts.intensities,
            "total": counts.total,
            "per_value": counts.per_value,
        },
    }


def _strata(program: Program) -> list[list[str]]:
    found: dict[int, list[str]] = {}
    for component in program.components:
        for name in component.functors:
            found.setdefault(program.stratum.get(name, 0), []).append(name)
    return [found[level] for level in sorted(found)]


def _show(program: Program, counts: Counts, name: str, dim: int) -> None:
    from foretell.cli.show import out
    from foretell.wording import counted, escape

    console = out()
    rules = [one.rule for one in program.rules]
    kinds = {kind: sum(one.kind == kind and not one.is_fact for one in rules) for kind in ("deduce", "add", "remove")}
    files = [one for one in program.tables if one.log is None]
    rows, logs = sum(len(one.rows) for one in files), len(program.tables) - len(files)
    parts = [counted(sum(one.is_fact for one in rules), "fact")]
    parts += [f"{counted(len(files), 'table')} with {rows:,} facts"] if files else []
    parts += [f"{counted(logs, 'table')} of what a log has"] if logs else []
    split = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
    parts.append(counted(sum(kinds.values()), "rule") + (f" ({split})" if split else ""))
    console.print(f"[bold]{escape(name)}[/bold] is fine: {', '.join(parts)}")
    _show_functors(console, program, dim)
    _show_tables(console, program)
    _show_rules(console, counts)
    note = "; groups of parameters that are named by a variable are counted for one value of it"
    console.print(f"parameters: {counts.total:,} in all{note if counts.per_value else ''}")
    strata = _strata(program)
    if len(strata) > 1:
        for level, names in enumerate(strata):
            console.print(f"stratum {level}: {escape(', '.join(names))}")
    for component in program.components:
        if component.recursive:
            console.print(f"recursive: {escape(', '.join(component.functors))}")


def _show_functors(console: Console, program: Program, dim: int) -> None:
    from foretell.cli.show import plain_table
    from foretell.lang.program import dimension
    from foretell.wording import escape

    if not program.functors:
        return
    table = plain_table(["functor", "is", "dimension", "key"], ["functor", "is"])
    for name, one in program.functors.items():
        kind = {"fact": "fact", "event": "event", "exogenous": "exogenous event"}[one.kind]
        key = "" if one.key is None else str(one.key)
        table.add_row(escape(_short(str(one), 40)), kind, str(dimension(program.functors, name, dim)), key)
    _print_table(console, table)


def _show_tables(console: Console, program: Program) -> None:
    """Print the tables of a program with their headers, so that a first row mistaken for a header is noticed."""
    from foretell.cli.show import plain_table
    from foretell.wording import escape, printable

    if not program.tables:
        return
    table = plain_table(["table", "file", "rows", "header"], ["table", "file", "header"])
    for one in program.tables:
        rows = "of training" if one.waits else f"{len(one.rows):,}"
        cells = (f"{bare(one.functor)}/{one.arity}", one.source, rows, ", ".join(one.header))
        table.add_row(*(escape(printable(_short(cell, 40))) for cell in cells))
    _print_table(console, table)


def _show_rules(console: Console, counts: Counts) -> None:
    from foretell.cli.show import plain_table
    from foretell.lang.syntax import pretty_rule
    from foretell.wording import counted, escape

    table = plain_table(["rule", "", "parameters"], ["rule", ""])
    for count in counts.rules:
        if count.rule.rule.is_fact:
            continue
        note = f" (shared with {count.shared_with})" if count.shared_with else ""
        note += f" for each {', '.join(count.shapes.groups)}" if count.shapes.groups else ""
        text = escape(_short(pretty_rule(count.rule.rule), 90))
        table.add_row(count.rule.name, text, f"{count.parameters:,}{escape(note)}")
    facts = [count for count in counts.rules if count.rule.rule.is_fact]
    if facts:
        table.add_row("", counted(len(facts), "fact"), f"{sum(count.parameters for count in facts):,}")
    if counts.tables:
        table.add_row("", "facts of tables", f"{counts.tables:,}")
    if counts.intensities:
        table.add_row("", "intensities of events", f"{counts.intensities:,}")
    _print_table(console, table)


def _print_table(console: Console, table: Table) -> None:
    """Print a table without the trailing blanks of the last column."""
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
