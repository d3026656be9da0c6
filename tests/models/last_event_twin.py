"""From a fast THP or SAHP to its slow twin over the same leaf parameters, and what the tests of both ask of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.data import EventData, Vocabulary
from foretell.models.last_event.last_event import LastEventModel
from foretell.models.last_event.sahp import SAHP
from foretell.models.last_event.thp import THP
from foretell.objective.loglik import Points
from foretell.reference.events import before_time
from foretell.reference.likelihood import Point, log_likelihood
from foretell.reference.sahp import SlowSAHP
from foretell.reference.thp import SlowTHP
from foretell.reference.transformer import SlowEncoder
from tests.samples import NAMES, as_history, random_data, randomise

VALUES, GRADIENTS = 1e-10, 1e-8
Twin = SlowTHP | SlowSAHP


@dataclass(frozen=True)
class Case:
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    lengths: tuple[int, ...] = (4, 0, 6, 1)
    types: int = 3
    ties: bool = False

    def model(self, cls: type[LastEventModel], seed: int = 1) -> LastEventModel:
        options = {"dim": 4, "layers": 2, **self.options}
        model = randomise(cls(Vocabulary(NAMES[: self.types]), **options, dtype=torch.float64), seed)
        model.time.set_range(0.13, 11.0)
        model.time_scale = 1.7
        if isinstance(model, THP):
            model.elapsed_scale = 3.0
        return model

    def data(self, seed: int = 2) -> EventData:
        return random_data(seed, self.lengths, types=self.types, ties=self.ties)


CASES = [
    Case("as it comes"),
    Case("one layer", {"layers": 1}),
    Case("three layers and two heads", {"layers": 3, "heads": 2}),
    Case("four heads", {"heads": 4}),
    Case("an odd dimension", {"dim": 5}),
    Case("one component", {"dim": 1}),
    Case("without LayerNorm", {"layer_norm": False}),
    Case("without feed-forward", {"feed_forward": 0}),
    Case("attention alone", {"layer_norm": False, "feed_forward": 0, "heads": 2}),
    Case("ties", ties=True, lengths=(9, 6)),
    Case("longer than a tile", lengths=(13, 3, 9)),
    Case("empty sequences only", lengths=(0, 0)),
    Case("one event", lengths=(1,)),
    Case("one type", types=1),
]


@st.composite
def random_cases(draw: st.DrawFn) -> tuple[Case, int]:
    heads = draw(st.integers(1, 3))
    options = {
        "heads": heads,
        "dim": heads * draw(st.integers(1, 3)),
        "layers": draw(st.integers(1, 3)),
        "layer_norm": draw(st.booleans()),
        "feed_forward": draw(st.sampled_from([0, 3, None])),
    }
    lengths = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
    return Case("random", options, lengths, draw(st.integers(1, 3)), draw(st.booleans())), draw(st.integers(0, 1000))


def attached_arrays(model: LastEventModel) -> dict[str, Tensor]:
    """What `named_arrays` gives, but still attached to the model's parameters, so that gradients reach them."""
    dim, unit = model.dim, model.time_scale
    base = model.encoder.base
    names = model.vocabulary.names
    found = {f"embed.{name}": base[index] for index, name in enumerate(names)} | {"bos": base[len(names)]}
    for number, layer in enumerate(model.encoder.layer_list(), start=1):
        for name, parameter in layer.named_parameters():
            if name == "QKV":
                size = dim // model.heads
                for place, letter in enumerate("QKV"):
                    for head in range(model.heads):
                        first = place * dim + head * size
                        found[f"attend.head{head + 1}.{number}.{letter}"] = parameter[first : first + size]
            else:
                found[f"attend.{number}.O" if name == "O" else f"layer.{number}.{name}"] = parameter
    for index, name in enumerate(names):
        own: dict[str, Tensor] = {"tau": model.log_tau[index].exp() / unit}
        if isinstance(model, THP):
            slope = model.w_elapsed[index : index + 1] / model.elapsed_scale
            own["w"] = torch.cat([model.w_constant[index : index + 1], slope, model.w[index]]) / unit
        else:
            assert isinstance(model, SAHP)
            for place, what in enumerate(("mu", "eta", "gamma")):
                row = place * len(names) + index
                own[what] = torch.cat([model.w_constant[row : row + 1], model.w[row]]) / unit
            own["nu"] = model.log_nu[index].exp() / unit
        found |= {f"intensity.{name}.{what}": array for what, array in own.items()}
    return found


def twin_of(model: LastEventModel) -> Twin:
    encoder = SlowEncoder(
        attached_arrays(model),
        dim=model.dim,
        layers=model.layers,
        heads=model.heads,
        m=model.time.m,
        M=model.time.M,
        layer_norm=model.options.layer_norm,
        feed_forward=model.options.feed_forward > 0,
        shifted=isinstance(model, SAHP),
    )
    slow = SlowSAHP if isinstance(model, SAHP) else SlowTHP
    return slow(encoder, model.vocabulary.names)


def slow_log_likelihood(twin: Twin, data: EventData, batch: Batch, points: Points) -> Tensor:
    """Of each sequence of the batch, which holds `data` in its order: [B]."""
    gap = points.gap.expand_as(points.weights)
    first = 1 if data.origin == "first-event" else 0
    values = []
    for row in range(len(batch)):
        columns = (column.tolist() for column in (points.queries.times[row], gap[row], points.weights[row]))
        seen = [Point(*one) for one in zip(*columns, strict=True) if one[-1] > 0.0]
        values.append(log_likelihood(twin.intensity, twin.types, as_history(data, row), seen, first))
    return torch.stack(values)


def slow_intensities(twin: Twin, data: EventData, times: Tensor) -> Tensor:
    found = []
    for row, row_times in enumerate(times.tolist()):
        sequence = as_history(data, row)
        for time in row_times:
            found += [twin.intensity(type, time, before_time(sequence, time)) for type in twin.types]
    return torch.stack(found).reshape(*times.shape, len(twin.types))


def assert_close(fast: Tensor, slow: Tensor) -> None:
    assert fast.shape == slow.shape
    torch.testing.assert_close(fast, slow, rtol=VALUES, atol=VALUES)


def assert_same_gradients(fast: Tensor, slow: Tensor, model: LastEventModel) -> None:
    names, parameters = zip(*model.named_parameters(), strict=True)
    both = [torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (fast, slow)]
    for name, parameter, one, other in zip(names, parameters, *both, strict=True):
        of_fast, of_slow = (torch.zeros_like(parameter) if grad is None else grad for grad in (one, other))
        torch.testing.assert_close(
            of_fast, of_slow, rtol=GRADIENTS, atol=GRADIENTS, msg=lambda text, name=name: f"{name}: {text}"
        )
