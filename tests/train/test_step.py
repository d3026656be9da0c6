"""One training step: times drawn afresh, gradients that do not depend on how a batch is cut, and nothing to be gamed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foretell.batches.batch import Batch, make_batch
from foretell.data import EventData
from foretell.lang.program import Program
from foretell.models.rules.andtt import ANDTT
from foretell.objective.loglik import log_likelihood, quadrature, stratified
from foretell.train import step as stepping
from foretell.train.fit import fit
from foretell.train.step import PieceLimits, StepOptions, Stepper
from tests.samples import random_data, randomise
from tests.train.small import exciting, options, small_model

DATA = random_data(5, [3, 9, 0, 14, 6, 1, 11])
BATCH = make_batch(DATA, range(7))


def stepper(**changes: Any) -> Stepper:
    model = randomise(small_model(DATA, layers=2, dtype=torch.float64, **changes.pop("model", {})), seed=6)
    model.time.set_range(0.1, 10.0)
    return Stepper(model, 1e-3, StepOptions(**changes))


def gradients(one: Stepper, number: int = 0) -> list[torch.Tensor]:
    one(BATCH, number)
    return [parameter.grad.clone() for parameter in one.parameters if parameter.grad is not None]


def drawn_times(monkeypatch: pytest.MonkeyPatch, integral: str) -> list[torch.Tensor]:
    """Every set of integration times that training looks at from here on."""
    seen: list[torch.Tensor] = []
    draw = getattr(stepping, integral)

    def watched(*args: Any, **kwargs: Any):
        points = draw(*args, **kwargs)
        seen.append(points.queries.times.clone())
        return points

    monkeypatch.setattr(stepping, integral, watched)
    return seen


@pytest.mark.parametrize("integral", ["stratified", "uniform"])
def test_two_steps_on_one_batch_look_at_different_times(integral: Any, monkeypatch: pytest.MonkeyPatch):
    seen = drawn_times(monkeypatch, integral)
    one = stepper(integral=integral)
    one(BATCH, 0)
    one(BATCH, 1)
    inside = BATCH.gap_length[1, :10] > 0
    assert bool((seen[0][1, :10][inside] != seen[1][1, :10][inside]).all())


def test_a_step_can_be_repeated_from_its_seed_and_number(monkeypatch: pytest.MonkeyPatch):
    seen = drawn_times(monkeypatch, "stratified")
    for seed, number in ((3, 7), (3, 7), (4, 7), (3, 8)):
        stepper(seed=seed)(BATCH, number)
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2]) and not torch.equal(seen[0], seen[3])


def test_every_step_of_a_run_draws_its_own_times(monkeypatch: pytest.MonkeyPatch):
    seen = drawn_times(monkeypatch, "stratified")
    data = random_data(8, [5] * 4)
    fit(small_model(data), data, None, options(epochs=6, batch=4))
    firsts = {float(times[0, 0]) / float(times[0, -1]) for times in seen}
    assert len(firsts) == len(seen) == 6


def test_what_training_reports_is_what_an_independent_integral_finds():
    """With fixed times a model learns to be quiet at just those; with fresh ones the train score is honest."""
    train = exciting(16, 4, 12.0)
    model = small_model(train, dim=16, shortest_wave=1e-3)
    result = fit(model, train, None, options(epochs=60, batch=4, lr=0.01, patience=0, cool=0))
    batch = make_batch(train, range(len(train)))
    events = int(batch.scored.sum())
    generator = torch.Generator().manual_seed(99)
    with torch.no_grad():
        found = float(log_likelihood(model, batch, stratified(batch, 200, generator)).log_likelihood().sum()) / events
    late = [record["train"] for record in result.records[-15:]]
    assert found == pytest.approx(sum(late) / len(late), abs=0.15)


def test_times_held_fixed_would_be_gamed(monkeypatch: pytest.MonkeyPatch):
    """The reason for the test above: freeze the draws, and the model's own score parts from the truth."""
    train = exciting(16, 4, 12.0)
    call = Stepper.__call__
    monkeypatch.setattr(Stepper, "__call__", lambda self, batch, number: call(self, batch, 0))
    model = small_model(train, dim=16, shortest_wave=1e-3)
    result = fit(model, train, None, options(epochs=60, batch=16, lr=0.02, patience=0, cool=0, seed=1))
    batch = make_batch(train, range(len(train)))
    with torch.no_grad():
        value = log_likelihood(model, batch, stratified(batch, 200, torch.Generator().manual_seed(99)))
    found = float(value.log_likelihood().sum()) / int(batch.scored.sum())
    assert result.best > found + 1.0


@pytest.mark.parametrize("model", [{}, {"bos": True, "layer_norm": True}, {"coarse": "none", "heads": 2}])
@pytest.mark.parametrize("integral", ["quadrature", "stratified"])
@pytest.mark.parametrize("piece", [1, 40, 90])
def test_a_batch_in_pieces_gives_the_gradient_of_the_whole(piece: int, integral: Any, model: dict[str, Any]):
    whole = stepper(integral=integral, points=2, piece=10**6, clip=0.0, pseudo_rate=0.1, model=model)
    cut = stepper(integral=integral, points=2, piece=piece, clip=0.0, pseudo_rate=0.1, model=model)
    for one, two in zip(gradients(whole), gradients(cut), strict=True):
        torch.testing.assert_close(two, one, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("model", [{}, {"bos": True}, {"edges": [("a", "b"), ("c", "a")]}])
def test_queries_in_pieces_over_one_encoded_history_give_the_gradient_of_the_whole(
    model: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    whole = gradients(stepper(integral="quadrature", points=2, clip=0.0, model=model))
    monkeypatch.setattr(Stepper, "_limits", lambda self, batch: PieceLimits(10**6, 60))
    for one, two in zip(whole, gradients(stepper(integral="quadrature", points=2, clip=0.0, model=model)), strict=True):
        torch.testing.assert_close(two, one, rtol=1e-10, atol=1e-12)


def test_the_gradient_is_that_of_the_negative_log_likelihood_an_event():
    one = stepper(integral="quadrature", points=4, clip=0.0)
    found = gradients(one)
    other = stepper(integral="quadrature", points=4)
    value = log_likelihood(other.model, BATCH, quadrature(BATCH, 4)).log_likelihood().sum()
    (-value / BATCH.scored.sum()).backward()
    for two, parameter in zip(found, other.parameters, strict=True):
        expected = torch.zeros_like(two) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(two, expected, rtol=1e-9, atol=1e-12)


def test_steps_of_an_epoch_add_up_to_the_gradient_of_all_the_data():
    """Batches of short and of long sequences are weighed by their events: all are divided by one number."""

    def summed(parts: list[Batch], events: float) -> list[torch.Tensor]:
        total: list[torch.Tensor] | None = None
        for part in parts:
            one = stepper(integral="quadrature", points=3, clip=0.0, events=events)
            one(part, 0)
            found = [parameter.grad for parameter in one.parameters if parameter.grad is not None]
            total = found if total is None else [a + b for a, b in zip(total, found, strict=True)]
        assert total is not None
        return total

    whole = summed([BATCH], 10.0)
    cut = summed([make_batch(DATA, [2, 5]), make_batch(DATA, [0, 4]), make_batch(DATA, [1, 3, 6])], 10.0)
    for one, two in zip(whole, cut, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-9, atol=1e-11)


def test_the_gradient_is_clipped_to_the_norm_asked_for():
    free, clipped = gradients(stepper(clip=0.0)), gradients(stepper(clip=0.01))
    norm = torch.cat([g.flatten() for g in free]).norm()
    assert float(norm) > 0.01
    assert float(torch.cat([g.flatten() for g in clipped]).norm()) == pytest.approx(0.01, rel=1e-4)


def test_pseudo_events_hold_up_the_intensity_of_types_that_never_occur():
    data = random_data(7, [12] * 6, types=2)
    data = type(data)(list(data), type(data.vocabulary)(("a", "b", "never")), "window", "sample")

    def rate_of_the_unseen(count: float) -> float:
        model = small_model(data)
        fit(model, data, None, options(epochs=30, lr=0.05, pseudo_count=count, patience=0))
        return float(model.named_arrays()["intensity.never.w"][0])

    assert rate_of_the_unseen(2.0) > rate_of_the_unseen(0.0) + 0.2


def test_a_model_of_rules_is_asked_in_pieces_like_any_other():
    """Its history has no tensors to learn from; the gradients of the pieces add up all the same."""
    program = Program.from_text(
        ":- event(e).\nitem(a). item(b).\ne(X) :- item(X), seen(X).\nseen(X) <- bos, item(X).\nseen(X) <- e(X).\n"
    )
    data = EventData.from_names(
        [["e(a)", "e(b)"], ["e(b)"], ["e(a)", "e(a)", "e(b)"]], [[1.0, 2.0], [0.5], [0.1, 0.7, 2.0]], t_ends=[3.0] * 3
    )
    gradients = []
    for piece in (0, 1):
        model = ANDTT(program, data.vocabulary, dim=3, layers=1, dtype=torch.float64)
        stepper = Stepper(model, 1e-3, StepOptions(piece=piece))
        stepper._limits = lambda batch, piece=piece: PieceLimits(
            1 << 20, piece or 1 << 20
        )  # one encoding, asked about in pieces
        batch = model.collator.batch(data, [0, 1, 2])
        draws = torch.rand(3, 4, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        stepper.gradients(batch, draws)
        gradients.append([parameter.grad.clone() for parameter in stepper.parameters if parameter.grad is not None])
    for whole, cut in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, cut, rtol=1e-9, atol=1e-12)
