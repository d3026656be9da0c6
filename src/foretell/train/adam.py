"""The optimiser of every lesson: AdamW, in which matrices and embeddings shrink and levels and scales do not."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def adam(parameters: Iterable[nn.Parameter], lr: float, decay: float, device: torch.device) -> torch.optim.AdamW:
    learned = list(parameters)
    kept, free = [p for p in learned if p.ndim > 1], [p for p in learned if p.ndim <= 1]
    groups = [{"params": kept, "weight_decay": decay}, {"params": free, "weight_decay": 0.0}]
    cuda = device.type == "cuda"
    rate = torch.tensor(lr, device=device) if cuda else lr  # a captured graph reads it anew each time
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=rate, fused=True, capturable=cuda)


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


class Descent:
    """One step at a time down any loss: gradients clipped as in the training of point processes."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float, decay: float, clip: float, device: torch.device
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.clip = clip
        self.optimizer = adam(self.parameters, lr, decay, device)

    def __call__(self, loss: Tensor) -> None:
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(
                parameter
            )  # what a loss does not touch has a gradient of zero, as Adam wants it
        loss.backward()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()

    def set_lr(self, lr: float) -> None:
        set_rate(self.optimizer, lr)
