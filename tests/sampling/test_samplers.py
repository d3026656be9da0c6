"""Sampler of every model: they tell what the model tells, also after events that were taken in one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.data import EventSequence
from foretell.sampling.core.start import start_sampler
from tests.contract.members import MEMBERS, Member

LATER = [12.25, 12.5]


def pasts() -> list[EventSequence]:
    draw = np.random.default_rng(3)
    return [
        EventSequence(np.sort(draw.uniform(0.0, 11.0, n)), draw.integers(0, 3, n), 12.0, str(row))
        for row, n in enumerate((7, 0, 12))
    ]


def by_name(member_model, past: EventSequence, times: list[float]) -> list[dict[str, float]]:
    possible = member_model.possible_intensities(past, times)
    if possible is not None:
        return possible
    names = member_model.vocabulary.names
    return [dict(zip(names, row.tolist(), strict=True)) for row in member_model.intensity(past, times)]


def told(sampler, sequence: int, times: list[float]) -> list[dict[str, float]]:
    grid = torch.tensor(times, dtype=torch.float64).expand(sampler.count, len(times))
    rates = sampler.intensities(grid)[sequence]
    return [
        {sampler.name(sequence, column): value for column, value in enumerate(row.tolist()) if value > 0.0}
        for row in rates
    ]


def check(sampler, model, sequence: int, past: EventSequence, times: list[float]) -> None:
    for found, expected in zip(told(sampler, sequence, times), by_name(model, past, times), strict=True):
        assert set(found) == set(expected)
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_samplers_tell_the_intensities_of_the_model(member: Member):
    model, histories = member.build(), pasts()
    sampler = start_sampler(model, histories, [len(one) for one in histories])
    for sequence, past in enumerate(histories):
        check(sampler, model, sequence, past, [12.0, 12.7, 15.0])


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_samplers_that_took_in_events_tell_what_the_model_tells_of_the_longer_history(member: Member):
    model, histories = member.build(), pasts()
    sampler = start_sampler(model, histories, [len(one) for one in histories])
    sampler = sampler.select(torch.tensor([2, 0, 1, 1]))
    histories = [histories[place] for place in (2, 0, 1, 1)]
    goes_on = [True, False, True, True]  # one of them stays as it is
    names = list(model.vocabulary.names)
    for time in LATER:
        rates = sampler.intensities(torch.full((4, 1), time, dtype=torch.float64))[:, 0]
        chosen = rates.argmax(1)
        for sequence in range(4):
            if goes_on[sequence]:
                name = sampler.name(sequence, int(chosen[sequence]))
                kind = names.index(name)
                past = histories[sequence]
                histories[sequence] = EventSequence(
                    np.append(past.times, time), np.append(past.types, kind), 13.0, past.id
                )
        choices = torch.where(torch.tensor(goes_on), chosen, -1)
        sampler.append(torch.full((4,), time, dtype=torch.float64), choices)
    for sequence, past in enumerate(histories):
        check(sampler, model, sequence, past, [12.6, 12.9, 14.0])
