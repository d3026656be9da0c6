"""Task heads on an A-NHP's encoder: they predict the type of a masked event, or a label of a sequence or of its events.

The parameters of the head are additional and stay in the task's file. Those of the encoder can initialise other models.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch
from foretell.data import EventData, Vocabulary
from foretell.data.labels import Of
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.two_sided import (
    UNTYPED,
    EventRows,
    embed_rows,
    event_rows,
    events_of,
    sight,
    with_question,
)
from foretell.nn.lookup import lookup
from foretell.options import Sight

PSEUDO_COUNT = 0.5  # added to the count of every type or label, so that none is impossible at the start


class TaskHead(nn.Module, ABC):
    """The base class of all heads: an encoder, and a score `weight·embedding + level` for each outcome."""

    kind: ClassVar[str]
    title: ClassVar[str]
    purpose: ClassVar[str]  # what to do with such a run, for messages

    def __init__(self, encoder: ANHP, outcomes: int, seed: int) -> None:
        super().__init__()
        self.encoder = encoder
        generator = torch.Generator().manual_seed(seed)
        noise = torch.empty(outcomes, encoder.dim).normal_(generator=generator).mul_(0.1 / math.sqrt(encoder.dim))
        self.weight = nn.Parameter(noise.to(encoder.dtype))
        self.level = nn.Parameter(torch.zeros(outcomes, dtype=encoder.dtype))
        # The vector of an event without a type: a masked event, or the row that summarises a sequence.
        self.base = nn.Parameter(torch.empty(encoder.dim).normal_(generator=generator).to(encoder.dtype))

    @property
    def vocabulary(self) -> Vocabulary:
        return self.encoder.vocabulary

    @property
    def device(self) -> torch.device:
        return self.encoder.device

    @property
    def unseen(self) -> tuple[int, ...]:
        return self.encoder.unseen

    @property
    def longest(self) -> float | None:
        return self.encoder.longest

    @property
    def noise(self) -> torch.Generator | None:
        """The generator of dropout's random numbers."""
        return self.encoder.noise

    @noise.setter
    def noise(self, generator: torch.Generator | None) -> None:
        self.encoder.noise = generator

    def learned(self) -> list[nn.Parameter]:
        """Return all parameters except those that only intensities use."""
        mine = [self.weight, self.level, self.base, *self.encoder.attention.parameters(), self.encoder.fine]
        return mine if self.encoder.bos_base is None else [*mine, self.encoder.bos_base]

    def start_levels(self, counts: np.ndarray) -> None:
        """Set the levels to the log-frequencies of the training data."""
        shares = (counts + PSEUDO_COUNT) / (counts + PSEUDO_COUNT).sum()
        with torch.no_grad():
            self.level.copy_(torch.from_numpy(np.log(shares)))

    def log_probabilities_of(self, embedding: Tensor) -> Tensor:
        """Return the log-probabilities of all outcomes from top embeddings [..., D]."""
        return torch.log_softmax(F.linear(embedding, self.weight, self.level), dim=-1)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """A context without dropout. The previous mode is restored afterwards, also after an error."""
        was_training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(was_training)

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """Return the encoder's spec, and what else is needed to rebuild this network, as JSON."""

    @classmethod
    @abstractmethod
    def from_spec(cls, spec: dict[str, Any], vocabulary: Vocabulary) -> Self:
        """Rebuild a network, without its tensors, from what `spec` returned."""


class MaskedANHP(TaskHead):
    """Predicts the type of each masked event (paper, end of section 2: the objective of BERT, in continuous time)."""

    kind = "anhp-masked"
    title = "A-NHP, masked pretraining"
    purpose = (
        "start another model from it (ft.start_from, or `foretell train` with `init=…`), "
        "or take its embeddings (ft.embeddings_of, `foretell embed`)"
    )

    def __init__(self, encoder: ANHP, seed: int = 0) -> None:
        super().__init__(encoder, encoder.types, seed)
        with torch.no_grad():  # as in the generative model, events raise their own type
            self.weight.add_(encoder.fine * (encoder.options.echo / encoder.dim))

    def rows(self, batch: Batch, removed: Tensor, masked: Tensor, visible: Tensor | None = None) -> EventRows:
        """Return the corrupted history: events in `removed` [B, N] are visible to nobody, events in `masked` [B, N] have no type."""
        seen = sight(batch, "two-sided") if visible is None else visible
        own = lookup(self.encoder.fine, batch.types)
        return EventRows(
            batch.times,
            batch.types.masked_fill(masked, UNTYPED),
            torch.where(masked[..., None], self.base, own),
            seen & ~removed[:, None, :],
        )

    def log_probabilities(self, batch: Batch, removed: Tensor, masked: Tensor, visible: Tensor | None = None) -> Tensor:
        """Return log-probabilities of every type for each masked event, in the order of the batch: [masked events, K]."""
        top = embed_rows(self.encoder, self.rows(batch, removed, masked, visible))[-1]
        return self.log_probabilities_of(top[masked])

    def spec(self) -> dict[str, Any]:
        return self.encoder.spec()

    @classmethod
    def from_spec(cls, spec: dict[str, Any], vocabulary: Vocabulary) -> Self:
        return cls(ANHP.from_spec(spec, vocabulary))


class Classifier(TaskHead):
    """Predicts the label of a sequence, or of each of its events.

    For a sequence, an extra row at its end has a learned vector and attends to all events in every layer, like a possible event in the
    generative model. The label of an event is predicted from that event's own top embedding.
    """

    kind = "anhp-classifier"
    title = "A-NHP, classifier"
    purpose = "score it with `foretell evaluate RUN`, or label sequences with `foretell predict RUN DATA`"

    def __init__(
        self,
        encoder: ANHP,
        labels: tuple[str, ...],
        *,
        label: str = "label",
        of: Of = "sequences",
        history: Sight = "two-sided",
        seed: int = 0,
    ) -> None:
        super().__init__(encoder, len(labels), seed)
        if of not in get_args(Of) or history not in get_args(Sight):
            raise ForetellError(f"of = {of!r}, history = {history!r}: expected one of {get_args(Of) + get_args(Sight)}")
        self.labels, self.label = labels, label
        self.of: Of = of
        self.history: Sight = history
        self.counts = np.zeros(len(labels), dtype=np.int64)  # how often each label occurs in the training data

    def prepare(self, data: EventData, counts: np.ndarray) -> None:
        """Compute units, starting rates and initial levels from training data and the counts of its labels."""
        if not self.encoder.fitted:
            self.encoder.prepare(data)
        self.counts = counts.astype(np.int64)
        self.start_levels(counts)

    def log_probabilities(self, batch: Batch) -> Tensor:
        """Return log-probabilities of every label: [B, labels] for sequences, [B, N, labels] for events."""
        rows = event_rows(self.encoder, batch, sight(batch, self.history))
        if self.of == "events":
            return self.log_probabilities_of(embed_rows(self.encoder, rows)[-1])
        asked = with_question(rows, batch.t_end, self.base, events_of(batch))
        return self.log_probabilities_of(embed_rows(self.encoder, asked)[-1][:, -1])

    def spec(self) -> dict[str, Any]:
        head = {
            "labels": list(self.labels),
            "label": self.label,
            "of": self.of,
            "history": self.history,
            "counts": self.counts.tolist(),
        }
        return {**self.encoder.spec(), "head": head}

    @classmethod
    def from_spec(cls, spec: dict[str, Any], vocabulary: Vocabulary) -> Self:
        head = dict(spec["head"])
        counts, labels = np.asarray(head.pop("counts"), dtype=np.int64), tuple(map(str, head.pop("labels")))
        if counts.shape != (len(labels),):
            raise ValueError(f"{len(labels)} labels and {counts.size} counts")
        encoder = ANHP.from_spec({key: value for key, value in spec.items() if key != "head"}, vocabulary)
        made = cls(encoder, labels, **head)
        made.counts = counts
        return made
