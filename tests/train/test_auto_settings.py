"""`kind = "auto"`: rules that follow the data, settings that a user overrules, floors beside a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

import foretell as ft
from foretell.errors import ForetellError
from foretell.train.auto_config import is_auto
from foretell.train.auto_settings import DataTraits, choose_settings, traits_of, with_settings
from foretell.train.config import make_config
from foretell.train.floor_fits import verdict
from tests.samples import random_data

LOG = DataTraits(events=10_000, types=16, sequences=700, longest=180, ties=0.0, has_dev=True)


def chosen(traits: DataTraits, device: str = "cpu", **more: int | bool) -> dict[str, object]:
    return {one.key: one.value for one in choose_settings(traits, device, **more)}  # pyright: ignore[reportArgumentType]


def test_every_choice_is_a_setting_that_the_configuration_knows_and_has_a_reason():
    for traits in (LOG, replace(LOG, events=500, ties=0.2, has_dev=False), replace(LOG, sequences=1)):
        for device in ("cpu", "cuda"):
            for more in ({"decays": 2}, {"program": True}):
                found = choose_settings(traits, device, **more)  # pyright: ignore[reportArgumentType]
                make_config(
                    with_settings(
                        {"data": {"path": "x"}, "model": {"program": "robocup"} if "program" in more else {}}, found
                    )
                )
                assert all(one.why for one in found)


def test_one_long_sequence_gets_as_many_steps_as_many_short_ones():
    one = chosen(replace(LOG, sequences=1, longest=10_000))
    assert one["train.batch"] == 1 and one["train.epochs"] == 80 and one["train.patience"] == 80
    many = chosen(LOG)
    steps = -(-LOG.sequences // many["train.batch"])  # pyright: ignore[reportOperatorIssue]
    assert steps * many["train.epochs"] >= 1_400 and steps * many["train.patience"] >= 350


def test_few_events_per_type_start_from_a_hawkes_process_and_many_do_not():
    assert "model.hawkes" not in chosen(LOG, decays=2)
    assert chosen(replace(LOG, types=500), decays=2)["model.hawkes"] == 2
    assert chosen(replace(LOG, events=900), decays=4)["model.hawkes"] == 4


def test_ties_are_spread_and_a_missing_dev_split_is_set_aside():
    assert "data.dequantise" not in chosen(LOG) and chosen(replace(LOG, ties=0.05))["data.dequantise"] is True
    assert chosen(replace(LOG, has_dev=False))["data.dev_share"] == 0.1
    few = chosen(replace(LOG, has_dev=False, sequences=3))
    assert "data.dev_share" not in few and "train.patience" not in few


def test_few_events_with_dates_do_without_a_calendar():
    found = {
        (events, dated): "model.calendar"
        in {one.key for one in choose_settings(replace(LOG, events=events, has_weeks=dated), "cpu")}
        for events in (5_000, 20_000)
        for dated in (False, True)
    }
    assert found == {(5_000, True): True, (5_000, False): False, (20_000, True): False, (20_000, False): False}


def test_what_is_given_overrules_a_rule():
    table = with_settings({"model": {"kind": "auto", "dim": 8}, "train": {"lr": 0.5}}, choose_settings(LOG, "cpu"))
    assert table["model"]["dim"] == 8 and table["train"]["lr"] == 0.5 and table["model"]["kind"] == "anhp"


def test_rules_choose_where_they_are_asked_and_where_nothing_is_said():
    assert is_auto({"model": {"kind": "auto"}}, True) and is_auto({"data": {"path": "x"}}, False)
    assert not is_auto({"data": {"path": "x"}}, True) and not is_auto({"model": {"kind": "nhp"}}, False)
    assert not is_auto({"preset": "paper"}, False) and not is_auto({"task": {"kind": "classify"}}, False)
    with pytest.raises(ForetellError, match="preset"):
        is_auto({"model": {"kind": "auto"}, "preset": "paper"}, True)


def test_fit_auto_trains_what_the_rules_choose_beside_the_floors():
    train, dev = random_data(1, [6] * 12), random_data(2, [6] * 4)
    found = ft.fit("auto", train, dev=dev, epochs=1)
    assert found.model.kind == "anhp" and len(found.records) == 1
    assert [one.model.kind for one in found.floors] == ["poisson", "hawkes"]
    assert found.model.options.hawkes == found.floors[1].model.decays
    with pytest.raises(ForetellError, match="auto"):
        ft.fit("autom", train)  # pyright: ignore[reportArgumentType]
    assert traits_of(train, dev).events == 72


def test_the_verdict_says_who_wins_and_what_to_try():
    floors = {"Poisson": -2.0, "Hawkes": -1.5}
    won = verdict("A-NHP", -1.2, floors, "dev", "try more")
    assert "beats Hawkes" in won and "0.3000" in won and "Poisson -2.0000" in won and "try" not in won
    assert verdict("A-NHP", -1.6, floors, "dev", "try more").endswith("; try more")
    assert "NOT" in verdict("A-NHP", -1.5, floors, "dev", "try more")
