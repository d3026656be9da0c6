"""Data-parallel training: what the processes of one training tell each other, by `torch.distributed`.

Every process makes the same batches and the same draws, takes its share of a batch's pieces, and adds its gradients to those of the
others: a step is that of one process with the whole batch, up to the order in which floating-point numbers are added.
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
    """The processes of one training; alone, nothing is sent."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes the run folder and prints."""
        return self.rank == 0

    def share(self, work: Sequence[T]) -> Sequence[T]:
        """This process's part: every `size`-th, from its rank on."""
        return work[self.rank :: self.size]

    def owns(self, place: int) -> bool:
        """Whether a piece of work, by its place in the order, is in this process's share."""
        return place % self.size == self.rank

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors of one dtype by their sums over all processes, in one message."""
        several = list(tensors)
        if self.size == 1 or not several:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in several])
        with _told():
            dist.all_reduce(flat)
        for tensor, total in zip(several, flat.split([tensor.numel() for tensor in several]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def total(self, *values: float) -> list[float]:
        """Sums of numbers over all processes, the same bits in each."""
        if self.size == 1:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64)
        with _told():
            dist.all_reduce(summed)
            dist.broadcast(summed, 0)
        return summed.tolist()

    def any(self, flag: bool) -> bool:
        """Whether it is true in one of the processes."""
        return flag if self.size == 1 else self.total(float(flag))[0] > 0.0

    def equalise(self, model: nn.Module) -> None:
        """Give every process the parameters and buffers of the first."""
        if self.size > 1:
            with _told():
                for tensor in model.state_dict().values():
                    dist.broadcast(tensor, 0)


@contextmanager
def _told() -> Iterator[None]:
    """A process that has ended, as the others learn of it, in our words."""
    try:
        yield
    except RuntimeError as error:
        raise ForetellError(
            "another process of this training has ended; what was learned up to the last checkpoint is kept: "
            f"continue with `resume=` ({str(error).splitlines()[0][:200]})"
        ) from error


def process_group() -> ProcessGroup:
    """The processes that `torch.distributed` has joined; one process alone where it has not been started."""
    if dist.is_available() and dist.is_initialized():
        return ProcessGroup(dist.get_rank(), dist.get_world_size())
    return ProcessGroup()


def launched_rank() -> int:
    """The rank that `torchrun`, or `--processes`, gave to this process; 0 where it was started by neither."""
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isdecimal() and "WORLD_SIZE" in os.environ else 0


def is_launched() -> bool:
    """Whether `torchrun`, or `--processes`, started this process."""
    return "WORLD_SIZE" in os.environ


@contextmanager
def joined_processes() -> Iterator[ProcessGroup]:
    """Join the processes that `torchrun`, or `--processes`, has started with this one: Gloo on CPUs, NCCL on GPUs."""
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
    """Among several processes of one machine each has a GPU of its own: `cuda` is that of this process."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" and process_group().size > 1 else name
