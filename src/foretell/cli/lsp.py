"""`foretell lsp`: the language server, which editors start and talk to over standard input and output. No torch."""

from __future__ import annotations

from typing import Annotated

import typer

from foretell.cli import flags


def lsp(
    undeclared: Annotated[
        flags.UndeclaredChoice,
        typer.Option(help="Events that a program waits for and does not declare: an error, or exogenous."),
    ] = flags.UndeclaredChoice.error,
    dim: Annotated[int, typer.Option(min=0, help="The dimension of functors that declare none.")] = 32,
) -> None:
    """Serve editors: mistakes as you type, meanings, definitions, references, renaming, completion, layout and outline."""
    from foretell.errors import ForetellError

    try:
        from foretell.cli.language_server import make_server
    except ModuleNotFoundError as error:
        if error.name not in ("pygls", "lsprotocol"):
            raise
        raise ForetellError("the language server needs pygls: pip install 'foretell[lsp]'") from None
    make_server(undeclared.value, dim).start_io()
