"""An A-NDTT or NDTT beside its slow twin over the same leaf parameters, and what the tests of both ask of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor

from foretell.batches.batch import Batch, Queries
from foretell.data import EventData, EventSequence
from foretell.errors import ForetellError
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.event_logs import event_arrays
from foretell.models.rules.ndtt import NDTT
from foretell.models.rules.rule_model import RuleModel
from foretell.models.rules.s2ndtt import S2NDTT
from foretell.objective.loglik import Points, log_likelihood, quadrature, stratified, training_loss
from foretell.reference import andtt, ndtt, s2ndtt
from foretell.reference.features import EventWithNumbers, Given
from foretell.reference.ruled import TimeFactors, spelled
from tests.asking import state_at
from tests.calendar_samples import slow_calendar
from tests.plan.rich_programs import RichCase, rich_case

VALUES, GRADIENTS = 1e-10, 1e-8
BLOCK = 10  # random programs in one test


def attached_arrays(model: RuleModel) -> dict[str, Tensor]:
    """What `named_arrays` gives, but still attached to the model's parameters, so that gradients reach them."""
    return model.rule_network.named_arrays() | event_arrays(model)


def settings_of(model: RuleModel, row: int = 0) -> andtt.Settings | ndtt.Settings:
    """Those of the twin; `row` is the sequence's, where the model follows the calendar."""
    made = _settings_of(model)
    return made if model.clock is None else replace(made, calendar=slow_calendar(model, row))


def _settings_of(model: RuleModel) -> andtt.Settings | ndtt.Settings:
    scales, shape = (tuple(one.scales.tolist()) for one in (model.mixture.scales, model.mixture.shape_scales))
    lifetimes = model.histories.lifetimes
    factors = TimeFactors(scales, shape, model.time_scale)
    columns = {one.name: (one.mean, one.scale) for one in model.rule_network.features.columns}
    if isinstance(model, NDTT):
        return ndtt.Settings(model.dim, model.time_scale, factors, lifetimes, columns)
    if isinstance(model, S2NDTT):
        sizes = {"layers": model.layers, "states": model.states}
        return s2ndtt.Settings(model.dim, model.time_scale, factors, lifetimes, columns, **sizes)
    assert isinstance(model, ANDTT)
    sizes = model.dim, model.layers, model.time_dim
    sublayers = model.options.layer_norm, model.options.feed_forward
    return andtt.Settings(*sizes, model.time.m, model.time.M, *sublayers, factors, lifetimes, columns)


def twin_of(model: RuleModel) -> ModuleType:
    return andtt if isinstance(model, ANDTT) else ndtt


def assert_close(fast: Tensor, slow: Tensor, what: object) -> None:
    torch.testing.assert_close(fast, slow, rtol=VALUES, atol=VALUES, msg=lambda text: f"{what}: {text}")


def assert_same_gradients(fast: Tensor, slow: Tensor, model: RuleModel, what: object) -> None:
    parameters = list(model.parameters())
    found = [torch.autograd.grad(value, parameters, allow_unused=True) for value in (fast, slow)]
    for (name, parameter), one, two in zip(model.named_parameters(), *found, strict=True):
        one, two = (torch.zeros_like(parameter) if grad is None else grad for grad in (one, two))
        torch.testing.assert_close(
            one, two, rtol=GRADIENTS, atol=GRADIENTS, msg=lambda text, name=name: f"{what}: {name}: {text}"
        )


def slow_loss(model: RuleModel, data: EventData, batch: Batch, points: Points) -> Tensor:
    """Minus the twin's log-likelihood of all sequences of the batch, which holds `data` in its order."""
    twin, parameters = twin_of(model), attached_arrays(model)
    gap = gaps_of_events(batch).gather(1, points.gap.expand_as(points.weights).clamp(max=batch.times.shape[1]))
    total = torch.zeros((), dtype=torch.float64)
    for row, sequence in enumerate(data):
        of_gaps: list[list[tuple[float, float]]] = [[] for _ in range(len(sequence) + 1)]
        for time, weight, place in zip(
            points.queries.times[row].tolist(), points.weights[row].tolist(), gap[row].tolist(), strict=True
        ):
            if place <= len(sequence) and weight:
                of_gaps[place].append((time, weight))
        events, times, settings = given_events(model, data, sequence), sequence.times.tolist(), settings_of(model, row)
        total = total - twin.log_likelihood(model.program, settings, parameters, events, times, sequence.t_end, of_gaps)
    return total


def gaps_of_events(batch: Batch) -> Tensor:
    """In which gap between events each gap between changes lies: [B, N + 1]."""
    columns = torch.arange(batch.times.shape[1] + 1).expand(len(batch), -1)
    if batch.rules is None or batch.rules.event is None:
        return columns
    happened = (batch.rules.event >= 0).long().cumsum(1)
    return torch.cat([torch.zeros(len(batch), 1, dtype=torch.long), happened], dim=1)


def given_events(model: RuleModel, data: EventData, sequence: EventSequence) -> list[Given]:
    """Names of events, with their numbers where the program asks for some."""
    names, columns = list(data.names_of(sequence)), [one.name for one in model.rule_network.features.columns]
    if not columns:
        return list[Given](names)
    own = sequence.attributes
    assert own is not None
    rows = [own.table.of_events[name].values[own.row : own.row + len(sequence)].tolist() for name in columns]
    numbers = [
        {name: None if math.isnan(one) else one for name, one in zip(columns, row, strict=True)}
        for row in zip(*rows, strict=True)
    ]
    return [EventWithNumbers(name, given) for name, given in zip(names, numbers, strict=True)]


def slow_intensities(model: RuleModel, data: EventData, row: int, time: float) -> dict[str, Tensor]:
    events, times = given_events(model, data, data[row]), data[row].times.tolist()
    settings = settings_of(model, row)
    found = twin_of(model).intensities(model.program, settings, attached_arrays(model), events, times, time)
    return {spelled(fact): value for fact, value in found.items()}


def asked_times(data: EventData, seed: int, past_end: float = 1.3) -> Tensor:
    """In no order, a time asked twice, the first event's own time, which does not see it, and some beyond the end."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for sequence in data:
        free = past_end * sequence.t_end * torch.rand(4, generator=generator, dtype=torch.float64)
        own = sequence.times[: len(sequence) // 2 + 1][-1:].tolist() or [0.0]
        rows.append(
            torch.cat([free, free[1:2], torch.tensor(own, dtype=torch.float64)])[torch.randperm(6, generator=generator)]
        )
    return torch.stack(rows)


def check_intensities(model: RuleModel, data: EventData, seed: int) -> None:
    """Of every event at every time: from a batch, and of each sequence alone."""
    times = asked_times(data, seed, 1.0 if model.program.expires else 1.3)  # nothing expires after the end of a batch
    batch = model.collator.batch(data, range(len(data)))
    state = state_at(model, batch, Queries.at_times(batch, times))
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


def check_loss(model: RuleModel, data: EventData, seed: int, width: int | None = None) -> None:
    batch = model.collator.batch(data, range(len(data)), width=width, unscored=model.unscored)
    points = stratified(batch, 2, torch.Generator().manual_seed(seed))
    fast = training_loss(model, batch, points).objective
    slow = slow_loss(model, data, batch, points)
    assert_close(fast, slow, seed)
    if slow.requires_grad:
        assert_same_gradients(fast, slow, model, seed)


def agrees(model: RuleModel, case: RichCase, seed: int) -> bool:
    """False where the twin refuses the program, because some embedding needs itself; the model only minds if it is asked for."""
    data = case.data
    try:
        slow_intensities(model, data, 0, case.sequences[0][2] + 1.0)
    except ForetellError as error:
        assert "needs itself" in str(error), seed
        return False
    shapes = {name: tuple(array.shape) for name, array in model.named_arrays().items()}
    wanted = twin_of(model).wanted(case.program, settings_of(model), *case.sequences[0][:2])
    assert wanted.items() <= shapes.items(), seed
    check_intensities(model, data, seed)
    check_loss(model, data, seed, width=len(data[0]) + seed % 3)
    return True


def check_block(make: Callable[[RichCase, int], RuleModel], block: int, expiry: bool = False) -> None:
    """Some random programs, of which at least half have no proof that needs itself."""
    seeds = range(block * BLOCK, (block + 1) * BLOCK)
    cases = {seed: rich_case(seed, expiry) for seed in seeds}
    compared = sum(agrees(make(case, seed), case, seed) for seed, case in cases.items())
    assert compared >= BLOCK // 2


def by_quadrature(model: RuleModel, data: EventData, order: Sequence[int], width: int | None = None) -> Tensor:
    """The log-likelihood of each of these sequences."""
    batch = model.collator.batch(data, order, width=width)
    return log_likelihood(model, batch, quadrature(batch, 2)).log_likelihood()
