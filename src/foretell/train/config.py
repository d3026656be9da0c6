"""What a run is made of: TOML or flags in, one frozen and checked `RunConfig` out; unknown keys are refused."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tomli_w

from foretell.batches.batch import Window
from foretell.errors import ForetellError
from foretell.models.registry import DEFAULT, ModelOptions, model_options
from foretell.objective.integral import Integral
from foretell.objective.timed_noise import NoiseKind
from foretell.options import ConfigError, check_choice, from_table, unknown_keys
from foretell.train.task import TASKS, TaskOptions

LARGEST_SEED = 2**32 - 1  # a step's seed is made of the run's and must stay a 64-bit number
SEEDS = f"a whole number from 0 to {LARGEST_SEED}"


@dataclass(frozen=True)
class DataOptions:
    path: str = ""  # a folder, a file, or the name of embedded data
    columns: Mapping[str, str] | None = None  # names of the columns of a CSV or Parquet file: {sequence = "patient", …}
    split: tuple[float, ...] = (
        0.8,
        0.1,
        0.1,
    )  # shares of sequences for train, dev and test where the data has no splits
    split_seed: int = 0
    train_fraction: float = 1.0  # share of the training data to learn from; dev and test stay whole
    impossible: Literal["error", "skip", "exogenous"] = "error"  # events that the model's rules make impossible


@dataclass(frozen=True)
class TrainOptions:
    epochs: int = 200  # at most; early stopping usually ends a run before
    batch: int = 32  # sequences a step
    lr: float = 1e-3  # Adam's default, as in the paper
    patience: int = 10  # epochs without a better dev score before a run stops; 0: never
    cool: int = 4  # epochs without a better dev score before the learning rate is halved; 0: never
    decay: float = 0.0  # weights shrink by lr·decay a step (AdamW); 0: plain Adam, as in the paper
    pseudo_count: float = 0.0  # pseudo-events of every type, spread over the training data; 0: plain likelihood
    clip: float = 5.0  # largest norm of a step's gradient, nats an event; 0: no clipping
    objective: Literal["mle", "nce"] = "mle"  # maximum likelihood, or noise-contrastive estimation: no integral
    noise: NoiseKind = "poisson"  # what noise (nce) is drawn from, fitted to train
    noise_streams: int = 10  # M: streams of noise beside the real one (nce); more make a step more like one of mle
    integral: Integral = "stratified"
    points: int = 1  # integration points a gap (uniform: an event)
    dev_points: int = 5  # draws a gap in the dev score after every epoch, the same draws each time
    window: Window = "all"
    seed: int = 0
    init: str = ""  # a run to start from, pretrained or trained; what it does not have starts fresh
    init_head: bool = False  # from a pretrained run, also take what told masked types: it begins as the intensities
    device: str = "cpu"
    dtype: Literal["float32", "float64"] = "float32"
    downsample: int = 0  # possible events looked at at each integration time, drawn anew (A-NDTT); 0: all
    piece: int = 0  # queries computed at a time, for memory; 0: what suits the device
    capture: bool = True  # on CUDA, capture a step as a graph and replay it
    checkpoint_seconds: float = 30.0  # a checkpoint is written at the end of an epoch once this much time has passed


@dataclass(frozen=True)
class RunConfig:
    data: DataOptions = field(default_factory=DataOptions)
    model: ModelOptions = field(default_factory=lambda: model_options(DEFAULT)())
    train: TrainOptions = field(default_factory=TrainOptions)
    task: TaskOptions | None = None  # None: what happens next, and when

    def check(self) -> RunConfig:
        """Values that have the right type but make no sense."""
        train, split = self.train, self.data.split
        wrong = []
        if len(split) != 3 or min(split) < 0.0 or split[0] <= 0.0 or not abs(sum(split) - 1.0) <= 1e-9:
            wrong.append(f"data.split = {list(split)}: expected three shares that add up to 1, the first above 0")
        if not 0 <= self.data.split_seed <= LARGEST_SEED:
            wrong.append(f"data.split_seed = {self.data.split_seed}: expected {SEEDS}")
        if not 0.0 < self.data.train_fraction <= 1.0:
            found = self.data.train_fraction
            wrong.append(f"data.train_fraction = {found}: expected a number above 0 and at most 1")
        wrong += [
            f"train.{name} = {getattr(train, name)}: expected {expected}"
            for name, expected, fine in (
                ("epochs", "1 or more", train.epochs >= 1),
                ("batch", "1 or more", train.batch >= 1),
                ("lr", "a number above 0", 0.0 < train.lr < float("inf")),
                ("patience", "0 or more", train.patience >= 0),
                ("cool", "0 or more", train.cool >= 0),
                ("decay", "0 or more", train.decay >= 0.0),
                ("pseudo_count", "0 or more", train.pseudo_count >= 0.0),
                ("clip", "0 or more", train.clip >= 0.0),
                ("noise_streams", "1 or more", train.noise_streams >= 1),
                ("points", "1 or more", train.points >= 1),
                ("dev_points", "1 or more", train.dev_points >= 1),
                ("seed", SEEDS, 0 <= train.seed <= LARGEST_SEED),
                ("downsample", "0 or more", train.downsample >= 0),
                ("piece", "0 or more", train.piece >= 0),
                ("checkpoint_seconds", "0 or more", train.checkpoint_seconds >= 0.0),
            )
            if not fine
        ]
        wrong += contradictions(train)
        if self.task is not None and train.objective == "nce":
            wrong.append(f'train.objective = nce: there is no noise in task.kind = "{self.task.kind}": leave it out')
        if self.task is not None:
            wrong += self.task.mistakes()
        if train.init_head and (not train.init or self.task is not None):
            wrong.append("train.init_head: expected a run to start from (train.init), and a model of what happens next")
        if wrong:
            raise ConfigError("\n".join(wrong))
        return self


def contradictions(train: TrainOptions) -> list[str]:
    """Options that say something of the objective that is not trained with."""
    usual = TrainOptions()
    names, why = (
        ("integral", "points"),
        'noise-contrastive estimation has no integral: leave it out, or take objective = "mle"',
    )
    if train.objective == "mle":
        names, why = (
            ("noise", "noise_streams"),
            'maximum likelihood has no noise: leave it out, or take objective = "nce"',
        )
    found = [(name, getattr(train, name)) for name in names if getattr(train, name) != getattr(usual, name)]
    return [f"train.{name} = {value}: {why}" for name, value in found]


def read_config(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def make_config(table: Mapping[str, Any], source: str = "configuration") -> RunConfig:
    """Check a table of tables; every mistake is reported, with its key."""
    problems: list[str] = []
    problems += unknown_keys(table, [section.name for section in dataclasses.fields(RunConfig)], source, "")
    made: dict[str, Any] = {}
    for name in ("data", "model", "train", "task"):
        given = table.get(name, {})
        if not isinstance(given, Mapping):
            problems.append(f"{source}: [{name}] is {given!r}: expected a table")
        elif name != "task" or name in table:
            options = _options_of(name, given, source, problems)
            if options is not None:
                values = {key: value for key, value in given.items() if key != "kind" or name not in ("model", "task")}
                made[name] = from_table(options, values, source, name, problems)
    if problems:
        raise ConfigError("\n".join(problems))
    return RunConfig(**made).check()


def _options_of(section: str, given: Mapping[str, Any], source: str, problems: list[str]) -> Any:
    """The dataclass of a section's options; where it has a kind, that of its kind."""
    if section in ("data", "train"):
        return DataOptions if section == "data" else TrainOptions
    try:
        if section == "model":
            return model_options(given.get("kind", DEFAULT))
        check_choice("task.kind", given.get("kind"), list(TASKS), repr)
        return TASKS[given["kind"]]
    except ForetellError as error:
        problems.append(f"{source}: {error}")
    return None


def to_toml(config: RunConfig) -> str:
    """The whole configuration, defaults included, as TOML that `make_config` reads back to the same."""
    tables: dict[str, dict[str, Any]] = {}
    for section in dataclasses.fields(config):
        options = getattr(config, section.name)
        if options is None:
            continue
        kind = {"kind": options.kind} if section.name in ("model", "task") else {}
        given = {option.name: getattr(options, option.name) for option in dataclasses.fields(options)}
        tables[section.name] = kind | {name: value for name, value in given.items() if value is not None}
    return tomli_w.dumps(tables)
