"""The recurrence and its gradient, both written by hand, against autograd on the plain equations; and the memory that it keeps."""

from __future__ import annotations

import gc
import threading
from collections import deque

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from foretell.nn import ctlstm as module
from foretell.nn import ctlstm_steps
from foretell.nn.ctlstm import CellStates, EventInputs, ctlstm, gated, read
from foretell.nn.ctlstm_steps import GATES

SHAPES = [(3, 5, 3, 4), (80, 4, 2, 3), (2, 1, 1, 1), (2, 0, 3, 2), (4, 9, 1, 5)]  # kinds, events, sequences, dimension
PARTS = ("memory", "target", "decay", "output", "before")


def inputs(
    kinds: int, events: int, rows: int, dim: int, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    table = torch.randn(kinds, len(GATES) * dim, generator=draw, dtype=dtype).requires_grad_()
    recurrent = torch.randn(len(GATES) * dim, dim, generator=draw, dtype=dtype).requires_grad_()
    happened = torch.randint(kinds, (rows, events + 1), generator=draw)
    return table, happened, recurrent, torch.rand(rows, events, generator=draw, dtype=dtype)


def plain(table: Tensor, events: Tensor, recurrent: Tensor, elapsed: Tensor) -> CellStates:
    rows, dim = len(events), recurrent.shape[1]
    c = target = h = decay = out = table.new_zeros(rows, dim)
    found: dict[str, list[Tensor]] = {part: [] for part in PARTS}
    for step in range(events.shape[1]):
        raw = table[events[:, step]]
        if step:
            c = target + (c - target) * torch.exp(-decay * elapsed[:, step - 1 : step])
            h = out * torch.tanh(c)
            found["before"].append(h)
            raw = raw + h @ recurrent.T
        gate = dict(zip(GATES, raw.split(dim, dim=1), strict=True))
        decay, z = F.softplus(gate.pop("decay")), torch.tanh(gate.pop("candidate"))
        on = {name: torch.sigmoid(value) for name, value in gate.items()}
        out = on["output"]
        c, target = on["forget"] * c + on["input"] * z, on["target_forget"] * target + on["target_input"] * z
        for part, value in zip(PARTS, (c, target, decay, out), strict=False):
            found[part].append(value)
    nothing = table.new_zeros(rows, 0, dim)
    return CellStates(*(torch.stack(found[part], dim=1) if found[part] else nothing for part in PARTS))


def parts(cells: CellStates) -> tuple[Tensor, ...]:
    return tuple(getattr(cells, part) for part in PARTS)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cells_are_those_of_the_plain_equations(shape: tuple[int, int, int, int]):
    given = inputs(*shape)
    for fast, slow in zip(parts(ctlstm(*given)), parts(plain(*given)), strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_gradient_is_that_of_finite_differences(shape: tuple[int, int, int, int]):
    table, events, recurrent, elapsed = inputs(*shape)
    assert torch.autograd.gradcheck(lambda t, u: parts(ctlstm(t, events, u, elapsed)), (table, recurrent))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_inputs_of_events_are_added_to_what_they_are_by_their_kind(shape: tuple[int, int, int, int]):
    """A table with a row of its own for each event is the same; so are the gradients."""
    table, events, recurrent, elapsed = inputs(*shape)
    draw = torch.Generator().manual_seed(1)
    features = torch.randn(*events.shape, 3, generator=draw, dtype=torch.float64)
    weight = torch.randn(3, table.shape[1], generator=draw, dtype=torch.float64).requires_grad_()
    own = (table[events] + features @ weight).flatten(0, 1)
    places = torch.arange(events.numel()).view_as(events)
    found, expected = (
        parts(ctlstm(table, events, recurrent, elapsed, EventInputs(features, weight))),
        parts(plain(own, places, recurrent, elapsed)),
    )
    for fast, slow in zip(found, expected, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12)
    learned = (table, recurrent, weight)
    sums = [torch.cat([(one * one.detach()).flatten() for one in some]).sum() for some in (found, expected)]
    gradients = [torch.autograd.grad(one, learned, allow_unused=True) for one in sums]
    for place, (fast, slow) in enumerate(zip(*gradients, strict=True)):
        fast, slow = (torch.zeros_like(learned[place]) if one is None else one for one in (fast, slow))
        torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("chosen", PARTS)
def test_each_part_of_the_cells_has_a_gradient_of_its_own(chosen: str):
    table, events, recurrent, elapsed = inputs(3, 4, 2, 3)
    assert torch.autograd.gradcheck(
        lambda t, u: getattr(ctlstm(t, events, u, elapsed), chosen).contiguous(), (table, recurrent)
    )


def test_the_gradient_of_what_is_read_is_that_of_finite_differences():
    draw = torch.Generator().manual_seed(1)
    memory, target, decay, output = (
        torch.rand(2, 3, 4, generator=draw, dtype=torch.float64).requires_grad_() for _ in range(4)
    )
    elapsed = torch.rand(2, 3, 5, generator=draw, dtype=torch.float64)
    expected = output.unsqueeze(2) * torch.tanh(
        target.unsqueeze(2) + (memory - target).unsqueeze(2) * torch.exp(-decay.unsqueeze(2) * elapsed.unsqueeze(-1))
    )
    torch.testing.assert_close(read(memory, target, decay, output, elapsed), expected, rtol=1e-14, atol=1e-14)
    assert torch.autograd.gradcheck(lambda c, t, d, o: read(c, t, d, o, elapsed), (memory, target, decay, output))


def test_one_cell_is_gated_as_the_recurrence_gates_it():
    table, events, recurrent, elapsed = inputs(3, 0, 2, 4)
    out, enter, enter_target, _, _, z, decay = gated(table[events[:, 0]].unflatten(1, (-1, 4))).unbind(1)
    cells = ctlstm(table, events, recurrent, elapsed)
    for found, expected in ((cells.output, out), (cells.decay, decay), (cells.memory, enter * z)):
        torch.testing.assert_close(found[:, 0], expected, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(cells.target[:, 0], enter_target * z, rtol=1e-14, atol=1e-14)


def test_numbers_that_went_out_stay_as_they_are_when_memory_is_used_again():
    given = inputs(3, 6, 2, 4)
    with torch.no_grad():
        first = ctlstm(*given)
        kept = [part.clone() for part in parts(first)]
        ctlstm(*inputs(3, 6, 2, 4, seed=5))
    for now, then in zip(parts(first), kept, strict=True):
        assert torch.equal(now, then)


def test_two_passes_that_wait_for_their_gradients_do_not_share_memory():
    one, two = inputs(3, 6, 2, 4), inputs(3, 6, 2, 4, seed=5)
    waiting = [ctlstm(*given).memory.square().sum() for given in (one, two)]
    for given, loss in zip((one, two), waiting, strict=True):
        found = torch.autograd.grad(loss, (given[0], given[2]))
        expected = torch.autograd.grad(plain(*given).memory.square().sum(), (given[0], given[2]))
        for fast, slow in zip(found, expected, strict=True):
            torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)


def test_a_pass_can_be_gone_back_over_twice():
    table, events, recurrent, elapsed = inputs(3, 6, 2, 4)
    loss = ctlstm(table, events, recurrent, elapsed).memory.square().sum()
    first = torch.autograd.grad(loss, (table, recurrent), retain_graph=True)
    again = torch.autograd.grad(loss, (table, recurrent))
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))


def test_memory_is_kept_for_the_next_pass_and_no_more_of_it_than_was_needed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ctlstm_steps, "_kept", deque(maxlen=4))
    large, small = inputs(3, 9, 4, 4), inputs(3, 6, 2, 4)
    for given in (small, large, small, large, small):
        ctlstm(*given).memory.sum().backward()
        gc.collect()
    assert len(ctlstm_steps._kept) == 1
    assert ctlstm_steps._kept[0].flat.numel() == ctlstm_steps.StepShape(10, 4, 4).numbers
    monkeypatch.setattr(ctlstm_steps, "MOST_NUMBERS", 10)
    ctlstm(*large).memory.sum().backward()
    gc.collect()
    assert not ctlstm_steps._kept


def test_memory_of_another_precision_stays_where_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ctlstm_steps, "_kept", deque(maxlen=4))
    for dtype in (torch.float64, torch.float32, torch.float64, torch.float32):
        ctlstm(*inputs(3, 6, 2, 4, dtype=dtype)).memory.sum().backward()
        gc.collect()
    assert sorted(str(block.flat.dtype) for block in ctlstm_steps._kept) == ["torch.float32", "torch.float64"]


def test_where_nothing_is_learned_no_memory_is_taken_for_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ctlstm_steps, "_kept", deque(maxlen=4))
    with torch.no_grad():
        ctlstm(*inputs(3, 6, 2, 4))
    assert ctlstm_steps._kept[0].flat.numel() == 7 * 2 * 4 * sum(ctlstm_steps.THERE.values())


@pytest.mark.parametrize("at_a_time", [1, 3, 7, 8])
def test_long_sequences_that_are_cut_up_bit_by_bit_have_the_same_cells_and_gradients(
    at_a_time: int, monkeypatch: pytest.MonkeyPatch
):
    table, events, recurrent, elapsed = inputs(3, 7, 2, 4)
    expected = parts(ctlstm(table, events, recurrent, elapsed))
    monkeypatch.setattr(ctlstm_steps, "_kept", deque(maxlen=4))
    monkeypatch.setattr(ctlstm_steps, "MOST_STEPS", at_a_time)
    for found, plainly in zip(parts(ctlstm(table, events, recurrent, elapsed)), expected, strict=True):
        assert torch.equal(found, plainly)
    assert torch.autograd.gradcheck(lambda t, u: parts(ctlstm(t, events, u, elapsed)), (table, recurrent))


def test_memory_first_used_without_gradients_serves_for_training(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ctlstm_steps, "_kept", deque(maxlen=4))
    given = inputs(3, 6, 2, 4)
    with torch.inference_mode():
        ctlstm(*(one.detach() for one in given))
    assert len(ctlstm_steps._kept) == 1
    ctlstm(*given).memory.sum().backward()
    assert given[0].grad is not None


def test_threads_do_not_disturb_each_other():
    given = [inputs(3, 12, 3, 4, seed=seed) for seed in range(4)]
    expected = [torch.autograd.grad(plain(*one).memory.square().sum(), one[2])[0] for one in given]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            found = torch.autograd.grad(ctlstm(*given[number]).memory.square().sum(), given[number][2])[0]
            if not torch.allclose(found, expected[number], rtol=1e-9, atol=1e-9):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_many_kinds_of_events_have_the_same_gradient_as_few(monkeypatch: pytest.MonkeyPatch):
    given = inputs(5, 6, 3, 4)
    by_product = torch.autograd.grad(ctlstm(*given).memory.square().sum(), given[0])[0]
    monkeypatch.setattr(module, "MOST_ONE_HOT_ON_CPU", 2)
    by_adding = torch.autograd.grad(ctlstm(*given).memory.square().sum(), given[0])[0]
    torch.testing.assert_close(by_adding, by_product, rtol=1e-12, atol=1e-12)


def test_large_numbers_and_long_waits_leave_everything_finite():
    table, events, recurrent, elapsed = inputs(3, 6, 2, 4, dtype=torch.float32)
    with torch.no_grad():
        table.mul_(200.0)
        elapsed[:, ::2] = 1e9
        elapsed[:, 1::2] = 0.0
    cells = ctlstm(table, events, recurrent, elapsed)
    sum(part.sum() for part in parts(cells)).backward()  # pyright: ignore[reportAttributeAccessIssue]
    assert table.grad is not None and recurrent.grad is not None
    for tensor in (*parts(cells), table.grad, recurrent.grad):
        assert bool(tensor.isfinite().all())
