"""`fit`: a model and its data in, a trained model and what happened out; with a run folder, all of it on disk as it goes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from foretell.data import EventData, Vocabulary
from foretell.errors import ForetellError
from foretell.ground.impossible import naming_impossible
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.hawkes_fit import fit_hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.rules.rule_model import RuleModel
from foretell.objective.nce import NoiseSource
from foretell.train.callbacks import Callback, CallbackList, FunctionCallback
from foretell.train.config import ConfigError, TrainOptions, contradictions
from foretell.train.likelihood_task import LikelihoodTask
from foretell.train.noise import noise_of_run
from foretell.train.run import RunFolder
from foretell.train.score import mean_log_likelihood
from foretell.train.trainer import (
    Trainer,
    TrainingInterrupt,
    TrainingResult,
    changed_options,
    check_data,
    choose_device,
)

Fit = TrainingResult[IntensityModel]


def fit(
    model: IntensityModel,
    train: EventData,
    dev: EventData | None = None,
    options: TrainOptions | None = None,
    *,
    run: RunFolder | None = None,
    resume: bool = False,
    callbacks: Iterable[Callback] = (),
    on_step: Callable[[int, int, int], None] | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **changes: Any,
) -> Fit:
    """Train a model in place, by maximum likelihood or noise-contrastive estimation.

    Args:
        model: any model; Poisson and Hawkes are fitted directly.
        train: what is learned from.
        dev: what epochs are compared on; without it, the training score.
        options: how to train, a whole `TrainOptions`.
        run: a folder that is written as training goes.
        resume: go on from the checkpoint of `run`.
        callbacks: told of steps, epochs and checkpoints, and asked whether to stop.
        on_step, on_epoch, stop: functions that do the same, for short.
        **changes: single options: `fit(model, data.train, dev=data.dev, epochs=5, lr=2e-3)`.

    Returns:
        The model with its best parameters, the records of its epochs, and the best epoch's log-likelihood per event.
    """
    options = changed_options(options, changes, "fit")
    if train.event_count == 0:
        raise ForetellError(f"{train.name}: there is no event to learn from")
    model.meet(train)
    check_data(model, train, dev)
    _check_options(model, options)
    callback = CallbackList([FunctionCallback(on_step, on_epoch, stop), *callbacks])
    if model.closed_form:
        return _fit_directly(model, train, dev, run, callback, options)
    _ground(model, train, dev)
    model.to(choose_device(options.device))
    noise = None
    if options.objective == "nce":
        process = noise_of_run(model, train, dev, options.noise, run, resume)
        noise = NoiseSource(model, process, options.noise_streams)
    task = LikelihoodTask(model, train, options, noise)
    return Trainer(task, train, dev, options, callback, run, resume).run()


def _check_options(model: IntensityModel, options: TrainOptions) -> None:
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
    callback: Callback,
    options: TrainOptions,
) -> Fit:
    """Models whose maximum likelihood needs no gradient steps."""
    began = time.monotonic()
    records: list[dict[str, Any]] = []

    def record(number: int, value: float) -> None:
        records.append({"epoch": number + 1, "train": value, "train_seconds": time.monotonic() - began})
        callback.on_epoch(records[-1])
        if callback.stop():
            raise TrainingInterrupt

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


def floors_for(vocabulary: Vocabulary) -> list[IntensityModel]:
    """The floors that every model must beat: unfitted Hawkes and Poisson processes."""
    return [Hawkes(vocabulary), Poisson(vocabulary)]


def __getattr__(name: str) -> Any:
    if name == "Interrupted":
        warnings.warn(
            "foretell.train.fit.Interrupted is now foretell.TrainingInterrupt", DeprecationWarning, stacklevel=2
        )
        return TrainingInterrupt
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Fit", "TrainingInterrupt", "choose_device", "fit", "floors_for"]
