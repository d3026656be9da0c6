"""The parts of noise: Poisson processes in every gap, given the observed events. A part is constant, falling, or a step function of time.

From a batch and the excitation by its events, a part computes expected counts, times and rates. The integral of each part can be
inverted, so that its events are drawn exactly. A part may have several *columns*, which are drawn separately. `Profile` is a step function
of elapsed time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch
from foretell.data import Vocabulary
from foretell.data.files import replacing
from foretell.errors import ForetellError
from foretell.models.base import IntensityModel
from foretell.models.build import FORMAT, describe, load_model, rebuild, save_model
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.tensor_file import read_tensors


@dataclass(frozen=True)
class Profile:
    """A step function: the rate of mark `k` is `rate[k, r]` from `edges[k, r]` to the next edge. The last step never ends, and the rate
    before 0 is zero."""

    edges: Tensor  # float64 [K, R]: ascending from 0; two equal edges make an empty step
    rate: Tensor  # float64 [K, R]
    mass: Tensor  # float64 [K, R]: the integral from 0 to each edge

    @classmethod
    def of(cls, edges: Tensor, rate: Tensor) -> Self:
        """Check the values, which may come from a file, and compute the integrals. Raise a ValueError if they are wrong."""
        fine = edges.ndim == 2 and edges.shape == rate.shape and edges.shape[1] > 0
        if not fine or edges.dtype != torch.float64 or rate.dtype != torch.float64:
            found = f"{edges.dtype} {list(edges.shape)} and {rate.dtype} {list(rate.shape)}"
            raise ValueError(f"edges and rates are {found}, expected float64 of one shape, with steps")
        if not bool(edges.isfinite().all() and (edges[:, 0] == 0.0).all() and (edges.diff(dim=1) >= 0.0).all()):
            raise ValueError("edges of steps do not rise from 0")
        if not bool(rate.isfinite().all() and (rate >= 0.0).all()):
            raise ValueError("rates of steps are not all finite and 0 or more")
        mass = F.pad((edges.diff(dim=1) * rate[:, :-1]).cumsum(1), (1, 0))
        if not bool(mass.isfinite().all()):
            raise ValueError("steps have an infinite integral")
        return cls(edges.contiguous(), rate.contiguous(), mass.contiguous())

    @classmethod
    def from_steps(cls, steps: Sequence[tuple[np.ndarray, np.ndarray]]) -> Self:
        """Make a profile from edges and rates of each mark. Marks with fewer steps are filled up with empty last steps."""
        most = max((len(edges) for edges, _ in steps), default=1)
        padded = [[np.pad(one, (0, most - len(one)), mode="edge") for one in pair] for pair in steps]
        edges, rate = np.array(padded, dtype=np.float64).reshape(len(steps), 2, most).transpose(1, 0, 2)
        return cls.of(torch.from_numpy(edges.copy()), torch.from_numpy(rate.copy()))

    def scaled(self, factors: Tensor) -> Self:
        """Return a profile whose rates are multiplied by the factor of their mark [K]."""
        return type(self).of(self.edges, self.rate * factors.unsqueeze(-1))

    def to(self, device: torch.device) -> Self:
        return type(self)(self.edges.to(device), self.rate.to(device), self.mass.to(device))

    def upto(self, elapsed: Tensor) -> Tensor:
        """Return the integrals of all marks from 0 to the elapsed times: [..., K] to [..., K]."""
        flat = elapsed.clamp(min=0.0).reshape(-1, len(self.rate)).T.contiguous()
        step = torch.searchsorted(self.edges, flat, right=True) - 1
        found = self.mass.gather(1, step) + (flat - self.edges.gather(1, step)) * self.rate.gather(1, step)
        return found.T.reshape(elapsed.shape)

    def at(self, elapsed: Tensor, marks: Tensor) -> Tensor:
        """Return the rates of single marks at elapsed times: [...] from [...] and [...]."""
        step = _last(self.edges, marks, elapsed.clamp(min=0.0))
        return torch.where(elapsed >= 0.0, self.rate[marks, step], 0.0)

    def when(self, mass: Tensor, marks: Tensor) -> Tensor:
        """Return the elapsed time at which the integral of a mark reaches `mass`: [...] from [...] and [...]. It must reach it."""
        # The integral is constant where the rate is 0: of several steps with the same integral, `_last` returns the last one.
        step = _last(self.mass, marks, mass)
        rate = self.rate[marks, step]
        more = torch.where(rate > 0.0, (mass - self.mass[marks, step]) / rate, 0.0)
        return self.edges[marks, step] + more


def _last(table: Tensor, rows: Tensor, value: Tensor) -> Tensor:
    """Return the last position in row `rows[i]` of the table whose entry is at most `value[i]`, by bisection. The first entry always is.

    `searchsorted` would need a copy of the row for each value.
    """
    flat, width = table.view(-1), table.shape[1]
    begin = rows * width
    found = torch.zeros_like(begin)
    step = 1 << max(0, (width - 1).bit_length() - 1)
    while step:
        further = found + step
        fits = (further < width) & (flat[begin + further.clamp(max=width - 1)] <= value)
        found, step = torch.where(fits, further, found), step >> 1
    return found


@dataclass(frozen=True)
class GapMarks:
    """Marks in gaps of a batch; the three tensors have the same shape."""

    row: Tensor
    gap: Tensor
    mark: Tensor


class NoisePart(Protocol):
    @property
    def columns(self) -> int: ...

    def expected(self, streams: int) -> Tensor:
        """Return the expected number of events per gap, column and mark: [B, G, columns, K]."""
        ...

    def waits(self, places: GapMarks, column: Tensor, uniform: Tensor) -> Tensor:
        """Return the time, after the start of the scored part of a gap, at which the integral has reached this share `uniform`."""
        ...

    def rate(self, places: GapMarks, time: Tensor) -> Tensor:
        """Return the rate of one stream, with all columns together."""
        ...


@dataclass(frozen=True)
class ConstantPart:
    batch: Batch
    mu: Tensor  # [K]
    columns: int = 1

    def expected(self, streams: int) -> Tensor:
        return (streams * self.batch.gap_length[..., None, None]) * self.mu

    def waits(self, places: GapMarks, column: Tensor, uniform: Tensor) -> Tensor:
        return self.batch.gap_length[places.row, places.gap] * uniform

    def rate(self, places: GapMarks, time: Tensor) -> Tensor:
        return self.mu[places.mark]


@dataclass(frozen=True)
class FallingPart:
    """`Σ_j r_j·exp(−β_j(t−s))` in the gap that begins at `s`, with a column for each decay."""

    batch: Batch
    raised: Tensor  # r: [B, G, J, K]
    beta: Tensor  # [J]

    @property
    def columns(self) -> int:
        return len(self.beta)

    def expected(self, streams: int) -> Tensor:
        beta, before = self.beta[:, None], (self.batch.scored_start - self.batch.gap_start)[..., None, None]
        left = self.raised * torch.exp(-before * beta)
        return left * (-torch.expm1(-self.batch.gap_length[..., None, None] * beta) / beta * streams)

    def waits(self, places: GapMarks, column: Tensor, uniform: Tensor) -> Tensor:
        beta = self.beta[column]
        return -torch.log1p(uniform * torch.expm1(-beta * self.batch.gap_length[places.row, places.gap])) / beta

    def rate(self, places: GapMarks, time: Tensor) -> Tensor:
        elapsed = (time - self.batch.gap_start[places.row, places.gap]).unsqueeze(-1)
        raised = self.raised.transpose(2, 3)[places.row, places.gap, places.mark]
        return (raised * torch.exp(-elapsed * self.beta)).sum(-1)


@dataclass(frozen=True)
class ClockPart:
    """A step function of the time since an origin, one origin per gap and mark; the rate is 0 where the origin is infinite."""

    batch: Batch
    profile: Profile
    origin: Tensor  # float64 [B, G, K]
    columns: int = 1

    @cached_property
    def _before(self) -> Tensor:
        """The integral up to the scored part of each gap: [B, G, K]."""
        return self.profile.upto(self.batch.scored_start.unsqueeze(-1) - self.origin)

    @cached_property
    def _mass(self) -> Tensor:
        """The integral over the scored part of each gap, 0 for gaps that are not scored: [B, G, K]."""
        found = self.profile.upto(self.batch.gap_end.unsqueeze(-1) - self.origin) - self._before
        return torch.where(self.batch.gap_length.unsqueeze(-1) > 0.0, found.clamp(min=0.0), 0.0)

    def expected(self, streams: int) -> Tensor:
        return (self._mass * streams).unsqueeze(2)

    def waits(self, places: GapMarks, column: Tensor, uniform: Tensor) -> Tensor:
        place = places.row, places.gap, places.mark
        wanted = self._before[place] + self._mass[place] * uniform
        found = self.origin[place] + self.profile.when(wanted, places.mark)
        return (found - self.batch.scored_start[places.row, places.gap]).clamp(min=0.0)

    def rate(self, places: GapMarks, time: Tensor) -> Tensor:
        return self.profile.at(time - self.origin[places.row, places.gap, places.mark], places.mark)


def since_start(batch: Batch, marks: int) -> Tensor:
    """Return the origin of a clock that starts with the sequence."""
    return batch.times.new_zeros(1, 1, 1).expand(*batch.gap_start.shape, marks)


def since_own(batch: Batch, mark_of_event: Tensor, marks: int) -> Tensor:
    """Return the time of the last event of each mark before each gap [B, G, K]; infinity if there is none."""
    number = torch.arange(1, batch.times.shape[1] + 1, device=batch.times.device) * batch.is_event
    number = number.expand_as(mark_of_event)
    last = number.new_zeros(*batch.gap_start.shape, marks)
    last[:, 1:].scatter_(2, mark_of_event.unsqueeze(-1), number.unsqueeze(-1))
    last = last.cummax(1).values
    times = F.pad(batch.times, (1, 0), value=torch.inf)
    return times.gather(1, last.flatten(1)).view(last.shape)


PROFILES = ("since_start", "since_own")


@dataclass(frozen=True)
class TimedNoise:
    """`λ^q_k(t)` of a Hawkes process, plus two step functions for each mark `k`, of two elapsed times."""

    kind: ClassVar[str] = "timed"
    hawkes: Hawkes  # gives the constant and falling parts; all rates already contain their weights in the sum
    since_start: Profile  # step function of the time since the sequence began
    since_own: Profile  # step function of the time since the last event of the same mark; not used before the first one

    @property
    def vocabulary(self) -> Vocabulary:
        return self.hawkes.vocabulary


Noise = Hawkes | Poisson | TimedNoise


def save_noise(process: IntensityModel | TimedNoise, path: Path) -> None:
    if not isinstance(process, TimedNoise):
        save_model(process, path)
        return
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in process.hawkes.state_dict().items()}
    for name in PROFILES:
        profile: Profile = getattr(process, name)
        tensors |= {f"{name}.edges": profile.edges.cpu(), f"{name}.rate": profile.rate.cpu()}
    with replacing(path) as temporary:
        temporary.write_bytes(
            save(tensors, {"foretell": json.dumps(describe(process.hawkes) | {"kind": TimedNoise.kind})})
        )


def load_noise(path: Path) -> IntensityModel | TimedNoise:
    """Load a noise process. A file without one is the user's error: raise a ForetellError."""
    file = read_tensors(path, "foretell", "a foretell model", "no such model file")
    try:
        if file.description["kind"] != TimedNoise.kind:
            return load_model(path)
        return _timed_noise(file.description, file.tensors)
    except ForetellError:
        raise
    except Exception as error:  # any exception comes from a damaged file
        raise ForetellError(f"{path}: not a foretell model ({type(error).__name__}: {error})") from error


def _timed_noise(description: dict[str, Any], tensors: dict[str, Tensor]) -> TimedNoise:
    if description["format"] != FORMAT:
        raise ValueError(f"its format is {description['format']}, this version reads format {FORMAT}")
    types, decays = len(description["types"]), len(tensors["beta"])
    expected = {"mu": (types,), "alpha": (types, types, decays), "beta": (decays,)}
    for name, shape in expected.items():  # allocate no more than the file contains
        if tuple(tensors[name].shape) != shape or tensors[name].dtype != torch.float64:
            raise ValueError(f"{name} is {tensors[name].dtype} {list(tensors[name].shape)}, expected {list(shape)}")
    spec = description["spec"] | {"decays": decays, "dtype": "float64"}
    hawkes = rebuild(description | {"kind": Hawkes.kind, "spec": spec})
    assert isinstance(hawkes, Hawkes)
    hawkes.load_state_dict({name: tensors.pop(name) for name in expected})
    profiles = [Profile.of(tensors.pop(f"{name}.edges"), tensors.pop(f"{name}.rate")) for name in PROFILES]
    if tensors or any(len(one.rate) != types for one in profiles):
        raise ValueError(f"step functions are not of {types} types, or there is more: {sorted(tensors)}")
    return TimedNoise(hawkes.eval(), *profiles)
