"""`tune`: a space of settings and data in, every setting that was tried with its log-likelihood on dev out; test is never opened.

Trials live in an optuna storage (`study`), so that a second call goes on where the first was stopped, and several processes (or machines)
can work on one search. A trial is one `fit` (`trial`); its dev score after every epoch tells the pruner whether to go on.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from foretell.data import Dataset
from foretell.errors import ForetellError
from foretell.train.fit import choose_device
from foretell.train.space import SearchOptions, SearchSampler, Space
from foretell.train.splits import load_splits
from foretell.train.study import (
    STUDY,
    State,
    Tried,
    begun,
    best_of,
    enqueue_grid,
    finished,
    load_optuna,
    open_storage,
    open_study,
    put_back_orphans,
    storage_url,
    waiting,
    write_found,
)
from foretell.train.trial import News, one_trial

log = logging.getLogger("foretell")

DEFAULT_TRIALS = 50
WARM_UP = 5  # epochs, and trials, before the median prunes anything


@dataclass(frozen=True)
class Tuned:
    folder: Path
    space: Space
    tried: list[Tried]
    stopped: Literal["done", "minutes", "interrupted"]
    left: int | None  # settings of a grid that are still to be tried

    @property
    def best(self) -> Tried | None:
        return best_of(self.tried)

    def count(self, state: State) -> int:
        return sum(one.state == state for one in self.tried)


@dataclass(frozen=True)
class _Job:
    """What a worker needs; goes to other processes."""

    space: Space
    options: SearchOptions
    storage: str
    trials: int
    sampler: SearchSampler
    deadline: float | None  # wall clock
    threads: int
    worker: int = 0


def tune(
    space: Space,
    folder: str | Path,
    options: SearchOptions | None = None,
    *,
    told: Callable[[News], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Tuned:
    """Search, or go on with the search that `folder` has. `best.toml` and `trials.jsonl` there are current after every trial."""
    options = (options or SearchOptions()).check()
    folder = Path(folder)
    told, stop = told or (lambda news: None), stop or (lambda: False)
    load_optuna()
    dataset = _without_test(space)
    choose_device(space.config(space.first()).train.device)
    sampler = _chosen_sampler(space, options)
    size = space.size()
    trials = options.trials or (size if sampler == "grid" and size is not None else DEFAULT_TRIALS)
    storage = storage_url(options.storage, folder)
    study = open_study(storage, space, folder)
    put_back_orphans(study)
    if sampler == "grid":
        enqueue_grid(study, space)
    deadline = None if options.minutes is None else time.time() + 60.0 * options.minutes
    threads = max(1, torch.get_num_threads() // options.jobs)
    job = _Job(space, options, storage, trials, sampler, deadline, threads)

    def tell(news: News) -> None:
        if news.tried is not None:
            write_found(study, space, folder)
        told(news)

    if options.jobs == 1:
        _work(job, dataset, tell, stop, nullcontext())
    else:
        _work_in_processes(job, tell, stop)
    write_found(study, space, folder)
    late = deadline is not None and time.time() >= deadline
    left = len(waiting(study))
    found = finished(study)
    whole = len(found) >= trials or (sampler == "grid" and left == 0)
    ended = "done" if whole else "interrupted" if stop() else "minutes" if late else "done"
    return Tuned(folder, space, found, ended, left if sampler == "grid" else None)


def _without_test(space: Space) -> Dataset:
    config = space.config(space.first())
    dataset = load_splits(config.data, unseen=("test",))
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
    if options.sampler == "auto":
        most = options.trials or DEFAULT_TRIALS
        return "grid" if size is not None and size <= most else "tpe"
    return options.sampler


def _work(job: _Job, dataset: Dataset, tell: Callable[[News], None], stop: Callable[[], bool], lock: Any) -> None:
    """Trials, one after the other, until there are enough, time is up, or someone asks to stop."""
    optuna = load_optuna()
    study = optuna.load_study(
        storage=open_storage(job.storage), study_name=STUDY, sampler=_made_sampler(job), pruner=_made_pruner(job)
    )

    def over() -> bool:
        return stop() or (job.deadline is not None and time.time() >= job.deadline)

    while not over():
        with lock:  # so that workers do not take more trials than were asked for
            if begun(study) >= job.trials or (job.sampler == "grid" and not waiting(study)):
                return
            trial = study.ask()
            trial.set_user_attr("process", [socket.gethostname(), os.getpid()])
        one_trial(study, trial, job.space, dataset, tell, over)


def _made_sampler(job: _Job) -> Any:
    optuna = load_optuna()
    earlier = len(optuna.load_study(storage=open_storage(job.storage), study_name=STUDY).get_trials(deepcopy=False))
    seed = int(np.random.SeedSequence([job.options.seed, earlier, job.worker]).generate_state(1)[0])
    if job.sampler == "tpe":
        return optuna.samplers.TPESampler(seed=seed)
    return optuna.samplers.RandomSampler(seed=seed)  # of a grid, every trial is given


def _made_pruner(job: _Job) -> Any:
    optuna = load_optuna()
    if job.options.pruner == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=WARM_UP, n_warmup_steps=WARM_UP)
    if job.options.pruner == "hyperband":
        epochs = job.space.config(job.space.first()).train.epochs
        return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=max(2, epochs))
    return optuna.pruners.NopPruner()


def _work_in_processes(job: _Job, tell: Callable[[News], None], stop: Callable[[], bool]) -> None:
    """One worker a process; what they tell comes through a queue. The first error of a worker itself is raised here."""
    context = multiprocessing.get_context("spawn")  # a forked process would inherit torch's threads
    news, asked, lock = context.Queue(), context.Event(), context.Lock()
    workers = [
        context.Process(target=_worker, args=(replace(job, worker=number), news, asked, lock), daemon=True)
        for number in range(job.options.jobs)
    ]
    for one in workers:
        one.start()
    try:
        while any(one.is_alive() for one in workers):
            if stop():
                asked.set()
            for one in _heard(news, wait=0.2):
                tell(one)
        for one in _heard(news, wait=0.2):
            tell(one)
    finally:
        asked.set()
        for one in workers:
            one.join(timeout=30.0)
            if one.is_alive():
                one.terminate()
    dead = [one for one in workers if one.exitcode not in (0, None)]
    if dead and not stop():
        log.warning("%d of %d processes died (exit code %s)", len(dead), len(workers), dead[0].exitcode)
        if len(dead) == len(workers):
            raise ForetellError(
                f"every process died (exit code {dead[0].exitcode}); run again with --jobs 1 to see why"
            )


def _heard(news: Any, wait: float) -> Iterator[News]:
    try:
        yield news.get(timeout=wait)
        while True:
            yield news.get_nowait()
    except queue.Empty:
        return


def _worker(job: _Job, news: Any, asked: Any, lock: Any) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one tells the others
    logging.getLogger("foretell").setLevel(logging.ERROR)  # each would repeat every warning
    torch.set_num_threads(job.threads)
    _work(job, _without_test(job.space), news.put, asked.is_set, lock)
