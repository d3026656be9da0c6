"""`fit`: a model and its data in, a trained model and what happened out; with a run folder, all of it on disk as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.ground.impossible import naming_impossible
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.hawkes_fit import fit_hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.rules.rule_model import RuleModel
from foretell.objective.noise_source import NoiseSource
from foretell.train.config import ConfigError, TrainOptions, contradictions
from foretell.train.lesson import Likelihood
from foretell.train.loop import Interrupted
from foretell.train.noise import noise_of_run
from foretell.train.run import RunFolder
from foretell.train.score import mean_log_likelihood
from foretell.train.teach import Watched, changed, choose_device, teach


@dataclass(frozen=True)
class Fit:
    """What came of a fit: the records of its epochs, and the best one's dev (or train) log-likelihood an event."""

    model: IntensityModel
    records: list[dict[str, Any]]
    best: float
    best_epoch: int


def fit(
    model: IntensityModel,
    train: EventData,
    dev: EventData | None = None,
    options: TrainOptions | None = None,
    *,
    run: RunFolder | None = None,
    resume: bool = False,
    on_step: Callable[[int, int, int], None] | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **changes: Any,
) -> Fit:
    """Train in place. `changes` are single options: `fit(model, data.train, dev=data.dev, epochs=5, lr=2e-3)`."""
    options = changed(options or TrainOptions(), changes, "fit")
    if train.event_count == 0:
        raise ForetellError(f"{train.name}: there is no event to learn from")
    model.meet(train)
    for data in (train, dev):
        if data is not None and data.vocabulary != model.vocabulary:
            raise ForetellError(f"{data.name}: its event types are not those of the model")
    on_epoch = on_epoch or (lambda record: None)
    model.unseen = tuple(int(kind) for kind in np.flatnonzero(train.type_counts() == 0))
    model.longest = max(sequence.t_end for sequence in train)
    if model.longest <= 0.0:
        raise ForetellError(f"{train.name}: every sequence ends at time 0, so there is no time to learn from")
    if model.closed_form and options.window != "all":
        raise ForetellError(
            f'{model.title} is fitted to everything that happened: train with window = "all", evaluate in another'
        )
    if options.downsample and not model.samples:
        raise ForetellError(f"down-sampling of possible events is for models made of rules, not for {model.title}")
    wrong = contradictions(options)
    if wrong:
        raise ConfigError("\n".join(wrong))
    if options.objective == "nce" and model.closed_form:
        raise ForetellError(
            f"{model.title} is fitted directly, by maximum likelihood: leave out objective, or train another model"
        )
    if model.closed_form:
        return _fit_directly(model, train, dev, run, on_epoch, stop or (lambda: False), options)
    _ground(model, train, dev)
    model.to(choose_device(options.device))
    watched = Watched(run, resume, on_step, on_epoch, stop)
    noise = None
    if options.objective == "nce":
        process = noise_of_run(model, train, dev, options.noise, run, resume)
        noise = NoiseSource(model, process, options.noise_streams)
    progress, best = teach(Likelihood(model, train, options, noise), train, dev, options, watched)
    return Fit(model, progress.records, best, progress.best_epoch)


def _ground(model: IntensityModel, train: EventData, dev: EventData | None) -> None:
    for part in (train, dev):
        if part is not None:
            with naming_impossible(model.program if isinstance(model, RuleModel) else None, part):
                if part is train and not model.fitted:
                    model.prepare(train)
                model.ground(part)


def _fit_directly(
    model: IntensityModel,
    train: EventData,
    dev: EventData | None,
    run: RunFolder | None,
    on_epoch: Callable[[dict[str, Any]], None],
    stop: Callable[[], bool],
    options: TrainOptions,
) -> Fit:
    """Models whose maximum likelihood needs no gradient steps."""
    began = time.monotonic()
    records: list[dict[str, Any]] = []

    def record(number: int, value: float) -> None:
        records.append({"epoch": number + 1, "train": value, "train_seconds": time.monotonic() - began})
        on_epoch(records[-1])
        if stop():
            raise Interrupted

    if isinstance(model, Poisson):
        model.fit_closed_form(train)
        record(0, mean_log_likelihood(model, train, 1, options.window))
    elif isinstance(model, Hawkes):
        fit_hawkes(model, train, dev, record)
    else:
        raise AssertionError(f"{model.kind} claims a direct fit that does not exist")
    best = mean_log_likelihood(model, dev if dev is not None else train, 1, options.window)
    if run is not None:
        run.save_model(model)
        run.write_metrics(records)
    return Fit(model.eval(), records, best, len(records))


__all__ = ["Fit", "Interrupted", "choose_device", "fit"]
