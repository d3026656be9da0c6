"""A-NDTT, the attentive neural Datalog through time (paper, section 5): facts look back on the events that added them.

Everything that is asked about a batch is one plan, which the network applies; a history is nothing but its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor

from foretell.batches.batch import Batch
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.rules.andtt_network import Network
from foretell.models.rules.andtt_sampler import ANDTTSampler
from foretell.models.rules.program_parts import program_from_parts
from foretell.models.rules.rule_model import RuleModel
from foretell.models.rules.rule_network import Embeddings
from foretell.models.units import ShortestWave, wave_range
from foretell.nn.time import TimeEmbedding
from foretell.plan.plan import Plan, make_plan
from foretell.plan.slots import SequenceSlots


class ANDTT(RuleModel):
    kind = "andtt"
    title = "A-NDTT"

    def __init__(
        self,
        program: Program | str | Path,
        vocabulary: Vocabulary | None = None,
        *,
        dim: int = 32,
        layers: int = 2,
        time_dim: int | None = None,
        layer_norm: bool = False,
        feed_forward: int = 0,
        shortest_wave: ShortestWave = "quantile",
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if dim < 0 or layers < 1 or (time_dim is not None and time_dim < 1):
            raise ForetellError(f"dim = {dim}, layers = {layers}, time_dim = {time_dim}: expected 0, 1 and 1 or more")
        if feed_forward < 0:
            raise ForetellError(f"feed_forward = {feed_forward}: expected 0 (none) or the width of the hidden layer")
        rules = program if isinstance(program, Program) else Program.from_file(program, dim=dim)
        time_dim = max(dim, 1) if time_dim is None else time_dim
        super().__init__(rules, vocabulary, dim, time_dim)
        self.layers, self.time_dim = layers, time_dim
        self.layer_norm, self.feed_forward = layer_norm, feed_forward
        self.shortest_wave: ShortestWave = shortest_wave
        self.time = TimeEmbedding(self.time_dim)
        self.network = Network(self.book, layers, self.time, seed, layer_norm, feed_forward)
        self._start(seed)
        self.to(dtype)

    @property
    def rule_network(self) -> Network:
        return self.network

    def prepare(self, data: EventData) -> None:
        self.time.set_range(*wave_range(data, self.shortest_wave))
        super().prepare(data)

    def encode(self, batch: Batch) -> Batch:
        """The history is looked up by its events; nothing of it is a tensor before it is asked about."""
        return batch

    def batch_of(self, history: Batch) -> Batch:
        return history

    def make_plan(self, parts: Sequence[SequenceSlots]) -> Plan:
        return make_plan(parts, self.layout, self.book, self.device)

    def slot_embeddings(self, history: Batch, plan: Plan, times: Tensor) -> Embeddings:
        return self.network(plan, times)

    def sampler(self, histories: Sequence[EventSequence], seen: Sequence[int]) -> ANDTTSampler:
        return ANDTTSampler.start(self, histories, seen)

    def spec(self) -> dict[str, Any]:
        return self.rule_spec() | {
            "layers": self.layers,
            "time_dim": self.time_dim,
            "layer_norm": self.layer_norm,
            "feed_forward": self.feed_forward,
            "shortest_wave": self.shortest_wave,
            "m": self.time.m,
            "M": self.time.M,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any], vocabulary: Vocabulary) -> Self:
        dtype: Literal["float32", "float64"] = spec["dtype"]
        model = cls(
            program_from_parts(spec["program"], spec["dim"]),
            vocabulary,
            dim=spec["dim"],
            layers=spec["layers"],
            time_dim=spec["time_dim"],
            layer_norm=spec["layer_norm"],
            feed_forward=spec["feed_forward"],
            shortest_wave=spec["shortest_wave"],
            seed=spec.get("seed", 0),  # files of earlier versions have none
            dtype=getattr(torch, dtype),
        )
        model.meet_names(spec)
        model.time.set_range(spec["m"], spec["M"])
        return model
