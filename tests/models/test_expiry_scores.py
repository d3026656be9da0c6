"""Scores, predictions, noise and runs of models whose additions expire: closed forms where rates are constant, and plain counts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from foretell.data import EventData
from foretell.data.clock import Clock
from foretell.errors import ForetellError
from foretell.evaluate.drawn_scores import drawn_scores
from foretell.evaluate.likelihood import score_events
from foretell.evaluate.next_time import predict_next_times, waiting_times
from foretell.evaluate.predict import predict
from foretell.lang.program import Program
from foretell.models.build import load_model, save_model
from foretell.models.classical.hawkes import Hawkes
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT
from foretell.objective.nce import NoiseSource, functor_marks
from foretell.objective.noise_parts import GapMarks
from foretell.train.config import TrainOptions
from foretell.train.likelihood_task import integral_cost, mean_log_likelihood
from tests.ground.test_expiry import data_of
from tests.models.test_expiry_twin import EVENTS, SMALL, TIMES, small

BUY, LOOK = 0.7, 0.2  # rates


def constant(t_end: float = 12.0) -> tuple[ANDTT, EventData]:
    """Each event has a constant rate while it is possible: `buy(u)` for two units after `login(u)`, `look` of both users always."""
    data = data_of((["login(u)", "look(u)"], [1.0, 10.0], t_end))
    model = ANDTT(Program.from_text(SMALL, dim=2), data.vocabulary, dim=2, dtype=torch.float64, intensity_scales=0)
    model.ground(data)
    with torch.no_grad():
        for name, w in zip(model.functors, model.w, strict=True):
            w.zero_()
            w[0] = math.log(math.expm1({"buy": BUY, "look": LOOK}[name]))
    return model, data


def mean_wait(both: float, later: float, until: float) -> float:
    """Of an event with one rate until a time, and another from then on."""
    return -math.expm1(-both * until) / both + math.exp(-both * until) / later


def test_the_integral_stops_where_an_addition_ends() -> None:
    model, data = constant()
    scores = score_events(model, data)
    assert scores.used.method == "quadrature" and scores.event.tolist() == [1]
    assert scores.integral[0] == pytest.approx(10.0 * 2 * LOOK + 2.0 * BUY)
    assert scores.tail[0] == pytest.approx(2.0 * 2 * LOOK)
    assert scores.log_intensity[0] == pytest.approx(math.log(LOOK))


def test_the_next_time_knows_what_will_expire_if_nothing_happens() -> None:
    model, data = constant()
    expected = mean_wait(2 * LOOK + BUY, 2 * LOOK, 2.0)
    found = predict_next_times(model, data)
    assert (found.sequence.tolist(), found.event.tolist()) == ([0], [1])
    assert found.predicted[0] == pytest.approx(1.0 + expected, rel=1e-4)
    asked = predict(model, data[0].first(1, 1.5)).outlook
    assert asked.mean == pytest.approx(1.5 + mean_wait(2 * LOOK + BUY, 2 * LOOK, 1.5), rel=1e-4)
    before = 2 * LOOK + BUY
    bought = BUY / before * -math.expm1(-before * 1.5)
    assert {one.event: one.probability for one in asked.events}["buy(u)"] == pytest.approx(bought, rel=1e-4)
    median = waiting_times(model, data, 0, [1], (0.5, 0.9))[0]
    assert median[0] == pytest.approx(math.log(2.0) / before, rel=1e-4)
    assert median[1] == pytest.approx(2.0 + (math.log(10.0) - 2.0 * before) / (2 * LOOK), rel=1e-4)


def test_an_expiry_after_the_true_next_event_still_counts_in_its_prediction() -> None:
    model, _ = constant()
    data = data_of((["login(u)", "look(u)"], [1.0, 1.5], 12.0))
    assert predict_next_times(model, data).predicted[0] == pytest.approx(
        1.0 + mean_wait(2 * LOOK + BUY, 2 * LOOK, 2.0), rel=1e-4
    )


def test_more_possible_events_than_are_listed_elsewhere_expire_like_few() -> None:
    """Of 65 · 65 pairs, which would be a product if nothing expired, those with a new item are possible for two units."""
    users, items = ";".join(f"u{one}" for one in range(65)), ";".join(f"p{one}" for one in range(65))
    text = f":- event(watch). :- exogenous(release). user({users}). item({items}). watch(U,P) :- user(U), item(P).\n"
    rule = "item(P) <- release(P) for 2."
    data = data_of((["release(new)", "watch(u3,new)"], [1.0, 2.0], 6.0))
    lasting, model = (
        ANDTT(Program.from_text(text + rule, dim=0), data.vocabulary, dim=0, dtype=torch.float64, intensity_scales=0)
        for rule in (rule.replace(" for 2", ""), rule)
    )
    assert lasting.histories.grounding.products and not model.histories.grounding.products
    model.ground(data)
    with torch.no_grad():
        model.w[0].zero_()
        model.w[0][0] = math.log(math.expm1(LOOK))
    found = model.possible_intensities(data[0], [0.5, 3.0, 3.5])
    assert [len(one) for one in found] == [65 * 65, 65 * 66, 65 * 65]
    scores = score_events(model, data)
    assert scores.log_intensity.tolist() == pytest.approx([math.log(LOOK)])
    assert scores.integral[0] + scores.tail[0] == pytest.approx(65 * LOOK * (6.0 * 65 + 2.0))


def test_scores_from_draws_are_cut_where_an_addition_ends_and_name_events_of_the_data() -> None:
    model, data = constant()
    found, expected = drawn_scores(model, data, 9), score_events(model, data)
    assert found.event.tolist() == expected.event.tolist() == [1]
    assert found.log_intensity == pytest.approx(expected.log_intensity)
    assert found.integral == pytest.approx(expected.integral + expected.tail)
    assert found.integral_variance == pytest.approx(0.0) and found.rank.tolist() == [1.0]
    random, data = small(NDTT)
    events = score_events(random, data).event
    assert drawn_scores(random, data, 9, points=1).event.tolist() == events[events >= 0].tolist()


def test_scores_name_events_of_the_data() -> None:
    model, data = small(NDTT)
    scores, found = score_events(model, data), predict_next_times(model, data)
    kept = [place for place, name in enumerate(EVENTS) if not name.startswith("log")]
    assert scores.event[scores.sequence == 0].tolist() == kept == found.event[found.sequence == 0].tolist()
    assert scores.time[scores.sequence == 0].tolist() == [TIMES[place] for place in kept]


def test_dev_scores_and_costs_count_gaps_that_expiries_cut() -> None:
    model, data = constant()
    assert mean_log_likelihood(model, data, 3) == pytest.approx(math.log(LOOK) - 12.0 * 2 * LOOK - 2.0 * BUY)
    states, intensities = integral_cost(model, data, np.array([0]), 1, TrainOptions(points=1, batch=1))
    assert (states, intensities) == (1 + 4, 1 + 2 + 3 + 2 + 2), "gaps end at 1, 3, 10 and 12"


def test_noise_is_that_of_the_events_wherever_additions_expire() -> None:
    """A Hawkes process knows events alone: its rates at them, and what it expects in each gap, do not change."""
    plain = Program.from_text(SMALL.replace(" for 2.", ".").replace(" for 1.5", "").replace(" for 4.", "."), dim=2)
    expiring, data = small(ANDTT)
    lasting = ANDTT(plain, data.vocabulary, dim=2, dtype=torch.float64)
    lasting.ground(data)
    process = Hawkes(functor_marks(expiring), decays=2)
    with torch.no_grad():
        process.mu.uniform_(0.1, 0.5, generator=torch.Generator().manual_seed(1))
        process.alpha.uniform_(0.1, 0.5, generator=torch.Generator().manual_seed(2))
    cut, whole = (one.collator.batch(data, range(len(data)), unscored=one.unscored) for one in (expiring, lasting))
    assert cut.times.shape[1] > whole.times.shape[1]
    sources = [NoiseSource(one, process, 1).process for one in (expiring, lasting)]
    parts, others = (one.parts(batch) for one, batch in zip(sources, (cut, whole), strict=True))
    for mine, theirs in zip(parts, others, strict=True):
        by_gap = torch.zeros(*whole.gap_length.shape, *theirs.expected(1).shape[2:], dtype=torch.float64)
        assert cut.rules is not None and cut.rules.event is not None
        seen = torch.cat([torch.zeros(len(cut), 1).long(), (cut.rules.event >= 0).cumsum(1)], 1).clamp(
            max=whole.times.shape[1]
        )
        for row in range(len(cut)):
            by_gap[row].index_add_(0, seen[row], mine.expected(1)[row])
        torch.testing.assert_close(by_gap, theirs.expected(1))
    row, column = torch.nonzero(cut.event_counts, as_tuple=True)
    place = cut.event_of(row, column)
    for mark in range(len(process.vocabulary)):
        marks = torch.full_like(row, mark)
        mine = sum(part.rate(GapMarks(row, column, marks), cut.times[row, column]) for part in parts)
        theirs = sum(part.rate(GapMarks(row, place, marks), whole.times[row, place]) for part in others)
        torch.testing.assert_close(mine, theirs)


def test_a_saved_model_keeps_the_unit_of_its_durations(tmp_path: Path) -> None:
    text = SMALL.replace("for 2.", "for 2h.")
    data = data_of((EVENTS, TIMES, 11.0), clock=Clock.of_unit("hours"))
    model = ANDTT(Program.from_text(text, dim=2), data.vocabulary, dim=2, dtype=torch.float64)
    model.meet(data)
    model.ground(data)
    save_model(model, tmp_path / "m.safetensors")
    again = load_model(tmp_path / "m.safetensors")
    assert np.array_equal(again.intensity(data[0], [2.4, 3.2]), model.intensity(data[0], [2.4, 3.2]))
    fresh = ANDTT(Program.from_text(text, dim=2), data.vocabulary, dim=2, dtype=torch.float64)
    with pytest.raises(ForetellError, match="`for 2h` has a unit"):
        fresh.intensity(data[0], [2.4])
