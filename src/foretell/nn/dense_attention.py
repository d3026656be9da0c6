"""Attention with the extra `1 +` (paper, equations 1-2), with any visibility, given by a bool matrix.

`Σ α v / (1 + Σ α)`, `α = exp(q·k)`, over the keys that a query sees. The 1 is a null key with logit 0 and value 0. With it, attention
is one softmax, which is stable for logits of any size. Memory grows with queries × keys; for prefixes of a sequence use `attention.py`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812


def dense_attention(
    queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor, fall: Tensor | None = None
) -> Tensor:
    """queries: [B, Q, d]; keys: [B, N, d], already divided by sqrt(D); values: [B, N, D]; visible: bool [B, Q, N]; returns [B, Q, D].

    fall: [B, Q, N], which is subtracted from the logits.
    """
    logits = torch.bmm(queries, keys.transpose(1, 2))
    logits = (logits if fall is None else logits - fall).masked_fill(~visible, -math.inf)
    weights = torch.softmax(F.pad(logits, (1, 0)), dim=-1)[..., 1:]
    return torch.bmm(weights, values)
