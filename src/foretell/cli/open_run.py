"""The beginning of most commands: open a run folder, and load its model and the data.

Impossible events are treated as `--impossible` says, with a message on stderr, and there is a note if the run was stopped early.
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
    impossible: flags.Impossible  # how the run treated impossible events, or how `data` were treated
    impossible_events: int = 0  # of `data`: left out, or kept as unscored history

    def settled(
        self,
        impossible: flags.Impossible | None = None,
        data: EventData | None = None,
        unseen: flags.UnseenChoice = flags.UnseenChoice.mean,
        say: bool = True,
    ) -> OpenRun:
        """The run with its data (or a part of them), in which impossible events are treated as in training, or as requested.

        With `say`, parameter groups that were not in training are reported on stderr.
        """
        chosen = self.impossible if impossible is None else impossible
        found, count = settled(self.model, self.data if data is None else data, chosen)
        check_unseen(self.model, found, unseen, say=say)
        return replace(self, data=found, impossible=chosen, impossible_events=count)

    @property
    def clock(self) -> Clock:
        """The clock of the data."""
        return self.data.clock

    def dataset(self) -> Dataset:
        """The data set the run was trained on, treated as `data` were."""
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
    """Without `data`, the run's own data set is opened (its test split, unless another is named); `content` came through a pipe.

    Other data are read as the run's were, but for what `reading` says. `rules` are what the run's own are to be now.
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
    """Runs and the data they are scored on: other data than their own in the windows that they learned from, where all have the same."""
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
    """The data for a query to a run, and their unit of time."""
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
    """The data that a run names. What is wrong with them is only counted: a run from elsewhere may name any file."""
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
    """If the program of a run has mistakes, its lines are not shown, because a run from someone else may name any file."""
    try:
        yield
    except ProgramError as error:
        name = getattr(run.config().model, "program", "")
        found = counted(sum(one.severity == "error" for one in error.diagnostics), "mistake")
        said = f"{name}: the program that {run.path} names has {found}"
        raise ForetellError(f"{said}; to see them: foretell check {name}") from None


def _widened(model: IntensityModel, data: EventData) -> EventData:
    """The data over the vocabulary of a model that has met their names; new ones are fine where rules say what they mean."""
    assert isinstance(model, GrowsVocabulary)
    model.widen(data.vocabulary.names[kind] for kind in np.flatnonzero(data.type_counts()))
    return in_vocabulary(data, model.vocabulary)


def check_unseen(
    model: IntensityModel, data: EventData, unseen: flags.UnseenChoice, params: Path | None = None, say: bool = True
) -> None:
    """Say which parameter groups training never met, or a file of parameters lacks; or refuse them."""
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
    """The rules that may forbid an event; a model without rules forbids nothing, so there is nothing to choose."""
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
    """Data as the model may see them, and how many events were left out or marked; `error` names all sequences that have such events."""
    program = program_of(model, impossible)
    if program is None:
        return data, 0
    found = settle_impossible(program, data, impossible.value)
    say_impossible(found.impossible, impossible, data.name, quiet)
    return found.data, found.impossible


def settled_splits(
    model: IntensityModel, dataset: Dataset, impossible: flags.Impossible, quiet: bool = False
) -> tuple[Dataset, dict[str, int]]:
    """Settle impossible events in every split; with `error` nothing is replayed, since `fit` does that and names what is impossible."""
    program = program_of(model, impossible)
    if program is None or impossible is flags.Impossible.error:
        return dataset, dict.fromkeys(dataset.splits(), 0)
    found = {name: settled(model, data, impossible, quiet) for name, data in dataset.splits().items()}
    counts = {name: count for name, (_, count) in found.items()}
    return replace(dataset, **{name: data for name, (data, _) in found.items()}), counts


def unfinished(run: RunFolder, model: Network) -> str | None:
    """A note that a run is unfinished; None if it is finished."""
    if isinstance(model, DirectFit):  # fitted in one go
        return None
    go_on = f"the best model so far is scored; continue with: foretell train --resume {run.path}"
    if not run.checkpoint.exists() and not names_its_data(run):  # what a fit in Python gave was saved when it was done
        return None
    if not run.checkpoint.exists():
        return f"{run.path}: training was stopped before its first checkpoint; {go_on}"
    try:
        progress = load_checkpoint(run.checkpoint).progress
    except ForetellError as error:
        return f"{run.path}: whether training is finished is not known: {error}"
    return None if progress.done else f"{run.path}: training is not finished ({progress.epoch} epochs so far); {go_on}"


def names_its_data(run: RunFolder) -> bool:
    """Whether the run stores where its data are; a run that was fitted in Python, to a data frame for instance, does not."""
    return bool(run.config().data.path)


def without_floors(run: RunFolder) -> str:
    """Why there are no floors beside a run that does not name its training data."""
    return f"{run.path}: it was fitted in Python to data that it does not name, so that no floors can be fitted to them"


def fitted_floors(opened: OpenRun, without: Collection[str], progress: Bar) -> Iterator[IntensityModel]:
    """Poisson, the weekly one where the data have a calendar, then Hawkes; those of the kinds in `without` are left out."""
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
