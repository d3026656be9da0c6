"""On a GPU: the same numbers as on a CPU, captured or not, and a resumed run that goes on where it stopped."""

from __future__ import annotations

import pytest
import torch

from foretell.batches.batch import Batch, make_batch
from foretell.data import EventData, EventSequence, load
from foretell.models.attention.anhp import ANHP
from foretell.options import Integral
from foretell.train.config import make_config
from foretell.train.fit import fit
from foretell.train.likelihood_task import mean_log_likelihood
from foretell.train.run import RunFolder
from foretell.train.step import StepOptions, Stepper
from foretell.train.trainer import TrainingInterrupt

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

DATA = load("robocup")


def model(dtype: torch.dtype = torch.float32) -> ANHP:
    made = ANHP.preset("plain", DATA.vocabulary, dim=16, layers=2, dtype=dtype)
    made.prepare(DATA.train)
    return made


def test_log_likelihoods_on_cuda_are_those_on_the_cpu():
    there = model(torch.float64)
    on_cpu = mean_log_likelihood(there, DATA.dev, 5)
    assert mean_log_likelihood(there.to("cuda"), DATA.dev, 5) == pytest.approx(on_cpu, rel=1e-10)


def test_captured_steps_are_the_eager_ones():
    batch = make_batch(DATA.train, [0, 1], device="cuda")
    losses = {}
    for capture in (False, True):
        there = model(torch.float64).to("cuda")
        stepper = Stepper(there, 1e-3, StepOptions(capture=capture, points=2))
        losses[capture] = [float(stepper(batch, number)) for number in range(5)]
    assert losses[True] == pytest.approx(losses[False], rel=1e-9)
    assert len(set(losses[True])) == 5


def test_the_default_model_on_cuda_is_the_one_on_the_cpu_and_its_captured_steps_are_the_eager_ones():
    there = ANHP(DATA.vocabulary, dim=16, dtype=torch.float64)
    there.prepare(DATA.train)
    on_cpu = mean_log_likelihood(there, DATA.dev, 5)
    assert mean_log_likelihood(there.to("cuda"), DATA.dev, 5) == pytest.approx(on_cpu, rel=1e-10)
    batch = make_batch(DATA.train, [0, 1], device="cuda")
    losses = {}
    for capture in (False, True):
        there = ANHP(DATA.vocabulary, dim=16, dtype=torch.float64)
        there.prepare(DATA.train)
        stepper = Stepper(there.to("cuda"), 1e-3, StepOptions(capture=capture, points=2))
        losses[capture] = [float(stepper(batch, number)) for number in range(5)]
    assert losses[True] == pytest.approx(losses[False], rel=1e-9)
    assert len(set(losses[True])) == 5


def short(dim: int = 32, **options: object) -> tuple[ANHP, Batch]:
    """A float32 model, on the device, with a batch of the data's first three hundred events."""
    return _short(ANHP.preset("plain", DATA.vocabulary, dim=dim, layers=2, **options))  # pyright: ignore[reportArgumentType]


def _short(made: ANHP) -> tuple[ANHP, Batch]:
    made.prepare(DATA.train)
    whole = DATA.train[0]
    piece = EventSequence(whole.times[:300], whole.types[:300], float(whole.times[300]), "start")
    return made.to("cuda"), make_batch(EventData([piece, piece], DATA.vocabulary), [0, 1], device="cuda")


@pytest.mark.parametrize("integral", ["stratified", "quadrature"])
def test_captured_steps_of_the_fused_kernels_are_the_eager_ones_to_the_last_bit(integral: Integral):
    losses = {}
    for capture in (False, True):
        there, batch = short()
        assert there.is_fused()
        stepper = Stepper(there, 1e-3, StepOptions(capture=capture, points=3, integral=integral))
        losses[capture] = [float(stepper(batch, number)) for number in range(5)]
    assert losses[True] == losses[False]
    assert len(set(losses[True])) == 5


def test_captured_steps_of_the_default_model_are_the_eager_ones_to_the_last_bit():
    losses = {}
    for capture in (False, True):
        there, batch = _short(ANHP(DATA.vocabulary, dim=32, layers=2))
        assert there.is_fused()
        stepper = Stepper(there, 1e-3, StepOptions(capture=capture, points=3))
        losses[capture] = [float(stepper(batch, number)) for number in range(5)]
    assert losses[True] == losses[False]
    assert len(set(losses[True])) == 5


def test_fused_steps_descend_as_the_separate_operations_do(monkeypatch: pytest.MonkeyPatch):
    losses = {}
    for fused in (True, False):
        there, batch = short()
        if not fused:
            monkeypatch.setattr("foretell.models.attention.fused.kernels_run_on", lambda device: False)
        stepper = Stepper(there, 1e-2, StepOptions(points=2))
        losses[fused] = [float(stepper(batch, number)) for number in range(20)]
    assert losses[True] == pytest.approx(losses[False], rel=1e-4)
    assert losses[True][-1] < losses[True][0]


def test_a_quadrature_can_be_captured_without_the_fused_kernels():
    batch = make_batch(DATA.train, [0, 1], device="cuda")
    losses = {}
    for capture in (False, True):
        there = model(torch.float64).to("cuda")
        stepper = Stepper(there, 1e-3, StepOptions(capture=capture, points=3, integral="quadrature"))
        losses[capture] = [float(stepper(batch, number)) for number in range(4)]
    assert losses[True] == pytest.approx(losses[False], rel=1e-9)


def test_captured_steps_of_the_general_way_are_the_eager_ones():
    losses = {}
    for capture in (False, True):
        there, batch = short(layer_norm=True)
        assert not there.is_fused()
        stepper = Stepper(there, 1e-3, StepOptions(capture=capture, points=2))
        losses[capture] = [float(stepper(batch, number)) for number in range(4)]
    assert losses[True] == pytest.approx(losses[False], rel=1e-4)


def test_a_coarse_mapping_can_be_captured():
    kinds = {name: name.split("(")[0] for name in DATA.vocabulary.names}
    assert 1 < len(set(kinds.values())) < len(kinds)
    losses = {}
    for capture in (False, True):
        there, batch = short(coarse={name: f"any {kind}" for name, kind in kinds.items()})
        assert not there.is_fused()
        stepper = Stepper(there, 1e-3, StepOptions(capture=capture, points=2))
        losses[capture] = [float(stepper(batch, number)) for number in range(4)]
    assert losses[True] == pytest.approx(losses[False], rel=1e-5)


def test_many_shapes_can_be_captured_without_disturbing_each_other():
    losses = {}
    for capture in (False, True):
        there = model(torch.float64).to("cuda")
        stepper = Stepper(there, 1e-3, StepOptions(capture=capture))
        found = []
        for number in range(90):
            width = 900 + 16 * (number % 45)
            batch = make_batch(DATA.train, [1], device="cuda", width=width)
            found.append(float(stepper(batch, number)))
        losses[capture] = found
    assert losses[True] == pytest.approx(losses[False], rel=1e-8)


def test_a_run_resumed_on_cuda_keeps_its_learning_rate_and_its_curve(tmp_path):
    table = {
        "data": {"path": "robocup"},
        "train": {"device": "cuda", "epochs": 8, "batch": 1, "cool": 1, "patience": 0},
    }
    config = make_config(table)
    whole = fit(model(), DATA.train, DATA.dev, config.train)
    run = RunFolder.create(tmp_path / "run", config)
    seen = []

    def stop() -> bool:
        seen.append(1)
        return len(seen) == 9

    with pytest.raises(TrainingInterrupt):
        fit(model(), DATA.train, DATA.dev, config.train, run=run, stop=stop)
    resumed = fit(model(), DATA.train, DATA.dev, config.train, run=run, resume=True)
    assert [r["lr"] for r in resumed.records] == [r["lr"] for r in whole.records]
    assert [r["dev"] for r in resumed.records] == pytest.approx([r["dev"] for r in whole.records], rel=1e-4)


@pytest.mark.parametrize("capture", [True, False])
def test_an_average_follows_steps_and_is_kept_also_where_they_are_captured(capture: bool):
    there = model()
    average = {name: one.detach().cuda() for name, one in there.named_parameters()}
    ends: list[dict[str, torch.Tensor]] = []
    count = [0]

    def follow(epoch: int, step: int, steps: int) -> None:
        keep = min(0.8, (1.0 + count[0]) / (10.0 + count[0]))
        for name, one in there.named_parameters():
            average[name] = keep * average[name] + (1.0 - keep) * one.detach()
        count[0] += 1
        if step == steps:
            ends.append(dict(average))

    chosen = make_config({"train": {"epochs": 8, "batch": 1, "average": 0.8, "device": "cuda", "capture": capture}})
    found = fit(there, DATA.train, DATA.dev, chosen.train, on_step=follow)
    for name, one in found.model.named_parameters():
        torch.testing.assert_close(one.detach(), ends[found.best_epoch - 1][name], rtol=1e-4, atol=1e-5)
