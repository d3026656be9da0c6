"""A-NHP's equations 1-4 with any visibility, including the future (paper, end of section 2).

The input are rows, each with a time, an initial vector and a type, and a bool matrix that says which row sees which. The output are their
embeddings at layers 0 … L. Parameters are those of the generative model; if only the past is visible, the embeddings are too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.batches.batch import Batch
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.layers import Dropout
from foretell.models.attention.structure import AttentionHead
from foretell.nn.dense_attention import dense_attention
from foretell.nn.lookup import lookup
from foretell.options import Sight

UNTYPED, BOS = -1, -2


@dataclass(frozen=True)
class EventRows:
    """Rows of events. A row without a type (a masked event, or one that summarises a sequence) attends with every head."""

    times: Tensor  # float64 [B, N]
    types: Tensor  # int64 [B, N]: indices into the vocabulary, or UNTYPED
    base: Tensor  # [B, N, D]: the embeddings of layer 0
    visible: Tensor  # bool [B, N, N]: True where the row sees the column


def events_of(batch: Batch) -> Tensor:
    """Return bool [B, N]: True for events, False for padding."""
    return torch.arange(batch.times.shape[1], device=batch.times.device) < batch.lengths[:, None]


def sight(batch: Batch, which: Sight) -> Tensor:
    """Return visibility, bool [B, N, N]: each event sees those before it, or all others."""
    if which not in get_args(Sight):
        raise ForetellError(f"history = {which!r}: expected one of {', '.join(get_args(Sight))}")
    width = batch.times.shape[1]
    square = torch.ones(width, width, dtype=torch.bool, device=batch.times.device)
    pattern = square.tril(-1) if which == "causal" else ~torch.eye(width, dtype=torch.bool, device=square.device)
    return pattern & events_of(batch)[:, None, :]


def checked_sight(batch: Batch, visible: Tensor | np.ndarray) -> Tensor:
    """Return a caller's visibility matrix with padding removed, after checks."""
    found = torch.as_tensor(visible, device=batch.times.device)
    rows, width = batch.times.shape
    if found.dtype != torch.bool or tuple(found.shape) != (rows, width, width):
        raise ForetellError(
            f"visible: found {found.dtype} of the shape {list(found.shape)}, expected bool [sequences, events, events] = "
            f"{[rows, width, width]}: True where the row sees the column"
        )
    return found & events_of(batch)[:, None, :]


def event_rows(model: ANHP, batch: Batch, visible: Tensor) -> EventRows:
    return EventRows(batch.times, batch.types, lookup(model.fine, batch.types), visible)


def with_question(rows: EventRows, times: Tensor, base: Tensor, valid: Tensor) -> EventRows:
    """Append a row at `times` [B] with the vector `base` [D]. It sees the `valid` events, [B, N]; no row sees it."""
    count = len(rows.times)
    return EventRows(
        torch.cat([rows.times, times[:, None]], dim=1),
        F.pad(rows.types, (0, 1), value=UNTYPED),
        torch.cat([rows.base, base.expand(count, 1, -1)], dim=1),
        F.pad(torch.cat([rows.visible, valid[:, None, :]], dim=1), (0, 1)),
    )


def embed_rows(model: ANHP, rows: EventRows) -> list[Tensor]:
    """Return the embeddings of the rows at layers 0 … L: [B, N, D] each."""
    if model.bos_base is not None:
        rows = _after_bos(rows, model.bos_base)
    drop = Dropout(model.dropout if model.training else 0.0, model.noise)
    time = model.time.with_one(rows.times, model.dtype)[..., : 1 + model.time_dim]
    if model.elapsed.count:
        time = torch.cat([time, model.elapsed.features(rows.times - _last_seen(rows), model.dtype)], dim=-1)
    ages = (rows.times[:, :, None] - rows.times[:, None, :]).abs().to(model.dtype)
    copies = model.dim // model.head_size
    embeddings = [rows.base]
    for layer in model.layer_list():
        column = torch.cat([time, embeddings[-1]], dim=-1)
        attended = torch.zeros_like(rows.base)
        for run, head in enumerate(model.run_heads()):
            if head.serves_history():
                visible = rows.visible & _through(head, rows.types)
                found = []
                for index in range(run * copies, (run + 1) * copies):
                    query, key, value = (F.linear(column, matrix[index]) for matrix in (layer.Q, layer.K, layer.V))
                    decay = layer.decay(index, 1, model.time_scale)
                    fall = None if decay is None else decay * ages
                    found.append(dense_attention(query, key / math.sqrt(model.head_size), value, visible, fall))
                attended = attended + torch.cat(found, dim=-1)
        embeddings.append(layer.combine(embeddings[-1], attended, drop))
    first = 0 if model.bos_base is None else 1
    return [embedding[:, first:] for embedding in embeddings]


def _last_seen(rows: EventRows) -> Tensor:
    """Return the latest time among the earlier rows that each row sees, or 0: float64 [B, N]."""
    before = rows.visible & torch.ones_like(rows.visible[:1]).tril(-1)
    return torch.where(before, rows.times[:, None, :], 0.0).amax(-1) if rows.times.shape[1] else rows.times


def _through(head: AttentionHead, types: Tensor) -> Tensor:
    """Return bool [B, N or 1, N or 1]: True where the row attends to the column with this head."""
    found = torch.ones(1, 1, 1, dtype=torch.bool, device=types.device)
    if head.reader is not None:
        found = found & ((types == head.reader) | (types == UNTYPED))[:, :, None]
    if head.source is not None:
        found = found & ((types == head.source) | (types == BOS))[:, None, :]
    return found


def _after_bos(rows: EventRows, base: Tensor) -> EventRows:
    """Return the rows behind an event at time 0 that all rows see and that sees none."""
    visible = F.pad(F.pad(rows.visible, (1, 0), value=True), (0, 0, 1, 0), value=False)
    return EventRows(
        F.pad(rows.times, (1, 0)),
        F.pad(rows.types, (1, 0), value=BOS),
        torch.cat([base.expand(len(rows.times), 1, -1), rows.base], dim=1),
        visible,
    )
