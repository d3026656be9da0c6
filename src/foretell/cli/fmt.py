"""`foretell fmt P.ndtt…`: format programs in the canonical layout, and write, compare or print the result. No torch."""

from __future__ import annotations

import difflib
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from foretell.lang.source import Source

STDIN = "-"


def fmt(
    files: Annotated[
        list[str], typer.Argument(metavar="P.ndtt…", help="Programs, folders of them, or - for standard input.")
    ],
    check: Annotated[bool, typer.Option(help="Write nothing; exit code 1 if a file would change.")] = False,
    diff: Annotated[bool, typer.Option(help="Write nothing; show what would change, exit code 1 if anything.")] = False,
) -> None:
    """Format programs in the canonical layout: one statement per line, comments kept. All files are written, or none."""
    from foretell.data.files import replacing
    from foretell.lang.diagnostics import ProgramError
    from foretell.lang.formatter import format_program
    from foretell.wording import counted

    sources = {name: _source(name) for name in _names(files)}
    made: dict[str, str] = {}
    wrong = []
    for name, source in sources.items():
        try:
            made[name] = format_program(source)
        except ProgramError as error:
            wrong += error.diagnostics
    if wrong:
        raise ProgramError(wrong)
    changed = [name for name, text in made.items() if text != sources[name].text]
    if diff:
        for name in changed:
            _show_difference(sources[name].name, sources[name].text, made[name])
    elif check:
        for name in changed:
            typer.echo(f"would be laid out anew: {sources[name].name}", err=True)
    elif STDIN in made:
        typer.echo(made[STDIN], nl=False)
    else:
        with ExitStack() as stack:  # no file is replaced before all are written
            for name in changed:
                stack.enter_context(replacing(Path(name).resolve())).write_bytes(made[name].encode())
    if STDIN not in made:
        told = "would change" if check or diff else "laid out anew"
        typer.echo(f"{counted(len(changed), 'file')} {told}, {len(made) - len(changed)} unchanged", err=True)
    if changed and (check or diff):
        raise typer.Exit(1)


def _names(files: list[str]) -> list[str]:
    """Return the files to format, each once; a folder stands for all programs in it and its subfolders."""
    from foretell.errors import ForetellError

    if STDIN in files and len(files) > 1:
        raise ForetellError("`-` is standard input: give it alone, or give files")
    found: dict[str, None] = {}
    for one in files:
        if one != STDIN and Path(one).is_dir():
            inside = sorted(str(path) for path in Path(one).rglob("*.ndtt"))
            if not inside:
                raise ForetellError(f"{one}: there is no program (*.ndtt) in this folder")
            found.update(dict.fromkeys(inside))
        else:
            found[one] = None
    return list(found)


def _source(name: str) -> Source:
    """Read a program; raises `ProgramError` if that fails."""
    from foretell.errors import ForetellError
    from foretell.lang.load import read_source
    from foretell.lang.source import Source, decoded
    from foretell.reading import UnreadableFile

    if name != STDIN:
        return read_source(Path(name))
    try:
        return Source("stdin", decoded(sys.stdin.buffer.read()))
    except UnreadableFile as error:
        raise ForetellError(f"stdin: {error.reason}; {error.hint}") from None


def _show_difference(name: str, before: str, after: str) -> None:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, f"{name} (laid out)", lineterm="")
    for line in lines:
        typer.echo(line)
