"""Opening a run folder with its model and data, which most commands do first.

Impossible events are treated as `--impossible` says, with a message on stderr. If the run was stopped early, a note says so.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.cli import flags
from foretell.cli.input_data import piped_data
from foretell.cli.other_rows import AS_TRAINED, OtherRules, model_with, say_undeclared
from foretell.cli.replay import say_impossible
from foretell.data import Clock, Dataset, EventData, Vocabulary
from foretell.errors import DataError, ForetellError
from foretell.ground.impossible import settle_impossible
from foretell.lang.diagnostics import ProgramError
from foretell.lang.program import Program
from foretell.models.base import IntensityModel
from foretell.models.build import Network
from foretell.models.capabilities import DirectFit, GrowsVocabulary, HasRules
from foretell.train.checkpoint import load_checkpoint
from foretell.train.fit import choose_device, fit, floors_for
from foretell.train.likelihood_task import scored_alike
from foretell.train.run import RunFolder
from foretell.train.splits import as_windows, in_vocabulary, load_run, open_for
from foretell.wording import counted, listed

if TYPE_CHECKING:
    from foretell.train.progress_bar import Bar


NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class OpenRun:
    run: RunFolder
    model: IntensityModel
    data: EventData
    time_unit: str
    impossible: flags.Impossible  # the treatment of impossible events in the run, or in `data`
    impossible_events: int = 0  # how many events of `data` were left out, or kept as unscored history

    def settled(
        self,
        impossible: flags.Impossible | None = None,
        data: EventData | None = None,
        unseen: flags.UnseenChoice = flags.UnseenChoice.mean,
        say: bool = True,
    ) -> OpenRun:
        """Return the run with its data (or with `data`) and their impossible events treated as in training, or as requested.

        With `say`, a message on stderr lists parameter groups that were not in training.
        """
        chosen = self.impossible if impossible is None else impossible
        found, count = settled(self.model, self.data if data is None else data, chosen)
        check_unseen(self.model, found, unseen, say=say)
        return replace(self, data=found, impossible=chosen, impossible_events=count)

    @property
    def clock(self) -> Clock:
        """Return the clock of the data."""
        return self.data.clock

    def dataset(self) -> Dataset:
        """Return the data set on which the run was trained, with impossible events treated as in `data`."""
        return settled_splits(self.model, own_data(self.run), self.impossible, quiet=True)[0]


def open_run(
    run: Path,
    data: str | None,
    split: str | None,
    reading: Mapping[str, Any] = NOTHING,
    device: str = "cpu",
    content: bytes | None = None,
    rules: OtherRules = AS_TRAINED,
) -> OpenRun:
    """Open a run with data: its own data set if `data` is None (by default its test split); `content` is the input from a pipe.

    Other data are read like the run's own, except for the options in `reading`. `rules` replaces parts of the run's rules.
    """
    folder = RunFolder.open(run)
    model = folder.model(str(choose_device(device)))
    model_with(model, rules)
    opened = _opened(folder, model, data, split, reading, content)
    if rules.undeclared is not None:
        say_undeclared(model, opened.data)
    return opened


def _opened(
    folder: RunFolder,
    model: IntensityModel,
    data: str | None,
    split: str | None,
    reading: Mapping[str, Any],
    content: bytes | None,
) -> OpenRun:
    widens = (data is not None or content is not None) and isinstance(model, GrowsVocabulary)
    found, time_unit = data_for(folder, None if widens else model.vocabulary, data, split, reading, content)
    found = _widened(model, found) if widens else found
    return OpenRun(folder, model, found, time_unit, flags.Impossible(folder.config().data.impossible))


def open_scored(
    runs: Sequence[Path],
    data: str | None,
    split: str | None,
    reading: Mapping[str, Any],
    device: str,
    rules: OtherRules = AS_TRAINED,
) -> list[OpenRun]:
    """Open runs with the data to score. Other data are cut into the windows of the runs if all runs have the same windows."""
    opened = [open_run(run, data, split, reading, device, rules=rules) for run in runs]
    options = [one.run.config().data for one in opened]
    alike = len({(one.window_events, one.history_events) for one in options}) == 1
    if data is None or not alike:
        return opened
    return [replace(one, data=as_windows(one.data, data, own)) for one, own in zip(opened, options, strict=True)]


@dataclass(frozen=True)
class OpenNetwork:
    """A run of any task: a point process, a pretrained encoder or a classifier."""

    run: RunFolder
    network: Network
    data: EventData


def open_network(
    run: Path,
    data: str | None,
    split: str | None,
    reading: Mapping[str, Any],
    device: str,
    content: bytes | None = None,
) -> OpenNetwork:
    """Open a run of any task, with its data."""
    folder = RunFolder.open(run)
    network = folder.network(str(choose_device(device)))
    if isinstance(network, IntensityModel):
        return OpenNetwork(folder, network, _opened(folder, network, data, split, reading, content).data)
    return OpenNetwork(folder, network, data_for(folder, network.vocabulary, data, split, reading, content)[0])


def data_for(
    folder: RunFolder,
    vocabulary: Vocabulary | None,
    data: str | None,
    split: str | None,
    reading: Mapping[str, Any],
    content: bytes | None = None,
) -> tuple[EventData, str]:
    """Return the data for a query to a run, and their unit of time."""
    if content is not None:
        return piped_data(content, folder.reading(**reading), vocabulary, folder.origin()), folder.time_unit()
    if data is not None:
        options = folder.reading(**reading)
        return open_for(vocabulary, data, split, options=options, origin=folder.origin()), folder.time_unit()
    if reading:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in reading)
        raise ForetellError(f"{names}: this is about other data than the run's own, and none are given")
    dataset = own_data(folder)
    splits = dataset.splits()
    name = split or ("test" if "test" in splits else "dev" if "dev" in splits else "train")
    if name not in splits:
        raise ForetellError(f"{dataset.path}: there is no split {name!r}; there are {', '.join(splits)}")
    found = splits[name] if vocabulary is None else in_vocabulary(splits[name], vocabulary)
    return found, dataset.card.time_unit


def own_data(run: RunFolder) -> Dataset:
    """Load the data that a run names. Mistakes in them are only counted, because a run from elsewhere may name any file."""
    config = run.config()
    options = config.data
    if not options.path:
        how = f"say which data are meant: `foretell evaluate {run.path} FILE`, `foretell report {run.path} --data FILE`"
        raise ForetellError(f"{run.path}: it was fitted in Python to data that it does not name; {how}")
    try:
        return load_run(config)
    except DataError as error:
        found = counted(len(error.problems), "mistake")
        said = f"{options.path}: the data that {run.path} names have {found}"
        raise ForetellError(f"{said}; to see them: foretell data describe {options.path}") from None


@contextmanager
def own_program(run: RunFolder) -> Iterator[None]:
    """A context in which errors in a run's program do not show lines of its file: a run from elsewhere may name any file."""
    try:
        yield
    except ProgramError as error:
        name = getattr(run.config().model, "program", "")
        found = counted(sum(one.severity == "error" for one in error.diagnostics), "mistake")
        said = f"{name}: the program that {run.path} names has {found}"
        raise ForetellError(f"{said}; to see them: foretell check {name}") from None


def _widened(model: IntensityModel, data: EventData) -> EventData:
    """Return the data in the model's vocabulary, extended by the types in the data; the rules define what new types mean."""
    assert isinstance(model, GrowsVocabulary)
    model.widen(data.vocabulary.names[kind] for kind in np.flatnonzero(data.type_counts()))
    return in_vocabulary(data, model.vocabulary)


def check_unseen(
    model: IntensityModel, data: EventData, unseen: flags.UnseenChoice, params: Path | None = None, say: bool = True
) -> None:
    """Print which parameter groups were not in training (or are not in `params`); raise an error if `unseen` is `error`."""
    from foretell.cli.show import NEVER_MET, said_unseen

    if not isinstance(model, GrowsVocabulary):
        return
    found, lacking = model.unseen_groups(data), NEVER_MET if params is None else f"{params} lacks"
    if found.names and unseen is flags.UnseenChoice.error:
        elsewhere = "train on data that have them" if params is None else "add them to the file"
        raise ForetellError(
            f"{data.name}: {counted(len(found.names), 'parameter group')} that {lacking}: {listed(found.names)}; "
            f"leave out --unseen=error to take the mean of the trained ones, or {elsewhere}"
        )
    if found.names and say:
        sys.stderr.write(f"{data.name}: {said_unseen(len(found.names), found.events, lacking)}\n")


def program_of(model: IntensityModel, impossible: flags.Impossible) -> Program | None:
    """Return the rules that may forbid events; None for a model without rules. Then `--impossible` is an error."""
    if isinstance(model, HasRules):
        return model.program
    if impossible is not flags.Impossible.error:
        raise ForetellError(
            f"--impossible={impossible.value}: {model.title} has no rules, and nothing is impossible in it; leave the option out"
        )
    return None


def settled(
    model: IntensityModel, data: EventData, impossible: flags.Impossible, quiet: bool = False
) -> tuple[EventData, int]:
    """Return data for the model, and the number of events left out or marked; `error` raises an error that lists all such sequences."""
    program = program_of(model, impossible)
    if program is None:
        return data, 0
    found = settle_impossible(program, data, impossible.value)
    say_impossible(found.impossible, impossible, data.name, quiet)
    return found.data, found.impossible


def settled_splits(
    model: IntensityModel, dataset: Dataset, impossible: flags.Impossible, quiet: bool = False
) -> tuple[Dataset, dict[str, int]]:
    """Treat impossible events in every split; with `error` the data are returned unchanged, since `fit` reports them."""
    program = program_of(model, impossible)
    if program is None or impossible is flags.Impossible.error:
        return dataset, dict.fromkeys(dataset.splits(), 0)
    found = {name: settled(model, data, impossible, quiet) for name, data in dataset.splits().items()}
    counts = {name: count for name, (_, count) in found.items()}
    return replace(dataset, **{name: data for name, (data, _) in found.items()}), counts


def unfinished(run: RunFolder, model: Network) -> str | None:
    """Return a note if a run is unfinished; None if it is finished."""
    if isinstance(model, DirectFit):  # fitted without epochs
        return None
    go_on = f"the best model so far is scored; continue with: foretell train --resume {run.path}"
    if not run.checkpoint.exists() and not names_its_data(run):  # a finished fit in Python
        return None
    if not run.checkpoint.exists():
        return f"{run.path}: training was stopped before its first checkpoint; {go_on}"
    try:
        progress = load_checkpoint(run.checkpoint).progress
    except ForetellError as error:
        return f"{run.path}: whether training is finished is not known: {error}"
    return None if progress.done else f"{run.path}: training is not finished ({progress.epoch} epochs so far); {go_on}"


def names_its_data(run: RunFolder) -> bool:
    """Whether the run stores where its data are; a run fitted in Python, for instance to a data frame, does not."""
    return bool(run.config().data.path)


def without_floors(run: RunFolder) -> str:
    """Return the reason why a run that does not name its training data has no floors."""
    return f"{run.path}: it was fitted in Python to data that it does not name, so that no floors can be fitted to them"


def fitted_floors(opened: OpenRun, without: Collection[str], progress: Bar) -> Iterator[IntensityModel]:
    """Fit and yield Poisson, weekly Poisson (if the data have a calendar) and Hawkes; kinds in `without` are left out."""
    if not names_its_data(opened.run):
        raise ForetellError(f"{without_floors(opened.run)}; leave out --floors")
    dataset = opened.dataset()
    train, dev = (
        None if part is None else scored_alike(in_vocabulary(part, opened.model.vocabulary), opened.model)
        for part in (dataset.train, dataset.dev)
    )
    assert train is not None
    floors = [floor for floor in reversed(floors_for(opened.model.vocabulary, train)) if floor.kind not in without]
    for place, floor in enumerate(floors):
        progress.move(f"fitting {floor.title}", place, len(floors))
        fit(floor, train, dev, progress=False)
        yield floor
