"""The continuous-time LSTM (Mei & Eisner 2017): events and their times in, the cell after every event out.

Between events the memory decays to its target, `c(t) = c̄ + (c − c̄)·exp(−δ(t−s))`, and the output is `h(t) = o ⊙ tanh(c(t))`. An event
at `t` makes a new cell from `W x + U h(t) + b`, where `x` is the vector of its type. Only `U h(t)` depends on the event before; the rest is
a row of a table. So a step is one product and ten small operations on all sequences at once; its gradient is one product and five more.
The gradient is written by hand, because calls cost as much as the arithmetic. What does not depend on the previous step is computed for
all steps together.

Internally time is the first dimension, so that the numbers of a step are contiguous; inputs and outputs have the batch first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from foretell.nn.ctlstm_steps import BACKWARD, CANDIDATE, DECAY, ENTER, GATES, KEEP, OUTPUT, MemoryLease, StepShape
from foretell.nn.intensity import softplus
from foretell.nn.lookup import MOST_ONE_HOT

MOST_ONE_HOT_ON_CPU = 64  # rows of the table up to which a one-hot product is faster than adding rows


@dataclass(frozen=True)
class CellStates:
    """The cell right after each number of events, and the output just before each event."""

    memory: Tensor  # [B, N + 1, D]: c
    target: Tensor  # [B, N + 1, D]: c̄
    decay: Tensor  # [B, N + 1, D]: δ, per unit of elapsed time
    output: Tensor  # [B, N + 1, D]: o
    before: Tensor  # [B, N, D]: h just before each event


@dataclass(frozen=True)
class EventInputs:
    """Inputs that are added to `W x + b` of each event: its features times a matrix."""

    features: Tensor  # [B, N + 1, F]: no gradient reaches them
    weight: Tensor  # [F, 7D]


def ctlstm(
    table: Tensor,
    events: Tensor,
    recurrent: Tensor,
    elapsed: Tensor,
    inputs: EventInputs | None = None,
    carried: tuple[Tensor, ...] | None = None,
) -> CellStates:
    """Return the cells after every event. `table` is `W x + b` of every kind of event [K, 7D]; `events` are the kinds, int64 [B, N + 1];
    `recurrent` is `U` [7D, D]; `elapsed` is the time before each event but the first [B, N]. The state before the first event is zero. With
    `carried` (c, c̄, δ and o [B, D], without gradients), this is the cell after the first event."""
    back = torch.is_grad_enabled() and (table.requires_grad or recurrent.requires_grad)
    turned = events.t().contiguous(), recurrent, elapsed.t().contiguous()
    further = (None, None)
    if inputs is not None:
        further = inputs.features.transpose(0, 1).flatten(0, 1), inputs.weight
    found = _Recurrence.apply(table, *turned, back, *further, *(carried or ()))
    return CellStates(*found)  # pyright: ignore[reportGeneralTypeIssues]


def read(memory: Tensor, target: Tensor, decay: Tensor, output: Tensor, elapsed: Tensor) -> Tensor:
    """Return `h` at times after the events: cells [B, G, D] and elapsed times [B, G, P] to [B, G, P, D]."""
    return _Read.apply(memory, target, decay, output, elapsed)  # pyright: ignore[reportReturnType]


def gated(raw: Tensor) -> Tensor:
    """Apply the activation of each gate: [B, 7, D] to [B, 7, D]."""
    sigmoids, candidate, decay = raw.split([CANDIDATE, 1, 1], dim=1)
    return torch.cat([torch.sigmoid(sigmoids), torch.tanh(candidate), softplus(decay)], dim=1)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        table: Tensor,
        events: Tensor,
        recurrent: Tensor,
        elapsed: Tensor,
        back: bool,
        *further: Tensor | None,
    ) -> tuple[Tensor, ...]:
        features, weight, *carried = further
        steps, rows = events.shape
        lease = MemoryLease(StepShape(steps, rows, recurrent.shape[1], back), table)
        cut = lease.cut
        made = cut.gates.flatten(0, 1).flatten(1)
        torch.index_select(table, 0, events.flatten(), out=made)
        if features is not None and weight is not None:
            made.addmm_(features, weight)
        cut.found[0].zero_()
        zero, transposed = table.new_zeros(()), recurrent.t()
        last: tuple[Tensor, ...] = ()
        passed = (zero, *elapsed.neg()[:, :, None, None].unbind())
        for ago, (raw, sigmoids, out, enter, keep, z, rate, memory, target, was, c, fade, curve, h) in zip(
            passed, cut.there(), strict=True
        ):
            if last:
                last_memory, last_target, last_rate, last_out = last
                torch.mul(last_rate, ago, out=fade)
                fade.exp_()
                torch.lerp(last_target, last_memory, fade, out=was)
                torch.tanh(c, out=curve)
                torch.mul(last_out, curve, out=h)
                raw.addmm_(h, transposed)
            sigmoids.sigmoid_()
            z.tanh_()
            torch.logaddexp(rate, zero, out=rate)
            torch.mul(keep, was, out=memory)
            memory.addcmul_(enter, z)
            if carried and not last:
                for place, given in zip((memory[:, 0], memory[:, 1], rate[:, 0], out), carried, strict=True):
                    if given is not None:
                        place.copy_(given)
            last = memory, target, rate, out
        ctx.save_for_backward(recurrent, events, elapsed, features)
        ctx.lease, ctx.kinds, ctx.carried = lease, len(table), len(carried)
        ctx.set_materialize_grads(False)
        made = (*cut.memories.unbind(2), cut.gates[:, :, DECAY], cut.gates[:, :, OUTPUT], cut.before[1:])
        return tuple(one.transpose(0, 1).clone(memory_format=torch.contiguous_format) for one in made)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] (what the decorator makes of it)
        ctx: Any, *grad_outputs: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        recurrent, events, elapsed, features = ctx.saved_tensors
        cut = ctx.lease.cut
        steps, rows, _, dim = cut.gates.shape
        out, enter, keep = cut.gates[:, :, OUTPUT], cut.gates[:, :, ENTER], cut.gates[:, :, KEEP]
        candidate = cut.gates[:, :, CANDIDATE : CANDIDATE + 1].expand_as(enter)
        # Gradients from outside first; the gradient from the next event is added in the loop.
        for place, grad in enumerate(grad_outputs[:4]):
            cut.to_cells[:, :, place] = 0.0 if grad is None else grad.transpose(0, 1)
        # Slopes of the new cell by each gate: δ, (i, ī), (f, f̄), z by c and by c̄, o.
        _sigmoid_slope(candidate, enter, cut.slope[:, :, 1:3])
        _sigmoid_slope(cut.found, keep, cut.slope[:, :, 3:5])
        _tanh_slope(enter, candidate, cut.slope[:, :, 5:7])
        torch.neg(cut.gates[:, :, DECAY], out=cut.slope[:, :, 0]).expm1_().neg_()
        torch.mul(out, out, out=cut.slope[:, :, 7])
        torch.sub(out, cut.slope[:, :, 7], out=cut.slope[:, :, 7])
        # Slopes of the memory just before the next event by c, c̄ and δ: e, 1 − e and (c̄ − c(t))·(t − s).
        drift, by_h = cut.drift[1:], cut.by_h[1:]
        drift[:, :, :1] = cut.faded[1:]
        torch.neg(cut.faded[1:], out=drift[:, :, 1:2]).add_(1.0)
        torch.sub(cut.found[1:, :, 1], cut.found[1:, :, 0], out=drift[:, :, 2]).mul_(elapsed.unsqueeze(-1))
        # From these: slopes of `h` at that time, also by o, and slopes of the memory after that event.
        _tanh_slope(out[:-1], cut.seen[1:], by_h[:, :, 3])
        torch.mul(drift, by_h[:, :, 3:], out=by_h[:, :, :3])
        by_h[:, :, 3] = cut.seen[1:]
        drift.mul_(keep[1:, :, :1])

        u = recurrent.view(len(GATES), dim, dim)
        doubled = torch.cat([u[gate] for gate in BACKWARD])
        to_h = torch.empty_like(cut.seen[0])
        wide_h = to_h.unsqueeze(1)
        outside = [None] * (steps - 1) if grad_outputs[4] is None else grad_outputs[4].unbind(1)[::-1]
        for given, step in zip(outside, cut.back(), strict=True):
            pairs, to_pairs, ends, to_ends, raw, to_c, to_target, kept, read_by, moved_by, cell, moved, target = step
            pairs.mul_(to_pairs)
            ends.mul_(to_ends)
            if given is None:
                torch.mm(raw, doubled, out=to_h)
            else:
                torch.addmm(given, raw, doubled, out=to_h)
            cell.addcmul_(wide_h, read_by)
            moved.addcmul_(to_c, moved_by)
            target.addcmul_(to_target, kept)
        first = cut.slope[0]
        first[:, 1:-1].unflatten(1, (3, 2)).mul_(cut.to_cells[0, :, None, :2])
        first[:, :: len(BACKWARD) - 1].mul_(cut.to_cells[0, :, 2:])
        if ctx.carried:
            first.zero_()
        flat = cut.slope.flatten(0, 1).flatten(1)
        to_recurrent = _singled(flat[rows:].t() @ cut.before[1:].flatten(0, 1), dim)
        to_table = _singled(_summed(flat, events.flatten(), ctx.kinds).t(), dim).t()
        to_weight = None if features is None else _singled(flat.t() @ features, dim).t()
        return to_table, None, to_recurrent, None, None, None, to_weight, *[None] * ctx.carried


def _sigmoid_slope(by: Tensor, sigmoid: Tensor, out: Tensor) -> None:
    torch.ops.aten.sigmoid_backward.grad_input(by, sigmoid, grad_input=out)


def _tanh_slope(by: Tensor, tanh: Tensor, out: Tensor) -> None:
    torch.ops.aten.tanh_backward.grad_input(by, tanh, grad_input=out)


def _singled(rows: Tensor, dim: int) -> Tensor:
    """Reorder from `BACKWARD` to the order of the gates: [8D, any] to [7D, any]."""
    decay, four, twice, output = rows.split([dim, 4 * dim, 2 * dim, dim])
    return torch.cat([output, four, twice[:dim] + twice[dim:], decay])


def _summed(rows: Tensor, index: Tensor, kinds: int) -> Tensor:
    """Sum the rows of each kind: [kinds, any]."""
    if kinds <= (MOST_ONE_HOT if rows.is_cuda else MOST_ONE_HOT_ON_CPU):
        return (torch.arange(kinds, device=rows.device)[:, None] == index).to(rows.dtype) @ rows
    return rows.new_zeros(kinds, rows.shape[1]).index_add_(0, index, rows)


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, memory: Tensor, target: Tensor, decay: Tensor, output: Tensor, elapsed: Tensor) -> Tensor:
        elapsed = elapsed.unsqueeze(-1)
        faded = (decay.unsqueeze(2) * -elapsed).exp_()
        then = torch.lerp(target.unsqueeze(2), memory.unsqueeze(2), faded)
        seen = torch.tanh(then)
        ctx.save_for_backward(target, output, elapsed, faded, then, seen)
        return output.unsqueeze(2) * seen

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        (grad,) = grad_outputs
        target, output, elapsed, faded, then, seen = ctx.saved_tensors
        to_output = (grad * seen).sum(2)
        to_then = (grad * output.unsqueeze(2)).mul_(1.0 - seen.square())
        to_memory = to_then * faded
        to_target = to_then - to_memory
        # The derivative by δ contains (c − c̄)·e, which is the memory at that time minus its target.
        to_decay = (target.unsqueeze(2) - then).mul_(elapsed).mul_(to_then)
        return to_memory.sum(2), to_target.sum(2), to_decay.sum(2), to_output, None
