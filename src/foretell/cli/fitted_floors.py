"""The floors beside a run, for the commands that show them: Poisson and Hawkes, fitted to what the run was trained on."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from foretell.cli.open_run import Opened
from foretell.cli.show import Bar
from foretell.models.base import IntensityModel
from foretell.train.fit import fit, floors_for
from foretell.train.scored_events import scored_alike
from foretell.train.splits import in_vocabulary


def fitted_floors(opened: Opened, without: Collection[str], progress: Bar) -> Iterator[IntensityModel]:
    """Poisson, then Hawkes; those of the kinds in `without` are left out."""
    dataset = opened.dataset()
    train, dev = (
        None if part is None else scored_alike(in_vocabulary(part, opened.model.vocabulary), opened.model)
        for part in (dataset.train, dataset.dev)
    )
    assert train is not None
    floors = [floor for floor in reversed(floors_for(opened.model.vocabulary)) if floor.kind not in without]
    for place, floor in enumerate(floors):
        progress.move(f"fitting {floor.title}", place, len(floors))
        fit(floor, train, dev)
        yield floor
