"""The random programs of `tests.ground` with what matters to a network: dimensions, key lengths, exponents, shared names, and times."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.lang.diagnostics import ProgramError
from foretell.lang.program import Program
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT
from foretell.models.rules.s2ndtt import S2NDTT
from foretell.reference.andtt import Settings
from foretell.reference.database import changes, first_state
from tests.ground.random_programs import Case, lifetimes, random_case
from tests.samples import Rules, randomise_rules

GAPS = (0.0, 0.0, 0.25, 0.4, 1.3)  # some events are at one time


@dataclass(frozen=True)
class RichCase:
    text: str
    program: Program
    settings: Settings
    sequences: list[tuple[list[str], list[float], float]]  # events, times, t_end
    vocabulary: Vocabulary
    time_scale: float
    factors: dict[str, int]  # how many scales these have
    dates: Callable[[EventData], EventData] = field(default=lambda data: data)  # what gives sequences a start

    @property
    def data(self) -> EventData:
        rows = [
            EventSequence(
                np.asarray(times, dtype=np.float64),
                np.asarray([self.vocabulary.find(event) for event in events], dtype=np.int32),
                t_end,
                str(place),
            )
            for place, (events, times, t_end) in enumerate(self.sequences)
        ]
        return self.dates(EventData(rows, self.vocabulary, "window", "sample"))

    def model(self, seed: int = 3) -> ANDTT:
        """An A-NDTT with parameters that are drawn at random."""
        made = ANDTT(
            self.program,
            self.vocabulary,
            dim=self.settings.dim,
            layers=self.settings.layers,
            time_dim=self.settings.time_dim,
            layer_norm=self.settings.layer_norm,
            feed_forward=self.settings.feed_forward,
            dtype=torch.float64,
            **self.factors,
        )
        made.ground(self.data)
        randomise_rules(made, seed)
        made.time.set_range(self.settings.m, self.settings.M)
        return self._timed(made)

    def ndtt(self, seed: int = 3, spread: float = 0.6) -> NDTT:
        """An NDTT with parameters that are drawn at random."""
        sizes = {"dim": self.settings.dim, **self.factors}
        made = NDTT(self.program, self.vocabulary, dtype=torch.float64, **sizes)
        made.ground(self.data)
        return randomise_rules(self._timed(made), seed, spread)

    def s2ndtt(self, seed: int = 3, spread: float = 0.6) -> S2NDTT:
        """An S2-NDTT with parameters that are drawn at random."""
        sizes = {"dim": self.settings.dim, "layers": self.settings.layers, "states": self.settings.time_dim}
        made = S2NDTT(self.program, self.vocabulary, dtype=torch.float64, **sizes, **self.factors)
        made.ground(self.data)
        return randomise_rules(self._timed(made), seed, spread)

    def _timed(self, model: Rules) -> Rules:
        model.time_scale = self.time_scale
        model.mixture.set_range(0.05, 3.0)
        return model


@lru_cache
def rich_case(seed: int, expiry: bool = False) -> RichCase:
    """With `expiry`, additions of many rules end, some of them at the time of an event."""
    draw = random.Random(f"rich {seed}")
    base = random_case(seed, expiry=expiry)
    dim = draw.randint(1, 3)
    text = base.text
    text = _changed(text, _changes(draw, base.program, text), dim)
    program = Program.from_text(text, dim=dim)
    times = np.cumsum([draw.choice(GAPS) * draw.random() for _ in base.events]).round(6).tolist()
    times = base.times if expiry else times
    half = len(times) // 2
    sequences = [
        (base.events, times, (times or [0.0])[-1] + draw.choice([0.0, 0.7])),
        (base.events[:half], times[:half], (times or [0.0])[-1] + 0.1),
        ([], [], 1.0),
    ]
    options = random.Random(f"sublayers {seed}")
    beyond = {"layer_norm": options.random() < 0.2, "feed_forward": options.choice([0, 0, 0, 3])}
    settings = Settings(dim, draw.randint(1, 2), draw.randint(1, 4), 0.3, 7.0, **beyond)
    vocabulary, time_scale = _vocabulary(draw, program, base), draw.choice([1.0, 1.7])
    factors = {"intensity_scales": options.choice([0, 1, 3]), "intensity_shape": options.choice([0, 0, 2])}
    return RichCase(text, program, settings, sequences, vocabulary, time_scale, factors)


def _vocabulary(draw: random.Random, program: Program, base: Case) -> Vocabulary:
    """Events of the data, and most of the others that were possible: what is left out counts in the total alone."""
    events = base.events
    happened = changes(program, events, base.times, base.t_end, lifetimes(program))
    possible = {
        f"{fact[0]}({','.join(fact[1:])})" if fact[1:] else fact[0]
        for state in (first_state(program), *(one.state for one in happened))
        for fact in state.facts
        if program.functors[fact[0]].kind == "event"
    }
    others = [name for name in sorted(possible - set(events)) if draw.random() < 0.8]
    return Vocabulary(tuple([*dict.fromkeys(events), *others]))


def _changed(text: str, changes: list[tuple[str, str]], dim: int) -> str:
    """With changes to lines, and with new lines, but without those that would make the program wrong."""
    changed = text
    for old, new in changes:
        changed = changed.replace(old, new, 1) if old else changed + new
    try:
        Program.from_text(changed, dim=dim)
        return changed
    except ProgramError:
        half = len(changes) // 2
        return text if not half else _changed(_changed(text, changes[:half], dim), changes[half:], dim)


def _changes(draw: random.Random, program: Program, text: str) -> list[tuple[str, str]]:
    changes: list[tuple[str, str]] = []
    recursive = {name for one in program.components if one.recursive for name in one.functors}
    flat = draw.random() < 0.85  # then no proof of an embedding needs itself
    for name in program.functors:
        if flat and name in recursive:
            changes.append(("", f":- embed({name}, 0).\n"))
        elif draw.random() < 0.5:
            changes.append(("", f":- embed({name}, {draw.randint(0, 4)}).\n"))
        if draw.random() < 0.3:
            changes.append(("", f":- key({name}, {draw.randint(1, 4)}).\n"))
    lines = [
        line for line in text.splitlines() if re.search(r"\w.* (:-|<-) ", line) and not line.startswith((":", "!"))
    ]
    for line in lines:
        arrow = " <- " if " <- " in line else " :- "
        head, body = line.split(arrow)
        variables = sorted(set(re.findall(r"\b[V-Z]\b", body))) or ["a"]
        if "::" not in line and draw.random() < 0.25:  # twice more, under names that differ in a constant or a value
            names = draw.sample(["s(a)", "s(b)", f"s({variables[0]})"], 2)
            changes += [("", f"{line.removesuffix('.')} :: {name}.\n") for name in names]
        if draw.random() < 0.4:
            exponent = draw.choice(["b", "b(a)", f"b({variables[-1]})", f"b({variables[0]},a)"])
            changes.append((line, f"{head} : {exponent}{arrow}{body}"))
    return changes
