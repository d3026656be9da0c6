"""Messages of the library name settings as arguments of Python; the command line makes options of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import typer.main

from foretell.cli.commands import app
from foretell.cli.option_words import SETTINGS, as_options
from tests.cli.invoking import foretell, refused
from tests.lint.source import trees

NAMED = re.compile(r"`(?:[\w.]+\()?([a-z_]+)=")

WORDS = {
    '`start="day"`': "--start day",
    "`start='dya'`: expected": "--start 'dya': expected",
    "`max_events=` sets": "--max-events sets",
    "allow more with `foretell.reading.limits(max_bytes=…)`": "allow more with --max-bytes",
    '`covariates=["amount"]`': "--covariates amount",
    '`columns={"time": …, "event": …}`': "--columns time=…,event=…",
    "`columns={'arg1': …}`": "--columns arg1=…",
    '`columns={"event": "concept:name"}`': "--columns event=concept:name",
    "`sorted=True` and `results=False`": "--sorted and --no-results",
    "`time_format='%d/%m/%Y'`)": "--time-format '%d/%m/%Y')",
    "`shares=[0.5, 0.5]` leaves": "--shares [0.5, 0.5] leaves",
    "`visits(bob)` and `x=1`": "`visits(bob)` and `x=1`",
    "`model(start)` is `start`": "`model(start)` is `start`",
}


@pytest.mark.parametrize("message", WORDS)
def test_settings_are_options(message: str):
    assert as_options(message) == WORDS[message]


def options() -> set[str]:
    """The names of all options of all commands, without their dashes."""
    found: set[str] = set()
    groups = [typer.main.get_command(app)]
    while groups:
        command = groups.pop()
        groups += getattr(command, "commands", {}).values()
        found.update(one for option in command.params for one in (*option.opts, *option.secondary_opts))
    return {one.removeprefix("--").replace("-", "_") for one in found if one.startswith("--")}


def test_every_setting_is_an_option_of_a_command():
    there = options()
    assert {one for one in SETTINGS if one not in there and f"no_{one}" not in there} == set()


def test_every_setting_that_a_message_names_and_a_command_has_is_translated():
    there, named = options(), set()
    for file, tree in trees().items():
        if not file.startswith("cli/"):
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("Error"):
                    named |= set(NAMED.findall(" ".join(map(ast.unparse, node.args))))
    assert len(named) > 15 and named & there <= SETTINGS


def test_errors_and_warnings_of_commands_have_options(tmp_path: Path):
    path = tmp_path / "log.csv"
    path.write_text("sequence,time,event\na,1500000000,x\na,1500000100,y\n", encoding="utf-8")
    assert "--start 'dya': expected" in refused("data", "describe", path, "--start", "dya")
    assert "--time-format number reads them" in foretell("data", "describe", path).err
