"""`fit`: a model and its data in, a trained model and what happened out; with a run folder, all of it on disk as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.ground.impossible import naming_impossible
from foretell.models.andtt import ANDTT
from foretell.models.base import IntensityModel
from foretell.models.hawkes import Hawkes
from foretell.models.hawkes_fit import fit_hawkes
from foretell.models.poisson import Poisson
from foretell.train.checkpoint import load_checkpoint, save_checkpoint
from foretell.train.config import TrainOptions
from foretell.train.loop import Interrupted, Listener, Loop
from foretell.train.run import RunFolder
from foretell.train.score import mean_log_likelihood


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
    options = _changed(options or TrainOptions(), changes)
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
    if model.closed_form:
        return _fit_directly(model, train, dev, run, on_epoch, stop or (lambda: False), options)
    _ground(model, train, dev)
    model.to(choose_device(options.device))
    listener = Listener(
        step=on_step or (lambda epoch, done, of: None),
        epoch=on_epoch,
        checkpoint=(lambda loop: _keep(loop, run)) if run else (lambda loop: None),
        improved=(lambda loop: run.save_model(loop.model)) if run else (lambda loop: None),
        stop=stop or (lambda: False),
    )
    found = load_checkpoint(run.checkpoint) if resume and run is not None else None
    progress = Loop(model, train, dev, options, listener, found).run()
    assert progress.best is not None
    return Fit(model, progress.records, progress.best, progress.best_epoch)


def _ground(model: IntensityModel, train: EventData, dev: EventData | None) -> None:
    for part in (train, dev):
        if part is not None:
            with naming_impossible(model.program if isinstance(model, ANDTT) else None, part):
                if part is train and not model.fitted:
                    model.prepare(train)
                model.ground(part)


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("expected cpu, cuda, cuda:1 or auto")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ForetellError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return device


def _changed(options: TrainOptions, changes: dict[str, Any]) -> TrainOptions:
    from foretell.train.config import make_config

    if not changes:
        return options
    made = make_config({"train": changes}, "fit").train  # checks names and values
    return replace(options, **{name: getattr(made, name) for name in changes})


def _keep(loop: Loop, run: RunFolder) -> None:
    save_checkpoint(run.checkpoint, loop.progress, loop.model, loop.best, loop.stepper.optimizer)
    run.write_metrics(loop.progress.records)


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
