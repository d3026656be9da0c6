"""`foretell --help`: lists every command with its first sentence, without truncation."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """A command group whose help lists commands without truncating their sentences."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name and the first sentence of every command."""
        known = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, first_sentence(one.help or "")) for name, one in known if one is not None and not one.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def first_sentence(text: str) -> str:
    """Return the text up to the first full stop that ends a sentence."""
    return f"{' '.join(text.split()).split('. ')[0].removesuffix('.')}."
