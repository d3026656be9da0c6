"""`auto`: tries several models on data within some minutes, chooses one on dev, and writes a page with results and reasons.

The folder of a search has `experiment.toml` (its definition), `units/` (one run each), `best/` (a copy of the chosen run), `search.json`
and `comparison.html`. A second identical call continues the search.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import tomli_w
import torch

from foretell.data import Dataset, FrameResult, save_dataset
from foretell.data.files import replacing, text_file
from foretell.data.frame_output import FrameColumns
from foretell.errors import ForetellError
from foretell.evaluate.scores import Evaluation, score
from foretell.models.base import IntensityModel
from foretell.models.capabilities import HasRules
from foretell.options import unknown_keys
from foretell.reading import read_limits
from foretell.reproduce.experiment import FILE as DEFINITION
from foretell.reproduce.experiment import Results, read_definition, results_of
from foretell.reproduce.queue import ReproduceOptions, run_units
from foretell.reproduce.unit import UnitFolder
from foretell.search.budget import KEEP_EVERY, Budget, keep_budget, open_budget
from foretell.search.candidates import rules_of
from foretell.search.halving import DEV_SCORES, FLOORS, AutoSearch, rule_model, settled_dataset, unit_folders
from foretell.search.leaderboard import Leaderboard, leaderboard
from foretell.search.page import comparison_page
from foretell.shards.place import parse_place
from foretell.train.auto_settings import choose_settings, traits_of, with_settings
from foretell.train.config import make_config, read_config
from foretell.train.file_lock import FileLock
from foretell.train.run import CONFIG, RunFolder
from foretell.train.splits import load_run, with_whole_paths
from foretell.train.trainer import choose_device
from foretell.wording import counted

BEST, SUMMARY, PAGE, DATA, LOCK = "best", "search.json", "comparison.html", "data", ".lock"
MOST_JOBS = 8
GPU_JOBS = 2
MINUTES = 10.0


@dataclass(frozen=True)
class SearchListener:
    """Receives progress messages of a search, and can stop it."""

    move: Callable[[str, int, int], None] = lambda words, done, of: None  # message, seconds so far, seconds in total
    tell: Callable[[str], None] = lambda line: None  # receives lines that stay
    stop: Callable[[], bool] = lambda: False
    began: float | None = None  # start of the time budget (`time.time`); None: the call of the search


@dataclass(frozen=True)
class AutoResult(FrameResult):
    """The chosen run, and the leaderboard from which it was chosen; as a frame, one row per candidate."""

    folder: Path
    board: Leaderboard
    test: Evaluation | None  # scores of the chosen run on test; None: no test split, or not requested
    minutes: float
    seconds: float  # duration of the search, over all calls
    stopped: Literal["done", "minutes", "interrupted"]

    @property
    def run(self) -> RunFolder:
        """The chosen run, usable by `foretell evaluate`, `predict` and so on like any other."""
        return RunFolder.open(self.folder / BEST)

    @property
    def model(self) -> IntensityModel:
        return self.run.model()

    @property
    def page(self) -> Path:
        return self.folder / PAGE

    def frame_columns(self) -> FrameColumns:
        return self.board.frame_columns()

    def to_json(self) -> dict[str, Any]:
        return {
            "run": str(self.folder / BEST),
            "judged_on": "dev",
            **self.board.to_json(),
            "test": None if self.test is None else self.test.to_json(),
            "minutes": self.minutes,
            "seconds": round(self.seconds, 1),
            "stopped": self.stopped,
            "page": str(self.page),
            "folder": str(self.folder),
        }


@dataclass(frozen=True)
class AutoOptions:
    minutes: float = MINUTES  # all calls together
    jobs: int | None = None  # number of processes; None: one per core, or two on a GPU
    on: str = "this"  # where the processes run
    device: str = "auto"
    test: bool = True  # score the chosen run on test at the end
    seed: int = 0  # of all fits except the final ones, which use the following seeds

    def __post_init__(self) -> None:
        if self.jobs is not None and not 1 <= self.jobs <= 512:
            raise ForetellError(f"`jobs={self.jobs}`: expected a number from 1 to 512")
        parse_place(self.on)

    def processes(self, device: str) -> int:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.jobs or min(cores, GPU_JOBS if device != "cpu" else MOST_JOBS)


def auto(
    data: str | Path | Dataset,
    *,
    program: str | Path | None = None,
    minutes: float = MINUTES,
    out: str | Path | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    listener: SearchListener | None = None,
    **options: Any,
) -> AutoResult:
    """Try models that suit the data for some minutes, and keep the best on dev.

    Args:
        data: a folder, a file, the name of embedded data, or a loaded data set.
        program: rules; models made of them are tried as well.
        minutes: the time limit, including earlier calls with the same folder.
        out: the folder to write, or to continue; default: `auto/NAME`.
        settings: further tables of a configuration: `{"data": {"time_format": "iso"}, "train": {"dtype": "float64"}}`.
        listener: an object that receives progress messages and can stop the search.
        **options: `jobs` (number of processes; default: one per core, or two on a GPU), `on` (where they run: `processes`, `ray`,
            `ray://HOST:PORT`), `device` (`cpu`, `cuda` or `auto`), `test` (whether to score the chosen model on test, once,
            after the choice; default: True), `seed` (of all fits except the final ones, which use the following seeds).

    Returns:
        The chosen run (`run`, `model`), the leaderboard (`board`, `to_frame()`), and the score on test.

    Example:
        >>> found = ft.auto("robocup", minutes=10, out="search")  # doctest: +SKIP
        >>> found.model.title  # doctest: +SKIP
        'A-NHP'
    """
    problems = unknown_keys(options, ["jobs", "on", "device", "test", "seed"], "auto", "")
    if problems:
        raise ForetellError("\n".join(problems))
    wanted, listener = AutoOptions(minutes, **options), listener or SearchListener()
    folder = Path(out) if out is not None else Path("auto") / _name(data)
    _check_folder(folder)
    began = time.time() if listener.began is None else listener.began
    budget = replace(open_budget(folder, minutes), began=began)
    lock = FileLock(folder / LOCK)
    if not lock.try_acquire():
        raise ForetellError(
            f"{folder}: {lock.holder()} is searching there; wait for it, or choose another folder (`out=`)"
        )
    try:
        table = {key: dict(value) for key, value in (settings or {}).items()}
        table.setdefault("data", {})["path"] = _path(data, folder)
        table.setdefault("train", {})["seed"] = wanted.seed
        if program is not None:
            table.setdefault("model", {})["program"] = str(program)
        _define(table, folder, wanted)
        return _Search(folder, wanted, budget, listener).run()
    finally:
        _clear(folder)
        lock.release()


def _name(data: str | Path | Dataset) -> str:
    return data.card.name if isinstance(data, Dataset) else Path(str(data).removeprefix("hf:")).name.split(".")[0]


def _path(data: str | Path | Dataset, folder: Path) -> str:
    """Return the path of the data; a loaded data set is first written into the folder of the search."""
    if not isinstance(data, Dataset):
        return str(data)
    if not (folder / DATA).exists():
        save_dataset(data, folder / DATA)
    return str(folder / DATA)


def _check_folder(folder: Path) -> None:
    if folder.is_file():
        raise ForetellError(f"{folder}: this is a file, expected a folder for the search (`out=`)")
    if (
        folder.is_dir()
        and any(folder.iterdir())
        and not (folder / DEFINITION).exists()
        and not (folder / DATA).exists()
    ):
        raise ForetellError(f"{folder}: there is something else in this folder; choose another one with `out=`")


def _clear(folder: Path) -> None:
    """Remove the folder of a search that could not be started."""
    if not (folder / DEFINITION).exists() and not (folder / DATA).exists():
        (folder / LOCK).unlink(missing_ok=True)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _define(table: Mapping[str, Any], folder: Path, options: AutoOptions) -> None:
    """Write `experiment.toml`, or check that an existing one belongs to the same search."""
    device = str(choose_device(options.device))
    made = _definition(table, device)
    path = folder / DEFINITION
    if path.exists():
        earlier = read_config(path)
        if earlier != json.loads(json.dumps(made)):
            wrong = [key for key in {*earlier, *made} if earlier.get(key) != json.loads(json.dumps(made)).get(key)]
            raise ForetellError(
                f"{folder}: there is another search in this folder (its {', '.join(sorted(wrong))} differ); go on with that one, or "
                "choose another folder with `out=`"
            )
        return
    with text_file(path) as file:
        file.write("# What `foretell auto` searches; the same command goes on.\n" + tomli_w.dumps(made))


def _definition(given: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Return the definition of a search: the data settings, the traits of the data, and whether models without rules can be compared
    with those of the program."""
    rules = rules_of(given.get("model", {}))
    program = rules.get("program", "")
    model = {"kind": "s2ndtt", **rules} if program else {}
    config = with_whole_paths(make_config({**given, "model": model}, "options"))
    dataset = load_run(config)
    assert dataset.train is not None
    if dataset.train.event_count == 0:
        raise ForetellError(f"{dataset.train.name}: there is no event to learn from")
    traits = traits_of(dataset.train, dataset.dev)
    chosen = [
        one for one in choose_settings(traits, device, program=bool(program), whole=True) if one.key.startswith("data.")
    ]
    data = with_settings({"data": {**given["data"], "path": config.data.path}}, chosen)["data"]
    if chosen:
        config = replace(config, data=make_config({"data": data}).data)
        dataset = load_run(config)
    if dataset.dev is None:
        raise ForetellError(
            f"{config.data.path}: there is no dev split, and candidates are judged on dev; give one, or a single file of ten "
            "sequences or more, which is shared out"
        )
    found: dict[str, Any] = {"kind": "auto", "title": dataset.card.name, "device": device, "dataset": data}
    if program:
        found |= rules | {"program": getattr(config.model, "program", program)}
        found["without_rules"] = _comparable(config, dataset)
    found |= {"train": dict(given.get("train", {})), "traits": asdict(traits)}
    bounds = asdict(read_limits())
    kept = {key: [str(one) for one in value] if key == "allow" else value for key, value in bounds.items() if value}
    return found | ({"limits": kept} if kept else {})


def _comparable(config: Any, dataset: Dataset) -> bool:
    """Whether models made of the rules score every event, as all other models do."""
    whole = replace(dataset, test=None)
    settled, count = settled_dataset(config, whole)
    unscored = rule_model(config, settled).unscored
    return count == 0 and (unscored is None or not unscored.any())


class _Search:
    """One call: fits until the time is up, then the choice, its score on test, and the page."""

    def __init__(self, folder: Path, options: AutoOptions, budget: Budget, listener: SearchListener) -> None:
        self.folder, self.options, self.budget, self.listener = folder, options, budget, listener
        self.tell = listener.tell
        self.definition = read_definition(str(folder.resolve()))
        self.search = AutoSearch(self.definition)
        self.kept = 0.0

    def results(self) -> Results:
        return results_of(self.definition, self.search, self.folder.resolve().parent)

    def run(self) -> AutoResult:
        budget, folder = self.budget, self.folder
        if not self.search.without_rules:
            self.tell("the program takes some events as given: only models made of its rules can be chosen")
        keep_budget(folder, budget)
        left = budget.left()
        if left > 0.0:
            device, on = self.search.device, parse_place(self.options.on)
            processes = self.options.processes(device)
            wanted = ReproduceOptions(
                folder.resolve().parent,
                device=device,
                jobs=processes if on.kind == "this" else self.options.jobs or 1,
                on=on,
                gpu_jobs=processes,
                minutes=left / 60.0,
                results=False,
            )
            where = str(wanted.place) if on.kind != "this" else f"{processes} process{'es'[: 2 * (processes > 1)]}"
            self.tell(f"{where}, {device}; training until {_clock(budget.fit_until)}")
            run_units([str(folder.resolve())], wanted, self._say, self._stop)
        keep_budget(folder, budget, ended=True)
        ended = "interrupted" if self.listener.stop() else "minutes" if budget.left() <= 0.0 else "done"
        return self._ended(ended)

    def _stop(self) -> bool:
        """Polled during the search; also records the time spent and updates the bar."""
        now = time.time()
        if now - self.kept >= KEEP_EVERY:
            self.kept = now
            keep_budget(self.folder, self.budget)
            self.listener.move(self._words(), round(self.budget.used), round(self.budget.seconds))
        return self.listener.stop()

    def _say(self, line: str) -> None:
        """Report a line of the queue of units, with the score of its unit."""
        name = line.split(":")[0].split(" ")[-1]
        folder = UnitFolder(self.folder / "units" / name)
        record = folder.record() if (self.folder / "units" / name).is_dir() else None
        if record is None:
            self.tell(line.removeprefix(f"{self.definition.name} "))
        elif record.get("dev") is None:
            self.tell(f"{record['title']:<34} {record.get('gave_up', 'no score')}")
        else:
            epochs = counted(record["epochs"], "epoch") if record["candidate"] not in FLOORS else "direct"
            again = f", {record['again']}" if record.get("again") else ""
            self.tell(
                f"{record['title'] + again:<34} dev {record['dev']:9.4f}   {epochs:>10}   {record['seconds']:6.1f} s"
            )

    def _words(self) -> str:
        best, running = None, []
        for folder in unit_folders(self.folder):
            path, record = folder.path, folder.record()
            if record is not None and record.get("dev") is not None and (best is None or record["dev"] > best["dev"]):
                best = record
            elif record is None and not folder.error() and (path / "run" / CONFIG).exists():
                title = (folder.read("settings.json") or {}).get("title", path.name)
                running.append(f"{title} (epoch {len(RunFolder.open(path / 'run').metrics())})")
        ahead = "" if best is None else f"best {best['title']} {best['dev']:.4f}; "
        return f"{ahead}{', '.join(running[:3])}"

    def _ended(self, ended: Literal["done", "minutes", "interrupted"]) -> AutoResult:
        results = self.results()
        decays = int(results.records.get("hawkes", {}).get("decays", 0))
        titles = {one.name: one.title for one in self.search.candidates(decays)}
        board = leaderboard(results, titles, floors_chosen=self.search.without_rules)
        self._copy(board)
        test = self._test(board) if self.options.test and ended != "interrupted" else None
        keep_budget(self.folder, self.budget, ended=True)
        found = AutoResult(self.folder, board, test, self.budget.seconds / 60.0, self.budget.used, ended)
        with replacing(self.folder / PAGE) as temporary:
            temporary.write_text(comparison_page(found.to_json(), results, board), encoding="utf-8")
        with replacing(self.folder / SUMMARY) as temporary:
            temporary.write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")
        return found

    def _copy(self, board: Leaderboard) -> None:
        """Copy the chosen run to a folder of its own; an interrupted copy leaves none."""
        best, part = self.folder / BEST, self.folder / f".{BEST}.part"
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(board.best.run, part, ignore=shutil.ignore_patterns(".lock"))
        text = (part / CONFIG).read_text(encoding="utf-8")
        (part / CONFIG).write_text(f"# Chosen by `foretell auto`: {board.reason}.\n{text}", encoding="utf-8")
        if best.exists():
            shutil.rmtree(best)
        part.rename(best)

    def _test(self, board: Leaderboard) -> Evaluation | None:
        """Return the scores of the chosen model on test, which was not used before; None without a test split."""
        run = RunFolder.open(self.folder / BEST)
        config = run.config()
        dataset = load_run(config)
        if dataset.test is None:
            return None
        words = f"scoring {board.best.title} on test"
        self.listener.move(words, round(self.budget.used), round(self.budget.seconds))
        model = run.model(self.search.device)
        if isinstance(model, HasRules):
            only = replace(dataset, dev=None)
            dataset, _ = settled_dataset(config, only)
        assert dataset.test is not None
        with torch.no_grad():
            return score(model, dataset.test, DEV_SCORES).evaluation


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))
