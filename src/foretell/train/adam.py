"""Adam with weight decay for matrices only and clipped gradients. A captured CUDA graph can update its state."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Adam:
    """AdamW with clipped gradients. Matrices and embeddings decay; biases and scales do not."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float, decay: float, clip: float, device: torch.device
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.clip, self.on_cuda = clip, device.type == "cuda"
        kept, free = ([p for p in self.parameters if (p.ndim > 1) == matrix] for matrix in (True, False))
        groups = [{"params": kept, "weight_decay": decay}, {"params": free, "weight_decay": 0.0}]
        rate = torch.tensor(lr, device=device) if self.on_cuda else lr  # a captured graph reads it at every replay
        self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=rate, fused=True, capturable=self.on_cuda
        )

    def clear(self) -> None:
        """Prepare a backward pass. On CUDA the first gradient replaces the old one instead of being added to zeros."""
        for parameter in self.parameters:
            if self.on_cuda:
                parameter.grad = None
            elif parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if gradients:
            torch._foreach_zero_(gradients)  # pyright: ignore[reportPrivateImportUsage]

    def complete(self) -> None:
        """Set the gradient of parameters that the loss does not depend on to zero."""
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def finish(self) -> None:
        """Complete the gradients of all parameters after a backward pass, and clip their norm."""
        self.complete()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)

    def descend(self, loss: Tensor) -> None:
        """Make one complete update that reduces this loss."""
        self.clear()
        loss.backward()
        self.finish()
        self.optimizer.step()

    def set_lr(self, lr: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr

    def start(self) -> None:
        """Create the moments, all zero, without changing a parameter: a captured graph needs their memory to exist."""
        if self.optimizer.state:
            return
        lr = float(self.optimizer.param_groups[0]["lr"])
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.set_lr(0.0)
        self.optimizer.step()
        self.set_lr(lr)
        for state in self.optimizer.state.values():
            state["step"].zero_()
