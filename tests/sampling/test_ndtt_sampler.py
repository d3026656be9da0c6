"""Sampler of an NDTT: the intensities of the model and of its slow twin, also after sampled events, under bounds that hold."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from foretell.data import EventSequence
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.rules.ndtt import NDTT
from foretell.models.rules.ndtt_sampler import NDTTSampler
from foretell.reference import ndtt as slow
from foretell.reference.database import is_possible, states
from foretell.reference.ruled import spelled
from foretell.sampling.core.futures import sample_futures
from tests.models.rule_twin import settings_of
from tests.plan.rich_programs import rich_case
from tests.sampling.processes import PAST, RULES, TYPES, ndtt
from tests.sampling.rule_kinds import ndtt_of as of_case
from tests.sampling.rule_kinds import told_ndtt as told
from tests.sampling.told import AHEAD, CYCLIC, TALK, Told, exceeded


def of_twin(one: Told[NDTT], time: float) -> dict[str, float]:
    """The twin's intensities of the same history."""
    settings = settings_of(one.model)
    assert isinstance(settings, slow.Settings)
    arrays = one.model.named_arrays()
    found = slow.intensities(one.model.program, settings, arrays, one.names, one.times, time, seen=len(one.names))
    return {spelled(event): float(rate) for event, rate in found.items()}


# Intensities


@pytest.mark.parametrize("seed", sorted(set(range(12)) - CYCLIC))
def test_intensities_are_those_of_the_slow_twin(seed: int):
    case = rich_case(seed)
    one = of_case(case, len(case.sequences[0][0]))
    for _ in range(2):
        for time, row in zip(one.last + AHEAD, one.rates(one.last + AHEAD), strict=True):
            found = {one.sampler.name(0, choice): float(rate) for choice, rate in enumerate(row)}
            assert found == pytest.approx(of_twin(one, float(time)), rel=1e-9, abs=1e-300)
        if not one.rates([one.last]).shape[1]:
            return
        one.append(one.sampler.name(0, 0), one.last + 0.4)
        one.model.possible_intensities(one.history, [one.last])  # which meets the names of what this event adds


def test_histories_of_different_lengths_are_replayed_side_by_side():
    one = told(TALK, ["say(ann)", "rain", "hush", "say(bob)"], [0.5, 1.0, 1.0, 2.0])
    other = Told(one.model, ["rain", "say(bob)"], [0.1, 3.0])
    sampler = NDTTSampler.start(one.model, [one.history, other.history], [4, 2])
    at = torch.from_numpy(np.stack([3.0 + AHEAD] * 2))
    for sequence, alone in enumerate((one, other)):
        own = alone.rates(3.0 + AHEAD)
        torch.testing.assert_close(sampler.intensities(at)[sequence, :, : own.shape[1]], own, rtol=1e-12, atol=0.0)


def cell(one: Told[NDTT], name: str) -> tuple[torch.Tensor, ...] | None:
    """`c`, `c̄`, rate and time of the last update of a fact without arguments."""
    text = one.model.histories.grounding.text
    past = one.sampler.sequences[0].past
    for fact, row in past.place.items():
        if text(fact) == name:
            return tuple(column[row] for column in past.table.columns())
    return None


def test_an_event_that_removes_and_adds_a_fact_starts_its_cell_anew():
    """`hush` destroys the cell of `mood`, which it then moves from zero: nothing is left of what was before."""
    one = told(TALK, ["say(ann)", "say(bob)", "rain"], [0.5, 0.7, 1.0])
    other = told(TALK, ["say(bob)"], [0.9])
    for sequence in (one, other):
        sequence.append("hush", 1.2)
        sequence.agrees()
    mine, theirs = cell(one, "mood"), cell(other, "mood")
    assert mine is not None and theirs is not None
    # `hush` itself is embedded with `quiet`, which both saw for the first time.
    for left, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=0.0)


def test_a_removed_fact_has_no_cell():
    text = ":- event(on, 2). :- event(off, 2).\non. off.\nlit <- on.\n!lit <- off.\noff :- lit.\n"
    one = told(text, ["on"], [1.0])
    assert cell(one, "lit") is not None
    one.append("off", 2.0)
    assert cell(one, "lit") is None
    one.agrees()
    one.append("on", 2.5)
    one.agrees()


def test_only_what_is_possible_is_ever_sampled():
    drawn = 0
    for seed in (0, 2, 4, 5, 7):
        case = rich_case(seed)
        one = of_case(case, 3)
        (found,) = sample_futures(one.model, [one.history], n=3, horizon=4.0, start=one.last, events=8, seed=seed)
        for future in found.futures:
            replayed = states(case.program, [*one.names, *future.events])
            after = list(replayed)[1 + len(one.names) :]
            for state, name in zip(after, future.events, strict=False):
                assert is_possible(case.program, state, name)
                drawn += 1
    assert drawn > 20


def test_names_that_training_never_met_get_parameters_and_the_model_stays_as_it_is():
    text = """:- event(meet). :- exogenous(come). :- embed(come, 0).
    :- embed(here, 0).
    here(X) <- come(X).
    likes(X,Y) : b(Y) <- meet(X,Y) :: habit(X).
    meet(X,Y) :- here(X), here(Y), X != Y :: pair(X).
    meet(X,Y) :- likes(X,Y), here(X).
    """
    model = NDTT(Program.from_text(text, dim=3), dim=3)
    model.widen(["come(ann)", "come(bob)", "come(cyd)"])
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    one = Told(model, ["come(ann)", "come(bob)", "come(cyd)"], [0.1, 0.2, 0.3])
    one.append("meet(ann,bob)", 1.0)
    found = one.rates([2.0])[0].tolist()
    assert model.state_dict().keys() == kept.keys()
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert next(model.parameters()).dtype == torch.float32
    (wanted,) = model.possible_intensities(one.history, [2.0])
    names = [one.sampler.name(0, choice) for choice in range(len(found))]
    assert dict(zip(names, found, strict=True)) == pytest.approx(wanted, rel=1e-5)


def test_the_past_is_worked_out_in_double_precision_whatever_the_model_is_in():
    """The histories' cells are those of the parameters in float64, and not of a network that rounds on its way."""
    exact = told(TALK, ["say(ann)", "rain", "say(bob)"] * 5, [0.3 * index for index in range(15)])
    rough = copy.deepcopy(exact.model).float()
    for parameter, other in zip(exact.model.parameters(), rough.parameters(), strict=True):
        with torch.no_grad():
            parameter.copy_(other.double())
    for model in (exact.model, rough):
        found = Told(model, exact.names, exact.times).rates(exact.last + AHEAD)
        torch.testing.assert_close(
            found, Told(exact.model, exact.names, exact.times).rates(exact.last + AHEAD), rtol=1e-12, atol=0.0
        )


def test_an_impossible_event_that_is_history_moves_cells_all_the_same():
    one = told(TALK, ["say(ann)", "hush", "rain"], [0.5, 0.7, 1.0])
    kinds = [
        one.model.vocabulary.find(name) for name in ("hush", "say(ann)", "hush", "rain")
    ]  # nobody was loud at first
    history = EventSequence(
        np.asarray([0.1, 0.5, 0.7, 1.0]),
        np.asarray(kinds, dtype=np.int32),
        5.0,
        unscored=np.asarray([True, False, False, False]),
    )
    sampler = NDTTSampler.start(one.model, [history], [4])
    for row, wanted in zip(
        sampler.intensities(torch.from_numpy(1.0 + AHEAD)[None])[0],
        one.model.possible_intensities(history, 1.0 + AHEAD),
        strict=True,
    ):
        assert {sampler.name(0, n): float(rate) for n, rate in enumerate(row)} == pytest.approx(wanted, rel=1e-9)


# Bounds


@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("seed", [0, 1, 6, 7, 9, 12, 14])
def test_no_intensity_is_above_its_bound_however_large_the_weights(seed: int, spread: float):
    case = rich_case(seed)
    one = of_case(case, len(case.sequences[0][0]), spread)
    exceeded(one.sampler, one.last, widths=(1e-6, 0.02, 0.1, 0.5, 3.0, 100.0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_no_intensity_is_above_its_bound_in_many_more_programs(seed: int):
    case = rich_case(seed)
    try:
        one = of_case(case, len(case.sequences[0][0]), spread=10.0 ** (seed % 5 / 2.0 - 0.7))
        exceeded(one.sampler, one.last, widths=(0.01, 0.05, 0.2, 1.0, 5.0), times=2000)
    except ForetellError:
        pytest.skip("its embeddings need one another")


def test_bounds_are_close_on_windows_in_which_cells_lose_half_of_what_they_have_to_lose():
    one = told(TALK, ["say(ann)", "rain", "hush", "say(bob)", "say(bob)"], [0.5, 1.0, 1.5, 1.5, 3.0], dim=6, spread=0.5)
    fastest = float(one.sampler.sequences[0].past.table.rate.max())
    half = math.log(2.0) / fastest
    assert max(exceeded(one.sampler, one.last, widths=(half / 4.0, half))) <= 1.02


def test_times_as_large_as_unix_time_do_not_break_bounds():
    late = 1.7e9
    one = told(TALK, ["say(ann)", "rain", "say(bob)"], [late, late + 0.4, late + 1.0], spread=2.0)
    exceeded(one.sampler, one.last, widths=(1e-6, 1e-3, 0.1, 1.0))


def test_a_few_pieces_are_enough_for_an_event():
    """Cells are followed closely: proposals and windows together are below three for each event that is accepted."""
    (found,) = sample_futures(ndtt(), [PAST], n=8, horizon=30.0, seed=1)
    cost = found.cost
    assert cost.accepted > 100
    assert cost.proposals + cost.bounds < 3 * cost.accepted and cost.pieces < 6 * cost.accepted


def test_events_of_the_small_process_are_those_of_its_rules():
    """`c` needs what `a` or `b` leave behind, and takes it away."""
    program = Program.from_text(RULES, dim=8)
    (found,) = sample_futures(ndtt(), [PAST], n=4, horizon=20.0, seed=4)
    names = [TYPES.names[kind] for kind in PAST.types.tolist()]
    for future in found.futures:
        after = list(states(program, [*names, *future.events]))[1 + len(names) :]
        assert all(is_possible(program, state, name) for state, name in zip(after, future.events, strict=False))
    assert {"a", "b", "c"} == {name for future in found.futures for name in future.events}
