"""Functions of elapsed time on windows of time and of its logarithm: nothing is outside its remainder, and long pieces are followed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from foretell.models.attention.past_attention import ForgettingHeads, remembered
from foretell.sampling.bounds.chebyshev import ChebyshevPiece, places
from foretell.sampling.bounds.time_windows import LogWindows, PlainWindows, place
from tests.sampling.test_chebyshev import WINDOW, holds

SHORTEST = 0.01


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class SomeWindows:
    """Windows after an event, of lengths from far below to far above the time before them; and times on them, [101, 60]."""

    def __init__(self, event: float, degree: int, in_log: bool, longest: float = 3.0) -> None:
        low = SHORTEST * 10.0 ** (5.0 * drawn(0, 60))
        low[:8] = SHORTEST
        factor = torch.exp(longest * drawn(1, 60))
        self.event = torch.full((60,), event, dtype=torch.float64)
        start, end = self.event + low - SHORTEST, self.event + low * factor - SHORTEST
        centre, half = (start + end) / 2.0, (end - start) / 2.0
        if in_log:
            self.windows = LogWindows.of(centre, half, self.event, SHORTEST, degree)
            before = start - self.event + SHORTEST
            share = torch.log1p((end - start) / before) * (WINDOW[:, None] + 1.0) / 2.0
            self.times = start + before * torch.expm1(share)
        else:
            self.windows = PlainWindows(centre, half, self.event, degree)
            self.times = centre + half * WINDOW[:, None]
        self.start, self.end = start, end

    @property
    def elapsed(self) -> Tensor:
        return self.times - self.event


@pytest.mark.parametrize("in_log", [True, False])
@pytest.mark.parametrize("degree", [1, 3, 4, 6])
@pytest.mark.parametrize("event", [0.0, 4.2, 1.7e6])
def test_exponentials_and_logarithms_are_within_their_remainder(event: float, degree: int, in_log: bool):
    some = SomeWindows(event, degree, in_log)
    scales = SHORTEST * torch.tensor([1.0, 1.5, 10.0, 1e3, 1e5], dtype=torch.float64)
    holds(some.windows.exponentials(1.0 / scales), torch.exp(-some.elapsed.unsqueeze(-1) / scales))
    holds(some.windows.logs(scales), torch.log1p(some.elapsed.unsqueeze(-1) / scales))


@pytest.mark.parametrize("in_log", [True, False])
@pytest.mark.parametrize("degree", [1, 3, 4, 6])
def test_exponentials_that_rise_or_fall_from_somewhere_are_within_their_remainder(degree: int, in_log: bool):
    some = SomeWindows(4.2, degree, in_log, longest=1.0)
    low, high = (one.unsqueeze(-1) for one in some.windows.range())
    rates = (10.0 ** (3.0 * drawn(2, 60, 8) - 2.0)) / (low + SHORTEST)
    rates = torch.where(drawn(3, 60, 8) < 0.5, -rates, rates)
    rates[0, 0] = 0.0
    since = torch.where(drawn(7, 60, 8) < 0.5, low, (low + high) / 2.0)
    true = torch.exp(-rates * (some.elapsed.unsqueeze(-1) - since))
    found = some.windows.exponentials(rates, since)
    away = (true - _polynomial(found)).abs()
    assert bool((away <= found.remainder * (1.0 + 1e-9) + 1e-9 * true).all())


def _polynomial(found: ChebyshevPiece) -> Tensor:
    return sum(
        (
            one * torch.cos(k * WINDOW.acos()).view(-1, *[1] * one.dim())
            for k, one in enumerate(found.series().unbind(0))
        ),
        torch.zeros(()),
    )


@pytest.mark.parametrize("in_log", [True, False])
@pytest.mark.parametrize("degree", [3, 4])
@pytest.mark.parametrize("size", [0.1, 1.0, 8.0])
def test_what_a_head_remembers_is_within_its_remainder(size: float, degree: int, in_log: bool):
    """Levels that use up all that they may be off by, and heads that forget at once, never, or just then."""
    some = SomeWindows(4.2, degree, in_log, longest=1.0)
    rates = 10.0 ** torch.linspace(-3.0, 2.5, 7, dtype=torch.float64)
    low, high = some.windows.range()
    gone = rates * (low + high).unsqueeze(-1) / 2.0
    series = size * (drawn(4, degree + 1, 60, 7) - 0.5) * 0.3 ** torch.arange(degree + 1).view(-1, 1, 1)
    series[0] += torch.where(drawn(5, 60, 7) < 0.7, gone, 0.0)  # most of them just forget
    left = 0.02 * drawn(6, 60, 7)
    nodes = torch.stack([torch.cos(k * places(degree, left.device).acos()) for k in range(degree + 1)])
    at = torch.stack([torch.cos(k * WINDOW.acos()) for k in range(degree + 1)])
    level = ChebyshevPiece(torch.einsum("kn,kwh->nwh", nodes, series), left)
    true = torch.einsum("kt,kwh->twh", at, series) + left * torch.sin(40.0 * WINDOW).view(-1, 1, 1)
    found = remembered(level, ForgettingHeads(rates, some.windows))
    holds(found, torch.sigmoid(true - rates * some.elapsed.unsqueeze(-1)))
    assert float(found.remainder.max()) <= 0.5 + 1e-9
    assert float(found.remainder.median()) < 0.05 + 0.05 * size


def test_places_on_windows_are_those_of_the_nodes():
    for in_log in (True, False):
        some = SomeWindows(4.2, 4, in_log)
        origin = some.event - SHORTEST if in_log else None
        found = place(some.times, some.start, some.end, origin)
        torch.testing.assert_close(found, WINDOW[:, None].expand_as(found), atol=1e-9, rtol=0.0)
    windows = SomeWindows(0.0, 4, True).windows
    assert isinstance(windows, LogWindows)
    assert bool((windows.reach[:1] >= windows.low).all() and (windows.reach <= windows.high * (1.0 + 1e-12)).all())


@pytest.mark.parametrize("degree", [3, 4])
def test_pieces_as_long_as_the_time_before_them_are_followed_in_the_logarithm(degree: int):
    scales = SHORTEST * torch.tensor([2.0, 50.0, 1e3], dtype=torch.float64)
    low = SHORTEST * 10.0 ** torch.linspace(0.5, 4.0, 30, dtype=torch.float64)
    after, event = low - SHORTEST, torch.zeros(30, dtype=torch.float64)
    in_log = LogWindows.of(after + low / 2.0, low / 2.0, event, SHORTEST, degree)
    plain = PlainWindows(after + low / 2.0, low / 2.0, event, degree)
    for name, most in (("logs", 2e-4), ("exponentials", 2e-3)):
        given = scales if name == "logs" else 1.0 / scales
        found, other = (getattr(one, name)(given).remainder for one in (in_log, plain))
        assert float(found.max()) < most
        assert float(found.max()) < 0.3 * float(other.max())
