"""Run folders, which are self-contained: settings, environment, learning curve and trained model.

`config.toml` (all settings), `environment.json`, `metrics.jsonl`, `model.safetensors` (the best on dev), `checkpoint.safetensors`;
`program.ndtt` if the model is made of rules, `start.safetensors` if it was started from another run.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from foretell.data import Clock, Origin, ReadOptions
from foretell.data.files import replacing
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.build import Network, load_model, load_network, save_model
from foretell.models.capabilities import HasRules
from foretell.models.registry import model_kinds, model_options
from foretell.objective.noise_parts import TimedNoise, load_noise, save_noise
from foretell.reading import parse_json, read_document, read_json
from foretell.train.config import DataOptions, RunConfig, make_config, read_config, to_toml
from foretell.train.data_facts import CARD_READING, checked_facts, clock_of
from foretell.train.environment import environment
from foretell.train.file_lock import FileLock
from foretell.train.records import check_records

CONFIG, ENVIRONMENT, METRICS = "config.toml", "environment.json", "metrics.jsonl"
LOCK = ".lock"  # held while a process writes the run
REPLACEABLE = ".demo"
MODEL, CHECKPOINT, PROGRAM = "model.safetensors", "checkpoint.safetensors", "program.ndtt"
START = "start.safetensors"  # a copy of the model that a run was started from, needed to resume it
NOISE = "noise.safetensors"
FLOORS = "floors.json"
FILES = CONFIG, ENVIRONMENT, METRICS, MODEL, CHECKPOINT, PROGRAM, NOISE, START, FLOORS


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run: its settings, machine, learning curve and trained model.

    Its files are `config.toml`, `environment.json`, `metrics.jsonl`, `model.safetensors`, checkpoints, and `program.ndtt` if it has rules.
    `open` opens an existing run, `create` claims a new one. Only one process at a time may write to it.

    Args:
        path: the folder.

    Example:
        >>> ft.RunFolder.open("no-such-run")
        Traceback (most recent call last):
        foretell.errors.ForetellError: no-such-run: no such run folder
    """

    path: Path
    lock: FileLock = field(init=False, compare=False, repr=False)
    claimed: list[bool] = field(init=False, compare=False, repr=False, default_factory=list)  # not empty: by `create`

    def __post_init__(self) -> None:
        object.__setattr__(self, "lock", FileLock(self.path / LOCK))

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """A context that holds the folder's lock; raises `ForetellError` if another process holds it. Also releases a claim of `create`."""
        if self.claimed:
            self.claimed.clear()
        else:
            self._take()
        try:
            yield
        finally:
            self.lock.release()

    def _take(self) -> None:
        if not self.lock.try_acquire():
            raise ForetellError(
                f"{self.path}: this run is being written by {self.lock.holder()}; wait for it, or stop it first"
            )

    @classmethod
    def create(
        cls, path: Path, config: RunConfig, data: dict[str, Any] | None = None, notes: Sequence[str] = ()
    ) -> RunFolder:
        """Create a new run and claim it for this process; a folder that already has a run is not overwritten.

        `notes` become comments in its configuration.
        """
        _check_folder(path)
        run = cls(path)
        run._take()
        if (path / CONFIG).exists():
            run.lock.release()
            raise ForetellError(
                f"{path}: there is a run in this folder already; continue it with `resume=`, or choose another folder with `out=`"
            )
        run.claimed.append(True)
        facts = environment(config.train.device) | {"data": data or {}}
        try:
            run._write(ENVIRONMENT, json.dumps(facts, indent=2) + "\n")
            comments = "".join(f"# {line}\n" for line in notes)
            run._write(CONFIG, comments + to_toml(config))  # last: this file makes the folder a run
        except ForetellError:
            run.discard()
            raise
        return run

    def keep_program(self, model: IntensityModel) -> None:
        """Save the program of the model, with all that it includes; its tables are in the model's file."""
        text = model.program_text() if isinstance(model, HasRules) else None
        if text is not None:
            self._write(PROGRAM, text)

    def discard(self) -> None:
        """Remove the files of a run without results, so that the folder can be used again."""
        with self.writing():
            for name in FILES:
                (self.path / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it has other files, or does not exist
                self.lock.path.unlink(missing_ok=True)
                self.path.rmdir()

    def tidy(self) -> None:
        """Remove the temporary files of a killed process."""
        for name in (METRICS, MODEL, CHECKPOINT):
            for left in self.path.glob(f".{name}.*.part"):
                left.unlink(missing_ok=True)

    @classmethod
    def replace(cls, path: Path, config: RunConfig, data: dict[str, Any]) -> RunFolder:
        """Create a new run in place of an earlier one made by this method; other runs and other files are not changed."""
        cls.check_replaceable(path)
        with cls(path).writing():
            for name in FILES:
                (path / name).unlink(missing_ok=True)
        run = cls.create(path, config, data)
        run._write(REPLACEABLE, "A demo: the next one may replace it.\n")
        return run

    @staticmethod
    def check_replaceable(path: Path) -> None:
        """Raise `ForetellError` if `replace` may not overwrite this folder."""
        if (path / CONFIG).exists() and not (path / REPLACEABLE).exists():
            raise ForetellError(
                f"{path}: there is a run in this folder that is no demo; choose another folder with `out=`"
            )
        _check_folder(path)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        path = Path(path)
        if not path.is_dir():
            raise ForetellError(f"{path}: no such run folder")
        if not (path / CONFIG).exists():
            raise ForetellError(f"{path}: this is no run folder: it has no {CONFIG}")
        return cls(path)

    def config(self) -> RunConfig:
        table, source = read_config(self.path / CONFIG), str(self.path / CONFIG)
        model = table.get("model", {})
        if isinstance(model, dict) and model.get("kind") in model_kinds():
            options = model_options(model["kind"])
            # All options that are not None are saved: a missing one did not exist when the run was made.
            if any(one.name not in model for one in fields(options) if one.default is not None):
                table["model"] = {**options.earlier, **model}
        return make_config(table, source)

    def raise_epochs(self, epochs: int) -> None:
        """Raise the number of epochs in the run's configuration; nothing else is changed.

        Raises:
            ForetellError: the run has that many epochs already, or its learning rate was planned for its number of epochs.
        """
        train = self.config().train
        if epochs <= train.epochs:
            raise ForetellError(f"{self.path}: `epochs={epochs}`: the run has {train.epochs} already; expected more")
        if train.schedule == "cosine":
            said = f"its learning rate follows a cosine that ends with epoch {train.epochs}"
            raise ForetellError(f"{self.path}: `epochs={epochs}`: {said}; train anew, or start from it with `init=`")
        with self.writing():
            head, mark, rest = (self.path / CONFIG).read_text(encoding="utf-8").partition("[train]\n")
            self._write(CONFIG, head + mark + re.sub(r"(?m)^epochs = \d+", f"epochs = {epochs}", rest, count=1))

    def model(self, device: str = "cpu") -> IntensityModel:
        """Return the trained model of a run whose task is to predict the next event."""
        return load_model(self._model_path(), device)

    def network(self, device: str = "cpu") -> Network:
        """Return the network of a run: a model as above, a pretrained encoder, or a classifier."""
        return load_network(self._model_path(), device)

    def _model_path(self) -> Path:
        path = self.path / MODEL
        if not path.exists():
            raise ForetellError(f"{self.path}: this run has no model yet; continue it with `resume={self.path}`")
        return path

    def keep_start(self, source: RunFolder) -> None:
        """Copy the model that this run starts from."""
        with replacing(self.path / START) as temporary:
            temporary.write_bytes(source._model_path().read_bytes())

    def start(self) -> Network:
        return load_network(self.path / START)

    def origin(self) -> Origin:
        """Return where the clocks of the training data start: other files for this model are read the same way."""
        return self.facts().get("origin", "window")

    def time_unit(self) -> str:
        return self.facts().get("time_unit", "")

    def clock(self) -> Clock:
        """Return the clock of the training data."""
        return clock_of(self.facts())

    def reading(self, **given: Any) -> ReadOptions:
        """Return how other files for this model are read: like the training data, except for the options in `given`; `columns` is a table.

        `observed_until` is not taken from the training data, because it belongs to one log alone.
        """
        config = self.config()
        kept = {"observed_until": "", **self.facts().get("reading", {}), **_said(config.data), **_said(given)}
        rules = bool(getattr(config.model, "program", ""))
        options = replace(DataOptions(), **kept).reading(rules)
        return replace(options, clock=self.clock())

    def facts(self) -> dict[str, Any]:
        """Return a short description of the run's data."""
        path = self.path / ENVIRONMENT
        if not path.exists():
            return {}
        found = read_json(path)
        try:
            return checked_facts(found.get("data", {}) if isinstance(found, dict) else None)
        except ForetellError as error:
            raise ForetellError(f"{path}: {error}") from None

    def save_model(self, model: Network) -> None:
        save_model(model, self.path / MODEL)

    def save_noise(self, process: IntensityModel | TimedNoise) -> None:
        """Save the noise process of noise-contrastive estimation."""
        save_noise(process, self.path / NOISE)

    def noise(self) -> IntensityModel | TimedNoise | None:
        path = self.path / NOISE
        return load_noise(path) if path.exists() else None

    @property
    def has_model(self) -> bool:
        return (self.path / MODEL).exists()

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    def write_metrics(self, records: list[dict[str, Any]]) -> None:
        self._write(METRICS, "".join(json.dumps(record) + "\n" for record in records))

    def metrics(self) -> list[dict[str, Any]]:
        path = self.path / METRICS
        if not path.exists():
            return []
        try:
            records = [parse_json(line) for line in read_document(path).splitlines() if line]
            check_records(records)
        except ValueError as error:
            raise ForetellError(f"{path}: not JSON lines: {error}") from error
        return records

    def _write(self, name: str, text: str) -> None:
        with replacing(self.path / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def held(run: RunFolder | None) -> contextlib.AbstractContextManager[None]:
    """Return a context that holds the run folder while it is written; one that does nothing without a folder."""
    return contextlib.nullcontext() if run is None else run.writing()


def _check_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ForetellError(f"{path}: this is a file, expected a folder for the run")


def _said(options: DataOptions | Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for reading files that are set, as a dict."""
    names = ("columns", "observed_until", "sorted", "terms", "unknown", *CARD_READING)
    if isinstance(options, DataOptions):
        options = {name: getattr(options, name) for name in names if name != "observed_until"}
    return {name: options[name] for name in names if options.get(name)}
