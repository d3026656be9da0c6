"""`fit`: trains a model on data and returns it with its records; with a run folder, it writes them to disk during training."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any, Literal

import torch

from foretell.batches.carrying import CarriesState
from foretell.data import Dataset, EventData
from foretell.data.labels import find_labels
from foretell.errors import ForetellError
from foretell.ground.impossible import naming_impossible
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.build import Network
from foretell.models.calendar import take_calendar
from foretell.models.capabilities import DirectFit, GrowsVocabulary, HasRules
from foretell.models.classical.hawkes import Hawkes
from foretell.models.covariates import take_covariates
from foretell.models.start_from import TransferReport, start_from, take_encoder
from foretell.objective.nce import NoiseSource
from foretell.options import check_choice
from foretell.train.arguments import check_arguments, check_data
from foretell.train.auto_settings import AUTO, choose_settings, traits_of, with_settings
from foretell.train.callbacks import Callback, CallbackList, run_settings
from foretell.train.config import (
    ClassifyOptions,
    ConfigError,
    PretrainOptions,
    RunConfig,
    TrainOptions,
    contradictions,
    make_config,
)
from foretell.train.floor_fits import fit_floors, floors_for, hawkes_of
from foretell.train.label_tasks import Classification, Pretraining, classify, pretrain
from foretell.train.likelihood_task import LikelihoodTask, mean_log_likelihood
from foretell.train.noise import noise_of_run
from foretell.train.processes import ProcessGroup, process_group
from foretell.train.progress import with_progress
from foretell.train.run import RunFolder, held
from foretell.train.trainer import (
    Trainer,
    TrainingInterrupt,
    TrainingResult,
    changed_options,
    choose_device,
)

Fit = TrainingResult[IntensityModel]


def fit(
    model: IntensityModel | Literal["auto"],
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
    floors: bool = False,
    progress: bool | None = None,
    **changes: Any,
) -> Fit:
    """Train a model in place, by maximum likelihood or noise-contrastive estimation.

    If `torch.distributed` has joined several processes, they share every step, and the first one writes `run`.

    Args:
        model: any model; Poisson and Hawkes are fitted directly. "auto": rules choose a model and training options that suit the data.
        train: the events to learn from.
        dev: the events on which epochs are compared; without it, they are compared by the training score.
        options: how to train, as a complete `TrainOptions`.
        run: a folder that is written during training.
        resume: continue from the checkpoint of `run`.
        callbacks: objects that are called after steps, epochs and checkpoints, and that can stop the training.
        on_step: a function in place of a callback with `on_step`.
        on_epoch: a function in place of a callback with `on_epoch`.
        stop: a function in place of a callback with `stop`.
        floors: fit Poisson and Hawkes first; the result then contains them and their scores as `floors`.
        progress: show a bar with the remaining time and the best score so far. Default: on a terminal and in a notebook.
        **changes: single training options: `fit(model, data.train, dev=data.dev, epochs=5, lr=2e-3)`.

    Returns:
        The model with its best parameters (`model`), the records of its epochs (`records`), and the best epoch's log-likelihood per event
        (`best`).

    Raises:
        ForetellError: there is nothing to learn from, or options contradict each other.
        TrainingInterrupt: a callback or the user stopped the training.

    Example:
        >>> data = ft.EventData.from_names([["visit", "test"], ["visit"]], [[0.5, 2.0], [1.0]], t_ends=[10.0, 5.0])
        >>> fitted = ft.fit(ft.NHP(data.vocabulary, dim=4), data, epochs=2)
        >>> len(fitted.records)
        2
    """
    check_arguments(model, train, dev, auto=True)
    if train.event_count == 0:
        raise ForetellError(f"{train.name}: there is no event to learn from")
    beside = fit_floors(train, dev, stop=stop) if floors or model == AUTO else []
    if isinstance(model, str):
        model, options = _chosen(
            model, train, dev, hawkes_of(beside), changes | ({} if options is None else asdict(options))
        )
        changes = {}
    options = changed_options(options, changes, "fit")
    if isinstance(model, GrowsVocabulary):
        model.meet(train)
    check_data(model, train, dev)
    _check_options(model, options)
    processes = process_group()
    _check_processes(processes, isinstance(model, DirectFit), model.title)
    shown = with_progress(callbacks, progress if processes.first else False, options.epochs, options.patience)
    with held(run if processes.first else None), shown as told:
        callback = CallbackList(told, on_step, on_epoch, stop)
        with callback.around(run_settings(model, options, train, dev)):
            if isinstance(model, DirectFit):
                return replace(_fit_directly(model, train, dev, run, callback, options), floors=beside)
            if hawkes_of(beside) is not None and not model.fitted:
                start_with_hawkes(model, train, dev, hawkes_of(beside))
            return replace(_fit_by_steps(model, train, dev, options, callback, run, resume), floors=beside)


def _fit_by_steps(
    model: IntensityModel,
    train: EventData,
    dev: EventData | None,
    options: TrainOptions,
    callback: Callback,
    run: RunFolder | None,
    resume: bool,
) -> Fit:
    processes = process_group()
    _ground(model, train, dev)
    model.to(choose_device(options.device))
    noise = None
    if options.objective == "nce":
        kept = run if processes.first or resume else None
        process = noise_of_run(model, train, dev, options.noise, kept, resume)
        noise = NoiseSource(model, process, options.noise_streams)
    task = LikelihoodTask(model, train, options, noise, processes)
    return Trainer(task, train, dev, options, callback, run, resume, processes).run()


def _check_processes(processes: ProcessGroup, alone: bool, what: str) -> None:
    if alone and processes.size > 1:
        raise ForetellError(f"{what}: this is done by one process; start it without torchrun or `processes=`")


def _chosen(
    name: str, train: EventData, dev: EventData | None, hawkes: Hawkes | None, changes: dict[str, Any]
) -> tuple[IntensityModel, TrainOptions]:
    """Return the model and the options that the rules choose; given options take precedence."""
    check_choice("model", name, [AUTO], repr)
    device = str(choose_device(changes.get("device", TrainOptions.device)))
    decays = 0 if hawkes is None else hawkes.decays
    chosen = choose_settings(traits_of(train, dev), device, decays=decays, whole=True)
    table = with_settings({"train": changes}, [one for one in chosen if not one.key.startswith("data.")])
    config = make_config(table, "fit")
    dtype = getattr(torch, config.train.dtype)
    return config.model.make(train.vocabulary, seed=config.train.seed, dtype=dtype), config.train


def _check_options(model: IntensityModel, options: TrainOptions) -> None:
    if isinstance(model, DirectFit) and options.window != "all":
        raise ForetellError(
            f'{model.title} is fitted to everything that happened: train with window = "all", evaluate in another'
        )
    if options.downsample and not isinstance(model, HasRules):
        raise ForetellError(f"down-sampling of possible events is for models made of rules, not for {model.title}")
    if options.carry_events and not isinstance(model, CarriesState):
        raise ForetellError(
            f"train.carry_events = {options.carry_events}: {model.title} looks back at single events and has no state to hand on; leave it "
            "out, or cut long sequences into windows (data.window_events)"
        )
    wrong = contradictions(options)
    if wrong:
        raise ConfigError("\n".join(wrong))
    if options.objective == "nce" and isinstance(model, DirectFit):
        raise ForetellError(
            f"{model.title} is fitted directly, by maximum likelihood: leave out objective, or train another model"
        )


def _ground(model: IntensityModel, train: EventData, dev: EventData | None) -> None:
    for part in (train, dev):
        if part is not None:
            with naming_impossible(model.program, part) if isinstance(model, HasRules) else nullcontext():
                if part is train and not model.fitted:
                    start_with_hawkes(model, train, dev)
                    model.prepare(train)
                if isinstance(model, GrowsVocabulary):
                    model.ground(part)
                    if part is train:
                        model.begin_training()
    take_covariates(model, train)
    take_calendar(model, train)


def start_with_hawkes(
    model: IntensityModel, train: EventData, dev: EventData | None, fitted: Hawkes | None = None
) -> None:
    """Fit a Hawkes process for a model that starts from one and has none yet; does nothing for other models."""
    if not isinstance(model, ANHP) or not model.options.hawkes or model.background is not None:
        return
    if fitted is None or fitted.decays != model.options.hawkes:
        fitted = Hawkes(model.vocabulary, decays=model.options.hawkes)
        fitted.fit_directly(train, dev, lambda number, value: None)
    model.start_hawkes(fitted)


def _fit_directly(
    model: IntensityModel,
    train: EventData,
    dev: EventData | None,
    run: RunFolder | None,
    callback: Callback,
    options: TrainOptions,
) -> Fit:
    """Fit a model whose maximum likelihood needs no gradient steps."""
    began = time.monotonic()
    records: list[dict[str, Any]] = []

    def record(number: int, value: float | None) -> None:
        value = mean_log_likelihood(model, train, 1, options.window) if value is None else value
        records.append({"epoch": number + 1, "train": value, "train_seconds": time.monotonic() - began})
        callback.on_epoch(records[-1])
        if callback.stop():
            raise TrainingInterrupt

    assert isinstance(model, DirectFit)
    take_covariates(model, train)
    model.fit_directly(train, dev, record)
    best = mean_log_likelihood(model, dev if dev is not None else train, 1, options.window)
    if run is not None:
        run.save_model(model)
        run.write_metrics(records)
    return Fit(model.eval(), records, best, len(records))


def __getattr__(name: str) -> Any:
    if name == "Interrupted":
        warnings.warn(
            "foretell.train.fit.Interrupted is now foretell.TrainingInterrupt", DeprecationWarning, stacklevel=2
        )
        return TrainingInterrupt
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Fit", "TrainingInterrupt", "choose_device", "fit", "floors_for"]


AnyTraining = Fit | Pretraining | Classification


def train_from_config(config: RunConfig, model: IntensityModel, dataset: Dataset, **keywords: Any) -> AnyTraining:
    """Call the function for the task: `fit`, `pretrain` or `classify`, without a progress bar; `keywords` are as in `fit`."""
    assert dataset.train is not None
    keywords = {"progress": False} | keywords
    task = config.task
    if task is None:
        return fit(model, dataset.train, dataset.dev, config.train, **keywords)
    _check_processes(process_group(), True, "pretraining and classification")
    encoder = encoder_of(config, model)
    if isinstance(task, PretrainOptions):
        shares = {"mask": task.mask, "drop": task.drop, "dev_rounds": task.dev_rounds}
        return pretrain(encoder, dataset.train, dataset.dev, config.train, **shares, **keywords)
    labels = find_labels(dataset.splits().values(), task.label)
    what = {"label": task.label, "history": task.history, "labels": labels}
    return classify(encoder, dataset.train, dataset.dev, config.train, **what, **keywords)


def initialised(
    config: RunConfig, model: IntensityModel, source: Network, data: EventData
) -> tuple[IntensityModel, TransferReport]:
    """Return the model of a configuration with the parameters of another run, and a report of which were taken over."""
    name, seed = config.train.init, config.train.seed
    if config.task is None:
        return start_from(model, source, data, name, seed=seed, head=config.train.init_head)
    return model, take_encoder(encoder_of(config, model), source, data, name, seed=seed)


def encoder_of(config: RunConfig, model: IntensityModel) -> ANHP:
    if not isinstance(model, ANHP):
        task = "classification" if isinstance(config.task, ClassifyOptions) else "masked pretraining"
        raise ForetellError(
            f'{task} is for A-NHP, whose encoder can see both ways, and not for {model.title}: use model.kind = "anhp"'
        )
    return model
