"""Model and checkpoint files that are truncated, foreign or made to harm: an error with the file's name, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from foretell.errors import ForetellError
from foretell.models.build import load_model, save_model
from foretell.models.classical.hawkes import Hawkes
from foretell.train.checkpoint import load_checkpoint
from foretell.train.config import make_config
from foretell.train.fit import TrainingInterrupt, fit
from foretell.train.run import RunFolder
from tests.train.small import exciting, options, small_model

DATA = exciting(6, 0)
Table = dict[str, Any]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that was interrupted in its second epoch: it has a model and a checkpoint."""
    run = RunFolder.create(tmp_path_factory.mktemp("hostile") / "run", make_config({}))
    seen: list[int] = []
    with pytest.raises(TrainingInterrupt):
        fit(
            small_model(DATA),
            DATA,
            DATA,
            options(batch=2),
            run=run,
            on_step=lambda epoch, *_: seen.append(epoch),
            stop=lambda: seen[-1] == 2,
        )
    return run


def unpacked(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118 (not a dict)


def broken_bytes(whole: bytes) -> dict[str, bytes]:
    return {
        "nothing": b"",
        "a few bytes": whole[:5],
        "half": whole[: len(whole) // 2],
        "all but the last byte": whole[:-1],
        "text": b"not tensors at all, but long enough to be read",
        "a pickle": b"\x80\x04\x95\x20\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
        "a huge header": (2**62).to_bytes(8, "little") + b"{}",
        "a header that is no JSON": (8).to_bytes(8, "little") + b"{{{{{{{{",
    }


@pytest.mark.parametrize("how", broken_bytes(b""))
def test_a_broken_model_or_checkpoint_is_an_error_that_names_it(how: str, stopped: RunFolder, tmp_path: Path):
    for name, read in (("model.safetensors", load_model), ("checkpoint.safetensors", load_checkpoint)):
        path = tmp_path / name
        path.write_bytes(broken_bytes((stopped.path / name).read_bytes())[how])
        with pytest.raises(ForetellError, match=name):
            read(path)


def test_random_damage_is_an_error_or_changes_numbers_only(stopped: RunFolder, tmp_path: Path):
    random = np.random.default_rng(0)
    for name, read in (("model.safetensors", load_model), ("checkpoint.safetensors", load_checkpoint)):
        whole = (stopped.path / name).read_bytes()
        path = tmp_path / name
        for _ in range(150):
            damaged = bytearray(whole)
            for place in random.integers(0, min(len(whole), 3000), 3):
                damaged[place] = random.integers(256)
            path.write_bytes(bytes(damaged))
            try:
                read(path)
            except ForetellError as error:
                assert str(path) in str(error) or "event" in str(error)


def spec_with(**changes: Any) -> Callable[[Table], Table]:
    return lambda table: {**table, "spec": {**table["spec"], **changes}}


CHANGES: dict[str, Callable[[Table], Any]] = {
    "no object": lambda table: [1],
    "another kind": lambda table: {**table, "kind": "gru"},
    "a later format": lambda table: {**table, "format": 99},
    "no spec": lambda table: {**table, "spec": None},
    "a spec that is a list": lambda table: {**table, "spec": [1, 2]},
    "types that are a number": lambda table: {**table, "types": 3},
    "too few types": lambda table: {**table, "types": ["0"]},
    "the same type twice": lambda table: {**table, "types": ["0", "0"]},
    "an unknown option": spec_with(colour="red"),
    "no dimension": spec_with(dim=0),
    "another dimension": spec_with(dim=8),
    "a dimension that would fill the memory": spec_with(dim=10**9),
    "layers without end": spec_with(layers=10**9),
    "a dimension that is text": spec_with(dim="4"),
    "a precision that is no precision": spec_with(dtype="nn"),
    "a precision that does not exist": spec_with(dtype="float7"),
    "a precision that is no name": spec_with(dtype=["float32"]),
    "whole numbers": spec_with(dtype="int64"),
    "a wave of no length": spec_with(m=0.0),
    "a wave of negative length": spec_with(M=-1.0),
    "a scale that is text": spec_with(time_scale="fast"),
    "a scale of zero": spec_with(time_scale=0),
    "a scale that is true": spec_with(time_scale=True),
    "edges of nothing": spec_with(edges=[["0"]]),
    "dropout of everything": spec_with(dropout=1.5),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_model_whose_description_lies_is_an_error(how: str, stopped: RunFolder, tmp_path: Path):
    tensors, metadata = unpacked(stopped.path / "model.safetensors")
    path = tmp_path / "model.safetensors"
    path.write_bytes(save(tensors, {"foretell": json.dumps(CHANGES[how](json.loads(metadata["foretell"])))}))
    with pytest.raises(ForetellError):
        load_model(path)


@pytest.mark.parametrize("metadata", [None, {}, {"foretell": "{"}, {"foretell": "null"}, {"foretell": "[" * 100_000}])
def test_a_model_without_a_description_is_an_error(metadata: dict[str, str] | None, stopped: RunFolder, tmp_path: Path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(save(unpacked(stopped.path / "model.safetensors")[0], metadata))
    with pytest.raises(ForetellError, match="not a foretell model"):
        load_model(path)


def test_a_hawkes_process_with_endless_decays_is_an_error(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    save_model(Hawkes(2), path)
    tensors, metadata = unpacked(path)
    description = spec_with(decays=10**12)(json.loads(metadata["foretell"]))
    path.write_bytes(save(tensors, {"foretell": json.dumps(description)}))
    with pytest.raises(ForetellError, match="decays"):
        load_model(path)


def resume_with(stopped: RunFolder, tmp_path: Path, tensors: dict[str, torch.Tensor], progress: str | None) -> None:
    run = RunFolder.create(tmp_path / "run", make_config({}))
    run.checkpoint.write_bytes(save(tensors, None if progress is None else {"progress": progress}))
    fit(small_model(DATA), DATA, DATA, options(batch=2), run=run, resume=True)


PROGRESS: dict[str, Callable[[Table], Any]] = {
    "a list": lambda table: [table],
    "an unknown counter": lambda table: {**table, "luck": 1},
    "text for a number": lambda table: {**table, "epoch": "2"},
    "a negative step": lambda table: {**table, "step": -1},
    "records that are none": lambda table: {**table, "records": 3},
    "a rate that is text": lambda table: {**table, "lr": "fast"},
    "neither done nor not": lambda table: {**table, "done": "maybe"},
}


@pytest.mark.parametrize("how", PROGRESS)
def test_a_checkpoint_whose_counters_lie_is_an_error(how: str, stopped: RunFolder, tmp_path: Path):
    tensors, metadata = unpacked(stopped.checkpoint)
    with pytest.raises(ForetellError, match="not a checkpoint"):
        resume_with(stopped, tmp_path, tensors, json.dumps(PROGRESS[how](json.loads(metadata["progress"]))))


def dropped(prefix: str) -> Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]:
    return lambda tensors: {name: tensor for name, tensor in tensors.items() if not name.startswith(prefix)}


TENSORS: dict[str, Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]] = {
    "no model": dropped("model."),
    "no embeddings": dropped("model.fine"),
    "half a best model": dropped("best.fine"),
    "no optimiser": dropped("optimizer."),
    "half an optimiser": dropped("optimizer.0.exp_avg_sq"),
    "another shape": lambda tensors: {**tensors, "model.fine": torch.zeros(7, 7)},
    "another shape in the optimiser": lambda tensors: {**tensors, "optimizer.0.exp_avg": torch.zeros(1)},
    "one parameter more": lambda tensors: {**tensors, "model.more": torch.zeros(1)},
    "an optimiser of nothing": lambda tensors: {**tensors, "optimizer.99.step": torch.zeros(())},
    "a name that is no number": lambda tensors: {**tensors, "optimizer.x.step": torch.zeros(())},
    "a name without an end": lambda tensors: {**tensors, "optimizer.7": torch.zeros(())},
}


@pytest.mark.parametrize("how", TENSORS)
def test_a_checkpoint_of_another_model_is_an_error(how: str, stopped: RunFolder, tmp_path: Path):
    tensors, metadata = unpacked(stopped.checkpoint)
    with pytest.raises(ForetellError, match=r"checkpoint\.safetensors: .*checkpoint"):
        resume_with(stopped, tmp_path, TENSORS[how](tensors), metadata["progress"])


def test_a_checkpoint_without_progress_or_none_at_all_is_an_error(stopped: RunFolder, tmp_path: Path):
    with pytest.raises(ForetellError, match="not a checkpoint"):
        resume_with(stopped, tmp_path, unpacked(stopped.checkpoint)[0], None)
    with pytest.raises(ForetellError, match="there is no checkpoint to resume from"):
        load_checkpoint(tmp_path / "gone.safetensors")
    with pytest.raises(ForetellError, match="no such model file"):
        load_model(tmp_path / "gone.safetensors")


def test_the_untouched_checkpoint_still_resumes(stopped: RunFolder, tmp_path: Path):
    tensors, metadata = unpacked(stopped.checkpoint)
    resume_with(stopped, tmp_path, tensors, metadata["progress"])
