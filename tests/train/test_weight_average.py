"""The average of parameters over steps: its formula, that it is what is scored and kept, and that a resumed run goes on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from foretell.errors import ForetellError
from foretell.train.config import ConfigError, make_config
from foretell.train.fit import TrainingInterrupt, fit
from foretell.train.likelihood_task import LikelihoodTask
from foretell.train.run import RunFolder
from foretell.train.trainer import Callback
from foretell.train.weight_average import WeightAverage
from tests.train.small import exciting, options, same_tensors, small_model

TRAIN, DEV = exciting(24, 0), exciting(8, 1)


def test_the_average_forgets_its_beginning_and_then_looks_back_over_as_many_steps_as_asked_for():
    model = torch.nn.Linear(3, 2).double()
    average = WeightAverage(model, 0.6)
    expected = {name: one.detach().clone() for name, one in model.named_parameters()}
    for step in range(30):
        with torch.no_grad():
            for one in model.parameters():
                one.add_(torch.randn(one.shape, generator=torch.Generator().manual_seed(step), dtype=one.dtype))
        average.follow(step)
        keep = min(0.6, (1.0 + step) / (10.0 + step))
        for name, one in model.named_parameters():
            expected[name] = keep * expected[name] + (1.0 - keep) * one.detach()
    own = {name: one.detach().clone() for name, one in model.named_parameters()}
    with average.in_place():
        for name, one in model.named_parameters():
            torch.testing.assert_close(one.detach(), expected[name], rtol=1e-13, atol=1e-13)
    assert same_tensors(dict(model.named_parameters()), own)


class Steps(Callback):
    """Follows the parameters by hand."""

    def __init__(self, model: torch.nn.Module, share: float) -> None:
        self.model, self.share, self.number = model, share, 0
        self.average: dict[str, torch.Tensor] = {}
        self.ends: list[dict[str, torch.Tensor]] = []

    def on_step(self, epoch: int, step: int, steps: int) -> None:
        keep = min(self.share, (1.0 + self.number) / (10.0 + self.number))
        for name, one in self.model.named_parameters():
            self.average[name] = keep * self.average[name] + (1.0 - keep) * one.detach()
        self.number += 1
        if step == steps:
            self.ends.append({name: one.clone() for name, one in self.average.items()})


def test_what_is_scored_and_kept_is_the_average_and_training_goes_on_from_the_parameters():
    def fitted(average: float) -> tuple[Any, Steps]:
        model = small_model(TRAIN)
        follower = Steps(model, 0.8)

        class First(Callback):
            def on_step(self, epoch: int, step: int, steps: int) -> None:
                follower.on_step(epoch, step, steps)

        model.prepare(TRAIN)
        follower.average = {name: one.detach().clone() for name, one in model.named_parameters()}
        return fit(model, TRAIN, DEV, options(epochs=3, cool=0, average=average), callbacks=[First()]), follower

    plain, _ = fitted(0.0)
    found, follower = fitted(0.8)
    train = [record["train"] for record in found.records]
    assert train == [record["train"] for record in plain.records]  # steps are those without an average
    best = follower.ends[found.best_epoch - 1]
    for name, one in found.model.named_parameters():
        torch.testing.assert_close(one.detach(), best[name], rtol=1e-5, atol=1e-6)
    again = LikelihoodTask(found.model, TRAIN, options()).score(DEV).score
    assert again == pytest.approx(found.best, rel=1e-6)
    assert found.best != plain.best


def test_a_run_that_stops_and_is_resumed_goes_on_with_its_average(tmp_path: Path):
    chosen = options(epochs=3, cool=0, average=0.9)
    whole = RunFolder.create(tmp_path / "whole", make_config({}))
    fit(small_model(TRAIN), TRAIN, DEV, chosen, run=whole)
    stopped = RunFolder.create(tmp_path / "stopped", make_config({}))
    asked = iter(range(100))
    with pytest.raises(TrainingInterrupt):
        fit(small_model(TRAIN), TRAIN, DEV, chosen, run=stopped, stop=lambda: next(asked) == 6)
    fit(small_model(TRAIN), TRAIN, DEV, chosen, run=RunFolder.open(stopped.path), resume=True)
    one, two = (load_file(run.checkpoint) for run in (whole, stopped))
    assert same_tensors(one, two) and any(name.startswith("average.") for name in one)
    kept = {name: tensor for name, tensor in two.items() if not name.startswith("average.")}
    save_file(kept, stopped.checkpoint, load_metadata(stopped.checkpoint))
    with pytest.raises(ForetellError, match=r"train\.average = 0\.9"):
        fit(small_model(TRAIN), TRAIN, DEV, chosen, run=RunFolder.open(stopped.path), resume=True)


def load_metadata(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return file.metadata()


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_that_is_none_is_refused(share: float):
    with pytest.raises(ConfigError, match=r"train\.average"):
        make_config({"train": {"average": share}})
