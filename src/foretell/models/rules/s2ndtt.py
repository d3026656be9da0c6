"""S2-NDTT (docs/explanation/rivals.md): the rules of NDTT, with the linear systems of S2P2 instead of its cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from foretell.data import EventSequence, Vocabulary
from foretell.lang.program import Program
from foretell.models.registry import ModelSpec, register
from foretell.models.rules.cell_model import CellModel
from foretell.models.rules.listed_model import sampled_model
from foretell.models.rules.rule_options import RuleOptions
from foretell.models.rules.s2ndtt_network import PARTS, StateNetwork
from foretell.models.rules.s2ndtt_sampler import S2NDTTSampler
from foretell.options import option


@dataclass(frozen=True)
class S2ndttOptions(RuleOptions):
    layers: int = option(
        1, flag="Layers of linear systems.", tuned=(1, 2, 3)
    )  # L: more layers were not better on RoboCup's dev games
    states: int = option(8, tuned=(4, 8, 16), doc="Complex components of a fact's state in each layer.")  # P

    def mistakes(self) -> list[str]:
        found = super().mistakes()
        for name in ("layers", "states"):
            if getattr(self, name) < 1:
                found.append(f"{name} = {getattr(self, name)}: expected 1 or more")
        return found


@register(
    ModelSpec(
        "s2ndtt",
        "S2-NDTT",
        S2ndttOptions,
        "facts have linear state-space systems that events move",
        "Mei et al. 2020; Chang et al. 2025",
    )
)
class S2NDTT(CellModel[S2ndttOptions]):
    """S2-NDTT: a program of rules is the network, and facts have the linear systems of S2P2 instead of LSTM cells.

    A fact's state jumps when an event adds it. Between events it rotates and decays, `x(t) = exp(Λ(t − s)) x(s)`. Proofs are embedded as in
    A-NDTT. `foretell train` chooses this model if there is a program.

    Example:
        >>> program = ft.Program.from_text("user(ann). user(bob). :- event(buy). buy(U) :- user(U), not has(U). has(U) <- buy(U).")
        >>> ft.S2NDTT(program, dim=8, states=4).options.states
        4
    """

    shown_sizes = ("dim", "layers", "states")

    def __init__(
        self,
        program: Program | str | Path,
        vocabulary: Vocabulary | None = None,
        options: S2ndttOptions | None = None,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        **changes: Any,
    ) -> None:
        super().__init__(program, vocabulary, self.chosen(options, changes), None)
        self.layers, self.states = self.options.layers, self.options.states
        self.network = StateNetwork(self.book, seed, self.layers, self.states)
        self._start(seed)
        self.to(dtype)

    @property
    def rule_network(self) -> StateNetwork:
        return self.network

    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> S2NDTTSampler:
        return S2NDTTSampler.start(sampled_model(self), histories, seen)

    def _cell_rows(self) -> int:
        return PARTS * self.options.layers * self.options.states
