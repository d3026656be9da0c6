"""The fused kernels against the separate operations: the same loss and the same gradients, on whatever they are handed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from foretell.batches.batch import Batch, make_batch
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.models.attention import fused as anhp_fused
from foretell.models.attention.anhp import ANHP
from foretell.nn import attention
from foretell.nn.fused.heads import heads_by_kernels
from foretell.objective.loglik import Points, quadrature, stratified, training_loss

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def made_up(lengths: tuple[int, ...], types: int, seed: int = 0) -> EventData:
    """Sequences of these lengths on [0, 11], with a tail each."""
    draw = np.random.default_rng(seed)
    sequences = [
        EventSequence(np.sort(draw.uniform(0.0, 10.0, n)), draw.integers(0, types, n), 11.0, str(row))
        for row, n in enumerate(lengths)
    ]
    return EventData(sequences, Vocabulary.of_size(types))


def stirred(data: EventData, **options: object) -> ANHP:
    """A model on the device whose parameters are away from their start, where some gradients would be zero."""
    model = ANHP.preset("plain", data.vocabulary, seed=1, **options)  # pyright: ignore[reportArgumentType]
    model.prepare(data)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn(parameter.shape, generator=generator))
    return model.to("cuda")


@dataclass(frozen=True)
class Found:
    objective: float
    likelihood: float
    gradients: list[Tensor]


def found(model: ANHP, batch: Batch, points: Points, pseudo_rate: float) -> Found:
    model.zero_grad()
    loss = training_loss(model, batch, points, pseudo_rate)
    loss.objective.backward()
    gradients = [p.grad.double() for p in model.parameters() if p.grad is not None]
    return Found(loss.objective.item(), loss.negative_log_likelihood.item(), gradients)


def off(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm().clamp(min=1e-6))


def check(model: ANHP, data: EventData, points: int, pseudo_rate: float = 0.0) -> None:
    batch = make_batch(data, range(len(data)), device="cuda")
    drawn = stratified(batch, points, torch.Generator("cuda").manual_seed(3))
    assert model.is_fused()
    fused = found(model, batch, drawn, pseudo_rate)
    exact = model.double()
    assert not exact.is_fused()
    slow = found(exact, batch, drawn, pseudo_rate)
    assert fused.objective == pytest.approx(slow.objective, rel=1e-6)
    assert fused.likelihood == pytest.approx(slow.likelihood, rel=1e-6)
    assert len(fused.gradients) == len(slow.gradients)
    for one, other in zip(fused.gradients, slow.gradients, strict=True):
        assert off(one, other) < 1e-5


@pytest.mark.parametrize("dim", [16, 32, 64, 128])
def test_loss_and_gradients_are_those_of_the_separate_operations_in_float64(dim: int):
    data = made_up((40, 7, 0, 1, 65), types=5)
    check(stirred(data, dim=dim), data, points=3)


@pytest.mark.parametrize(
    "options",
    [
        {"layers": 1},
        {"layers": 3, "heads": 2},
        {"layers": 1, "heads": 3, "bos": True},
        {"time_dim": 10},
        {"time_dim": 40},
        {"bos": True},
    ],
    ids=str,
)
def test_layers_heads_time_features_and_a_bos_may_be_what_they_are(options: dict[str, int]):
    data = made_up((33, 4, 71), types=4)
    check(stirred(data, dim=32, **options), data, points=2)


@pytest.mark.parametrize("types", [1, 3, 22, 33, 150])
def test_types_may_be_few_or_more_than_dimensions(types: int):
    data = made_up((20, 31), types=types)
    check(stirred(data, dim=32), data, points=1)


@pytest.mark.parametrize(
    ("lengths", "points"), [((1,), 1), ((17, 16, 15), 1), ((73, 72), 20), ((300, 150), 2), ((0, 0), 4)]
)
def test_sizes_need_not_fit_the_tiles(lengths: tuple[int, ...], points: int):
    data = made_up(lengths, types=6)
    check(stirred(data, dim=32), data, points=points)


def test_pseudo_events_are_in_the_objective_and_not_in_the_likelihood():
    data = made_up((20, 31), types=5)
    check(stirred(data, dim=32), data, points=2, pseudo_rate=0.3)


def test_nodes_of_a_quadrature_are_points_like_others():
    data = made_up((20, 31), types=5)
    batch = make_batch(data, range(len(data)), device="cuda")
    model = stirred(data, dim=32)
    fused = found(model, batch, quadrature(batch, 5), 0.0)
    slow = found(model.double(), batch, quadrature(batch, 5), 0.0)
    assert fused.objective == pytest.approx(slow.objective, rel=1e-6)


def test_intensities_that_all_but_vanish_keep_their_logarithm_and_gradient():
    data = made_up((20, 31), types=5)
    model = stirred(data, dim=32)
    with torch.no_grad():
        model.w_constant -= 60.0
    check(model, data, points=2)


def test_padding_changes_nothing():
    data = made_up((20, 31), types=5)
    model = stirred(data, dim=32)
    losses = []
    for width in (31, 50):
        batch = make_batch(data, range(2), device="cuda", width=width)
        middle = torch.full((2, width + 1, 1), 0.5, dtype=torch.float64, device="cuda")
        losses.append(training_loss(model, batch, stratified(batch, 1, None, middle)).objective.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-7)


def test_the_same_question_has_the_same_answer_to_the_last_bit():
    data = made_up((70, 40, 72, 3), types=9)
    model = stirred(data, dim=64)
    batch = make_batch(data, range(len(data)), device="cuda")
    drawn = stratified(batch, 20, torch.Generator("cuda").manual_seed(3))
    first = found(model, batch, drawn, 0.0)
    for _ in range(5):
        again = found(model, batch, drawn, 0.0)
        assert again.objective == first.objective
        assert all(torch.equal(one, other) for one, other in zip(again.gradients, first.gradients, strict=True))


def test_without_gradients_there_is_the_loss_alone():
    data = made_up((20, 31), types=5)
    model = stirred(data, dim=32)
    batch = make_batch(data, range(len(data)), device="cuda")
    drawn = stratified(batch, 2, torch.Generator("cuda").manual_seed(3))
    with torch.no_grad():
        alone = training_loss(model, batch, drawn).objective.item()
    assert alone == pytest.approx(found(model, batch, drawn, 0.0).objective, rel=1e-7)


@pytest.mark.parametrize(
    "options",
    [
        {"dim": 24},
        {"dim": 8},
        {"dim": 32, "dropout": 0.1},
        {"dim": 32, "layer_norm": True},
        {"dim": 32, "feed_forward": 16},
        {"dim": 32, "coarse": "none"},
        {"dim": 32, "edges": [("0", "1")]},
        {"dim": 32, "dtype": torch.float64},
    ],
    ids=str,
)
def test_what_the_kernels_are_not_made_for_takes_the_general_way(options: dict[str, object]):
    data = made_up((20, 31), types=3)
    assert not stirred(data, **options).is_fused()


@pytest.mark.parametrize(
    "options",
    [
        {"dim": 24},
        {"dim": 32, "heads": 2, "layer_norm": True},
        {"dim": 64, "feed_forward": 16},
        {"dim": 32, "coarse": "none"},
        {"dim": 32, "layer_norm": True, "bos": True},
    ],
    ids=str,
)
def test_the_general_way_attends_by_ranges_and_finds_what_float64_finds(
    options: dict[str, object], monkeypatch: pytest.MonkeyPatch
):
    data = made_up((40, 7, 0, 1, 165), types=5)
    model = stirred(data, **options)
    batch = make_batch(data, range(len(data)), device="cuda")
    drawn = stratified(batch, 3, torch.Generator("cuda").manual_seed(3))
    asked = []
    by_ranges = attention.range_attention
    monkeypatch.setattr(attention, "range_attention", lambda *given: asked.append(1) or by_ranges(*given))
    ranged = found(model, batch, drawn, 0.0)
    assert asked
    asked.clear()
    slow = found(model.double(), batch, drawn, 0.0)
    assert not asked
    assert ranged.objective == pytest.approx(slow.objective, rel=1e-6)
    for one, other in zip(ranged.gradients, slow.gradients, strict=True):
        assert off(one, other) < 1e-5


def test_where_the_kernels_cannot_be_built_the_general_way_is_taken(monkeypatch: pytest.MonkeyPatch):
    data = made_up((20, 31), types=5)
    model = stirred(data, dim=32)
    batch = make_batch(data, range(len(data)), device="cuda")
    drawn = stratified(batch, 2, torch.Generator("cuda").manual_seed(3))
    fused = found(model, batch, drawn, 0.0)
    monkeypatch.setattr(anhp_fused, "kernels_run_on", lambda device: False)
    assert not model.is_fused()
    assert found(model, batch, drawn, 0.0).objective == pytest.approx(fused.objective, rel=1e-6)


@pytest.mark.parametrize(
    ("size", "heads", "per_gap", "extra"), [(8, 4, 1, -1), (8, 4, 3, 0), (16, 2, 2, 1), (32, 1, 2, 0), (6, 3, 1, 0)]
)
def test_heads_by_kernels_are_the_separate_operations(size: int, heads: int, per_gap: int, extra: int) -> None:
    """Values and gradients, against float64; times are large, and ages must not lose their digits."""
    draw = torch.Generator().manual_seed(3)
    batch, events, dim = 3, 70, size * heads
    rows = events + 1 if extra == -1 else (events + 1) * per_gap

    def made(count: int) -> Tensor:
        return torch.randn(batch, count, dim, generator=draw)

    keys, values = attention.with_null(made(events)), attention.with_null(made(events))
    times = 1e6 + torch.rand(batch, events, generator=draw, dtype=torch.float64).cumsum(1)
    times = torch.cat([times[:, :1], times], dim=1)
    last = times[:, (torch.arange(rows) // per_gap).clamp(max=events)]
    now = last if extra == -1 else last + 0.1
    rates, wanted = 2.0 * torch.rand(heads, generator=draw), made(rows)
    tensors = [one.to("cuda").requires_grad_() for one in (made(rows), keys, values, rates)]
    x, k, v, rate = tensors
    now, times, wanted = now.cuda(), times.cuda(), wanted.cuda()
    out = heads_by_kernels(x, k, v, (now, times), rate, (per_gap, extra))
    exact = [one.detach().double().requires_grad_() for one in tensors]

    def by_head(one: Tensor) -> Tensor:
        return one.unflatten(-1, (heads, size)).transpose(1, 2).flatten(0, 1)

    visible, ages = attention.Visible(None, per_gap, extra), attention.Ages(now, times)
    slow = attention.head_attention(*map(by_head, exact[:3]), visible, None, ages, exact[3])
    slow = slow.unflatten(0, (batch, heads)).transpose(1, 2).flatten(2)
    torch.testing.assert_close(out.double(), slow, rtol=1e-5, atol=1e-5)
    fast_gradients = torch.autograd.grad((out * wanted).sum(), tensors)
    slow_gradients = torch.autograd.grad((slow * wanted.double()).sum(), exact)
    for place, (fast, true) in enumerate(zip(fast_gradients, slow_gradients, strict=True)):
        if place in (1, 2):  # nothing learns from the null row, and kernels leave it out
            fast, true = fast[:, 1:], true[:, 1:]
        torch.testing.assert_close(fast.double(), true, rtol=2e-5, atol=2e-5 * float(true.abs().max()))


@pytest.mark.parametrize("layers", [1, 2])
def test_the_default_model_takes_the_kernels_and_gives_the_same_gradients(layers: int) -> None:
    data = made_up((30, 0, 47, 5), 4)
    model = ANHP(data.vocabulary, seed=1, dim=32, layers=layers)
    model.prepare(data)
    model = model.to("cuda")
    batch = make_batch(data, range(len(data)), device="cuda")
    points = quadrature(batch, 3, model.short_time)
    by_kernels = found(model, batch, points, 0.0)
    exact = found(model.double(), batch, points, 0.0)
    assert by_kernels.objective == pytest.approx(exact.objective, rel=1e-5)
    for fast, true in zip(by_kernels.gradients, exact.gradients, strict=True):
        torch.testing.assert_close(fast, true, rtol=1e-3, atol=1e-4 * float(true.abs().max() + 1.0))
