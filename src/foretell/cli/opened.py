"""What most commands begin with: a run folder opened, its model loaded, and the data it is asked about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretell.cli.impossible import settled, settled_splits
from foretell.cli.replay import Impossible
from foretell.data import ColumnMap, Dataset, EventData
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.train.fit import choose_device
from foretell.train.run import RunFolder
from foretell.train.splits import in_vocabulary, load_splits, open_for


@dataclass(frozen=True)
class Opened:
    run: RunFolder
    model: IntensityModel
    data: EventData
    time_unit: str
    impossible: Impossible
    impossible_events: int  # of `data`: left out, or kept as unscored history

    def dataset(self) -> Dataset:
        """The data set the run was trained on, treated as `data` were."""
        return settled_splits(self.model, load_splits(self.run.config().data), self.impossible, quiet=True)[0]


def open_run(
    run: Path,
    data: str | None,
    split: str | None,
    columns: str = "",
    device: str = "cpu",
    impossible: Impossible | None = None,
) -> Opened:
    """Without `data`, the run's own data set is opened (its test split, unless another is named).

    Impossible events are treated as the run treated them, unless another way is asked for.
    """
    folder = RunFolder.open(run)
    chosen = Impossible(folder.config().data.impossible) if impossible is None else impossible
    model = folder.model(str(choose_device(device)))
    if data is not None:
        mapped = ColumnMap.parse(columns) if columns else None
        found = open_for(model.vocabulary, data, split, columns=mapped, origin=folder.origin())
        return Opened(folder, model, *_settled(model, found, folder.time_unit(), chosen))
    dataset = load_splits(folder.config().data)
    splits = dataset.splits()
    name = split or ("test" if "test" in splits else "dev" if "dev" in splits else "train")
    if name not in splits:
        raise ForetellError(f"{dataset.path}: there is no split {name!r}; there are {', '.join(splits)}")
    found = in_vocabulary(splits[name], model.vocabulary)
    return Opened(folder, model, *_settled(model, found, dataset.card.time_unit, chosen))


def _settled(
    model: IntensityModel, data: EventData, time_unit: str, impossible: Impossible
) -> tuple[EventData, str, Impossible, int]:
    found, count = settled(model, data, impossible)
    return found, time_unit, impossible, count
