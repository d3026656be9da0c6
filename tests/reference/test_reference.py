"""The slow twin itself, against numbers worked out by hand."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest
import torch

import foretell.reference.anhp
from foretell.reference.anhp import SlowANHP
from foretell.reference.events import Event, before_event, before_time
from foretell.reference.hawkes import SlowHawkes
from foretell.reference.likelihood import Point, event_logs, integral, log_likelihood


def number(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# D = 1 and time_dim = 1: a matrix is [constant, factor of sin(t/m), factor of the embedding]
ARRAYS = {
    "embed.a": number(0.5),
    "embed.bos": number(-1.0),
    "coarse.all": number(0.25),
    "attend.head1.1.V": number(0.1, 0.2, 0.3)[None],
    "attend.head1.1.K": number(0.4, 0.5, 0.6)[None],
    "attend.head1.1.Q": number(0.7, 0.8, 0.9)[None],
    "intensity.a.w": number(0.3, 2.0),
    "intensity.a.tau": torch.tensor(0.5, dtype=torch.float64),
}


def twin(bos: bool = False) -> SlowANHP:
    return SlowANHP(ARRAYS, ["a"], dim=1, layers=1, time_dim=1, m=2.0, M=7.0, coarse={"a": "all"}, bos=bos)


def test_one_event_and_one_query_by_hand():
    s, t = 1.0, 3.0
    v = 0.1 + 0.2 * math.sin(s / 2.0) + 0.3 * 0.5
    k = 0.4 + 0.5 * math.sin(s / 2.0) + 0.6 * 0.5
    q = 0.7 + 0.8 * math.sin(t / 2.0) + 0.9 * 0.25
    alpha = math.exp(k * q)
    embedding = 0.25 + math.tanh(v * alpha / (1.0 + alpha))
    intensity = 0.5 * math.log(1.0 + math.exp((0.3 + 2.0 * embedding) / 0.5))
    history = (Event("a", s),)
    assert float(twin().embedding("coarse.all", t, history, 1)) == pytest.approx(embedding, rel=1e-14)
    assert float(twin().intensity("a", t, history)) == pytest.approx(intensity, rel=1e-14)


def test_bos_is_an_event_at_time_zero_that_every_query_sees():
    t = 3.0
    v, k = 0.1 + 0.3 * -1.0, 0.4 + 0.6 * -1.0
    q = 0.7 + 0.8 * math.sin(t / 2.0) + 0.9 * 0.25
    alpha = math.exp(k * q)
    embedding = 0.25 + math.tanh(v * alpha / (1.0 + alpha))
    expected = 0.5 * math.log(1.0 + math.exp((0.3 + 2.0 * embedding) / 0.5))
    assert float(twin(bos=True).intensity("a", t, ())) == pytest.approx(expected, rel=1e-14)


def test_without_history_an_embedding_is_its_base_vector():
    assert torch.equal(twin().embedding("coarse.all", 3.0, (), 1), ARRAYS["coarse.all"])
    assert torch.equal(twin().event_embedding((Event("a", 1.0),), 0, 1), ARRAYS["embed.a"])


def test_time_components_come_in_pairs_of_one_wavelength():
    features = SlowANHP({}, [], dim=4, layers=1, time_dim=4, m=2.0, M=10.0).time_embedding(1.5)
    slow = 2.0 * math.sqrt(25.0)
    expected = [math.sin(0.75), math.cos(0.75), math.sin(1.5 / slow), math.cos(1.5 / slow)]
    assert features.tolist() == pytest.approx(expected, rel=1e-14)


def test_an_event_sees_an_earlier_one_at_its_own_time_and_a_bare_time_does_not():
    sequence = (Event("a", 1.0), Event("b", 2.0), Event("c", 2.0))
    assert before_event(sequence, 2) == sequence[:2]
    assert before_time(sequence, 2.0) == sequence[:1]
    assert before_time(sequence, 2.1) == sequence


HAWKES = SlowHawkes(
    {"a": 0.3, "b": 0.1},
    {("a", "a"): [0.2, 0.0], ("a", "b"): [0.5, 1.0], ("b", "a"): [0.0, 0.3], ("b", "b"): [0.1, 0.1]},
    [0.5, 4.0],
)
SEQUENCE = (Event("a", 0.5), Event("b", 0.75), Event("a", 2.0))


def test_the_hawkes_intensity_by_hand():
    expected = 0.3 + 0.2 * math.exp(-0.5 * 1.5) + 0.5 * math.exp(-0.5 * 1.25) + 1.0 * math.exp(-4.0 * 1.25)
    assert HAWKES.intensity("a", 2.0, SEQUENCE[:2]) == pytest.approx(expected, rel=1e-14)


def test_the_hawkes_integral_is_that_of_a_fine_sum():
    steps = 1500
    times = [(step + 0.5) * 3.0 / steps for step in range(steps)]  # events lie on the edges of steps
    rates = [HAWKES.intensity(type, t, before_time(SEQUENCE, t)) for t in times for type in ("a", "b")]
    assert HAWKES.integral(SEQUENCE, 3.0) == pytest.approx(sum(rates) * 3.0 / steps, rel=1e-5)


def test_the_general_likelihood_is_the_events_logs_less_the_integral():
    def rate(type: str, time: float, history: tuple[Event, ...]) -> torch.Tensor:
        return torch.tensor({"a": 2.0, "b": 3.0}[type] + len(history), dtype=torch.float64)

    points = [Point(0.25, 0, 0.5), Point(0.6, 1, 0.25)]
    logs = [math.log(2.0), math.log(4.0), math.log(4.0)]
    area = 0.5 * 5.0 + 0.25 * 7.0
    assert [float(log) for log in event_logs(rate, SEQUENCE)] == pytest.approx(logs)
    assert float(integral(rate, ["a", "b"], SEQUENCE, points)) == pytest.approx(area)
    assert float(log_likelihood(rate, ["a", "b"], SEQUENCE, points)) == pytest.approx(sum(logs) - area)
    assert float(log_likelihood(rate, ["a", "b"], SEQUENCE, points, first=1)) == pytest.approx(sum(logs[1:]) - area)


def test_the_twin_shares_no_code_with_what_it_checks():
    folder = Path(foretell.reference.anhp.__file__).parent
    imported = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
    ours = {name for name in imported if name.startswith("foretell") and not name.startswith("foretell.reference.")}
    assert ours == {
        "foretell.errors",
        "foretell.lang.program",  # a program is read once, and its syntax tree is what both sides are given
        "foretell.lang.syntax",
        "foretell.terms",
    }
