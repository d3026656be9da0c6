"""The time embedding against its formula with Python's floats, and at the size of a Unix timestamp."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from foretell.nn.time import TimeEmbedding

NOW = 1_700_000_000.0  # seconds since 1970


@pytest.mark.parametrize("dim", [1, 2, 5, 8])
@pytest.mark.parametrize(("m", "M"), [(1.0, 2000.0), (0.013, 7.5), (3.0, 1.0)])
def test_components_are_sines_and_cosines_of_a_geometric_series_of_wavelengths(dim: int, m: float, M: float):  # noqa: N803
    times = [0.0, 1e-4, 0.7, 3.25, 7.5]
    found = TimeEmbedding(dim, m, M)(torch.tensor(times, dtype=torch.float64), torch.float64)
    for row, t in enumerate(times):
        for d in range(dim):
            phase = t / (m * (5.0 * M / m) ** (2 * (d // 2) / dim))
            expected = math.sin(phase) if d % 2 == 0 else math.cos(phase)
            assert found[row, d].item() == pytest.approx(expected, rel=0.0, abs=1e-12)


def test_the_shape_of_the_times_is_kept():
    time = TimeEmbedding(6)
    assert time(torch.zeros(2, 3, dtype=torch.float64), torch.float32).shape == (2, 3, 6)
    assert time(torch.zeros(2, 0, dtype=torch.float64), torch.float32).shape == (2, 0, 6)


def test_features_have_the_dtype_asked_for():
    time, times = TimeEmbedding(4), torch.ones(1, dtype=torch.float64)
    assert time(times, torch.float32).dtype == torch.float32
    assert time(times, torch.float64).dtype == torch.float64


def test_float32_times_are_refused():
    with pytest.raises(AssertionError, match="float64"):
        TimeEmbedding(4)(torch.zeros(3), torch.float32)


def test_the_times_handed_in_are_not_changed():
    times = torch.tensor([1.5, 2.5], dtype=torch.float64)
    TimeEmbedding(4)(times, torch.float64)
    assert times.tolist() == [1.5, 2.5]


def test_lowering_the_precision_of_a_model_does_not_round_the_frequencies():
    holder = torch.nn.Sequential(TimeEmbedding(8, 0.001, 10.0))
    exact = TimeEmbedding(8, 0.001, 10.0).turns_per_unit
    for lowered in (holder.float(), holder.half(), holder.to(torch.bfloat16), holder.double()):
        time = lowered[0]
        assert isinstance(time, TimeEmbedding)
        assert time.turns_per_unit.dtype == torch.float64
        assert torch.equal(time.turns_per_unit, exact)


def test_the_range_can_be_set_anew_and_is_no_part_of_the_state():
    time = TimeEmbedding(4, 1.0, 2000.0)
    time.set_range(0.5, 20.0)
    assert torch.equal(time.turns_per_unit, TimeEmbedding(4, 0.5, 20.0).turns_per_unit)
    assert time.state_dict() == {}


@pytest.mark.parametrize(("m", "M"), [(0.0, 1.0), (-1.0, 1.0), (1.0, math.inf), (math.nan, 1.0)])
def test_a_range_without_wavelengths_is_refused(m: float, M: float):  # noqa: N803
    with pytest.raises(AssertionError, match="time range"):
        TimeEmbedding(4, m, M)


def test_times_the_size_of_a_unix_timestamp_keep_their_milliseconds_in_float32():
    time = TimeEmbedding(2, 0.001, 10.0)  # the first two components turn once in 2π milliseconds
    steps = torch.arange(7, dtype=torch.float64) * 0.001
    features = time(NOW + steps, torch.float32).double()
    angles = torch.atan2(features[:, 0], features[:, 1])
    turned = (angles[1:] - angles[:-1]).remainder(2.0 * math.pi)
    assert torch.allclose(turned, torch.ones(6, dtype=torch.float64), atol=2e-3)  # a millisecond is one radian


def test_a_large_phase_is_that_of_exact_arithmetic_to_what_float64_times_can_hold():
    time = TimeEmbedding(2, 0.001, 10.0)
    t = NOW + 0.123
    turns = Fraction(t) / (2 * Fraction(math.pi) * Fraction(0.001))
    phase = 2.0 * math.pi * float(turns - turns.__floor__())
    found = time(torch.tensor([t], dtype=torch.float64), torch.float64)[0]
    # π itself, rounded to float64, is off by 4e-17 of its size: 1e-5 turns of 2.7e11
    assert found.tolist() == pytest.approx([math.sin(phase), math.cos(phase)], abs=1e-3)
