"""A-NDTT, the attentive neural Datalog through time (paper, section 5): facts attend to the events that added them.

All queries about a batch are one plan, to which the network is applied. An encoded history is just its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.lang.program import Program
from foretell.models.registry import LayerOptions, ModelSpec, register
from foretell.models.rules.andtt_network import Network
from foretell.models.rules.andtt_sampler import ANDTTSampler
from foretell.models.rules.event_features import PointInputs
from foretell.models.rules.listed_model import sampled_model
from foretell.models.rules.rule_model import RuleModel
from foretell.models.rules.rule_network import Embeddings
from foretell.models.rules.rule_options import RuleOptions
from foretell.models.units import wave_range
from foretell.nn.time import TimeEmbedding
from foretell.options import option
from foretell.plan.plan import Plan

TIME_SCALES = 12  # the default
PLAIN = {"layer_norm": False, "feed_forward": 0, "intensity_scales": 0}


@dataclass(frozen=True)
class AndttOptions(RuleOptions, LayerOptions):
    time_dim: int | None = option(None, doc="Components of the time embedding; None: as many as `dim`.")
    intensity_scales: int = option(TIME_SCALES, doc="Time scales of the mixture that multiplies intensities; 0: none.")

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {**PLAIN, "shortest_wave": "min", "calendar": False},
        "plain": PLAIN,  # the paper's equations, but not its start
    }

    def mistakes(self) -> list[str]:
        wrong = self.time_dim is not None and self.time_dim < 1
        return super().mistakes() + ([f"time_dim = {self.time_dim}: expected 1 or more"] if wrong else [])


@register(ModelSpec("andtt", "A-NDTT", AndttOptions, "facts attend to the events that added them", "Yang et al. 2022"))
class ANDTT(RuleModel[AndttOptions]):
    """A-NDTT, attentive neural Datalog through time: a program of rules is the network.

    Every fact that holds has an embedding, computed from its proofs (`:-` rules) and attention to the events that added it (`<-` rules).
    A possible event has the intensity `λ(t) = softplus(w · [1; embedding])`, here multiplied by a mixture over time scales. Impossible
    events have no intensity.

    Yang, Mei & Eisner, "Transformer Embeddings of Irregularly Spaced Events and Their Participants", ICLR 2022.

    Example:
        >>> program = ft.Program.from_text("user(ann). user(bob). :- event(buy). buy(U) :- user(U), not has(U). has(U) <- buy(U).")
        >>> data = ft.EventData.from_names([["buy(ann)", "buy(bob)"]], [[1.0, 2.0]], t_ends=[5.0])
        >>> model = ft.fit(ft.ANDTT(program, data.vocabulary, dim=8, layers=1), data, epochs=1).model
        >>> (model.intensity(data[0], [1.5]) > 0.0).tolist()  # ann has one by then
        [[False, True]]
    """

    shown_sizes = ("dim", "layers")
    unit_names = ("m", "M", "time_scale")
    shown_units = {"m": "m", "M": "M"}  # noqa: RUF012

    def __init__(
        self,
        program: Program | str | Path,
        vocabulary: Vocabulary | None = None,
        options: AndttOptions | None = None,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        **changes: Any,
    ) -> None:
        chosen = self.chosen(options, changes)
        time_dim, feed_forward = chosen.time_dim or max(chosen.dim, 1), chosen.feed_forward or 0
        chosen = replace(chosen, time_dim=time_dim, feed_forward=feed_forward)
        super().__init__(program, vocabulary, chosen, time_dim)
        self.layers, self.time_dim = chosen.layers, time_dim
        self.time = TimeEmbedding(self.time_dim)
        self.network = Network(self.book, chosen.layers, self.time, seed, chosen.layer_norm, feed_forward)
        self._start(seed)
        self.to(dtype)

    @property
    def rule_network(self) -> Network:
        return self.network

    def prepare(self, data: EventData) -> None:
        self.time.set_range(*wave_range(data, self.options.shortest_wave))
        super().prepare(data)

    def encode(self, batch: Batch) -> Batch:
        """Return the batch itself. Embeddings are only computed when there are queries."""
        return batch

    def batch_of(self, history: Batch) -> Batch:
        return history

    def slot_embeddings(self, history: Batch, plan: Plan, times: Tensor, given: PointInputs) -> Embeddings:
        return self.network(plan, times, numbers=given.numbers, clock=self.added_time(given.moments))

    def clock_sizes(self) -> tuple[dict[str, int], int]:
        return {}, self.time_dim

    def added_time(self, moments: Tensor | None) -> Tensor | None:
        """Return the calendar's term in the time embedding at moments [n]: [n, T]; None: there is no calendar."""
        return None if self.clock is None or moments is None else self.clock.added_time(moments)

    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> ANDTTSampler:
        return ANDTTSampler.start(sampled_model(self), histories, seen)
