"""Cells moved in waves: gradients that are those of the formulas, and numbers that stay finite where gates saturate."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from foretell.lang.program import Program
from foretell.models.rules.ndtt import NDTT
from foretell.nn import gated_cells as cells
from foretell.nn.gated_cells import drifted
from foretell.objective.loglik import stratified, training_loss
from tests.ground.timelines import event_data
from tests.samples import randomise

TEXT = ":- event(g).\np(a). p(b). q.\ng :- q, p(X).\nq <- g, p(X).\nq <- g.\np(X) <- g, p(X), q.\n"


def loss_of(model: NDTT, events: int) -> torch.Tensor:
    data = event_data(["g"] * events)
    model.ground(data)
    batch = model.collator.batch(data, [0])
    return training_loss(model, batch, stratified(batch, 1, torch.Generator().manual_seed(1))).objective


def small(dtype: torch.dtype) -> NDTT:
    data = event_data(["g"])
    return NDTT(Program.from_text(TEXT, dim=3), data.vocabulary, dim=3, dtype=dtype)


def test_a_cell_drifts_from_where_it_was_put_to_its_target():
    c, target, decay = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 0.0]), torch.tensor([0.1, 3.0])
    at = [drifted(c, target, decay, torch.tensor([time])) for time in (0.0, 1.0, 1e4)]
    torch.testing.assert_close(at[0], c)
    torch.testing.assert_close(at[1], target + (c - target) * torch.tensor([0.904837, 0.049787]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(at[2], target)


def test_gradients_are_those_of_small_steps():
    model = randomise(small(torch.float64), seed=4)
    loss = loss_of(model, 5)
    found = torch.autograd.grad(loss, list(model.parameters()))
    for parameter, grad in zip(model.parameters(), found, strict=True):
        direction = torch.randn(parameter.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
        values = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                parameter.add_(step * direction)
                values.append(float(loss_of(model, 5)))
                parameter.sub_(step * direction)
        slope = (values[0] - values[1]) / 2e-6
        assert float((grad * direction).sum()) == pytest.approx(slope, rel=2e-4, abs=2e-6)


@pytest.mark.parametrize("size", [0.0, 1e-20, 300.0, 1e6])
def test_saturated_and_vanishing_gates_give_finite_numbers_in_float32(size: float):
    model = randomise(small(torch.float32), seed=4)
    with torch.no_grad():
        for name, stack in model.network.stacks.items():
            if name.startswith("add_"):
                stack.mul_(size)
    loss = loss_of(model, 30)
    loss.backward()
    assert bool(loss.isfinite())
    assert all(bool(one.grad.isfinite().all()) for one in model.parameters() if one.grad is not None)


def test_tables_are_freed_with_what_came_out_of_them(monkeypatch: pytest.MonkeyPatch):
    runs: list[weakref.ref[cells.GatedCells]] = []
    ahead = cells.GatedCells.ahead

    def watched(run: cells.GatedCells) -> None:
        runs.append(weakref.ref(run))
        ahead(run)

    monkeypatch.setattr(cells.GatedCells, "ahead", watched)
    data, model = event_data(["g"] * 3), small(torch.float64)
    model.ground(data)
    gc.disable()  # nothing may wait for it: a step's tables are large
    try:
        found = model.encode(model.collator.batch(data, [0]))
        assert runs[0]() is not None
        del found
        assert runs[0]() is None
    finally:
        gc.enable()
