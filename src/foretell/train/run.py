"""A run folder that explains itself: what was asked, where it ran, how it went, and the model that came out.

`config.toml` (resolved), `environment.json`, `metrics.jsonl`, `model.safetensors` (the best on dev), `checkpoint.safetensors`;
`program.ndtt` where it is made of rules, `start.safetensors` where it was started from another run.
"""

from __future__ import annotations

import contextlib
import json
import platform
import sys
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from foretell.data import Dataset, Origin
from foretell.data.files import replacing
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.build import Network, load_model, load_network, save_model
from foretell.models.capabilities import HasRules
from foretell.models.registry import model_kinds, model_options
from foretell.objective.noise_parts import TimedNoise, load_noise, save_noise
from foretell.train.config import RunConfig, make_config, read_config, to_toml


@dataclass
class Progress:
    """Where a run is: everything that is not a tensor."""

    epoch: int = 0  # epochs finished
    step_in_epoch: int = 0
    step: int = 0
    epoch_loss: float = 0.0  # summed over the steps of the unfinished epoch
    epoch_events: int = 0
    states: int = 0  # evaluations of the network at a time, since the beginning
    intensities: int = 0  # and of single intensities
    best: float | None = None
    best_epoch: int = 0
    cooled: int = 0  # epoch of the last improvement or halving of the learning rate
    lr: float = 0.0
    records: list[dict[str, Any]] = field(default_factory=list)  # the lines of metrics.jsonl so far
    done: bool = False


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    progress: Progress
    model: dict[str, Tensor]
    best_model: dict[str, Tensor]
    optimizer: dict[int, dict[str, Tensor]]

    def restore(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Put the state back; nothing is touched where it is that of another model."""
        expected = _shapes(model.state_dict())
        fits = _shapes(self.model) == expected and _shapes(self.best_model) in ({}, expected)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        moments = {
            index: {"step": torch.Size(), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
            for index, parameter in enumerate(parameters)
        }
        found = {index: _shapes(state) for index, state in self.optimizer.items()}
        if not fits or found != (moments if self.progress.step else {}):
            raise ForetellError(f"{self.path}: this checkpoint is not one of the model that config.toml describes")
        model.load_state_dict(self.model)
        optimizer.load_state_dict(optimizer.state_dict() | {"state": self.optimizer})


def _shapes(tensors: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def save_checkpoint(
    path: Path, progress: Progress, model: torch.nn.Module, best: dict[str, Tensor], optimizer: torch.optim.Optimizer
) -> None:
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in best.items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{key}": value for key, value in state.items()}
    packed = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        temporary.write_bytes(save(packed, {"progress": json.dumps(asdict(progress))}))


def load_checkpoint(path: Path) -> Checkpoint:
    try:
        with safe_open(path, framework="pt") as file:
            progress = _progress(json.loads((file.metadata() or {})["progress"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        optimizer: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _under(tensors, "optimizer.").items():
            index, key = name.split(".", 1)
            optimizer.setdefault(int(index), {})[key] = tensor
    except FileNotFoundError as error:
        raise ForetellError(f"{path}: there is no checkpoint to resume from") from error
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ForetellError(f"{path}: not a checkpoint ({type(error).__name__}: {error})") from error
    return Checkpoint(path, progress, _under(tensors, "model."), _under(tensors, "best."), optimizer)


def _progress(found: dict[str, Any]) -> Progress:
    """Counters that are counters; what a hostile file says otherwise would only fail much later."""
    progress = Progress(**found)
    counters = progress.epoch, progress.step_in_epoch, progress.step, progress.epoch_events, progress.best_epoch
    counters = *counters, progress.states, progress.intensities
    numbers = progress.epoch_loss, progress.lr, 0.0 if progress.best is None else progress.best
    if not (
        all(type(value) is int and value >= 0 for value in (*counters, progress.cooled))
        and all(type(value) in (int, float) for value in numbers)
        and isinstance(progress.records, list)
        and type(progress.done) is bool
    ):
        raise ValueError("its counters are not numbers")
    return progress


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


CONFIG, ENVIRONMENT, METRICS = "config.toml", "environment.json", "metrics.jsonl"
REPLACEABLE = ".demo"
MODEL, CHECKPOINT, PROGRAM = "model.safetensors", "checkpoint.safetensors", "program.ndtt"
START = "start.safetensors"  # a copy of what a run was started from, so that it can be resumed without it
NOISE = "noise.safetensors"
FILES = CONFIG, ENVIRONMENT, METRICS, MODEL, CHECKPOINT, PROGRAM, NOISE, START


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @classmethod
    def create(cls, path: Path, config: RunConfig, data: dict[str, Any] | None = None) -> RunFolder:
        """A new run; a folder with another run in it is not overwritten."""
        if (path / CONFIG).exists():
            raise ForetellError(
                f"{path}: there is a run in this folder already; continue it with --resume, or choose another folder with --run"
            )
        _check_folder(path)
        run = cls(path)
        facts = environment(config.train.device) | {"data": data or {}}
        try:
            run._write(ENVIRONMENT, json.dumps(facts, indent=2) + "\n")
            run._write(CONFIG, to_toml(config))  # last: with it the folder is a run
        except ForetellError:
            run.discard()
            raise
        return run

    def keep_program(self, model: IntensityModel) -> None:
        """The rules that became the network, with all that they include; tables are in the model's file."""
        text = model.program_text() if isinstance(model, HasRules) else None
        if text is not None:
            self._write(PROGRAM, text)

    def discard(self) -> None:
        """Take back a run that came to nothing, so that the folder can be used again."""
        for name in FILES:
            (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other files, or no folder at all
            self.path.rmdir()

    def tidy(self) -> None:
        """Remove what a killed process had begun to write."""
        for name in (METRICS, MODEL, CHECKPOINT):
            for left in self.path.glob(f".{name}.*.part"):
                left.unlink(missing_ok=True)

    @classmethod
    def replace(cls, path: Path, config: RunConfig, data: dict[str, Any]) -> RunFolder:
        """A new run in place of an earlier one made this way; any other run is not touched, nor other files."""
        cls.check_replaceable(path)
        for name in FILES:
            (path / name).unlink(missing_ok=True)
        run = cls.create(path, config, data)
        run._write(REPLACEABLE, "A demo: the next one may replace it.\n")
        return run

    @staticmethod
    def check_replaceable(path: Path) -> None:
        """Whether `replace` may write there."""
        if (path / CONFIG).exists() and not (path / REPLACEABLE).exists():
            raise ForetellError(
                f"{path}: there is a run in this folder that is no demo; choose another folder with --run"
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
            # All options that are not None are written down: where one is missing, it did not exist yet.
            if any(one.name not in model for one in fields(options) if one.default is not None):
                table["model"] = {**options.earlier, **model}
        return make_config(table, source)

    def model(self, device: str = "cpu") -> IntensityModel:
        """What a run that learned what happens next has learned."""
        return load_model(self._model_path(), device)

    def network(self, device: str = "cpu") -> Network:
        """The same, or a pretrained encoder or a classifier where the run learned that."""
        return load_network(self._model_path(), device)

    def _model_path(self) -> Path:
        path = self.path / MODEL
        if not path.exists():
            raise ForetellError(
                f"{self.path}: this run has no model yet; continue it with `foretell train --resume {self.path}`"
            )
        return path

    def keep_start(self, source: RunFolder) -> None:
        """Copy what this run starts from."""
        with replacing(self.path / START) as temporary:
            temporary.write_bytes(source._model_path().read_bytes())

    def start(self) -> Network:
        return load_network(self.path / START)

    def origin(self) -> Origin:
        """Where the clocks of the training data start: other files for this model are read the same way."""
        return self._facts().get("origin", "window")

    def time_unit(self) -> str:
        return self._facts().get("time_unit", "")

    def _facts(self) -> dict[str, Any]:
        path = self.path / ENVIRONMENT
        if not path.exists():
            return {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ForetellError(f"{path}: not JSON: {error}") from error
        facts = found.get("data", {}) if isinstance(found, dict) else None
        if not isinstance(facts, dict) or facts.get("origin", "window") not in get_args(Origin):
            raise ForetellError(f'{path}: its "data" is {facts!r}: expected what `foretell train` wrote there')
        return facts

    def save_model(self, model: Network) -> None:
        save_model(model, self.path / MODEL)

    def save_noise(self, process: IntensityModel | TimedNoise) -> None:
        """What the noise of noise-contrastive estimation is drawn from."""
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
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
        except ValueError as error:
            raise ForetellError(f"{path}: not JSON lines: {error}") from error

    def _write(self, name: str, text: str) -> None:
        with replacing(self.path / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _check_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ForetellError(f"{path}: this is a file, expected a folder for the run")


def data_facts(dataset: Dataset) -> dict[str, Any]:
    """What the data were, in short."""
    return {
        "name": dataset.card.name,
        "origin": dataset.card.origin,
        "time_unit": dataset.card.time_unit,
        "types": len(dataset.vocabulary.names),
        "splits": {
            name: {"sequences": len(data), "events": data.event_count} for name, data in dataset.splits().items()
        },
    }


def environment(device: str) -> dict[str, Any]:
    """What a reader needs to know to run it again."""
    found = {
        "foretell": _version("foretell"),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "device": device,
    }
    if device.startswith("cuda") and torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name(torch.device(device))
    return found


def _version(name: str) -> str | None:
    """None: it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
