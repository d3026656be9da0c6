"""What most commands begin with: a run folder opened, its model loaded, and the data it is asked about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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

    def dataset(self) -> Dataset:
        """The data set the run was trained on."""
        return load_splits(self.run.config().data)


def open_run(run: Path, data: str | None, split: str | None, columns: str = "", device: str = "cpu") -> Opened:
    """Without `data`, the run's own data set is opened (its test split, unless another is named)."""
    folder = RunFolder.open(run)
    model = folder.model(str(choose_device(device)))
    if data is not None:
        mapped = ColumnMap.parse(columns) if columns else None
        found = open_for(model.vocabulary, data, split, columns=mapped, origin=folder.origin())
        return Opened(folder, model, found, folder.time_unit())
    dataset = load_splits(folder.config().data)
    splits = dataset.splits()
    chosen = split or ("test" if "test" in splits else "dev" if "dev" in splits else "train")
    if chosen not in splits:
        raise ForetellError(f"{dataset.path}: there is no split {chosen!r}; there are {', '.join(splits)}")
    return Opened(folder, model, in_vocabulary(splits[chosen], model.vocabulary), dataset.card.time_unit)
