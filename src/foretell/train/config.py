"""The configuration of a run: reads TOML or flags and returns a frozen, checked `RunConfig`; unknown keys are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import tomli_w

from foretell.data.read_options import ReadOptions, Unknown, read_options
from foretell.errors import ForetellError
from foretell.models.registry import DEFAULT, ModelOptions, model_options
from foretell.options import (
    ConfigError,
    Flag,
    Impossible,
    Integral,
    NoiseKind,
    Sight,
    Window,
    check_choice,
    from_table,
    option,
    too_small,
    unknown_keys,
)
from foretell.reading import read_toml


@dataclass(frozen=True)
class PretrainOptions:
    """Options for predicting the types of masked events from all other events (paper, end of section 2)."""

    kind: ClassVar[str] = "pretrain"
    # BERT's values.
    mask: float = option(0.15, flag="Share of the events that stay whose type is hidden and told.")
    drop: float = option(0.1, flag="Share of the events that are removed.")
    dev_rounds: int = option(
        5, least=1
    )  # the dev score is the mean over this many corruptions, which are the same after every epoch

    def mistakes(self) -> list[str]:
        found = []
        if not 0.0 < self.mask <= 1.0:
            found.append(f"task.mask = {self.mask}: expected a share of the events above 0 and at most 1")
        if not 0.0 <= self.drop < 1.0:
            found.append(f"task.drop = {self.drop}: expected a share of the events from 0 to below 1")
        return found + too_small(self, "task.")


CONTEXT = Flag("What events see when classified: two-sided or causal.", name="context")


@dataclass(frozen=True)
class ClassifyOptions:
    """Options for predicting a label of sequences or of their events, which the data have under a metadata key."""

    kind: ClassVar[str] = "classify"
    # One value per sequence, or a list with one value per event.
    label: str = option("", flag="The key of the data that has the property.")
    history: Sight = option("two-sided", flag=CONTEXT)

    def mistakes(self) -> list[str]:
        asked = "task.label: which property is to be learned? Give `label=`, a key of the data"
        return [] if self.label else [asked]


TaskOptions = PretrainOptions | ClassifyOptions
TASKS: dict[str, type[TaskOptions]] = {task.kind: task for task in (PretrainOptions, ClassifyOptions)}


LARGEST_SEED = 2**32 - 1  # a step's seed is computed from the run's seed and must fit into 64 bits
SEEDS = f"a whole number from 0 to {LARGEST_SEED}"
IMPOSSIBLE = Flag("Events that the rules make impossible: an error, left out, or kept unscored.", choices=True)
UNKNOWN = Flag(
    "Event types that training never saw, in other data: skip, error, or other (a type of that name).", choices=True
)
COVARIATES = Flag("Columns of events that the model uses: amount,channel; channel:category says what one is.")
STATIC = Flag("Columns with one value per sequence that the model uses: age,sex.")
CARRY = "Learn longer sequences in parts of so many events, which hand their state on (nhp, rmtpp, s2p2)."  # 0: whole
WINDOW = "Cut longer sequences into windows of so many events, with history before them; 0: never."
OBJECTIVE = "mle: maximum likelihood; nce: noise-contrastive estimation."  # nce needs no integral
NOISE = "Where the noise of nce comes from: poisson, hawkes or timed."
INIT = Flag("A run to start from, pretrained or trained.", type=Path)


@dataclass(frozen=True)
class DataOptions:
    path: str = option("", flag=Flag("A folder, a file, the name of embedded data (robocup), or hf:NAME.", name="data"))
    columns: Mapping[str, str] | None = None  # names of the columns of a CSV or Parquet file: {sequence = "patient", …}
    time_format: str = option(
        "", flag="What times are: iso, number, unix-s, unix-ms, … or '%d/%m/%Y %H:%M'; default: found out."
    )
    timezone: str = option("", flag="The zone of times without one, such as Europe/Berlin; default: UTC.")
    start: str = option(
        "", flag="Where clocks start: first-event, day, week, month, or a time; default: first-event for dates."
    )
    observed_until: str = option(
        "", flag="When the log was exported: the end of sequences without a t_end; default: their last event."
    )
    sorted: bool = option(False, flag="Rows of a sequence out of order are a mistake.")
    terms: bool = option(False, flag="Names with parentheses must be terms, functor(arg,…).")
    unknown: Unknown = option("skip", flag=UNKNOWN)
    covariates: tuple[str, ...] = option((), flag=COVARIATES)
    static: tuple[str, ...] = option((), flag=STATIC)
    # Shares of train, dev and test if the data have no splits: of sequences or, if these are few, of time.
    split: tuple[float, ...] = (0.8, 0.1, 0.1)
    split_seed: int = 0
    dev_share: float = 0.0  # share of the training sequences that becomes dev if the data have none; 0: none
    # Dev and test are not reduced.
    window_events: int = option(0, flag=WINDOW, least=0)
    history_events: int = option(1024, flag="Events of history that a window sees.", least=0)
    train_fraction: float = option(1.0, flag="A share of the training data, such as 0.25.")
    impossible: Impossible = option("error", flag=IMPOSSIBLE)
    dequantise: bool = False  # spread times on a grid, or equal times, evenly within its cells; reproducible

    def reading(self, terms: bool = False) -> ReadOptions:
        """Return how files are read; with `terms`, rules read the names of events."""
        names = ("time_format", "timezone", "start", "observed_until", "sorted", "unknown", "covariates", "static")
        given = {name: getattr(self, name) for name in names}
        given |= {name: tuple(given[name]) for name in ("covariates", "static")}  # a run's facts have lists
        return read_options(self.columns, ReadOptions(terms=self.terms or terms, **given))


@dataclass(frozen=True)
class TrainOptions:
    epochs: int = option(200, flag="Epochs at the most.", least=1)  # early stopping usually ends a run before
    batch: int = option(32, flag="Sequences per step.", least=1)
    carry_events: int = option(0, flag=CARRY, least=0)
    lr: float = option(1e-3, flag="Learning rate.")  # Adam's default, as in the paper
    patience: int = option(10, flag="Epochs without a better dev score before stopping; 0: never.", least=0)
    schedule: Literal["cool", "cosine"] = "cool"  # cosine: a warm-up over 2 % of all steps, then down to 0 at the last
    cool: int = option(4, least=0)  # epochs without a better dev score before the learning rate is halved; 0: never
    average: float = 0.0  # average the parameters with this decay: 0.99 averages about 100 steps; 0: no
    decay: float = option(0.0, least=0)  # weights shrink by lr·decay per step (AdamW); 0: plain Adam, as in the paper
    pseudo_count: float = option(
        0.0, least=0
    )  # pseudo-counts of every type, spread over the training data; 0: plain likelihood
    clip: float = option(5.0, least=0)  # largest norm of a step's gradient, nats per event; 0: no clipping
    objective: Literal["mle", "nce"] = option("mle", flag=OBJECTIVE)
    noise: NoiseKind = option("poisson", flag=NOISE)  # fitted to train
    noise_streams: int = option(10, flag="Streams of noise (nce).", least=1)  # M in the paper
    integral: Integral = option("stratified", flag="stratified, uniform or quadrature.")
    points: int = option(1, flag="Integration points per gap.", least=1)  # uniform: per event
    dev_points: int = option(5, least=1)  # draws per gap for the dev score, the same after every epoch
    window: Window = "all"
    seed: int = option(0, flag="The same seed gives the same run.")
    init: str = option("", flag=INIT)  # parameters that the source run lacks start fresh
    init_head: bool = False  # from a pretrained run, also take the head for masked types as start of the intensities
    device: str = option("cpu", flag="cpu, cuda, cuda:1 or auto.")
    dtype: Literal["float32", "float64"] = option("float32", flag="float32 or float64.")
    downsample: int = option(
        0, least=0
    )  # possible events evaluated at each integration time, drawn for each step (A-NDTT); 0: all
    buffer: int = option(
        1 << 23, least=1
    )  # events of packed data that are shuffled together; each takes 12 bytes, plus attributes
    piece: int = option(0, least=0)  # queries computed at a time, to limit memory; 0: chosen for the device
    ahead: int = option(2, least=0)  # steps whose plans a thread makes ahead (models with rules, on CUDA); 0: none
    capture: bool = True  # on CUDA, capture a step as a graph and replay it
    checkpoint_seconds: float = option(30.0, least=0)  # seconds between checkpoints; 0: only at the end of every epoch


@dataclass(frozen=True)
class RunConfig:
    data: DataOptions = field(default_factory=DataOptions)
    model: ModelOptions = field(default_factory=lambda: model_options(DEFAULT)())
    train: TrainOptions = field(default_factory=TrainOptions)
    task: TaskOptions | None = None  # None: predict the next event and its time

    def check(self) -> RunConfig:
        """Check values that have the right type but make no sense; raises `ForetellError` with all mistakes."""
        train, split = self.train, self.data.split
        wrong = []
        if len(split) != 3 or min(split) < 0.0 or split[0] <= 0.0 or not abs(sum(split) - 1.0) <= 1e-9:
            wrong.append(f"data.split = {list(split)}: expected three shares that add up to 1, the first above 0")
        if not 0 <= self.data.split_seed <= LARGEST_SEED:
            wrong.append(f"data.split_seed = {self.data.split_seed}: expected {SEEDS}")
        if not 0.0 <= self.data.dev_share < 1.0:
            wrong.append(f"data.dev_share = {self.data.dev_share}: expected a share from 0 to below 1")
        if not 0.0 < self.data.train_fraction <= 1.0:
            found = self.data.train_fraction
            wrong.append(f"data.train_fraction = {found}: expected a number above 0 and at most 1")
        if not 0.0 < train.lr < float("inf"):
            wrong.append(f"train.lr = {train.lr}: expected a number above 0")
        if not 0.0 <= train.average < 1.0:
            wrong.append(f"train.average = {train.average}: expected a number from 0 (none) to below 1")
        if not 0 <= train.seed <= LARGEST_SEED:
            wrong.append(f"train.seed = {train.seed}: expected {SEEDS}")
        wrong += too_small(train, "train.") + contradictions(train)
        if self.task is not None and train.objective == "nce":
            wrong.append(f'train.objective = nce: there is no noise in task.kind = "{self.task.kind}": leave it out')
        if self.task is not None:
            wrong += self.task.mistakes()
        if self.data.window_events and (self.task is not None or getattr(self.model, "program", "")):
            whose = "a model with rules needs its facts" if self.task is None else "labels are"
            wrong.append(f"data.window_events = {self.data.window_events}: {whose} from whole sequences: leave it out")
        if train.carry_events and (self.task is not None or self.data.window_events):
            other = "data.window_events" if self.task is None else f'task.kind = "{self.task.kind}"'
            wrong.append(f"train.carry_events = {train.carry_events}: {other} says otherwise: leave one of them out")
        wrong += too_small(self.data, "data.")
        if train.init_head and (not train.init or self.task is not None):
            wrong.append("train.init_head: expected a run to start from (train.init), and a model of what happens next")
        if wrong:
            raise ConfigError("\n".join(wrong))
        return self


def contradictions(train: TrainOptions) -> list[str]:
    """Return messages about options that only apply to another objective."""
    usual = TrainOptions()
    names = "integral", "points"
    why = 'noise-contrastive estimation has no integral: leave it out, or take objective = "mle"'
    if train.objective == "mle":
        names = "noise", "noise_streams"
        why = 'maximum likelihood has no noise: leave it out, or take objective = "nce"'
    found = [(name, getattr(train, name)) for name in names if getattr(train, name) != getattr(usual, name)]
    wrong = [f"train.{name} = {value}: {why}" for name, value in found]
    if train.carry_events and (train.objective == "nce" or train.integral == "uniform"):
        other = "objective = nce" if train.objective == "nce" else "integral = uniform"
        wrong.append(
            f"train.carry_events = {train.carry_events}: train.{other} draws over whole sequences: leave one out"
        )
    return wrong


def read_config(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except ForetellError as error:
        raise ConfigError(str(error)) from None


# The training options of each preset; its model options are in `ModelOptions.presets`.
TRAIN_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"lr": 1e-3, "integral": "uniform", "points": 1, "cool": 0, "clip": 0.0}
}


def with_preset(table: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the table with the options of its `preset`, or of the preset in [model]; options in the table take precedence."""
    found = dict(table)
    model = found.get("model", {})
    whole, part = found.pop("preset", None), None
    if isinstance(model, Mapping) and "preset" in model:
        part = model["preset"]
        found["model"] = {key: value for key, value in model.items() if key != "preset"}
    name = whole if part is None else part
    if name is None or not isinstance(model, Mapping):
        return found
    kind = model.get("kind", DEFAULT)
    known = model_options(kind).presets
    if not known:
        raise ConfigError(f"{source}: preset = {name!r}: model.kind = {kind!r} has no presets; leave it out")
    try:
        check_choice("preset", name, list(known), repr)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    found["model"] = {**known[name], **found.get("model", {})}
    if part is None and isinstance(found.get("train", {}), Mapping):
        found["train"] = {**TRAIN_PRESETS.get(name, {}), **found.get("train", {})}
    return found


def make_config(table: Mapping[str, Any], source: str = "configuration") -> RunConfig:
    """Check a table of tables and return the configuration; the error lists every mistake with its key."""
    problems: list[str] = []
    table = with_preset(table, source)
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
    """Return the options of a section as its dataclass; if the section has a kind, that of the kind."""
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
    """Return the whole configuration, including defaults, as TOML that `make_config` reads back unchanged."""
    tables: dict[str, dict[str, Any]] = {}
    for section in dataclasses.fields(config):
        options = getattr(config, section.name)
        if options is None:
            continue
        kind = {"kind": options.kind} if section.name in ("model", "task") else {}
        given = {option.name: getattr(options, option.name) for option in dataclasses.fields(options)}
        tables[section.name] = kind | {name: value for name, value in given.items() if value is not None}
    return tomli_w.dumps(tables)
