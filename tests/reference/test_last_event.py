"""The slow twins of THP and SAHP, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from foretell.reference.events import Event
from foretell.reference.sahp import SlowSAHP
from foretell.reference.thp import SlowTHP
from foretell.reference.transformer import SlowEncoder


def number(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# D = 1: every matrix is one number, and the encoding is one sine.
ARRAYS = {
    "embed.a": number(0.5),
    "bos": number(-1.0),
    "attend.head1.1.Q": number(0.7)[None],
    "attend.head1.1.K": number(0.4)[None],
    "attend.head1.1.V": number(1.3)[None],
    "attend.1.O": number(0.8)[None],
    "layer.1.expand.weight": number(2.0)[None],
    "layer.1.expand.bias": number(0.1),
    "layer.1.contract.weight": number(-0.5)[None],
    "layer.1.contract.bias": number(0.2),
    "intensity.a.w": number(0.3, 0.6, 2.0),
    "intensity.a.mu": number(-0.2, 0.9),
    "intensity.a.eta": number(0.4, -0.3),
    "intensity.a.gamma": number(0.25, 0.5),
    "intensity.a.tau": torch.tensor(0.5, dtype=torch.float64),
    "intensity.a.nu": torch.tensor(2.0, dtype=torch.float64),
}
HISTORY = (Event("a", 3.0),)


def encoder(shifted: bool) -> SlowEncoder:
    return SlowEncoder(
        ARRAYS, dim=1, layers=1, heads=1, m=2.0, M=7.0, layer_norm=False, feed_forward=True, shifted=shifted
    )


def by_hand(shifted: bool) -> float:
    """The embedding of `a` at 3, which sees `bos` at 0 and itself."""
    bos = -1.0 + math.sin(0.0)
    event = 0.5 + math.sin(3.0 / 2.0 + (1.0 if shifted else 0.0))
    weights = [math.exp(0.7 * event * 0.4 * x) for x in (bos, event)]
    found = 1.3 * (weights[0] * bos + weights[1] * event) / sum(weights)
    x = event + 0.8 * found
    return x - 0.5 * max(0.0, 2.0 * x + 0.1) + 0.2


def softplus(x: float, scale: float) -> float:
    return scale * math.log(1.0 + math.exp(x / scale))


@pytest.mark.parametrize("shifted", [False, True])
def test_the_embedding_of_an_event_sees_itself_and_what_is_before_it(shifted: bool):
    assert float(encoder(shifted).embedding(HISTORY, 1, 1)) == pytest.approx(by_hand(shifted), rel=1e-14)


def test_bos_sees_itself_alone():
    x = -1.0 + 0.8 * 1.3 * -1.0
    expected = x - 0.5 * max(0.0, 2.0 * x + 0.1) + 0.2
    assert float(encoder(False).embedding((), 0, 1)) == pytest.approx(expected, rel=1e-14)


def test_the_intensity_of_thp_by_hand():
    expected = softplus(0.3 + 0.6 * (4.5 - 3.0) / 3.0 + 2.0 * by_hand(False), 0.5)
    assert float(SlowTHP(encoder(False), ["a"]).intensity("a", 4.5, HISTORY)) == pytest.approx(expected, rel=1e-14)


def test_before_m_the_last_events_time_counts_as_m():
    thp = SlowTHP(encoder(False), ["a"])
    column = number(1.0, 1.5 / 2.0, float(encoder(False).embedding((), 0, 1)))
    expected = softplus(float(ARRAYS["intensity.a.w"] @ column), 0.5)
    assert float(thp.intensity("a", 1.5, ())) == pytest.approx(expected, rel=1e-14)


def test_the_intensity_of_sahp_by_hand():
    x = by_hand(True)
    mu, eta, gamma = -0.2 + 0.9 * x, 0.4 - 0.3 * x, softplus(0.25 + 0.5 * x, 2.0)
    expected = softplus(mu + (eta - mu) * math.exp(-gamma * 1.5), 0.5)
    assert float(SlowSAHP(encoder(True), ["a"]).intensity("a", 4.5, HISTORY)) == pytest.approx(expected, rel=1e-14)
