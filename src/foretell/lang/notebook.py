"""`%%ndtt NAME` in a notebook: a cell with rules → a checked program in variable NAME, or its mistakes below the cell.

`%load_ext foretell.lang.notebook` registers the cell magic.
"""

from __future__ import annotations

import sys
from typing import Any

from foretell.errors import ForetellError
from foretell.lang.diagnostics import ProgramError
from foretell.lang.program import Program


def load_ipython_extension(ipython: Any) -> None:
    """Register the magic; called by `%load_ext`."""
    ipython.register_magic_function(lambda line, cell: read_cell(ipython, line, cell), "cell", "ndtt")


def read_cell(ipython: Any, line: str, cell: str) -> Program | None:
    """Run a cell `%%ndtt shop`: assign the program to `shop` and return it for display. The name is optional. Mistakes go to stderr."""
    name = line.strip()
    if name and not name.isidentifier():
        raise ForetellError(f"%%ndtt {name}: expected the name of a variable, as in %%ndtt shop")
    try:
        program = Program.from_text(cell, name or "<cell>")
    except ProgramError as error:
        sys.stderr.write(f"{error}\n")
        return None
    for one in program.warnings:
        sys.stderr.write(f"{one.render()}\n")
    if name:
        ipython.push({name: program})
    return program
