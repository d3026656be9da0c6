"""The fast NDTT against its slow twin, on random programs and on small ones that each show one thing: values and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from foretell.data import EventData, EventSequence
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.base import Queries
from foretell.models.batch import Batch, make_batch
from foretell.models.build import load_model, save_model
from foretell.models.ndtt import NDTT
from foretell.objective.integral import Points, quadrature, stratified, uniform
from foretell.objective.loglik import log_likelihood, training_loss
from foretell.reference import ndtt as twin
from foretell.reference.ndtt import Settings, wanted
from tests.ground.timelines import event_data
from tests.models.test_andtt_twin import ROUND, SMALL, asked_times
from tests.plan.rich_programs import RichCase, rich_case
from tests.samples import randomise

VALUES, GRADIENTS = 1e-9, 1e-7
QUICK, ALL, BLOCK = 40, 300, 10


def attached_arrays(model: NDTT) -> dict[str, Tensor]:
    """What `named_arrays` gives, but still attached to the model's parameters, so that gradients reach them."""
    found = model.network.named_arrays()
    for number, name in enumerate(model.functors):
        found[f"intensity.{name}.w"] = model.w[number] / model.time_scale
        found[f"intensity.{name}.tau"] = model.log_tau[number].exp() / model.time_scale
    return found


def settings_of(model: NDTT) -> Settings:
    return Settings(model.dim, model.time_scale)


def assert_close(fast: Tensor, slow: Tensor, what: object) -> None:
    torch.testing.assert_close(fast, slow, rtol=VALUES, atol=VALUES, msg=lambda text: f"{what}: {text}")


def assert_same_gradients(fast: Tensor, slow: Tensor, model: NDTT, what: object) -> None:
    parameters = list(model.parameters())
    found = [torch.autograd.grad(value, parameters, allow_unused=True) for value in (fast, slow)]
    for (name, parameter), one, two in zip(model.named_parameters(), *found, strict=True):
        one, two = (torch.zeros_like(parameter) if grad is None else grad for grad in (one, two))
        torch.testing.assert_close(
            one, two, rtol=GRADIENTS, atol=GRADIENTS, msg=lambda text, name=name: f"{what}: {name}: {text}"
        )


def slow_loss(model: NDTT, data: EventData, batch: Batch, points: Points) -> Tensor:
    """Minus the twin's log-likelihood of all sequences of the batch, which holds `data` in its order."""
    parameters, settings = attached_arrays(model), settings_of(model)
    gap = points.gap.expand_as(points.weights)
    total = torch.zeros((), dtype=torch.float64)
    for row, sequence in enumerate(data):
        of_gaps: list[list[tuple[float, float]]] = [[] for _ in range(len(sequence) + 1)]
        for time, weight, place in zip(
            points.queries.times[row].tolist(), points.weights[row].tolist(), gap[row].tolist(), strict=True
        ):
            if place <= len(sequence) and weight:
                of_gaps[place].append((time, weight))
        events = list(data.names_of(sequence))
        times = sequence.times.tolist()
        total = total - twin.log_likelihood(model.program, settings, parameters, events, times, sequence.t_end, of_gaps)
    return total


def slow_intensities(model: NDTT, data: EventData, row: int, time: float) -> dict[str, Tensor]:
    sequence = data[row]
    events, times = list(data.names_of(sequence)), sequence.times.tolist()
    found = twin.intensities(model.program, settings_of(model), attached_arrays(model), events, times, time)
    return {f"{fact[0]}({','.join(fact[1:])})" if fact[1:] else fact[0]: value for fact, value in found.items()}


def check_intensities(model: NDTT, data: EventData, seed: int) -> None:
    """Of every event at every time: from a batch, and of each sequence alone."""
    batch, times = make_batch(data, range(len(data))), asked_times(data, seed)
    state = model.state(model.encode(batch), Queries.at_times(batch, times))
    intensities, total = model.intensities(state), model.total(state)
    weight = torch.linspace(0.5, 2.0, model.types, dtype=torch.float64)
    fast_sum, slow_sum = (torch.zeros((), dtype=torch.float64) for _ in range(2))
    for row in range(len(data)):
        alone = model.intensity(data[row], times[row].numpy())
        for column, time in enumerate(times[row].tolist()):
            slow = slow_intensities(model, data, row, time)
            nothing = torch.zeros((), dtype=torch.float64)
            expected = torch.stack([slow.get(name, nothing) for name in model.vocabulary.names] or [nothing])[
                : model.types
            ]
            assert_close(intensities[row, column], expected, (seed, row, time))
            assert_close(torch.from_numpy(alone[column]), expected.detach(), (seed, row, time))
            assert_close(total[row, column], sum(slow.values(), start=nothing), (seed, row, time))
            fast_sum = fast_sum + intensities[row, column] @ weight + total[row, column]
            slow_sum = slow_sum + expected @ weight + sum(slow.values(), start=nothing)
    if slow_sum.requires_grad:
        assert_same_gradients(fast_sum, slow_sum, model, seed)


def check_loss(model: NDTT, data: EventData, seed: int, width: int | None = None) -> None:
    batch = make_batch(data, range(len(data)), width=width, unscored=model.unscored)
    points = stratified(batch, 2, torch.Generator().manual_seed(seed))
    fast = training_loss(model, batch, points).objective
    slow = slow_loss(model, data, batch, points)
    assert_close(fast, slow, seed)
    if slow.requires_grad:
        assert_same_gradients(fast, slow, model, seed)


def drawn(model: NDTT, data: EventData, seed: int, time_scale: float) -> NDTT:
    """With parameters that are drawn at random; exponents are above 1, where a pool has slopes on both sides."""
    model.ground(data)
    randomise(model, seed)
    with torch.no_grad():
        for name, stack in model.network.stacks.items():
            if name.endswith("_beta"):
                stack.abs_().add_(0.05)
    model.time_scale = time_scale
    return model


def model_of(case: RichCase, seed: int = 3) -> NDTT:
    made = NDTT(case.program, case.vocabulary, dim=case.settings.dim, dtype=torch.float64)
    return drawn(made, case.data, seed, case.time_scale)


def agrees(case: RichCase, seed: int) -> bool:
    """False where the twin refuses the program, because some embedding needs itself; the model only minds if it is asked for."""
    model, data = model_of(case, seed), case.data
    try:
        slow_intensities(model, data, 0, case.sequences[0][2] + 1.0)
    except ForetellError as error:
        assert "needs itself" in str(error), seed
        return False
    shapes = {name: tuple(array.shape) for name, array in model.named_arrays().items()}
    assert wanted(case.program, settings_of(model), case.sequences[0][0]).items() <= shapes.items(), seed
    check_intensities(model, data, seed)
    check_loss(model, data, seed, width=len(data[0]) + seed % 3)
    return True


def all_agree(seeds: Sequence[int]) -> None:
    compared = sum(agrees(rich_case(seed), seed) for seed in seeds)
    assert compared >= len(seeds) // 2  # the others have proofs that need themselves


@pytest.mark.parametrize("block", range(QUICK // BLOCK))
def test_intensities_loss_and_gradients_of_random_programs_are_those_of_the_twin(block: int):
    all_agree(range(block * BLOCK, (block + 1) * BLOCK))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(QUICK // BLOCK, ALL // BLOCK))
def test_intensities_loss_and_gradients_of_all_random_programs_are_those_of_the_twin(block: int):
    all_agree(range(block * BLOCK, (block + 1) * BLOCK))


# --- small programs, each for one thing --------------------------------------------------------------------------------

CELLS = {
    **SMALL,
    "one event has several proposals for one cell, by one rule and by several": (
        ":- event(g). :- embed(p, 2). :- embed(q, 3).\np(a). p(b). p(c). q.\ng :- q.\n"
        "q <- g, p(X).\nq <- g.\nq : b(X) <- g, p(X) :: v(X).\n",
        ["g", "g", "g"],
    ),
    "a cell is moved by embeddings of other cells": (
        ":- event(g). :- event(h). :- embed(p, 2). :- embed(q, 3).\np. q. g :- p. h :- q, p.\np <- g, q. q <- h, p. q <- g. p <- h.\n",
        ["g", "h", "h", "g", "g", "h"],
    ),
    "a removed fact that is deduced goes on without its cell": (
        ":- event(g). :- event(off). :- embed(q, 2).\nq. off. g :- q.\nq <- g. !q <- off.\n",
        ["g", "g", "off", "g", "off", "off", "g"],
    ),
    "`bos` moves cells": (
        ":- event(g). :- embed(p, 2). :- embed(q, 1).\np(a). p(b). g :- q(X).\nq(X) <- bos, p(X). q(X) <- g, q(X). q(c) <- bos.\n",
        ["g", "g"],
    ),
    "exogenous events that are no facts propose from zeros": (
        ":- event(g). :- exogenous(e, 2).\ng.\ng <- e, g.\n",
        ["e", "g", "e"],
    ),
}


def small(text: str, *sequences: list[str], **options: Any) -> tuple[NDTT, EventData]:
    """A model with random parameters, and sequences whose events are not quite a unit apart."""
    rough = event_data(*sequences)
    rows = [EventSequence(one.times * 0.7, one.types, 0.7 * len(one) + 0.4, one.id) for one in rough]
    data = EventData(rows, rough.vocabulary, "window", "small")
    model = NDTT(Program.from_text(text, dim=2), data.vocabulary, dim=2, dtype=torch.float64, **options)
    return drawn(model, data, 8, 0.8), data


@pytest.mark.parametrize("what", CELLS)
def test_small_programs_agree_with_the_twin(what: str):
    text, *sequences = CELLS[what]
    model, data = small(text, *sequences, [], sequences[0][:1])
    check_intensities(model, data, 1)
    check_loss(model, data, 2)


@pytest.mark.parametrize("what", CELLS)
def test_every_name_stands_for_one_parameter(what: str):
    model, _ = small(CELLS[what][0], *CELLS[what][1:])
    numbers = sum(array.numel() for array in model.named_arrays().values())
    assert numbers == sum(parameter.numel() for parameter in model.parameters())


def test_gates_that_change_nothing_have_decays_that_count_the_same():
    model, data = small(
        CELLS["one event has several proposals for one cell, by one rule and by several"][0], ["g", "g"]
    )
    with torch.no_grad():
        for name, stack in model.network.stacks.items():
            if name.startswith("add_") and name.endswith("_G"):
                stack[:, 6:9] = 0.0  # candidates of the three coordinates of `q`: the cell stays at zero
        model.network.stacks["beta_beta"].zero_()  # a pool of zeros has a slope where it is a plain sum
    check_intensities(model, data, 1)
    check_loss(model, data, 2)


def test_an_exponents_name_on_an_addition_makes_pools():
    text = ":- event(g). :- embed(p, 1).\np(a). p(b).\ng.\ng{} <- g, p(X).\n"
    one, data = small(text.format(""), ["g", "g"])
    two, _ = small(text.format(" : b(X)"), ["g", "g"])
    names = {name for name in two.named_arrays() if name.startswith("add.b")}
    assert names == {"add.b(a).beta", "add.b(b).beta"}
    arrays = {name: array for name, array in one.named_arrays().items() if name != "add.rule4.beta"}
    two.load_named_arrays(arrays | {name: torch.tensor(3.0, dtype=torch.float64) for name in names})
    apart = two.intensity(data[0], [2.0])
    one.load_named_arrays(arrays | {"add.rule4.beta": torch.tensor(1.0, dtype=torch.float64)})
    torch.testing.assert_close(one.intensity(data[0], [2.0]), apart, rtol=1e-12, atol=1e-12)  # pools of one are sums
    one.load_named_arrays(arrays | {"add.rule4.beta": torch.tensor(3.0, dtype=torch.float64)})
    assert abs(one.intensity(data[0], [2.0]) - apart).max() > 1e-6


@pytest.mark.parametrize("rule", ["uniform", "quadrature"])
def test_every_integral_agrees_with_the_twin(rule: str):
    model, data = small(CELLS["one event removes and adds"][0], ["g", "on", "on"], ["on"], [])
    batch = make_batch(data, range(3), width=5)
    drawn_points = uniform(batch, torch.tensor([4, 2, 3]), torch.Generator().manual_seed(5))
    points = drawn_points if rule == "uniform" else quadrature(batch, 3)
    fast, slow = training_loss(model, batch, points).objective, slow_loss(model, data, batch, points)
    assert_close(fast, slow, rule)
    assert_same_gradients(fast, slow, model, rule)


@pytest.mark.parametrize("seed", range(12))
def test_a_batch_in_which_sequences_repeat_is_each_of_them_alone(seed: int):
    case = rich_case(seed)
    model, data = model_of(case), case.data
    order = [2, 0, 1, 0]
    try:
        batch = make_batch(data, order, width=len(data[0]) + 4)
        together = log_likelihood(model, batch, quadrature(batch, 2)).log_likelihood()
    except ForetellError as error:
        assert "needs itself" in str(error)
        return
    for row, index in enumerate(order):
        one = make_batch(data, [index])
        alone = log_likelihood(model, one, quadrature(one, 2)).log_likelihood()
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-12, atol=1e-12)


def test_an_embedding_that_needs_itself_is_refused_in_the_words_of_the_twin():
    model, data = small(ROUND, ["e", "link(b,b)", "e"])
    with pytest.raises(ForetellError) as fast:
        model.intensity(data[0], [2.4])
    with pytest.raises(ForetellError) as slow:
        slow_intensities(model, data, 0, 2.4)
    assert str(fast.value) == str(slow.value)
    assert "the embedding of `near(b,b)` needs itself after event 2 (`link(b,b)`)" in str(fast.value)


def test_a_cycle_through_facts_without_embeddings_is_no_error():
    model, data = small(f":- embed(near, 0).\n{ROUND}", ["link(b,a)", "e", "link(a,a)"])
    check_intensities(model, data, 1)
    check_loss(model, data, 2)


# --- in and out --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(0, 30, 3))
def test_named_arrays_written_back_change_nothing(seed: int):
    model = model_of(rich_case(seed))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    arrays = {name: array.clone() for name, array in model.named_arrays().items()}
    model.load_named_arrays(arrays)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_a_saved_model_answers_the_same(seed: int, tmp_path: Path):
    case = rich_case(seed)
    model, data = model_of(case), case.data
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert isinstance(again, NDTT)
    batch = make_batch(data, range(len(data)))
    try:
        expected = log_likelihood(model, batch, quadrature(batch, 2)).log_likelihood()
    except ForetellError:
        return
    assert torch.equal(log_likelihood(again, batch, quadrature(batch, 2)).log_likelihood(), expected)


def test_it_does_not_matter_when_a_name_is_met():
    text = ":- event(g). :- exogenous(e).\ng.\ng <- e(X) :: w(X).\n"
    data = event_data(["e(a)", "g", "e(b)"], ["e(c)", "g"])
    first, second = (
        NDTT(Program.from_text(text, dim=2), data.vocabulary, dim=2, seed=5, dtype=torch.float64) for _ in range(2)
    )
    for index in (1, 0):
        first.intensity(data[index], [5.0])
    second.ground(data)
    one, two = first.named_arrays(), second.named_arrays()
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
    batch = make_batch(data, [0, 1])
    values = [log_likelihood(model, batch, quadrature(batch, 2)).log_likelihood() for model in (first, second)]
    torch.testing.assert_close(*values, rtol=1e-12, atol=1e-12)
