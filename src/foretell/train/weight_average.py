"""A moving average of the parameters (Polyak and Juditsky 1992), which is scored and saved instead of them.

After step n the average moves towards the parameters by a share `1 − min(a, (1 + n)/(10 + n))` of the difference. So it soon forgets the
first steps, and later averages over about `1/(1 − a)` steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from foretell.errors import ForetellError

if TYPE_CHECKING:
    from foretell.train.checkpoint import Checkpoint


class WeightAverage:
    def __init__(self, model: nn.Module, share: float) -> None:
        self.parameters = {name: one for name, one in model.named_parameters() if one.requires_grad and share}
        self.share = share
        self.tensors = {name: one.detach().clone() for name, one in self.parameters.items()}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore the average from a checkpoint; raises `ForetellError` if it belongs to other parameters."""
        found = checkpoint.average
        if {name: one.shape for name, one in found.items()} != {name: one.shape for name, one in self.tensors.items()}:
            raise ForetellError(
                f"{checkpoint.path}: its average of parameters does not fit train.average = {self.share:g} in config.toml"
            )
        for name, tensor in found.items():
            self.tensors[name].copy_(tensor)

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """Update the average after step `step`, counted from 0."""
        if not self.tensors:
            return
        weight = 1.0 - min(self.share, (1.0 + step) / (10.0 + step))
        now = [one.detach() for one in self.parameters.values()]
        torch._foreach_lerp_(list(self.tensors.values()), now, weight)  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """A context in which the model has the averaged parameters; their memory addresses stay the same, for captured graphs."""
        own = {name: one.detach().clone() for name, one in self.parameters.items()}
        self._put(self.tensors)
        try:
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, tensors: dict[str, Tensor]) -> None:
        for name, one in self.parameters.items():
            one.copy_(tensors[name])
