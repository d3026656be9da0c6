"""Explanations by name: what is asked, how it is ranked, what is left out of it, and what cannot be explained."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import foretell as ft
from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.explain import Explanation, explain
from foretell.lang.program import Program
from foretell.models.rules.andtt import ANDTT
from foretell.report.explanation import factor, heading, heads_by_effect, percent, tables
from tests.samples import randomise

TEXT = """
:- event(talk). :- event(leave). :- exogenous(enter).
:- embed(guest, 0).
person(ann). person(bob). person(cid).
guest(X) <- enter(X).
!guest(X) <- leave(X).
leave(X) :- guest(X), person(X).
talk(X,Y) :- guest(X), guest(Y), X != Y, person(X), person(Y), room.
room.
room <- talk(X,Y) :: by(X).
room <- enter(X).
person(X) <- talk(X,_).
"""
EVENTS = ["enter(ann)", "enter(bob)", "talk(ann,bob)", "talk(bob,ann)", "talk(bob,ann)", "enter(cid)", "leave(bob)"]
TIMES = [1.0, 2.0, 3.0, 4.0, 4.0, 5.0, 6.0]


def asked(text: str = TEXT, **options) -> tuple[ANDTT, EventData]:
    data = EventData.from_names([EVENTS], [TIMES], t_ends=[9.0])
    settings = {"dim": 3, "layers": 2, "dtype": torch.float64, **options}
    model = ANDTT(Program.from_text(text, dim=3), data.vocabulary, **settings)
    model.ground(data)
    randomise(model, 4)
    model.time.set_range(0.5, 9.0)
    return model, data


MODEL, DATA = asked()


def told(at: float, event: str | None = None) -> Explanation:
    return explain(MODEL, DATA[0], at, event)


def test_the_most_intense_event_is_explained_unless_another_is_asked_for():
    found = told(5.5)
    values = list(found.intensities.values())
    assert values == sorted(values, reverse=True) and found.event == next(iter(found.intensities))
    assert found.intensities == pytest.approx(MODEL.possible_intensities(DATA[0], [5.5])[0])
    other = told(5.5, "talk( ann , bob )")
    assert other.event == "talk(ann,bob)" and other.intensity == found.intensities["talk(ann,bob)"]


def test_every_embedded_fact_of_the_proofs_is_explained_once_and_the_event_first():
    found = told(5.5, "talk(ann,bob)")
    names = [one.fact for one in found.facts]
    assert names[0] == "talk(ann,bob)" and sorted(names[1:]) == ["person(ann)", "person(bob)", "room"]
    (top,) = found.facts[0].contributions
    assert top.kind == "deduce" and top.share == 1.0 and top.rule == "rule4"
    (proof,) = top.proofs
    shares = {one.fact: one.share for one in proof.conditions}
    assert shares["guest(ann)"] == 0.0 and min(shares[name] for name in names[1:]) > 0.0
    assert proof.constant + sum(shares.values()) == pytest.approx(1.0)
    assert [one.share for one in proof.conditions] == sorted(shares.values(), reverse=True)


def test_shares_of_a_fact_sum_to_one_and_the_strongest_comes_first():
    for fact in told(5.5, "talk(ann,bob)").facts:
        shares = [one.share for one in fact.contributions]
        assert sum(shares) == pytest.approx(1.0) and shares == sorted(shares, reverse=True)


def attention(found: Explanation, fact: str) -> dict:
    (one,) = [one for one in found.facts if one.fact == fact]
    return {part.name: part.attention for part in one.contributions if part.attention}


def test_each_binding_of_a_parameter_name_is_a_head_of_its_own():
    heads = attention(told(5.5, "talk(ann,bob)"), "room")
    assert heads.keys() == {"rule5[X=ann]", "rule5[X=bob]", "rule6"}
    for layers in heads.values():
        assert [one.layer for one in layers] == [1, 2]
    assert {one.event for one in heads["rule5[X=bob]"][0].additions} == {"talk(bob,ann)"}


def test_weights_and_what_the_one_keeps_sum_to_one_and_are_ranked():
    for fact in ("room", "person(bob)"):
        for layers in attention(told(5.5, "talk(ann,bob)"), fact).values():
            for one in layers:
                weights = [past.weight for past in one.additions]
                assert one.kept + sum(weights) == pytest.approx(1.0, abs=1e-12)
                assert weights == sorted(weights, reverse=True)


def test_past_events_are_told_with_their_place_time_and_age():
    (layer, _) = attention(told(5.5, "talk(ann,bob)"), "person(bob)")["rule7"]
    assert {(one.event, one.event_index, one.time, one.ago) for one in layer.additions} == {
        ("talk(bob,ann)", 4, 4.0, 1.5),
        ("talk(bob,ann)", 5, 4.0, 1.5),
    }


def test_of_equal_weights_the_latest_comes_first():
    model, data = asked()
    with torch.no_grad():
        for name, stack in model.network.stacks.items():
            if name.endswith("_K"):
                stack.zero_()
    found = explain(model, data[0], 5.5, "talk(ann,bob)")
    for layers in attention(found, "room").values():
        for one in layers:
            places = [past.event_index for past in one.additions]
            assert places == sorted(places, reverse=True) and len({past.weight for past in one.additions}) == 1


def test_what_comes_later_has_no_say():
    cut = ft.EventSequence(DATA[0].times[:5], DATA[0].types[:5], 9.0, DATA[0].id)
    assert explain(MODEL, cut, 5.0).to_json() == told(5.0).to_json()


def test_lists_are_cut_and_the_rest_is_counted():
    found = told(5.5, "talk(ann,bob)")
    whole, short = found.to_json(), found.to_json(1)
    assert len(whole["highest"]) == whole["possible"] == short["possible"] and len(short["highest"]) == 1
    assert [one["fact"] for one in short["facts"]] == [one["fact"] for one in whole["facts"]]
    for one, two in zip(whole["facts"], short["facts"], strict=True):
        for long, cut in zip(one["contributions"], two["contributions"], strict=True):
            assert len(cut["proofs"]) + cut["proofs_not_shown"] == len(long["proofs"])
            for a, b in zip(long["attention"], cut["attention"], strict=True):
                assert len(b["additions"]) == 1 and b["not_shown"] == len(a["additions"]) - 1
                total = b["kept"] + b["not_shown_weight"] + sum(past["weight"] for past in b["additions"])
                assert total == pytest.approx(1.0, abs=1e-12) and a["not_shown_weight"] == 0.0


def test_several_proofs_of_a_pool_are_ranked():
    declared = ":- event(g). :- exogenous(enter). :- exogenous(talk). :- exogenous(leave).\n"
    model, data = asked(f"{declared}p(a). p(b). p(c).\ng :- p(X).\ng <- enter(X).\n")
    (pool,) = [one for one in explain(model, data[0], 1.5).facts[0].contributions if one.proofs]
    shares = [one.share for one in pool.proofs]
    assert len(shares) == 3 and sum(shares) == pytest.approx(1.0) and shares == sorted(shares, reverse=True)


def test_before_the_first_event_there_is_nothing_to_attend_to():
    model, data = asked(TEXT + "talk(ann,bob) :- room.\n")
    found = explain(model, data[0], 0.0)
    assert found.seen == 0 and found.after is None and not heads_by_effect(found)
    assert "before any event" in heading(found) and len(tables(found, 5)) == 2


@pytest.mark.parametrize(
    ("at", "event", "message"),
    [
        (math.nan, None, "time nan: expected a number from 0 on"),
        (-1.0, None, "time -1: expected a number from 0 on"),
        (math.inf, None, "time inf: expected a number from 0 on"),
        ("soon", None, "time 'soon': expected a number from 0 on"),
        (9.5, None, "sequence 0 was observed until 9 only"),
        (0.5, None, "sequence 0, just before time 0.5, before any event: no event is possible"),
        (5.5, "tlak(ann,bob)", "the program has no functor `tlak`; did you mean `talk`?"),
        (5.5, "talk(ann)", "`talk(ann)` has 1 arguments; the program has `talk/2`"),
        (5.5, "talk(ann,", "Ask about one fact with its values"),
        (5.5, "enter(ann)", "`enter/1` is exogenous: it may happen at any time and is never predicted"),
        (5.5, "person(ann)", "`person/1` is not an event. Choose a possible event, such as"),
        (6.5, "talk(ann,bob)", "just before time 6.5, after leave(bob) at 6: this event is not possible"),
        (6.5, "talk(ann,bob)", "`guest(bob)` is not true"),
        (5.5, "leave(dan)", "`dan` occurs nowhere in the program or in this sequence"),
    ],
)
def test_what_cannot_be_explained_is_refused_and_says_why(at, event: str | None, message: str):
    with pytest.raises(ForetellError) as refused:
        told(at, event)
    assert message in str(refused.value)


def test_a_fact_that_was_met_after_another_question_is_found():
    model, data = asked()
    explain(model, data[0], 2.5)
    assert explain(model, data[0], 5.5, "talk(cid,ann)").event == "talk(cid,ann)"


def test_past_events_are_a_frame():
    pytest.importorskip("pandas")
    found = ft.explain(ft.Hawkes(DATA.vocabulary), DATA[0], 5.5)
    frame = found.to_frame("pandas")
    assert list(frame.columns) == ["sequence", "event", "event_index", "time", "ago", "effect", "total_effect"]
    assert frame["event_index"].tolist() == [one.event_index for one in found.past] and len(frame) == found.seen > 0


def test_effects_are_told_as_factors_and_shares_as_percents():
    assert [factor(one) for one in (0.0, math.log(17.07), -8.0, 900.0, None)] == [
        "× 1.00",
        "× 17.07",
        "× 0.00034",
        "× 1e+304",
        "–",
    ]
    assert [percent(one) for one in (0.0, 0.001, 0.126, 1.0)] == ["0 %", "< 1 %", "13 %", "100 %"]


def test_heads_are_ordered_by_their_effect_either_way():
    sizes = [abs(one.effect or 0.0) for _, one in heads_by_effect(told(5.5, "talk(ann,bob)"))]
    assert len(sizes) == 5 and sizes == sorted(sizes, reverse=True)
    assert all(np.isfinite(sizes))
