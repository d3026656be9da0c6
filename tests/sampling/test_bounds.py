"""Bounds are bounds: models with large random weights, a million times, and never an intensity above them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from foretell.data import EventSequence, Vocabulary
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.anhp_sampler import ANHPSampler
from foretell.models.attention.past_attention import attend
from foretell.models.attention.query_layout import GridLayout
from foretell.models.base import IntensityModel
from foretell.sampling.bounds.chebyshev import ChebyshevPiece, constant, point
from foretell.sampling.bounds.time_windows import place
from foretell.sampling.bounds.values import pool
from foretell.sampling.core.sampler import Bounds
from foretell.sampling.core.start import start_sampler
from foretell.sampling.core.thinning import ROUNDING
from tests.contract.members import MEMBERS, Member
from tests.samples import PLAIN, with_hawkes_part

TIMED: dict[str, Any] = {
    "heads": 2,
    "head_size": "split",
    "head_decay": True,
    "elapsed": 3,
    "periods": 2,
    "intensity_scales": 4,
}
OPTIONS: list[dict[str, Any]] = [
    {"head_decay": True},
    {"elapsed": 4},
    {"elapsed": 2, "periods": 3},
    {"intensity_scales": 4},
    {"intensity_scales": 4, "coarse": "none", "layers": 1},
    {**TIMED, "layer_norm": True, "feed_forward": 6, "activation": "gelu"},
    {**TIMED, "time_dim": 0, "bos": True},
    {"edges": [("0", "1"), ("1", "1"), ("2", "0")], "head_decay": True, "heads": 2, "head_size": "split"},
    {**TIMED, "time_dim": 0, "hawkes": 2},
    {},
    {"layers": 1, "heads": 2},
    {"layers": 3, "time_dim": 5},
    {"layer_norm": True},
    {"feed_forward": 6},
    {"layer_norm": True, "feed_forward": 6, "bos": True},
    {"coarse": "none"},
    {"edges": [("0", "1"), ("1", "1"), ("2", "0")]},
    {"edges": [("0", "1")]},  # the others never look back
]


def stirred(size: float, seed: int, options: dict[str, Any]) -> ANHP:
    model = ANHP(Vocabulary.of_size(3), dim=6, dtype=torch.float64, seed=seed, **{**PLAIN, **options})
    model.time.set_range(0.05, 20.0)
    for scales in (model.elapsed, model.scales):
        scales.set_range(0.01, 5.0)
    model.elapsed.set_periods([0.7, 0.0, 3.1][: model.elapsed.most])
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=random, dtype=torch.float64))
    return with_hawkes_part(model, seed)


def histories(count: int, seed: int) -> list[EventSequence]:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(0, 25, count)
    return [
        EventSequence(np.sort(draw.uniform(0.0, 10.0, n)), draw.integers(0, 3, n), 10.0, str(row))
        for row, n in enumerate(lengths)
    ]


def outside(bounds: Bounds, start: torch.Tensor, length: torch.Tensor, times: torch.Tensor, rates: torch.Tensor) -> int:
    """How many intensities [W, P, T, C] at times [W, P, T] are not where their windows [W, P] say."""
    count = int((rates.sum(-1) > bounds.upper[..., None]).sum())
    if bounds.rates is not None:
        lower = bounds.rates.lower().nan_to_num(nan=-torch.inf)
        count += int((rates < lower.unsqueeze(2)).sum())
        origin = None if bounds.origin is None else bounds.origin[:, None, None]
        at = place(times, start[..., None], (start + length)[..., None], origin)
        each = bounds.rates.map(lambda x: x.unsqueeze(-2).expand(*x.shape[:-1], times.shape[2], -1).flatten(-4, -2))
        low, high = each.curves().range_at(at.flatten())
        sure = (length / 2.0 > ROUNDING * times.amax(-1))[..., None, None].expand_as(rates).flatten(0, 2)
        count += int(((rates.flatten(0, 2) < low) & sure).sum() + ((rates.flatten(0, 2) > high) & sure).sum())
    return count


def broken(model: IntensityModel, pasts: list[EventSequence], windows: int, points: int, seed: int) -> tuple[int, int]:
    """How many of how many random times in random windows are not within the bounds of their window."""
    sampler = start_sampler(model, pasts, [len(one) for one in pasts])
    draw = np.random.default_rng(seed)
    start = torch.from_numpy(draw.uniform(10.0, 30.0, (len(pasts), windows)))
    length = torch.from_numpy(10.0 ** draw.uniform(-4.0, 0.5, (len(pasts), windows)))
    bounds = sampler.bounds(start, start + length)
    inside = torch.from_numpy(draw.uniform(0.0, 1.0, (len(pasts), windows, points)))
    inside[..., 0], inside[..., -1] = 0.0, 1.0
    times = start[..., None] + length[..., None] * inside
    rates = sampler.intensities(times.flatten(1)).unflatten(1, times.shape[1:])
    return outside(bounds, start, length, times, rates), times.numel()


@pytest.mark.parametrize("size", [0.3, 2.0])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_no_intensity_of_a_random_model_is_outside_its_bounds(options: dict[str, Any], size: float):
    tried = 0
    for seed in range(4):
        wrong, count = broken(stirred(size, seed, options), histories(6, seed), 40, 66, seed)
        assert wrong == 0
        tried += count
    assert tried * 2 * len(OPTIONS) > 1_000_000  # all cases together


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("size", [0.3, 2.0])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_bounds_hold_as_walks_go_on_whatever_number_of_windows_each_has(
    options: dict[str, Any], size: float, count: int
):
    pasts = histories(count, seed=7)
    sampler = start_sampler(stirred(size, 3, options), pasts, [len(one) for one in pasts])
    draw = np.random.default_rng(8)
    now = torch.full((count,), 10.0, dtype=torch.float64)
    for number in range(45):
        now = now + torch.from_numpy(draw.exponential(0.2, count))
        sampler.append(now, torch.from_numpy(draw.integers(-1, 3, count)))
        if number % 4:
            continue
        windows = draw.integers(0, 4, count)  # behind these there are some without length
        windows[draw.integers(count)] = draw.choice([1, 3, 30])
        length = 10.0 ** draw.uniform(-3.0, 0.0, (count, 1)) * (np.arange(windows.max()) < windows[:, None])
        sampler.look(
            now[:, None] + torch.rand(count, 3, dtype=torch.float64)
        )  # after which bounds may be others, and hold
        edges = now[:, None] + torch.from_numpy(np.concatenate([np.zeros((count, 1)), length.cumsum(1)], axis=1))
        start, end = edges[:, :-1], edges[:, 1:]
        bounds, some = sampler.bounds(start, end), end > start
        times = start[..., None] + (end - start)[..., None] * torch.linspace(0.0, 1.0, 40, dtype=torch.float64)
        rates = sampler.intensities(times.flatten(1)).unflatten(1, times.shape[1:])
        assert bool((rates.sum(-1).amax(-1) <= bounds.upper)[some].all())
        assert bounds.rates is not None
        assert bool((rates.amin(2) >= bounds.rates.lower().nan_to_num(nan=-torch.inf))[some].all())
        assert bool((rates.amax(2) <= bounds.rates.upper().nan_to_num(nan=torch.inf))[some].all())


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_bounds_of_every_model_hold(member: Member):
    assert broken(member.build(), histories(4, seed=5), 12, 50, seed=6)[0] == 0


def test_bounds_are_tight_on_windows_as_short_as_the_shortest_waves():
    model = stirred(0.3, 1, {})
    pasts = histories(8, seed=3)
    sampler = start_sampler(model, pasts, [len(one) for one in pasts])
    start = torch.linspace(10.0, 12.0, 20, dtype=torch.float64).expand(8, 20)
    bounds = sampler.bounds(start, start + 0.02)
    times = start[..., None] + 0.02 * torch.linspace(0.0, 1.0, 21, dtype=torch.float64)
    most = sampler.intensities(times.flatten(1)).sum(-1).view_as(times).amax(-1)
    assert float((bounds.upper / most).quantile(0.9)) < 1.05


def test_times_as_large_as_unix_time_do_not_break_bounds():
    model = stirred(1.0, 2, {})
    late = 1.7e9
    past = EventSequence(late + np.array([0.5, 0.7, 3.1]), np.array([0, 1, 1]), late + 4.0, "late")
    sampler = start_sampler(model, [past], [3])
    start = (late + 4.0 + 0.03 * torch.arange(60, dtype=torch.float64))[None]
    bounds = sampler.bounds(start, start + 0.03)
    times = start[..., None] + 0.03 * torch.linspace(0.0, 1.0, 31, dtype=torch.float64)
    rates = sampler.intensities(times.flatten(1)).unflatten(1, times.shape[1:])
    assert outside(bounds, start, torch.full_like(start, 0.03), times, rates) == 0


@pytest.mark.parametrize("large", [1e3, 1e5])
def test_rounding_of_large_logits_that_cancel_does_not_break_bounds(large: float):
    """Keys and queries with a large constant, so that what tells events apart is the difference of large numbers."""
    model = stirred(0.3, 4, {"layers": 1})
    with torch.no_grad():
        for layer in model.layer_list():
            layer.K[:, :, 0] = layer.Q[:, :, 0] = large
            layer.K[:, :, 1 + model.time_dim :] /= large
            for matrix in (layer.K[:, :, 1 : 1 + model.time_dim], layer.Q[:, :, 1:]):
                matrix *= 1e-4
    pasts = histories(4, seed=7)
    sampler = start_sampler(model, pasts, [len(one) for one in pasts])
    start = torch.linspace(10.0, 30.0, 30, dtype=torch.float64).expand(4, 30)
    length = 10.0 ** torch.linspace(-12.0, -3.0, 30, dtype=torch.float64)
    bounds = sampler.bounds(start, start + length)
    times = start[..., None] + length[:, None] * torch.linspace(0.0, 1.0, 41, dtype=torch.float64)
    rates = sampler.intensities(times.flatten(1)).unflatten(1, times.shape[1:])
    assert outside(bounds, start, length.expand_as(start), times, rates) == 0


@pytest.mark.parametrize("large", [1e6, 1e8])
def test_rounding_of_large_values_that_cancel_does_not_break_bounds(large: float):
    """Two heads whose values are large, nearly alike for all events, and add up to little."""
    model = stirred(0.3, 4, {"layers": 1, "heads": 2})
    with torch.no_grad():
        for layer in model.layer_list():
            layer.V[0, :, 0], layer.V[1, :, 0] = large, -large
            layer.K[:, :, 0] = layer.Q[:, :, 0] = 4.0
        model.w.mul_(3.0)
    pasts = histories(4, seed=7)
    sampler = start_sampler(model, pasts, [len(one) for one in pasts])
    start = torch.linspace(10.0, 30.0, 30, dtype=torch.float64).expand(4, 30)
    length = 10.0 ** torch.linspace(-6.0, -2.0, 30, dtype=torch.float64)
    sampler.look(start[:, :1])
    bounds = sampler.bounds(start, start + length)
    times = start[..., None] + length[:, None] * torch.linspace(0.0, 1.0, 41, dtype=torch.float64)
    rates = sampler.intensities(times.flatten(1)).unflatten(1, times.shape[1:])
    assert outside(bounds, start, length.expand_as(start), times, rates) == 0


@torch.inference_mode()
@pytest.mark.parametrize("typical", [True, False])
def test_attention_is_within_its_remainder_wherever_tables_are_centred(typical: bool):
    """QueryLayout that use up all that they may be off by, against attention written out."""
    pasts = histories(1, seed=3)
    sampler = start_sampler(stirred(0.3, 2, {}), pasts, [len(pasts[0])])
    assert isinstance(sampler, ANHPSampler)
    random = torch.Generator().manual_seed(5)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    def shares(inside: torch.Tensor) -> torch.Tensor:
        return (inside @ table.folded[0, 0].T).softmax(-1)

    def attention(inside: torch.Tensor) -> torch.Tensor:
        return shares(inside) @ table.values[0, 0]

    def powers(at: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.cos(k * at.acos()) for k in range(4)])

    places, used = torch.linspace(-1.0, 1.0, 201, dtype=torch.float64), 0.0
    nodes = torch.cos(math.pi * (torch.arange(4, dtype=torch.float64) + 0.5) / 4.0)
    table, ahead = sampler.tables[1][0], 1 + sampler.model.time_dim
    rows = table.folded.shape[2]
    width, dim = ahead + sampler.model.dim, sampler.model.dim
    for _ in range(60):
        series = 0.1 * drawn(4, width) * 0.2 ** torch.arange(4).view(-1, 1)
        series[:, 0] = torch.eye(4)[0]  # the 1
        off = 1e-3 * torch.rand(width, generator=random, dtype=torch.float64)
        off[0] = 0.0
        there = powers(places).T @ series
        centre = shares(there[100]) if typical else drawn(rows).softmax(-1) + 0.3 * drawn(1)
        table.centre(torch.zeros(1, dtype=torch.int64), centre.view(1, 1, 1, rows))
        whole = ChebyshevPiece((powers(nodes).T @ series).view(4, 1, 1, width), off.view(1, 1, width))
        features, x = (whole.map(lambda one, of=of: one[..., of]) for of in (slice(ahead), slice(ahead, None)))
        found = attend(GridLayout(), table, features, x, None)
        each = 1e-6 * torch.eye(width, dtype=torch.float64)
        steep = attention(there[100] + each) - attention(there[100] - each)  # what moves each component most
        true = attention(there + off * steep[:, int(torch.randint(dim, (1,), generator=random))].sign())
        away = (true - powers(places).T @ found.series()[:, 0, 0]).abs()
        assert bool((away <= found.remainder[0] * (1.0 + 1e-9)).all())
        used = max(used, float((away / found.remainder[0]).max()))
    assert used > (0.5 if typical else 0.3)


@pytest.mark.parametrize("beta", [1.5, 3.0])
@pytest.mark.parametrize("gap", [1e-7, 1e-12])
def test_rounding_of_pools_whose_entries_cancel_does_not_break_bounds(beta: float, gap: float):
    draw = torch.Generator().manual_seed(0)
    exponent, segment = torch.tensor([beta], dtype=torch.float64), torch.zeros(3, dtype=torch.int64)
    for _ in range(200):
        a = 0.1 + 0.9 * torch.rand(2, generator=draw, dtype=torch.float64)
        last = -(((a**beta).sum() * (1.0 - gap)) ** (1.0 / beta))
        entries = torch.cat([a, last[None]]).view(3, 1, 1)
        window = pool(constant(entries, 3), segment, 1, exponent)
        value = pool(point(entries), segment, 1, exponent).v[0]
        assert bool(((window.lower() <= value) & (value <= window.upper())).all())
