"""`foretell`: gathers the commands, and turns what goes wrong into a message and an exit code.

0: done. 1: the user's input is wrong (message on stderr). 2: usage. 130: interrupted.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys

import typer

from foretell.cli import data
from foretell.errors import ForetellError

# In the order of the help; each is the function of this name in the module of this name.
COMMANDS = (
    *("train", "pretrain", "tune", "evaluate", "compare", "predict", "sample", "intensity", "embed", "params"),
    *("check", "replay", "plan", "why", "explain", "report", "reproduce", "demo"),
)

app = typer.Typer(
    name="foretell",
    help="Learn what happens next, and when, from irregularly timed events.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data.app, name="data")
for name in COMMANDS:
    app.command(name)(getattr(importlib.import_module(f"foretell.cli.{name}"), name))


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    show: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    """Learn what happens next, and when, from irregularly timed events."""
    if show:
        from importlib import metadata

        typer.echo(metadata.version("foretell"))
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def run() -> None:
    """The entry point of the installed command."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # idle threads that spin cost a busy machine a factor of ten
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    logging.addLevelName(logging.WARNING, "warning")
    try:
        app()
    except ForetellError as error:
        from foretell.lang.diagnostics import ProgramError

        lines = str(error).splitlines()
        placed = isinstance(error, ProgramError)  # each of its messages says itself that it is an error, and where
        sys.stderr.write("".join(f"{line}\n" if placed else f"error: {line}\n" for line in lines))
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output went away (`foretell … | head`): that is its right.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"error: {place}{error.strerror or error}\n")
        sys.exit(1)


if __name__ == "__main__":
    run()
