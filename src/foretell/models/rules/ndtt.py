"""NDTT, neural Datalog through time (docs/explanation/rivals.md): every fact that events add has a gated cell, updated by these events."""

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
from foretell.models.rules.ndtt_network import GatedNetwork
from foretell.models.rules.ndtt_sampler import NDTTSampler
from foretell.models.rules.rule_options import RuleOptions


@dataclass(frozen=True)
class NdttOptions(RuleOptions):
    """The options of all models made of rules."""


@register(ModelSpec("ndtt", "NDTT", NdttOptions, "facts have cells that events move", "Mei et al. 2020"))
class NDTT(CellModel[NdttOptions]):
    """NDTT, neural Datalog through time: a program of rules is the network, and facts have LSTM cells.

    Events that add a fact update its cell, which decays between them. Proofs are embedded as in A-NDTT.

    Mei, Qin, Xu & Eisner, "Neural Datalog Through Time: Informed Temporal Modeling via Logical Specification", ICML 2020.

    Example:
        >>> program = ft.Program.from_text("user(ann). user(bob). :- event(buy). buy(U) :- user(U), not has(U). has(U) <- buy(U).")
        >>> ft.NDTT(program, dim=8).options.dim
        8
    """

    shown_sizes = ("dim",)

    def __init__(
        self,
        program: Program | str | Path,
        vocabulary: Vocabulary | None = None,
        options: NdttOptions | None = None,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        **changes: Any,
    ) -> None:
        super().__init__(program, vocabulary, self.chosen(options, changes), None)
        self.network = GatedNetwork(self.book, seed)
        self._start(seed)
        self.to(dtype)

    @property
    def rule_network(self) -> GatedNetwork:
        return self.network

    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> NDTTSampler:
        return NDTTSampler.start(sampled_model(self), histories, seen)
