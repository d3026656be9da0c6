"""Checkpoints: one file with the tensors and counters from which a run continues bit for bit."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from foretell.data.files import replacing
from foretell.errors import ForetellError
from foretell.models.tensor_file import read_tensors
from foretell.train.records import check_records


@dataclass
class Progress:
    """The progress of a run: everything that is not a tensor."""

    epoch: int = 0  # epochs finished
    step_in_epoch: int = 0
    step: int = 0
    epoch_loss: float = 0.0  # summed over the steps of the unfinished epoch
    epoch_events: int = 0
    states: int = 0  # evaluations of the network at one time, since the beginning
    intensities: int = 0  # evaluations of single intensities, since the beginning
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
    average: dict[str, Tensor]  # averaged parameters; empty if training keeps no average
    carried: dict[str, Tensor]  # the model's state after the last step, for the next part of long sequences
    optimizer: dict[int, dict[str, Tensor]]

    def restore(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Restore the model and the optimizer. Raises `ForetellError` if the checkpoint belongs to another model."""
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
    path: Path, progress: Progress, kept: dict[str, dict[str, Tensor]], optimizer: torch.optim.Optimizer
) -> None:
    """Write a checkpoint; `kept` has the tensors of `model`, `best`, `average` and `carried`."""
    tensors = {f"{part}.{name}": tensor for part, found in kept.items() for name, tensor in found.items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{key}": value for key, value in state.items()}
    packed = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        temporary.write_bytes(save(packed, {"progress": json.dumps(asdict(progress))}))


def load_checkpoint(path: Path) -> Checkpoint:
    file = read_tensors(path, "progress", "a checkpoint", "there is no checkpoint to resume from")
    optimizer: dict[int, dict[str, Tensor]] = {}
    try:
        progress = _progress(file.description)
        for name, tensor in _under(file.tensors, "optimizer.").items():
            index, key = name.split(".", 1)
            optimizer.setdefault(int(index), {})[key] = tensor
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ForetellError(f"{path}: not a checkpoint ({type(error).__name__}: {error})") from error
    parts = ("model", "best", "average", "carried")
    model, best, average, carried = (_under(file.tensors, f"{part}.") for part in parts)
    return Checkpoint(path, progress, model, best, average, carried, optimizer)


def _progress(found: dict[str, Any]) -> Progress:
    """Check that the counters are valid; wrong values from a hostile file would only fail much later."""
    progress = Progress(**found)
    counters = progress.epoch, progress.step_in_epoch, progress.step, progress.epoch_events, progress.best_epoch
    counters = *counters, progress.states, progress.intensities
    numbers = progress.epoch_loss, progress.lr, 0.0 if progress.best is None else progress.best
    if not (
        all(type(value) is int and 0 <= value < 2**62 for value in (*counters, progress.cooled))
        and all(type(value) in (int, float) and not math.isnan(value) for value in numbers)
        and isinstance(progress.records, list)
        and type(progress.done) is bool
        and not (progress.done and progress.best is None)
    ):
        raise ValueError("its counters are not numbers")
    check_records(progress.records)
    return progress


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
