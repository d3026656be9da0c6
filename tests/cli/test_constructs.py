"""Every construct of the language through every command that reads a program, a log, or a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.constructs import CONSTRUCTS, program_commands, run_commands, write_construct
from tests.cli.invoking import fine

MODELS = ("andtt", "ndtt", "s2ndtt")
DRAWN = ("--set", "train.downsample=3")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_every_command_takes_every_construct(name: str, folder: Path) -> None:
    """One model each, every other command for the program, every third for the run; the slow test has all of them."""
    write_construct(name, folder)
    number = list(CONSTRUCTS).index(name)
    model = MODELS[number % 3]
    for command in list(program_commands(name, folder, (model,)))[number % 2 :: 2]:
        fine(*command)
    train, *others = run_commands(name, folder, model, *(DRAWN if number % 2 else ()))
    for command in (train, *others[number // 3 :: 3]):
        if command[0] != "report":
            fine(*command)


@pytest.mark.slow
@pytest.mark.parametrize("drawn", [(), DRAWN], ids=["whole", "drawn"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_every_model_takes_every_construct(name: str, model: str, drawn: tuple[str, ...], folder: Path) -> None:
    write_construct(name, folder)
    for command in (*program_commands(name, folder, (model,)), *run_commands(name, folder, model, *drawn)):
        fine(*command)
