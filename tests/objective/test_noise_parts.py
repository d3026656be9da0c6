"""Step functions of elapsed time: value, integral and inverse, against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from foretell.objective.noise_parts import Profile
from foretell.reference.timed import area, height

Pairs = list[tuple[float, float]]
# Steps without length, without rate, from 0 or later on, and for ever.
STEPS: list[Pairs] = [
    [(0.0, 2.0)],
    [(0.0, 0.0), (1.0, 3.0), (1.5, 0.0), (4.0, 0.5), (4.0, 7.0), (4.25, 0.0)],
    [(0.0, 0.0)],
    [(0.0, 1.0), (0.0, 4.0), (2.0, 0.0), (2.5, 0.0), (3.0, 1.0)],
]


def profile(steps: list[Pairs] = STEPS) -> Profile:
    return Profile.from_steps([(np.array([a for a, _ in one]), np.array([b for _, b in one])) for one in steps])


def random_steps(seed: int, marks: int, most: int) -> list[Pairs]:
    random = np.random.default_rng(seed)
    found = []
    for _ in range(marks):
        edges = np.sort(random.uniform(0.0, 8.0, random.integers(0, most)))
        rates = random.exponential(1.0, len(edges) + 1) * (random.random(len(edges) + 1) < 0.7)
        found.append(list(zip([0.0, *edges.tolist()], rates.tolist(), strict=True)))
    return found


@pytest.mark.parametrize("steps", [STEPS, random_steps(1, 5, 40), random_steps(2, 3, 3)], ids=["odd", "many", "few"])
def test_value_and_integral_are_those_of_a_loop(steps: list[Pairs]):
    found = profile(steps)
    at_edges = [edge for one in steps for edge, _ in one]
    elapsed = torch.tensor([-math.inf, -1.0, *at_edges, *np.linspace(0.0, 12.0, 97).tolist()], dtype=torch.float64)
    upto = found.upto(elapsed[:, None].expand(-1, len(steps)))
    for mark, one in enumerate(steps):
        rates = found.at(elapsed, torch.full(elapsed.shape, mark))
        assert rates.tolist() == [height(one, time) for time in elapsed.tolist()]
        assert upto[:, mark].tolist() == pytest.approx([area(one, 0.0, time) for time in elapsed.tolist()], abs=1e-12)


@pytest.mark.parametrize("steps", [STEPS, random_steps(3, 5, 40)], ids=["odd", "many"])
def test_the_inverse_of_the_integral_leads_back(steps: list[Pairs]):
    found = profile(steps)
    for mark, one in enumerate(steps):
        whole = area(one, 0.0, 9.0)
        mass = torch.linspace(0.0, 1.0, 101, dtype=torch.float64)[1:-1] * whole
        times = found.when(mass, torch.full(mass.shape, mark))
        if whole > 0.0:
            assert [area(one, 0.0, time) for time in times.tolist()] == pytest.approx(mass.tolist(), abs=1e-12)
            assert all(height(one, time) > 0.0 for time in times.tolist())  # nothing is drawn where nothing can be


def test_any_shape_of_questions_is_answered_in_it():
    elapsed, marks = torch.rand(3, 4, dtype=torch.float64) * 5.0, torch.randint(0, 4, (3, 4))
    found = profile().at(elapsed, marks)
    flat = [
        height(STEPS[k], time) for k, time in zip(marks.flatten().tolist(), elapsed.flatten().tolist(), strict=True)
    ]
    assert found.shape == (3, 4) and found.flatten().tolist() == flat
    assert profile().upto(torch.ones(2, 0, 4, dtype=torch.float64)).shape == (2, 0, 4)


@pytest.mark.parametrize(
    ("edges", "rate", "message"),
    [
        ([[0.5, 1.0]], [[1.0, 1.0]], "do not rise from 0"),
        ([[0.0, 2.0, 1.0]], [[1.0, 1.0, 1.0]], "do not rise from 0"),
        ([[0.0, math.inf]], [[1.0, 1.0]], "do not rise from 0"),
        ([[0.0, 1.0]], [[1.0, -1.0]], "finite and 0 or more"),
        ([[0.0, 1.0]], [[1.0, math.nan]], "finite and 0 or more"),
        ([[0.0, 1.0]], [[1.0]], "of one shape"),
    ],
)
def test_what_is_no_step_function_is_refused(edges: list[list[float]], rate: list[list[float]], message: str):
    with pytest.raises(ValueError, match=message):
        Profile.of(torch.tensor(edges, dtype=torch.float64), torch.tensor(rate, dtype=torch.float64))
