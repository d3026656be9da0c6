"""`%%ndtt` in a notebook."""

from __future__ import annotations

import pytest

from foretell.errors import ForetellError
from foretell.lang.program import Program


def test_a_cell_of_rules_is_a_program_or_its_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    shell_of = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    shell = shell_of()
    shell.run_line_magic("load_ext", "foretell.lang.notebook")
    made = shell.run_cell_magic("ndtt", "shop", "user(ann). :- event(buy). buy(U) :- user(U).")
    assert isinstance(made, Program) and shell.user_ns["shop"] is made
    assert shell.run_cell_magic("ndtt", "other", "buy(U) :- user(U).") is None
    assert "other" not in shell.user_ns and "other:1:11: error[never-true]" in capsys.readouterr().err
    assert isinstance(shell.run_cell_magic("ndtt", "", "user(ann)."), Program)
    with pytest.raises(ForetellError, match="name of a variable"):
        shell.run_cell_magic("ndtt", "a b", "user(ann).")
