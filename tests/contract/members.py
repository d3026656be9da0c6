"""Every model that must pass the contract, and how to state each in another unit of time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from foretell.data import Vocabulary
from foretell.data.calendar import Calendar
from foretell.lang.program import Program
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.last_event.last_event import LastEventModel
from foretell.models.last_event.sahp import SAHP
from foretell.models.last_event.thp import THP
from foretell.models.recurrent.nhp import NHP
from foretell.models.recurrent.rmtpp import RMTPP
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT
from foretell.models.rules.rule_model import RuleModel
from foretell.models.rules.s2ndtt import S2NDTT
from foretell.models.state_space.s2p2 import S2P2
from tests.calendar_samples import YEARLY, with_calendar
from tests.samples import NAMES, PLAIN, randomise, with_hawkes_part

VOCABULARY = Vocabulary(NAMES[:3])
TIMED: dict[str, Any] = {
    "heads": 2,
    "head_size": "split",
    "head_decay": True,
    "elapsed": 3,
    "intensity_scales": 3,
    "layer_norm": True,
    "feed_forward": 5,
    "activation": "gelu",
}


@dataclass(frozen=True)
class Member:
    name: str
    build: Callable[[], IntensityModel]  # in float64, with random parameters
    restate: Callable[[Any, float], None]  # the same process where all times are `c` times larger, in place
    remembers: bool = True  # its intensities depend on the history
    moves_late: bool = (
        True  # False: what happens in a gap depends on its length over its start, which is nothing late in time
    )


def _anhp(**options: Any) -> Callable[[], ANHP]:
    def build() -> ANHP:
        model = randomise(ANHP(VOCABULARY, dim=4, dtype=torch.float64, **{**PLAIN, **options}), seed=11)
        model.time.set_range(0.2, 12.0)
        for scales in (model.elapsed, model.scales):
            scales.set_range(0.1, 4.0)
        model.time_scale = 1.3
        return with_hawkes_part(model, seed=12)

    return build


def _andtt(text: str, **options: Any) -> Callable[[], ANDTT]:
    program = Program.from_text(text, dim=4)

    def build() -> ANDTT:
        sizes = {"dim": 4, "intensity_scales": 0, **options}
        model = randomise(ANDTT(program, VOCABULARY, dtype=torch.float64, **sizes), seed=14)
        model.time.set_range(0.2, 12.0)
        model.mixture.set_range(0.1, 4.0)
        model.time_scale = 1.3
        return model

    return build


def _nhp(dim: int) -> Callable[[], NHP]:
    def build() -> NHP:
        model = randomise(NHP(VOCABULARY, dim=dim, dtype=torch.float64), seed=15)
        model.time_scale = 1.3
        return model

    return build


def _rmtpp(dim: int) -> Callable[[], RMTPP]:
    def build() -> RMTPP:
        model = randomise(RMTPP(VOCABULARY, dim=dim, dtype=torch.float64), seed=18)
        model.time_scale = 1.3
        return model

    return build


def _s2p2(**options: Any) -> Callable[[], S2P2]:
    def build() -> S2P2:
        model = randomise(S2P2(VOCABULARY, dtype=torch.float64, **options), seed=19)
        model.time_scale = 1.3
        return model

    return build


def _restate_scale(model: NHP | RMTPP | S2P2, c: float) -> None:
    model.time_scale *= c


def _last_event(cls: type[LastEventModel], **options: Any) -> Callable[[], LastEventModel]:
    def build() -> LastEventModel:
        model = randomise(cls(VOCABULARY, dim=4, dtype=torch.float64, **options), seed=16)
        model.time.set_range(0.2, 12.0)
        model.time_scale = 1.3
        if isinstance(model, THP):
            model.elapsed_scale = 2.5
        return model

    return build


def _cells(cls: type[NDTT] | type[S2NDTT], text: str, *, seed: int, **options: Any) -> Callable[[], IntensityModel]:
    program = Program.from_text(text, dim=4)

    def build() -> NDTT | S2NDTT:
        model = randomise(cls(program, VOCABULARY, dim=4, dtype=torch.float64, **options), seed=seed)
        model.mixture.set_range(0.1, 4.0)
        model.time_scale = 1.3
        return model

    return build


_ndtt = partial(_cells, NDTT, seed=15)
_s2ndtt = partial(_cells, S2NDTT, seed=20)


def _poisson() -> Poisson:
    return randomise(Poisson(VOCABULARY), seed=12)


def _hawkes(decays: int) -> Callable[[], Hawkes]:
    def build() -> Hawkes:
        model = randomise(Hawkes(VOCABULARY, decays=decays), seed=13)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.abs_()
        return model

    return build


def _restate_waves(model: ANHP | ANDTT | LastEventModel, c: float) -> None:
    model.time.set_range(model.time.m * c, model.time.M * c)
    model.time_scale *= c
    if isinstance(model, ANHP):
        for scales in (model.elapsed, model.scales):
            scales.set_range(scales.short * c, scales.long * c)
        if model.hawkes is not None:
            model.hawkes.alpha /= c
            model.hawkes.log_beta -= math.log(c)
    if isinstance(model, ANDTT):
        model.mixture.set_range(model.short * c, model.long * c)


def _restate_cells(model: NDTT | S2NDTT, c: float) -> None:
    model.time_scale *= c
    model.mixture.set_range(model.short * c, model.long * c)


def _restate_poisson(model: Poisson, c: float) -> None:
    with torch.no_grad():
        model.log_rate.sub_(math.log(c))


def _restate_hawkes(model: Hawkes, c: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.div_(c)


# Everything is always possible. Events of every type are attended to, some proofs are pooled, and additions are removed.
CLUB = """
:- event(a). :- event(b). :- event(c).
mood. guest(x). guest(y).
a :- mood.
b :- mood, guest(X).
c :- guest(X).
mood <- a.
mood <- b.
guest(X) <- c, guest(X).
!mood <- c.
"""
# Facts without embeddings that come and go, dimensions of every size, one matrix for two rules.
BARE = """
:- event(a, 3). :- event(b, 1). :- event(c, 3). :- embed(on, 0). :- embed(off, 0). :- key(b, 2).
a. b. c.
on(x) <- a. on(y) <- a.
!on(X) <- b, on(X).
c :- on(X).
c :- on(X), not off.
off <- b.
a <- a :: w. c <- a :: w.
b <- b. b <- b, on(X).
a <- c. c <- c. c <- b.
"""
EDGES = [("a", "a"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "b")]
GROUPS = {"a": "x", "b": "x", "c": "y"}
BARE_LAYERS: dict[str, Any] = {"layers": 3, "layer_norm": False, "feed_forward": 0}

MEMBERS = [
    Member("poisson", _poisson, _restate_poisson, remembers=False),
    Member("hawkes", _hawkes(1), _restate_hawkes),
    Member("hawkes with three decays", _hawkes(3), _restate_hawkes),
    Member("anhp", _anhp(), _restate_waves),
    Member("anhp with one layer", _anhp(layers=1, time_dim=3), _restate_waves),
    Member("anhp with three layers and two heads", _anhp(layers=3, heads=2), _restate_waves),
    Member("anhp with each type itself", _anhp(coarse="none"), _restate_waves),
    Member("anhp with coarse types", _anhp(coarse=GROUPS, bos=True), _restate_waves),
    Member("anhp with edges", _anhp(edges=EDGES), _restate_waves),
    Member("anhp with edges, coarse types and bos", _anhp(edges=EDGES, coarse=GROUPS, bos=True), _restate_waves),
    Member("anhp with sublayers", _anhp(layer_norm=True, feed_forward=5, bos=True), _restate_waves),
    Member("anhp that sees elapsed time", _anhp(**TIMED), _restate_waves),
    Member("anhp without waves, each type itself", _anhp(**{**TIMED, "time_dim": 0, "coarse": "none"}), _restate_waves),
    Member("anhp with a Hawkes part", _anhp(**{**TIMED, "time_dim": 0, "hawkes": 2, "bos": True}), _restate_waves),
    Member("thp", _last_event(THP), _restate_waves, moves_late=False),
    Member(
        "thp with heads, and without sublayers",
        _last_event(THP, heads=2, **BARE_LAYERS),
        _restate_waves,
        moves_late=False,
    ),
    Member("sahp", _last_event(SAHP), _restate_waves),
    Member("sahp with heads, and without sublayers", _last_event(SAHP, heads=2, **BARE_LAYERS), _restate_waves),
    Member("nhp", _nhp(4), _restate_scale),
    Member("nhp with one dimension", _nhp(1), _restate_scale),
    Member("rmtpp", _rmtpp(4), _restate_scale),
    Member("rmtpp with one dimension", _rmtpp(1), _restate_scale),
    Member("s2p2", _s2p2(dim=5, layers=2, states=3), _restate_scale),
    Member("s2p2 with one layer", _s2p2(dim=4, layers=1, states=2), _restate_scale),
    Member("s2p2 with four layers", _s2p2(dim=6, layers=4, states=1), _restate_scale),
    Member("andtt", _andtt(CLUB), _restate_waves),
    Member("andtt with one layer and odd sizes", _andtt(BARE, layers=1, time_dim=3), _restate_waves),
    Member("andtt with time scales", _andtt(CLUB, intensity_scales=3), _restate_waves),
    Member("ndtt", _ndtt(CLUB), _restate_cells),
    Member("ndtt with time scales", _ndtt(BARE, intensity_scales=2, intensity_shape=2), _restate_cells),
    Member("ndtt with odd sizes", _ndtt(BARE), _restate_cells),
    Member("s2ndtt", _s2ndtt(CLUB, states=3), _restate_cells),
    Member("s2ndtt with layers and time scales", _s2ndtt(CLUB, layers=3, states=2, intensity_scales=2), _restate_cells),
    Member("s2ndtt with odd sizes", _s2ndtt(BARE, layers=2, states=1), _restate_cells),
]


def _followed(member: Member, calendar: Calendar) -> Member:
    """The same model, with the calendar."""

    def restate(model: IntensityModel, c: float) -> None:
        member.restate(model, c)
        followed = model.clock if isinstance(model, RuleModel) else model.calendar
        assert followed is not None
        followed.calendar = followed.phases.calendar = replace(calendar, seconds_per_unit=calendar.seconds_per_unit / c)

    def build() -> IntensityModel:
        return with_calendar(member.build(), calendar)

    return replace(member, name=f"{member.name}, calendar", build=build, restate=restate)


FOLLOWING = ["anhp that sees elapsed time", "thp", "sahp", "nhp", "rmtpp", "s2p2"]
FOLLOWING += ["andtt with time scales", "ndtt with odd sizes", "s2ndtt with layers and time scales"]
WITH_CALENDAR = [_followed(one, YEARLY) for one in MEMBERS if one.name in FOLLOWING]
