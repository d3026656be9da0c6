"""The fused kernels of the default A-NHP against the separate operations: the same loss and the same gradients."""

from __future__ import annotations

import pytest
import torch

from foretell.batches.batch import Batch, make_batch
from foretell.models.attention import fused as anhp_fused
from foretell.models.attention.anhp import ANHP
from foretell.objective.loglik import Points, quadrature, stratified, training_loss
from tests.nn.test_fused_cuda import found, made_up, off

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def stirred(lengths: tuple[int, ...], types: int, **options: object) -> ANHP:
    """A model on the device whose parameters are away from their start, where some gradients would be zero."""
    data = made_up(lengths, types)
    model = ANHP(data.vocabulary, seed=1, **options)  # pyright: ignore[reportArgumentType]
    model.prepare(data)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn(parameter.shape, generator=generator))
    return model.to("cuda")


def check(
    lengths: tuple[int, ...], types: int, points: int, pseudo_rate: float = 0.0, window: str = "all", **options: object
) -> None:
    data, model = made_up(lengths, types), stirred(lengths, types, **options)
    batch = make_batch(data, range(len(data)), device="cuda", window=window)  # pyright: ignore[reportArgumentType]
    drawn = stratified(batch, points, torch.Generator("cuda").manual_seed(3), None, model.short_time)
    assert model.is_fused()
    fused = found(model, batch, drawn, pseudo_rate)
    exact = model.double()
    assert not exact.is_fused()
    slow = found(exact, batch, drawn, pseudo_rate)
    assert fused.objective == pytest.approx(slow.objective, rel=2e-6)
    assert fused.likelihood == pytest.approx(slow.likelihood, rel=2e-6)
    assert len(fused.gradients) == len(slow.gradients) == len(list(model.parameters()))
    for one, other in zip(fused.gradients, slow.gradients, strict=True):
        assert off(one, other) < 2e-5


@pytest.mark.parametrize("dim", [16, 32, 64, 128])
def test_loss_and_gradients_are_those_of_the_separate_operations_in_float64(dim: int):
    check((40, 7, 0, 1, 65), types=5, points=3, dim=dim)


@pytest.mark.parametrize(
    "options",
    [
        {"layers": 1},
        {"layers": 3, "heads": 2},
        {"heads": 1},
        {"heads": 16},
        {"head_decay": False},
        {"elapsed": 0},
        {"elapsed": 5, "periods": 0},
        {"intensity_scales": 0},
        {"intensity_scales": 20},
        {"feed_forward": 16},
        {"feed_forward": 128},
    ],
    ids=str,
)
def test_the_parts_may_be_there_or_not(options: dict[str, object]):
    check((33, 4, 71), types=4, points=2, **{"dim": 32, **options})


@pytest.mark.parametrize("types", [1, 3, 22, 33, 150])
def test_types_may_be_few_or_many(types: int):
    check((20, 31), types=types, points=1, dim=32)


@pytest.mark.parametrize(
    ("lengths", "points"), [((1,), 1), ((17, 16, 15), 1), ((73, 72), 20), ((300, 150), 2), ((0, 0), 4)]
)
def test_sizes_need_not_fit_the_tiles(lengths: tuple[int, ...], points: int):
    check(lengths, types=6, points=points, dim=32)


def test_pseudo_events_are_in_the_objective_and_not_in_the_likelihood():
    check((20, 31), types=5, points=2, pseudo_rate=0.3, dim=32)


def test_what_is_not_scored_is_history_all_the_same():
    check((20, 31), types=5, points=2, window="events-2-to-I", dim=32)


def asked_of(model: ANHP, points: int = 3) -> tuple[Batch, Points]:
    data = made_up((70, 40, 72, 3), 9)
    batch = make_batch(data, range(len(data)), device="cuda")
    return batch, stratified(batch, points, torch.Generator("cuda").manual_seed(3), None, model.short_time)


def test_the_same_question_has_the_same_answer_to_the_last_bit():
    model = stirred((70, 40, 72, 3), 9, dim=64)
    batch, drawn = asked_of(model, points=20)
    first = found(model, batch, drawn, 0.0)
    for _ in range(5):
        again = found(model, batch, drawn, 0.0)
        assert again.objective == first.objective
        assert all(torch.equal(one, other) for one, other in zip(again.gradients, first.gradients, strict=True))


def test_without_gradients_there_is_the_loss_alone():
    model = stirred((70, 40, 72, 3), 9, dim=32)
    batch, drawn = asked_of(model)
    with torch.no_grad():
        alone = training_loss(model, batch, drawn).objective.item()
    assert alone == pytest.approx(found(model, batch, drawn, 0.0).objective, rel=1e-7)


def test_intensities_that_all_but_vanish_keep_their_logarithm_and_gradient():
    data, model = made_up((20, 31), 5), stirred((20, 31), 5, dim=32)
    with torch.no_grad():
        model.w_constant.sub_(60.0)
    batch = make_batch(data, range(2), device="cuda")
    points = quadrature(batch, 3, model.short_time)
    fused, slow = found(model, batch, points, 0.0), found(model.double(), batch, points, 0.0)
    assert fused.objective == pytest.approx(slow.objective, rel=1e-6)
    for one, other in zip(fused.gradients, slow.gradients, strict=True):
        assert off(one, other) < 2e-5


def test_where_the_kernels_cannot_be_built_the_general_way_is_taken(monkeypatch: pytest.MonkeyPatch):
    model = stirred((70, 40, 72, 3), 9, dim=32)
    batch, drawn = asked_of(model)
    fused = found(model, batch, drawn, 0.0)
    monkeypatch.setattr(anhp_fused, "kernels_run_on", lambda device: False)
    assert not model.is_fused()
    assert found(model, batch, drawn, 0.0).objective == pytest.approx(fused.objective, rel=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"dim": 24},
        {"dropout": 0.1},
        {"head_size": "full"},
        {"time_dim": 8},
        {"layer_norm": False},
        {"feed_forward": 0},
        {"feed_forward": 40},
        {"activation": "relu"},
        {"bos": True},
        {"coarse": "none"},
        {"dtype": torch.float64},
    ],
    ids=str,
)
def test_what_the_kernels_are_not_made_for_takes_the_general_way(options: dict[str, object]):
    assert not stirred((20, 31), 3, **{"dim": 32, **options}).is_fused()
