"""The floors of `foretell train`: fitted before the model, shown in its progress, stored in the run, and compared in the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretell.models.capabilities import DirectFit, GrowsVocabulary
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.classical.weekly import WeeklyPoisson
from foretell.train.fit import start_with_hawkes
from foretell.train.floor_fits import FittedFloor, fit_floors, hawkes_of, keep_floors, kept_floors, verdict
from foretell.train.likelihood_task import mean_log_likelihood, scored_alike

if TYPE_CHECKING:
    from foretell.data import Dataset
    from foretell.models.base import IntensityModel
    from foretell.train.auto_config import AutoConfig
    from foretell.train.config import RunConfig
    from foretell.train.fit import AnyTraining
    from foretell.train.progress_bar import Bar
    from foretell.train.run import RunFolder


def floors_beside(
    network: IntensityModel,
    dataset: Dataset,
    config: RunConfig,
    run: RunFolder,
    fitted: list[FittedFloor],
    progress: Bar,
) -> dict[str, float]:
    """Return the scores of the floors on dev (on train without dev), by title; a resumed run reads them from its folder. Empty if the model
    is a floor itself."""
    if config.task is not None or isinstance(network, DirectFit):
        return {}
    kept = kept_floors(run)
    if kept:
        return {name: one["score"] for name, one in kept["floors"].items()}
    assert dataset.train is not None
    if isinstance(network, GrowsVocabulary):
        network.meet(dataset.train)
    train, dev = (None if part is None else scored_alike(part, network) for part in (dataset.train, dataset.dev))
    assert train is not None
    floors = fitted or fit_floors(train, dev, config.train.window, progress.move)
    window, judged = config.train.window, train if dev is None else dev
    scores = {one.model.title: mean_log_likelihood(one.model, judged, 1, window) for one in floors}
    for name, score in scores.items():
        progress.keep(f"{name:<26}{'dev' if dev is not None else 'train'} {score:9.4f}")
    keep_floors(
        run,
        {
            "judged_on": "train" if dev is None else "dev",
            "window": window,
            "floors": {one.model.title: one.to_json() | {"score": scores[one.model.title]} for one in floors},
        },
    )
    if not network.fitted and hawkes_of(floors) is not None:
        start_with_hawkes(network, train, dev, hawkes_of(floors))
    return scores


def told_of(auto: AutoConfig, floors: dict[str, float], result: AnyTraining) -> dict[str, Any]:
    """Return the entries of a run's summary about automatic settings and floors."""
    found: dict[str, Any] = {}
    if auto.chosen:
        found["auto"] = {one.key: {"value": one.value, "why": one.why} for one in auto.chosen}
    if floors:
        path, best = auto.config.data.path or "…", max(floors, key=lambda title: floors[title])
        kind = next(one.kind for one in (Poisson, WeeklyPoisson, Hawkes) if one.title == best)
        advice = f"try `--model {kind}`, `foretell auto {path}`, which tries other models, or more data"
        if not auto.chosen:
            advice = f"try `foretell train --data {path}` without other options, or `foretell auto {path}`"
        judged = "dev" if result.records and result.records[-1].get("dev") is not None else "train"
        found["floors"] = floors
        found["beats_floors"] = result.best > max(floors.values())
        found["verdict"] = verdict(result.model.title, result.best, floors, judged, advice)
    return found
