"""All commands, combined in `app`; each also gets the options that limit how much is read from files."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from foretell.cli import data
from foretell.cli.completion import add_completion
from foretell.cli.group_help import CommandGroup
from foretell.cli.old_spellings import RenamedOptions
from foretell.reading import limits

# In the order of `--help`; each is the function of this name in the module of this name.
COMMANDS = (
    *("train", "auto", "pretrain", "tune", "evaluate", "compare", "predict", "sample", "intensity", "embed", "params"),
    *("check", "fmt", "lsp", "replay", "plan", "why", "explain", "report", "reproduce", "demo"),
)
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def amount(text: str) -> int:
    """Parse a positive whole number: digits, 1e9, or a number with a unit, such as 500M."""
    bare = text.strip().removesuffix("B")
    unit = bare[-1:] if bare[-1:] in UNITS else ""
    try:
        found = int(float(bare.removesuffix(unit)) * UNITS[unit])
    except (ValueError, OverflowError):
        found = 0
    if found < 1:
        raise typer.BadParameter(f"{text[:40]!r}: expected a number such as 2000000000, 2e9 or 2G")
    return found


def factor(text: str) -> float:
    """Parse a factor by which a limit is multiplied, such as 10."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 1e-6 <= found <= 1e9:
        raise typer.BadParameter(f"{text[:40]!r}: expected a number such as 10")
    return found


def _read_option(name: str, help: str, kind: Any, **more: Any) -> inspect.Parameter:
    flag = typer.Option(f"--{name.replace('_', '-')}", help=help, show_default=False, **more)
    annotation = Annotated[kind | None, flag]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


READ_OPTIONS = (
    _read_option("max_bytes", "Most that a file may unpack to: 500M, 2G.", int, parser=amount, metavar="NUMBER"),
    _read_option("max_events", "Most events that a file may hold.", int, parser=amount, metavar="NUMBER"),
    _read_option(
        "allow", "A folder that programs may read besides their own.", list[Path], exists=True, file_okay=False
    ),
)

LIMIT = _read_option(
    "limit",
    "Multiplies how many instantiations of rules are allowed; default: 1.",
    float,
    parser=factor,
    metavar="NUMBER",
)
WITH_RULES = (
    *("train", "auto", "tune", "evaluate", "compare", "predict", "sample", "intensity", "params", "check", "replay"),
    *("plan", "why", "explain", "report", "reproduce"),
)


def bounded(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options that limit input sizes and the work of rules; the limits hold until the command ends."""
    bounds = (*READ_OPTIONS, LIMIT) if command.__name__ in WITH_RULES else READ_OPTIONS
    hints = get_type_hints(command, include_extras=True)
    own = [
        one.replace(annotation=hints.get(one.name, one.annotation), kind=inspect.Parameter.KEYWORD_ONLY)
        for one in inspect.signature(command).parameters.values()
    ]
    for one in own:
        add_completion(command.__name__, one.name, one.annotation)

    @functools.wraps(command)
    def run(**values: Any) -> None:
        given = {one.name: values.pop(one.name) for one in bounds}
        given["rules"] = given.pop("limit", None)
        changes = {name: tuple(value) if name == "allow" else value for name, value in given.items() if value}
        with limits(**changes):
            command(**values)

    run.__signature__ = inspect.Signature([*own, *bounds])  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = {one.name: one.annotation for one in (*own, *bounds)}
    return run


app = typer.Typer(
    name="foretell",
    cls=CommandGroup,
    help="Learn what happens next, and when, from irregularly timed events.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in data.app.registered_commands:
    assert command.callback is not None
    command.callback, command.cls = bounded(command.callback), RenamedOptions
app.add_typer(data.app, name="data")
for name in COMMANDS:
    app.command(name, cls=RenamedOptions)(bounded(getattr(importlib.import_module(f"foretell.cli.{name}"), name)))


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    show: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    """Learn which events happen next, and when, from irregularly timed events."""
    if show:
        from importlib import metadata

        typer.echo(metadata.version("foretell"))
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
