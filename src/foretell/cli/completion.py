"""Completion with Tab: kinds of models, run folders, names of data and programs, words. Does not import torch, except for experiments.

Each function takes the typed text and returns the possible completions. If there are none, the shell completes paths.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable
from typing import Any, get_args

from typer.models import ArgumentInfo, OptionInfo

from foretell.options import Integral, Sight, Window

Completion = Callable[[str], list[str]]
MOST_FOLDERS = 5_000  # the most folders that are searched for runs
DEEPEST = 3  # the deepest search below the typed folder: runs/NAME, auto/DATA/best
RUN_FILE = "config.toml"


def words(*known: str) -> Completion:
    """Return a completion for a fixed list of words."""

    def complete(incomplete: str) -> list[str]:
        return _beginning(known, incomplete)

    return complete


def kinds(incomplete: str) -> list[str]:
    """Complete the kinds of models, including those of other packages."""
    from foretell.models.registry import model_kinds

    return _beginning(model_kinds(), incomplete)


def runs(incomplete: str) -> list[str]:
    """Complete the run folders below the typed folder."""
    return _beginning(_runs_below(os.path.dirname(incomplete)), incomplete)


def data(incomplete: str) -> list[str]:
    """Complete the names of embedded data, and files and folders."""
    from foretell.data.loading import embedded_names

    return _with_paths(embedded_names(), incomplete)


def programs(incomplete: str) -> list[str]:
    """Complete the names of shipped programs, and files of rules."""
    from foretell.lang.load import names

    return _with_paths(names(), incomplete)


def experiments(incomplete: str) -> list[str]:
    """Complete the experiments of the paper, and folders with an experiment."""
    from foretell.reproduce.experiment import names

    return _with_paths(names(), incomplete)


# By the name of the argument or option, in all commands; Literal options of dataclasses have completions of their own.
COMPLETIONS: dict[str, Completion] = {
    "data": data,
    "path": data,
    "source": data,
    "program": programs,
    "files": programs,
    "runs": runs,
    "resume": runs,
    "init": runs,
    "model": kinds,
    "experiments": experiments,
    "split": words("train", "dev", "test"),
    "device": words("cpu", "cuda", "auto"),
    "dtype": words("float32", "float64"),
    "integral": words(*get_args(Integral)),
    "window": words(*get_args(Window)),
    "over": words("events", "sequences", "both"),
    "preset": words("paper"),
    "task": words("classify"),
    "log": words("tensorboard", "mlflow", "wandb"),
    "on": words("this", "processes", "ray"),
    "storage": words("journal", "sqlite"),
}
# Names with a special meaning in one command.
OF_COMMANDS: dict[str, dict[str, Completion]] = {
    **{command: {"run": runs} for command in ("evaluate", "intensity", "params", "explain")},
    **{command: {"run": runs, "past": data, "history": data} for command in ("predict", "sample")},
    "embed": {"run": runs, "context": words(*get_args(Sight)), "layers": words("all", "top")},
}


def add_completion(command: str, parameter: str, annotation: Any) -> None:
    """Add a completion to an argument or option of a command, if there is one for it."""
    found = OF_COMMANDS.get(command, {}).get(parameter) or COMPLETIONS.get(parameter)
    for one in getattr(annotation, "__metadata__", ()):
        if found is not None and isinstance(one, OptionInfo | ArgumentInfo) and one.autocompletion is None:
            one.autocompletion = found


def _beginning(known: Iterable[str], incomplete: str) -> list[str]:
    return [one for one in known if one.startswith(incomplete)]


def _with_paths(names: Iterable[str], incomplete: str) -> list[str]:
    """Return matching names and paths; nothing if only paths match, because the shell completes these better."""
    found = _beginning(names, incomplete)
    return [*found, *sorted(glob.glob(f"{glob.escape(incomplete)}*"))] if found else []


def _runs_below(folder: str) -> list[str]:
    found, left, looked = [], [(folder, 0)], 0
    while left and looked < MOST_FOLDERS:
        place, depth = left.pop(0)
        try:
            entries = sorted(os.scandir(place or "."), key=lambda one: one.name)
        except OSError:
            continue
        looked += 1
        for one in entries:
            path = os.path.join(place, one.name)
            if one.name.startswith(".") or not one.is_dir():
                continue
            if os.path.isfile(os.path.join(path, RUN_FILE)):
                found.append(path)
            if depth + 1 < DEEPEST:
                left.append((path, depth + 1))
    return found
