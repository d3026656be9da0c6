"""Predictions: closed forms, quadrature and samples agree, the quiet before the start counts, and names come from the rules."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.evaluate.next_time import predict_next_times
from foretell.evaluate.predict import QUANTILES, predict, predict_each, seed_of
from foretell.lang.program import Program
from foretell.models.attention.anhp import ANHP
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.models.rules.andtt import ANDTT
from foretell.sampling.core.futures import sample_next
from tests.contract.members import MEMBERS, Member
from tests.samples import event_data, random_data, randomise

DATA = random_data(3, [6, 0, 9], t_end=10.0)


def poisson(*rates: float) -> Poisson:
    model = Poisson(Vocabulary(("a", "b", "c")))
    with torch.no_grad():
        model.log_rate.copy_(torch.tensor(rates, dtype=torch.float64).log())
    return model


def hawkes(mu: float, alpha: float, beta: float) -> Hawkes:
    model = Hawkes(Vocabulary(("a", "b", "c")), decays=1)
    with torch.no_grad():
        model.mu.fill_(mu)
        model.alpha.fill_(alpha)
        model.beta.fill_(beta)
    return model


def test_a_poisson_process_is_predicted_as_its_closed_form_says():
    found = predict(poisson(0.2, 0.5, 0.1), DATA[0])
    assert found.start == 10.0 and found.seen == 6
    assert found.mean == pytest.approx(10.0 + 1.0 / 0.8, rel=1e-7)
    assert found.median == pytest.approx(10.0 + math.log(2.0) / 0.8, rel=1e-9)
    for (low, high), (p, q) in ((found.outlook.interval_50, (0.25, 0.75)), (found.outlook.interval_90, (0.05, 0.95))):
        assert low == pytest.approx(10.0 - math.log1p(-p) / 0.8) and high == pytest.approx(10.0 - math.log1p(-q) / 0.8)
    assert [one.event for one in found.events] == ["b", "a", "c"]
    assert [one.probability for one in found.events] == pytest.approx([0.625, 0.25, 0.125], rel=1e-6)
    assert found.no_event < 1e-6


def test_what_was_quiet_before_the_start_has_not_happened():
    """The excitement of a Hawkes process fades in the meantime; nothing that comes later is seen."""
    history = EventSequence(np.array([1.0, 2.0, 7.0]), np.array([0, 1, 2]), 8.0)
    model = hawkes(0.1, 0.4, 0.7)
    for start, seen in ((2.0, 2), (2.5, 2), (6.999, 2), (7.0, 3), (30.0, 3)):
        found = predict(model, history, start=start)
        assert (found.start, found.seen) == (start, seen)
        excited = 1.2 * sum(math.exp(-0.7 * (start - s)) for s in history.times[:seen])
        assert found.median is not None
        waited = found.median - start
        assert 0.3 * waited + excited * -math.expm1(-0.7 * waited) / 0.7 == pytest.approx(math.log(2.0), rel=1e-6)


def test_the_mean_is_the_one_that_evaluation_predicts():
    model = randomise(ANHP.preset("plain", DATA.vocabulary, dim=5, dtype=torch.float64), seed=4)
    model.time.set_range(0.3, 10.0)
    whole = predict_next_times(model, DATA)
    for event in range(6):
        found = predict(model, DATA[0], start=float(DATA[0].times[event - 1]) if event else 0.0)
        row = np.flatnonzero((whole.sequence == 0) & (whole.event == event))[0]
        assert found.mean == pytest.approx(whole.predicted[row], rel=1e-5)
        assert found.median == pytest.approx(whole.median[row], rel=1e-5)
        assert found.events[0].event == DATA.vocabulary.names[whole.type_without_time[row]]


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_every_model_predicts_and_many_at_once_as_one_by_one(member: Member):
    model = member.build()
    together = predict_each(model, DATA, top=9)
    for sequence, one in zip(DATA, together, strict=True):
        alone = predict(model, sequence, top=9)
        assert one.sequence == sequence.id and (one.median is None) == (alone.median is None)
        if alone.median is not None:  # there is none where most likely nothing happens
            assert one.median == pytest.approx(alone.median, rel=1e-6)
        assert {e.event: e.probability for e in one.events} == pytest.approx(
            {e.event: e.probability for e in alone.events}, abs=1e-6
        )
        assert sum(e.probability for e in one.events) + one.no_event == pytest.approx(1.0, abs=1e-6)


def test_a_mean_is_undefined_where_too_much_never_happens_and_later_quantiles_are_too():
    """After one event nothing more happens with probability exp(−α/β) = 0.368."""
    history = EventSequence(np.array([1.0]), np.array([0]), 1.0)
    model = hawkes(1e-12, 1.0 / 3.0, 1.0)
    found = predict(model, history)
    assert found.no_event == pytest.approx(math.exp(-1.0), rel=1e-5)
    assert found.mean is None and found.outlook.mean_error is None
    assert found.median is not None and found.outlook.interval_90[1] is None and found.outlook.interval_50[1] is None
    assert found.outlook.interval_50[0] == pytest.approx(1.0 - math.log1p(math.log(0.75)), rel=1e-5)
    written = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert written["mean"] is None and written["interval_90"][1] is None


def test_the_mean_agrees_with_samples_where_nothing_happens_now_and_then():
    """No event with probability exp(−8) = 3.4e-4: too little to leave the mean undefined, enough to spoil it by the horizon."""
    history = EventSequence(np.array([1.0]), np.array([0]), 1.0)
    model = hawkes(1e-13, 8.0 / 3.0, 1.0)
    model.longest = 100.0
    found = predict(model, history, by="both", n=20_000, seed=5)
    assert found.no_event == pytest.approx(math.exp(-8.0), rel=1e-5) and found.mean is not None
    assert found.samples is not None and found.samples.mean is not None and found.samples.mean_error is not None
    assert abs(found.samples.mean - found.mean) < 5.0 * found.samples.mean_error
    evaluated = predict_next_times(
        model, EventData([EventSequence(np.array([1.0, 1.1]), np.array([0, 0]), 9.0)], model.vocabulary)
    )
    assert evaluated.predicted[1] == pytest.approx(found.mean, rel=1e-4)


@pytest.mark.parametrize("lasting", [6.0, 7.5])
def test_whether_there_is_a_mean_does_not_depend_on_the_draws(lasting: float):
    """No event with probability exp(−6) = 2.5e-3 and exp(−7.5) = 5.5e-4: among 200 draws there may be one or none."""
    history = EventSequence(np.array([1.0]), np.array([0]), 1.0)
    model = hawkes(1e-13, lasting / 3.0, 1.0)
    model.longest = 100.0
    means = [predict(model, history, by="samples", n=200, seed=seed).mean for seed in range(12)]
    assert all((one is None) == (math.exp(-lasting) > 1e-3) for one in means)


def test_draws_of_one_history_do_not_repeat_those_of_another():
    """Histories with horizons of their own, and in a unit in which they are all tiny."""
    model = poisson(2e11, 5e11, 1e11)
    model.longest = 1e-11
    same = [
        EventSequence(np.zeros(0), np.zeros(0, dtype=np.int32), 1e-11 * (place + 1), str(place)) for place in range(3)
    ]
    found = predict_each(model, EventData(same, model.vocabulary), by="samples", n=200, seed=3)
    waits = [round((one.median or math.nan) - one.start, 20) for one in found]
    assert len(set(waits)) == 3, "each history has random numbers of its own"
    for one, quadrature in zip(found, predict_each(model, EventData(same, model.vocabulary)), strict=True):
        assert one.outlook.horizon == quadrature.outlook.horizon


def models() -> list[IntensityModel]:
    anhp = randomise(ANHP.preset("plain", DATA.vocabulary, dim=4, dtype=torch.float64), seed=6)
    anhp.time.set_range(0.2, 10.0)
    rules = next(member for member in MEMBERS if member.name == "andtt").build()
    return [anhp, rules, hawkes(0.1, 0.4, 0.7), hawkes(1e-3, 0.3, 1.0), poisson(0.2, 0.5, 0.1)]


@pytest.mark.parametrize("model", models(), ids=["anhp", "andtt", "hawkes", "hawkes that may end", "poisson"])
def test_samples_agree_with_quadrature(model: IntensityModel):
    """5 quantiles, 3 types, no_event and a mean for 5 models, each refused at 1.5e-7: a false alarm in fewer than 1e-5 of all seeds."""
    n, refused = 3000, 1.5e-7
    found = predict(model, DATA[0], by="both", n=n, top=3, seed=1, pattern="a")
    drawn = sample_next(model, [DATA[0]], n=n, seed=seed_of(1, 0))[0]
    wanted = found.outlook
    assert found.samples is not None and found.samples.draws == n and found.samples.by == "samples"

    def share(count: float, probability: float) -> None:
        assert stats.binomtest(round(count), n, min(1.0, probability)).pvalue > refused

    times = np.where(drawn.found, drawn.times, np.inf)
    quantiles = (*wanted.interval_90, *wanted.interval_50, wanted.median)
    for level, time in zip((0.05, 0.95, 0.25, 0.75, 0.5), quantiles, strict=True):
        if time is not None:
            share((times <= time).sum(), level)
    counts = {one.event: one.probability * n for one in found.samples.events}
    for one in wanted.events:
        share(counts.get(one.event, 0.0), one.probability)
    share(found.samples.no_event * n, wanted.no_event)
    if wanted.mean is not None and found.samples.mean is not None:
        assert found.samples.mean_error is not None
        assert abs(found.samples.mean - wanted.mean) < 5.3 * found.samples.mean_error
    assert found.samples.who is not None and found.who is not None
    assert found.samples.who.probability * n == pytest.approx(counts.get("a", 0.0))


def test_samples_alone_are_the_same_for_a_seed_and_others_for_another():
    model = hawkes(0.1, 0.4, 0.7)
    one, same, other = (predict(model, DATA[0], by="samples", n=200, seed=seed) for seed in (3, 3, 4))
    assert one == same and one.mean != other.mean and one.samples is None and one.outlook.by == "samples"


def test_quantiles_of_draws_are_draws():
    found = predict(poisson(0.2, 0.5, 0.1), DATA[0], by="samples", n=11)
    drawn = np.sort(sample_next(poisson(0.2, 0.5, 0.1), [DATA[0]], n=11, seed=seed_of(0, 0))[0].times)
    assert found.median == drawn[5] and found.outlook.interval_90 == (drawn[0], drawn[10])
    assert QUANTILES == (0.05, 0.25, 0.5, 0.75, 0.95)


def test_a_pattern_gives_the_share_of_each_event_that_matches():
    names = ("pass(x,y)", "pass(x,z)", "pass(y,x)", "kick(x)")
    model = Poisson(Vocabulary(names))
    with torch.no_grad():
        model.log_rate.copy_(torch.tensor([0.1, 0.3, 0.4, 0.2], dtype=torch.float64).log())
    found = predict(model, EventSequence(np.zeros(0), np.zeros(0, dtype=np.int32), 1.0), pattern="pass(x,Q)").who
    assert found is not None and found.pattern == "pass(x,Q)" and found.matching == 2
    assert found.probability == pytest.approx(0.4, rel=1e-5)
    assert [(one.event, one.share) for one in found.events] == [
        ("pass(x,z)", pytest.approx(0.75)),
        ("pass(x,y)", pytest.approx(0.25)),
    ]


# Models of rules

CHAT = """
:- event(say, 2). :- exogenous(arrive). :- event(greet, 2).
here(P) <- arrive(P).
!here(P) <- greet(P, Q).
say(P) :- here(P).
greet(P, Q) :- here(P), here(Q).
"""


def chat() -> tuple[ANDTT, EventSequence]:
    """The vocabulary lacks what may be said next."""
    vocabulary = Vocabulary(("arrive(ann)", "arrive(bob)", "say(ann)"))
    model = randomise(ANDTT(Program.from_text(CHAT, dim=2), vocabulary, dim=2, layers=1, dtype=torch.float64), seed=2)
    model.time.set_range(0.2, 10.0)
    return model, EventSequence(np.array([1.0, 2.0, 3.0]), np.array([0, 2, 1]), 3.0, "talk")


def test_only_what_the_rules_make_possible_is_predicted_and_by_name():
    """`bob` arrives at the very end of the history, and counts."""
    model, history = chat()
    found = predict(model, history, top=20)
    possible = {"say(ann)", "say(bob)", *(f"greet({p},{q})" for p in ("ann", "bob") for q in ("ann", "bob"))}
    assert {one.event for one in found.events} == possible and found.outlook.possible == 6
    assert sum(one.probability for one in found.events) + found.no_event == pytest.approx(1.0, abs=1e-6)
    before = predict(model, history, start=2.5, top=20)
    assert {one.event for one in before.events} == {"say(ann)", "greet(ann,ann)"}
    assert len(model.vocabulary) == 3, "the model itself is not widened"


def test_probabilities_of_events_outside_the_vocabulary_are_those_of_a_model_that_has_them():
    model, history = chat()
    wide, _ = chat()
    wide.widen(["say(bob)", "greet(ann,ann)", "greet(ann,bob)", "greet(bob,ann)", "greet(bob,bob)"])
    one = {e.event: e.probability for e in predict(model, history, top=20).events}
    two = {e.event: e.probability for e in predict(wide, history, top=20).events}
    assert one == pytest.approx(two, rel=1e-9)


def test_samples_of_a_model_of_rules_are_of_possible_events_under_their_names():
    """Six events, each refused at 1e-6: a false alarm in fewer than 1e-5 of all seeds."""
    model, history = chat()
    found = predict(model, history, top=20, by="both", n=2000, seed=2)
    assert found.samples is not None
    drawn = {one.event: round(2000 * one.probability) for one in found.samples.events}
    assert drawn.keys() <= {one.event for one in found.events} and sum(drawn.values()) > 1000
    for one in found.events:
        assert stats.binomtest(drawn.get(one.event, 0), 2000, one.probability).pvalue > 1e-6


def test_a_pattern_that_is_impossible_now_has_probability_zero_and_one_that_never_can_be_is_an_error():
    model, history = chat()
    found = predict(model, history, start=2.5, pattern="greet(bob,Q)").who
    assert found is not None and found.probability == 0.0 and found.events == ()
    with pytest.raises(ForetellError, match=r"no `greet` has `bobb` at place 1; did you mean `bob`\?"):
        predict(model, history, pattern="greet(bobb,Q)")
    for name in ("here", "arrive"):  # a fact, and an event that is not predicted
        with pytest.raises(
            ForetellError, match=rf"no event of the model is called `{name}`; there are `greet` and `say`"
        ):
            predict(model, history, pattern=f"{name}(P)")


# Mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": 0}, "top = 0: expected 1 or more"),
        ({"n": 0, "by": "samples"}, "n = 0: expected 1 or more"),
        ({"seed": -1}, "seed = -1: expected 0 or more"),
        ({"by": "guess"}, "by = 'guess': expected one of quadrature, samples, both"),
        ({"start": -1.0}, "start = -1.0: expected a time from 0 on"),
        ({"start": math.nan}, "start = nan: expected a time from 0 on"),
        ({"pattern": "z"}, "pattern 'z' can never match"),
    ],
)
def test_questions_that_make_no_sense_are_refused(options: dict, message: str):
    with pytest.raises(ForetellError) as caught:
        predict(poisson(0.2, 0.5, 0.1), DATA[0], **options)
    assert message in str(caught.value)


def test_data_with_other_types_are_refused():
    other = event_data([([1.0], [0])], types=2)
    with pytest.raises(ForetellError, match="its event types are not those of the model"):
        predict_each(poisson(0.2, 0.5, 0.1), EventData(list(other), other.vocabulary))
