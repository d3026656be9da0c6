"""`tune`: tries settings from a space on data and returns each with its log-likelihood on dev. It never opens test.

Trials are stored in an optuna storage (`study`), so that a second call continues a stopped search, and several processes or machines can
share one search. A trial is one `fit`; after every epoch its dev score goes to the pruner, which may end the trial.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from foretell.data import Dataset
from foretell.errors import ForetellError
from foretell.ground.impossible import settle_impossible
from foretell.models.capabilities import meet_log
from foretell.models.rules.rule_model import RuleModel
from foretell.shards.place import parse_place, with_jobs
from foretell.shards.pool import GRACE, ShardOutcome, ShardPool, ShardTask, SharedInput
from foretell.shards.shard_map import ATTEMPTS, make_pool
from foretell.train.config import RunConfig
from foretell.train.fit import TrainingInterrupt, choose_device, fit
from foretell.train.likelihood_task import sum_scored
from foretell.train.space import SearchOptions, SearchSampler, Setting, Space
from foretell.train.splits import load_run
from foretell.train.study import (
    ABOUT,
    PROCESS,
    STUDY,
    State,
    TrialRecord,
    alone,
    begun,
    best_of,
    enqueue_grid,
    finished,
    load_optuna,
    open_storage,
    open_study,
    own_process,
    put_back,
    put_back_orphans,
    record_of,
    spelled,
    storage_url,
    suggested,
    waiting,
    write_found,
)

if TYPE_CHECKING:
    import optuna

log = logging.getLogger("foretell")

DEFAULT_TRIALS = 50
WARM_UP = 5  # the median pruner needs this many epochs and trials before it prunes


@dataclass(frozen=True)
class TuningResult:
    folder: Path
    space: Space
    tried: list[TrialRecord]
    stopped: Literal["done", "minutes", "interrupted"]
    left: int | None  # untried settings of a grid

    @property
    def best(self) -> TrialRecord | None:
        return best_of(self.tried)

    def count(self, state: State) -> int:
        return sum(one.state == state for one in self.tried)


@dataclass(frozen=True)
class TrialProgress:
    """A message from a worker: an epoch of a trial or, with `record`, the trial's end."""

    number: int
    setting: Setting
    epoch: int = 0
    score: float | None = None
    record: TrialRecord | None = None


Tell = Callable[[TrialProgress], None]
Stop = Callable[[], bool]


@dataclass(frozen=True)
class _Search:
    """The inputs of a worker, which are sent to other processes."""

    space: Space
    options: SearchOptions
    storage: str
    trials: int
    sampler: SearchSampler


def tune(
    space: Space,
    folder: str | Path,
    options: SearchOptions | None = None,
    *,
    told: Tell | None = None,
    stop: Stop | None = None,
) -> TuningResult:
    """Search, or continue the search in `folder`. Its `best.toml` and `trials.jsonl` are updated after every trial."""
    options = (options or SearchOptions()).check()
    folder = Path(folder)
    stop = stop or (lambda: False)
    load_optuna()
    dataset = _without_test(space)
    choose_device(space.config(space.first()).train.device)
    sampler = _chosen_sampler(space, options)
    trials = options.trials or (space.size() if sampler == "grid" else None) or DEFAULT_TRIALS
    storage = storage_url(options.storage, folder)
    with alone(storage, folder):
        study = open_study(storage, space, folder)
        put_back_orphans(study)
        if sampler == "grid":
            enqueue_grid(study, space)
    deadline = None if options.minutes is None else time.time() + 60.0 * options.minutes
    search = _Search(space, options, storage, trials, sampler)

    def tell(news: TrialProgress) -> None:
        if news.record is not None:
            write_found(study, space, folder)
        if told is not None:
            told(news)

    def over() -> bool:
        return stop() or (deadline is not None and time.time() >= deadline)

    place = with_jobs(parse_place(options.on), options.jobs)
    pool = make_pool(place, over, threads=max(1, torch.get_num_threads() // place.cores))
    try:
        _Trials(search, pool, dataset, tell, over).run()
    except BaseException:
        pool.close(now=True)
        raise
    pool.close(now=bool(pool.busy()))
    write_found(study, space, folder)
    late = deadline is not None and time.time() >= deadline
    found, left = finished(study), waiting(study) if sampler == "grid" else None
    whole = len(found) >= trials or left == 0
    ended = "done" if whole else "interrupted" if stop() else "minutes" if late else "done"
    return TuningResult(folder, space, found, ended, left)


def _without_test(space: Space) -> Dataset:
    config = space.config(space.first())
    dataset = load_run(config, unseen=("test",))
    if dataset.dev is None:
        raise ForetellError(
            f"{config.data.path}: there is no dev split, and settings are judged on dev; give one, or a single file of "
            "ten sequences or more, which is shared out"
        )
    return dataset


def _chosen_sampler(space: Space, options: SearchOptions) -> SearchSampler:
    size = space.size()
    if options.sampler == "grid" and size is None:
        named = ", ".join(space.endless())
        raise ForetellError(
            f"sampler = grid: {named} has infinitely many values; give a list or a step, or take random or tpe"
        )
    if options.sampler != "auto":
        return options.sampler
    return "grid" if size is not None and size <= (options.trials or DEFAULT_TRIALS) else "tpe"


class _Trials:
    """Starts trials in a pool until enough have run, time is up, or a stop is requested."""

    def __init__(self, search: _Search, pool: ShardPool, dataset: Dataset, tell: Tell, over: Stop) -> None:
        self.search, self.pool, self.tell, self.over = search, pool, tell, over
        self.study = _own_study(search)
        # Only trials in this process can report epochs directly; the epochs of others are read from the storage.
        self.shared = SharedInput(_TrialInput(search, dataset, None if pool.interruptible else tell))
        self.told: dict[int, int] = {}  # number of reported epochs, by trial
        self.lost: dict[str, int] = {}  # how often the worker of each setting died

    def run(self) -> None:
        asked_to_stop: float | None = None
        while True:
            while not self.over() and len(self.pool.busy()) < self.pool.size and self._more():
                self._start()
            if not self.pool.busy():
                return
            for outcome in self.pool.wait():
                self._ended(outcome)
            if self.pool.interruptible:
                self._tell_epochs()
            if self.over() and self.pool.interruptible and asked_to_stop is None:
                asked_to_stop = time.monotonic()
                self.pool.interrupt()
            if asked_to_stop is not None and time.monotonic() - asked_to_stop > GRACE:
                return

    def _more(self) -> bool:
        return begun(self.study) < self.search.trials and (self.search.sampler != "grid" or waiting(self.study) > 0)

    def _start(self) -> None:
        trial = self.study.ask()
        trial.set_user_attr(PROCESS, own_process())
        setting = suggested(trial, self.search.space)
        given = GivenTrial(trial.number, trial._trial_id, setting, None if self.pool.interruptible else trial)
        gpu = float(choose_device(self.search.space.config(setting).train.device).type == "cuda")
        self.pool.start(ShardTask(given, try_setting, self.shared, given, gpu))

    def _ended(self, outcome: ShardOutcome) -> None:
        given: GivenTrial = outcome.name
        if outcome.error is not None:
            raise outcome.error
        if outcome.lost or outcome.cancelled:
            self._put_back(given, outcome.lost)
        elif self.pool.interruptible and outcome.value is not None:
            self.tell(TrialProgress(given.number, given.setting, record=outcome.value))

    def _put_back(self, given: GivenTrial, lost: str) -> None:
        """Queue the setting of a dead worker again, up to a limited number of times."""
        name = spelled(given.setting)
        self.lost[name] = self.lost.get(name, 0) + bool(lost)
        optuna = load_optuna()
        if self.study.get_trials(deepcopy=False)[given.number].state != optuna.trial.TrialState.RUNNING:
            return  # the trial ended just before its worker did
        trial = optuna.trial.Trial(self.study, given.id)
        if self.lost[name] < ATTEMPTS:
            log.warning("trial %d is tried again%s", given.number, f": {lost}" if lost else "")
            return put_back(self.study, trial)
        trial.set_user_attr(ABOUT, {"setting": given.setting, "error": f"{lost}, {ATTEMPTS} times"})
        self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        record = record_of(self.study.get_trials(deepcopy=False)[given.number])
        self.tell(TrialProgress(given.number, given.setting, record=record))

    def _tell_epochs(self) -> None:
        found = self.study.get_trials(deepcopy=False)
        for given in self.pool.busy():
            scores = found[given.number].intermediate_values
            if len(scores) > self.told.get(given.number, -1):
                self.told[given.number] = len(scores)
                best = max(scores.values(), default=None)
                self.tell(TrialProgress(given.number, given.setting, max(scores, default=0), best))


@dataclass(frozen=True)
class GivenTrial:
    """A trial in the form in which it is sent to a worker."""

    number: int
    id: int  # in the storage
    setting: Setting
    here: Any = None  # the trial object, if it runs in the process that created it


@dataclass(frozen=True)
class _TrialInput:
    search: _Search
    dataset: Dataset
    tell: Tell | None


def try_setting(given_to_all: _TrialInput, given: GivenTrial, stop: Stop) -> TrialRecord | None:
    """Fit one setting in a worker, subject to the pruner, and return its record; None if the trial was put back."""
    trial = given.here or load_optuna().trial.Trial(_own_study(given_to_all.search), given.id)
    trial.set_user_attr(PROCESS, own_process())
    tell = given_to_all.tell or (lambda news: None)
    return _Trial(trial.study, trial, given.setting, tell, stop).run(given_to_all.search.space, given_to_all.dataset)


def _own_study(search: _Search) -> optuna.Study:
    """Return the study with its sampler and pruner."""
    optuna, options, storage = load_optuna(), search.options, open_storage(search.storage)
    earlier = len(optuna.load_study(storage=storage, study_name=STUDY).get_trials(deepcopy=False))
    seed = int(np.random.SeedSequence([options.seed, earlier, 0]).generate_state(1)[0])
    tpe = search.sampler == "tpe"  # the trials of a grid are queued beforehand
    sampler = optuna.samplers.TPESampler(seed=seed) if tpe else optuna.samplers.RandomSampler(seed=seed)
    if options.pruner == "median":
        pruner = optuna.pruners.MedianPruner(n_startup_trials=WARM_UP, n_warmup_steps=WARM_UP)
    elif options.pruner == "hyperband":
        epochs = search.space.config(search.space.first()).train.epochs
        pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=max(2, epochs))
    else:
        pruner = optuna.pruners.NopPruner()
    return optuna.load_study(storage=storage, study_name=STUDY, sampler=sampler, pruner=pruner)


class _Trial:
    """A trial that fits one setting, subject to the pruner; `about` is stored with the trial."""

    def __init__(self, study: optuna.Study, trial: optuna.Trial, setting: Setting, tell: Tell, stop: Stop) -> None:
        self.study, self.trial, self.setting, self.tell, self.stop = study, trial, setting, tell, stop
        self.about: dict[str, Any] = {"setting": setting}

    def run(self, space: Space, dataset: Dataset) -> TrialRecord | None:
        """Fit and report to the study. Errors of the setting are stored, not raised; an interrupt puts the trial back."""
        optuna, about = load_optuna(), self.about
        whole = [one for one in finished(self.study) if one.state == "complete" and one.same_as is None]
        earlier = next((one for one in whole if spelled(one.setting) == spelled(self.setting)), None)
        score, state, began = None, optuna.trial.TrialState.COMPLETE, time.perf_counter()
        try:
            if earlier is None:
                score = self.fit(space.config(self.setting), dataset)
            else:  # the same seed would give the same score
                about |= {name: getattr(earlier, name) for name in ("score", "epochs", "best_epoch", "parameters")}
                about["same_as"], score = earlier.number, earlier.score
        except optuna.TrialPruned:
            state = optuna.trial.TrialState.PRUNED
        except (TrainingInterrupt, KeyboardInterrupt):
            put_back(self.study, self.trial)
            return None
        except Exception as error:  # after any error, the other settings are still tried
            log.debug("trial %d", self.trial.number, exc_info=True)
            about["error"] = f"{type(error).__name__}: {error}"
            state = optuna.trial.TrialState.FAIL
        if earlier is None:
            about["seconds"] = round(time.perf_counter() - began, 2)
        self.trial.set_user_attr(ABOUT, about)  # one call: every write waits for the disk
        self.study.tell(self.trial, score, state=state)
        record = record_of(self.study.get_trials(deepcopy=False)[self.trial.number])
        self.tell(TrialProgress(self.trial.number, self.setting, record=record))
        return record

    def fit(self, config: RunConfig, dataset: Dataset) -> float:
        dtype = getattr(torch, config.train.dtype)
        model = config.model.make(dataset.vocabulary, seed=config.train.seed, dtype=dtype)
        train, dev = dataset.train, dataset.dev
        assert train is not None and dev is not None
        meet_log(model, train)
        how = config.data.impossible
        if isinstance(model, RuleModel) and how != "error":  # with "error", `fit` names the impossible events
            train, dev = (settle_impossible(model.program, data, how).data for data in (train, dev))
        self.tell(TrialProgress(self.trial.number, self.setting))
        result = fit(model, train, dev, config.train, on_epoch=self.epoch, stop=self.stop, progress=False)
        if not math.isfinite(result.best):
            raise ForetellError(f"the log-likelihood of dev is {result.best}")
        self.comparable(sum_scored(dev, np.arange(len(dev)), config.train.window, model.unscored))
        self.about |= {"score": result.best, "epochs": len(result.records), "best_epoch": result.best_epoch}
        self.about["parameters"] = sum(parameter.numel() for parameter in model.parameters())
        return result.best

    def epoch(self, record: dict[str, Any]) -> None:
        score = record.get("dev")
        if score is None:  # a direct fit: its records have no dev score
            return
        self.about["epochs"] = record["epoch"]
        if score > self.about.get("score", -math.inf):
            self.about |= {"score": score, "best_epoch": record["epoch"]}
        self.tell(TrialProgress(self.trial.number, self.setting, record["epoch"], self.about["score"]))
        self.trial.report(score, record["epoch"])
        if self.trial.should_prune():
            raise load_optuna().TrialPruned

    def comparable(self, scored: int) -> None:
        """Raise `ForetellError` if this trial scores other events than earlier ones: mean scores are then not comparable."""
        told = [one.user_attrs.get(ABOUT, {}) for one in self.study.get_trials(deepcopy=False)]
        others = [about["scored"] for about in told if "scored" in about]
        if others and others[0] != scored:
            raise ForetellError(
                f"this setting scores {scored} events of dev, others {others[0]}: they cannot be compared"
            )
        self.about["scored"] = scored
