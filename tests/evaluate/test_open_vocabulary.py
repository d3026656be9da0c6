"""Models of rules that expect events which their vocabulary lacks: these count, and a guess of one of them is wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.evaluate.likelihood import UNMET, score_events, with_all_names
from foretell.evaluate.long_horizon import FutureOptions
from foretell.evaluate.next_time import predict_next_times
from foretell.evaluate.record import read_scores, score_columns, write_scores
from foretell.evaluate.scores import ScoringOptions, score
from foretell.lang.program import Program
from foretell.models.rules.andtt import ANDTT
from foretell.report.sections.fit import NEVER_MET, confusion_of
from tests.evaluate.test_scores import ORIGIN
from tests.samples import randomise

RULES = """
:- event(a, 2). :- event(p, 2).
a. a <- a. p(x) <- a. a <- p(x).
who(x). who(y). who(z).
p(U) :- who(U).
"""
NAMES = ("a", "p(x)")


def data() -> EventData:
    random = np.random.default_rng(0)
    sequences = [
        EventSequence(
            np.sort(random.uniform(0.0, 10.0, 8)), random.integers(0, 2, 8).astype(np.int32), 10.0, str(place)
        )
        for place in range(4)
    ]
    return EventData(sequences, Vocabulary(NAMES))


def model(a: float, p: float) -> ANDTT:
    """Intensities that are the same at all times, higher where `a` and `p` are."""
    found = ANDTT(Program.from_text(RULES, dim=2), Vocabulary(NAMES), dim=2, layers=1, dtype=torch.float64)
    found.time.set_range(0.1, 10.0)
    with torch.no_grad():
        for name, score in (("a", a), ("p", p)):
            found.w[found.functors.index(name)].zero_()[0] = score
    return found


@pytest.fixture(scope="module")
def rules() -> ANDTT:
    """At times the most intense event is one that the vocabulary lacks, at others one that it has."""
    found = randomise(
        ANDTT(Program.from_text(RULES, dim=2), Vocabulary(NAMES), dim=2, intensity_scales=0, dtype=torch.float64),
        seed=18,
    )
    found.time.set_range(0.1, 10.0)
    return found


def possible(rules: ANDTT, found: EventData) -> list[dict[str, float]]:
    """Of each event of the data, just before it."""
    return [row for one in found for row in rules.possible_intensities(one, one.times.copy())]


def test_the_total_has_events_in_it_that_the_vocabulary_lacks(rules: ANDTT):
    rows = possible(rules, data())
    assert any(set(row) - set(NAMES) for row in rows)
    scores = score_events(rules, data())
    assert scores.log_total == pytest.approx([math.log(sum(row.values())) for row in rows])
    assert scores.type_log_likelihood == pytest.approx(scores.log_intensity - scores.log_total)


def test_a_guess_that_no_data_ever_had_is_wrong_and_not_one_that_they_had(rules: ANDTT):
    found, rows = data(), possible(rules, data())
    best = [max(row, key=lambda name: row[name]) for row in rows]
    assert {name in NAMES for name in best} == {True, False}, "the test needs guesses of both kinds"
    scored = score(rules, found)
    wanted = [NAMES.index(name) if name in NAMES else UNMET for name in best]
    assert scored.events.predicted_type.tolist() == wanted
    assert scored.events.log_predicted == pytest.approx([math.log(max(row.values())) for row in rows])
    happened = [name for one in found for name in found.names_of(one)]
    wrong = np.mean([guess != true for guess, true in zip(best, happened, strict=True)])
    assert scored.evaluation.error_rate.value == pytest.approx(wrong)


def test_many_unmet_events_together_do_not_make_a_guess():
    """Each is less intense than `a`, and their sum is more."""
    found = model(1.0, 0.5)
    row = possible(found, data())[0]
    assert row["p(y)"] + row["p(z)"] > row["a"] > row["p(y)"]
    assert (score_events(found, data()).predicted_type == 0).all()
    assert (predict_next_times(found, data()).type_without_time == 0).all()


def test_the_next_type_without_its_time_may_be_unmet(rules: ANDTT):
    found = predict_next_times(rules, data())
    wide = with_all_names(rules, data())
    assert set(wide.vocabulary.names) == {"a", "p(x)", "p(y)", "p(z)"} and rules.vocabulary.names == NAMES
    told = predict_next_times(wide, EventData(list(data()), wide.vocabulary)).type_without_time
    assert found.type_without_time.tolist() == [kind if kind < 2 else UNMET for kind in told.tolist()]
    assert (found.type_without_time == UNMET).any()


def test_futures_may_have_events_that_the_vocabulary_lacks(rules: ANDTT):
    found = score(rules, data(), ScoringOptions(times=False, futures=FutureOptions(5, 3.0))).evaluation.futures
    assert found is not None and found.predicted_events > 0.0 and 0.0 <= found.t_map.value <= 1.0


def test_unmet_guesses_are_kept_without_a_name_and_shown_as_such(rules: ANDTT, tmp_path):
    scored = score(rules, data())
    assert "" in score_columns(scored, data())["predicted_event"]
    write_scores(scored, data(), tmp_path, ORIGIN)
    back = read_scores(tmp_path, rules, data(), ORIGIN)
    assert back is not None and (back.events.predicted_type == scored.events.predicted_type).all()
    shown = confusion_of(scored.events, rules.vocabulary)
    assert shown.names[-1] == NEVER_MET and shown.counts.sum() == data().event_count
    assert shown.counts[:, -1].sum() == (scored.events.predicted_type == UNMET).sum() and not shown.counts[-1].any()
