"""Options over all commands: one name per idea, and names of 0.1 that still work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from foretell.cli import processes
from foretell.cli.main import app
from foretell.cli.old_spellings import RENAMED, in_new_words
from tests.cli.invoking import fine, foretell, refused

ROOT: Any = typer.main.get_command(app)


def commands(command: Any = ROOT) -> Iterator[Any]:
    """All commands, those of groups too."""
    for one in command.commands.values():
        if hasattr(one, "commands"):
            yield from commands(one)
        else:
            yield one


def options() -> dict[str, dict[str, Any]]:
    """Each option's name, and what it is in each command."""
    found: dict[str, dict[str, Any]] = {}
    for command in commands():
        for one in command.params:
            for name in one.opts if one.param_type_name == "option" else ():
                found.setdefault(name, {})[command.name] = one
    return found


def kind(option: Any) -> str:
    """What an option takes: nothing, a number, or words."""
    if getattr(option, "is_flag", False):
        return "flag"
    return {"int": "int", "int range": "int", "float": "float", "float range": "float"}.get(option.type.name, "text")


@pytest.mark.parametrize("name", options())
def test_an_option_takes_the_same_in_every_command(name: str):
    kinds = {command: kind(one) for command, one in options()[name].items()}
    assert len(set(kinds.values())) == 1, kinds


def test_o_is_where_every_command_writes():
    for command in commands():
        for one in command.params:
            written = {"--out", "-o"} & {*one.opts}
            assert written in (set(), {"--out", "-o"}), command.name
            assert one.param_type_name == "argument" or one.name != "out" or written, command.name


@pytest.mark.parametrize("command", RENAMED)
def test_old_names_are_no_options_and_new_ones_are(command: str):
    (found,) = [one for one in commands() if one.name == command]
    there = {name for one in found.params for name in one.opts}
    assert {*RENAMED[command].values()} <= there
    assert not {*RENAMED[command]} & there - {"--history"}


def test_old_names_work_and_warn_once(bursts: Path, tmp_path: Path):
    run = tmp_path / "run"
    found = fine("train", "--data", bursts, "--model", "poisson", "--no-floors", "--quiet", "--run", run)
    assert found.err == "warning: --run is called --out now; the old name goes with the next release\n"
    assert (run / "config.toml").exists()
    asked = "sample", run, "--horizon", 3, "--seed", 1, "--n", 4
    old = fine(*asked, f"--output={tmp_path / 'old.csv'}", "--shown", 1)
    new = fine(*asked, "-o", tmp_path / "new.csv", "--top", 1)
    assert [line.split()[1] for line in old.err.splitlines()] == ["--output", "--shown"] and not new.err
    assert (tmp_path / "old.csv").read_bytes() == (tmp_path / "new.csv").read_bytes()
    assert old.out.replace("old.csv", "new.csv") == new.out


def test_an_old_name_twice_is_told_once(trained: dict[str, Path]):

    outcome = foretell("intensity", trained["poisson"], "--times", 1, "--times", 2, "--split", "test")
    assert outcome.err.count("--times is called --at now") == 1


def test_what_follows_two_dashes_is_no_option():
    assert in_new_words("train", ["--run", "a", "--", "--run"]) == ["--out", "a", "--", "--run"]
    assert in_new_words("evaluate", ["--run", "a"]) == ["--run", "a"]


def test_processes_are_started_with_new_names(monkeypatch: pytest.MonkeyPatch):
    """Each of them would warn again."""
    given: list[str] = []

    def run(count: int, arguments: list[str]) -> None:
        given.extend(arguments)
        raise SystemExit(0)

    monkeypatch.setattr("foretell.cli.train.run_processes", run)
    fine("train", "--data", "robocup", "--processes", 2, "--run", "there")
    assert given == ["train", "--data", "robocup", "--out", "there"]
    assert processes.without_processes(["--processes=2"]) == []


def test_a_history_is_an_argument_or_an_option(trained: dict[str, Path], bursts: Path):
    for asked in (("predict", "--n", 5), ("sample", "--horizon", 2)):
        command, *more = asked
        given = [trained["poisson"], "--split", "test", "--sequence", 0, "--json", *more]
        argument, option = fine(command, given[0], bursts, *given[1:]), fine(command, *given, "--history", bursts)
        assert argument.json == option.json
        assert "give the history once" in refused(command, given[0], bursts, *given[1:], "--history", bursts)


# Without these nothing is done, or all is as it was: there is no default to tell.
OF_THEMSELVES = """
--allow --alpha --at --beta --carry-events --columns --covariates --data --database --history --horizon --init
--label --load --log --max-bytes --max-events --models --mu --origin --out --params --participants --pattern --plot
--predict --preset --program --rate --resume --seeds --sequence --set --show --sql --static --table --task
"""


def test_help_says_what_holds_where_an_option_is_not_given():
    silent = {
        f"{command} {name}: {one.help}"
        for name, places in options().items()
        for command, one in places.items()
        if name.startswith("--") and name not in OF_THEMSELVES.split() and not one.is_flag and not one.required
        if one.default in (None, "") and "default" not in (one.help or "")
    }
    assert not silent
    text = " ".join(fine("train", "--help").out.split())
    assert "Learning rate; default: by rule; with --model, 0.001." in text
    assert "Layers of attention; default: 2, or the model's own." in text and "same run; default: 0." in text


def test_the_list_of_commands_has_whole_sentences():
    for group in ((), ("data",)):
        text = fine(*group, "--help").out
        listed = " ".join(text[text.index("Commands:") :].split())
        assert "..." not in listed
    assert "if IN has a mistake, nothing is written." in listed
