"""Data-parallel training: communication between the processes of one training, by `torch.distributed`.

Every process makes the same batches and the same draws, computes its share of a batch's pieces, and sums its gradients with those of the
other processes. A step is equal to a step of one process with the whole batch, up to the order of floating-point additions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from foretell.errors import ForetellError

T = TypeVar("T")


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of one training. If there is only one, its methods send nothing."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes the run folder and prints."""
        return self.rank == 0

    def share(self, work: Sequence[T]) -> Sequence[T]:
        """Return this process's share of the work: every `size`-th piece, starting from its rank."""
        return work[self.rank :: self.size]

    def owns(self, place: int) -> bool:
        """Whether the piece of work at this position belongs to this process."""
        return place % self.size == self.rank

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Replace these tensors, all of one dtype, by their sums over all processes, in one message."""
        several = list(tensors)
        if self.size == 1 or not several:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in several])
        with _told():
            dist.all_reduce(flat)
        for tensor, total in zip(several, flat.split([tensor.numel() for tensor in several]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def total(self, *values: float) -> list[float]:
        """Return the sums of numbers over all processes, bit-identical in each process."""
        if self.size == 1:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64)
        with _told():
            dist.all_reduce(summed)
            dist.broadcast(summed, 0)
        return summed.tolist()

    def any(self, flag: bool) -> bool:
        """Whether the flag is true in at least one process."""
        return flag if self.size == 1 else self.total(float(flag))[0] > 0.0

    def equalise(self, model: nn.Module) -> None:
        """Copy the parameters and buffers of the first process to all processes."""
        if self.size > 1:
            with _told():
                for tensor in model.state_dict().values():
                    dist.broadcast(tensor, 0)


@contextmanager
def _told() -> Iterator[None]:
    """A context in which the error of `torch.distributed` about an ended process becomes a `ForetellError`."""
    try:
        yield
    except RuntimeError as error:
        raise ForetellError(
            "another process of this training has ended; what was learned up to the last checkpoint is kept: "
            f"continue with `resume=` ({str(error).splitlines()[0][:200]})"
        ) from error


def process_group() -> ProcessGroup:
    """Return the process group of `torch.distributed`; a group of one process if it is not initialised."""
    if dist.is_available() and dist.is_initialized():
        return ProcessGroup(dist.get_rank(), dist.get_world_size())
    return ProcessGroup()


def launched_rank() -> int:
    """Return the rank that `torchrun` or `--processes` gave to this process; 0 if neither started it."""
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isdecimal() and "WORLD_SIZE" in os.environ else 0


def is_launched() -> bool:
    """Whether `torchrun` or `--processes` started this process."""
    return "WORLD_SIZE" in os.environ


@contextmanager
def joined_processes() -> Iterator[ProcessGroup]:
    """Join the processes that `torchrun` or `--processes` has started with this one: Gloo on CPUs, NCCL on GPUs."""
    processes = os.environ.get("WORLD_SIZE", "1") or "1"
    if not processes.isdecimal():
        raise ForetellError(
            f"the environment variable WORLD_SIZE is {processes!r}: expected how many processes there are"
        )
    if int(processes) <= 1 or not dist.is_available():
        yield process_group()
        return
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    except (RuntimeError, ValueError) as error:
        raise ForetellError(f"the processes could not be joined: {str(error).splitlines()[0]}") from error
    try:
        yield process_group()
    finally:
        dist.destroy_process_group()


def own_device(name: str) -> str:
    """Return the device of this process: with several processes on one machine, `cuda` becomes the GPU of this process."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" and process_group().size > 1 else name
