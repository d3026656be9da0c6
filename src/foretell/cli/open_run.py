"""What most commands begin with: a run folder opened, its model loaded, and the data it is asked about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from foretell.cli.impossible import settled, settled_splits
from foretell.cli.replay import Impossible
from foretell.data import ColumnMap, Dataset, EventData, Vocabulary
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.build import Network
from foretell.models.capabilities import GrowsVocabulary
from foretell.train.fit import choose_device
from foretell.train.run import RunFolder
from foretell.train.splits import in_vocabulary, load_splits, open_for


@dataclass(frozen=True)
class Opened:
    run: RunFolder
    model: IntensityModel
    data: EventData
    time_unit: str
    impossible: Impossible  # how the run treated impossible events, or how `data` were treated
    impossible_events: int = 0  # of `data`: left out, or kept as unscored history

    def settled(self, impossible: Impossible | None = None, data: EventData | None = None) -> Opened:
        """With data (or a part of them) as the model may see them: impossible events as the run treated them, or as asked for."""
        chosen = self.impossible if impossible is None else impossible
        found, count = settled(self.model, self.data if data is None else data, chosen)
        return replace(self, data=found, impossible=chosen, impossible_events=count)

    def dataset(self) -> Dataset:
        """The data set the run was trained on, treated as `data` were."""
        return settled_splits(self.model, load_splits(self.run.config().data), self.impossible, quiet=True)[0]


def open_run(run: Path, data: str | None, split: str | None, columns: str = "", device: str = "cpu") -> Opened:
    """Without `data`, the run's own data set is opened (its test split, unless another is named)."""
    folder = RunFolder.open(run)
    impossible = Impossible(folder.config().data.impossible)
    model = folder.model(str(choose_device(device)))
    widens = data is not None and isinstance(model, GrowsVocabulary)
    found, time_unit = data_for(folder, None if widens else model.vocabulary, data, split, columns)
    if isinstance(model, GrowsVocabulary) and widens:  # new names are fine where rules say what they mean
        model.widen(found.vocabulary.names[kind] for kind in np.flatnonzero(found.type_counts()))
        found = in_vocabulary(found, model.vocabulary)
    return Opened(folder, model, found, time_unit, impossible)


@dataclass(frozen=True)
class OpenedNetwork:
    """A run of any task: a point process, a pretrained encoder or a classifier."""

    run: RunFolder
    network: Network
    data: EventData


def open_network(
    run: Path, data: str | None, split: str | None, columns: str = "", device: str = "cpu"
) -> OpenedNetwork:
    """The same for a run of any task."""
    folder = RunFolder.open(run)
    network = folder.network(str(choose_device(device)))
    if isinstance(network, IntensityModel):
        opened = open_run(run, data, split, columns, device)
        return OpenedNetwork(folder, opened.model, opened.data)
    return OpenedNetwork(folder, network, data_for(folder, network.vocabulary, data, split, columns)[0])


def data_for(
    folder: RunFolder, vocabulary: Vocabulary | None, data: str | None, split: str | None, columns: str
) -> tuple[EventData, str]:
    """Data that a run is asked about, and their unit of time."""
    if data is not None:
        mapped = ColumnMap.parse(columns) if columns else None
        return open_for(vocabulary, data, split, columns=mapped, origin=folder.origin()), folder.time_unit()
    dataset = load_splits(folder.config().data)
    splits = dataset.splits()
    name = split or ("test" if "test" in splits else "dev" if "dev" in splits else "train")
    if name not in splits:
        raise ForetellError(f"{dataset.path}: there is no split {name!r}; there are {', '.join(splits)}")
    found = splits[name] if vocabulary is None else in_vocabulary(splits[name], vocabulary)
    return found, dataset.card.time_unit


def open_model(run: Path, device: str = "cpu") -> tuple[IntensityModel, str]:
    """A run's model alone, and its unit of time."""
    folder = RunFolder.open(run)
    return folder.model(str(choose_device(device))), folder.time_unit()
