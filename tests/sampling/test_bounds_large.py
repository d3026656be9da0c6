"""Weights up to a thousand: no intensity of any kind of model is outside its bounds."""

from __future__ import annotations

import argparse
import sys
import time

import pytest
import torch

from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from tests.contract.members import MEMBERS, Member
from tests.sampling.test_bounds import broken, histories

SIZES = (1.0, 10.0, 100.0, 1000.0)
MANY = 20  # seeds of every size, in the slow test


def large(member: Member, size: float, seed: int) -> IntensityModel:
    """Some of its parameters, or all, with noise of this size on them."""
    model = member.build()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if torch.rand((), generator=draw) < (1.0 if seed % 2 else 0.4):
                parameter.add_(size * torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype))
            if isinstance(model, Hawkes):
                parameter.abs_()
    return model.eval()


def tried(member: Member, size: float, seed: int, *, windows: int = 12, points: int = 50) -> tuple[int, int]:
    """Intensities outside their bounds, and how many there were; where they are not a number, samplers draw nothing."""
    return broken(large(member, size, seed), histories(4, seed), windows, points, seed)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_bounds_of_a_model_with_large_weights_hold(member: Member, size: float):
    assert tried(member, size, 1, windows=6, points=20)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_bounds_of_many_models_with_large_weights_hold(member: Member, size: float):
    for seed in range(2, 2 + MANY):
        wrong, count = tried(member, size, seed, windows=20, points=100)
        assert wrong == 0, f"seed {seed}: {wrong} of {count} intensities are outside their bounds"


def main() -> None:
    """`python -m tests.sampling.test_bounds_large FIRST LAST [MEMBER…]`: seeds of every size; counts, and every seed that broke a bound."""
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("members", nargs="*")
    given = parser.parse_args()
    for member in MEMBERS:
        if given.members and member.name not in given.members:
            continue
        began, all_of_them = time.process_time(), 0
        for size in SIZES:
            for seed in range(given.first, given.last):
                wrong, count = tried(member, size, seed, windows=20, points=200)
                all_of_them += count
                if wrong:
                    sys.stdout.write(f"{member.name}: size {size:g}, seed {seed}: {wrong} of {count} outside\n")
        spent = time.process_time() - began
        sys.stdout.write(f"{member.name}: {all_of_them:,} intensities, {spent:.0f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
