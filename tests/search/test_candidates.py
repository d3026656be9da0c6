"""What a search tries, in which order, and with which settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretell.errors import ForetellError
from foretell.search.candidates import candidates_for, rules_of
from foretell.train.auto_settings import DataTraits, choose_settings, with_settings
from foretell.train.config import make_config

LOG = DataTraits(events=10_000, types=16, sequences=700, longest=180, ties=0.0, has_dev=True)
FEW = replace(LOG, events=900, sequences=200)


def test_every_candidate_is_a_configuration_and_has_a_name_of_its_own():
    for traits in (LOG, FEW):
        for device in ("cpu", "cuda"):
            for more in ({"decays": 3}, {"program": "robocup"}, {"program": "robocup", "without_rules": False}):
                found = candidates_for(traits, device, **more)  # pyright: ignore[reportArgumentType]
                for one in found:
                    config = make_config({"data": {"path": "x"}, **one.tables})
                    assert config.model.kind == one.tables["model"]["kind"] and one.why
                assert len({one.name for one in found}) == len({one.title for one in found}) == len(found)


def test_the_first_candidate_is_what_train_chooses():
    for traits in (LOG, FEW):
        chosen = with_settings({}, choose_settings(traits, "cpu", decays=3))
        first = candidates_for(traits, "cpu", decays=3)[0]
        assert first.tables == {"model": chosen["model"], "train": chosen["train"]} and not first.variant
    rules = candidates_for(FEW, "cpu", program="robocup")[0]
    assert rules.tables["model"]["kind"] == "s2ndtt" and rules.tables["model"]["program"] == "robocup"


def test_what_happens_to_undeclared_events_is_said_to_all_models_of_rules():
    found = candidates_for(FEW, "cpu", program="robocup", undeclared="exogenous")
    said = {one.name: one.tables["model"].get("undeclared") for one in found}
    assert said == {**dict.fromkeys(said), **dict.fromkeys(("s2ndtt", "andtt", "ndtt"), "exogenous")}
    with pytest.raises(ForetellError, match="there are none: give a program"):
        rules_of({"undeclared": "exogenous"})
    with pytest.raises(ForetellError, match=r"unknown key `model\.dim`"):
        rules_of({"program": "robocup", "dim": 3})


def test_kinds_and_variants():
    kinds = [one.tables["model"]["kind"] for one in candidates_for(LOG, "cpu") if not one.variant]
    assert kinds == ["anhp", "nhp", "s2p2", "rmtpp"]
    with_rules = candidates_for(FEW, "cpu", program="robocup")
    assert [one.name for one in with_rules] == ["s2ndtt", "andtt", "ndtt", "anhp", "nhp", "s2p2", "rmtpp"]
    alone = candidates_for(FEW, "cpu", program="robocup", without_rules=False)
    assert [one.name for one in alone] == ["s2ndtt", "andtt", "ndtt"]
    variants = {one.name: one for one in candidates_for(FEW, "cpu", decays=2) if one.variant}
    assert "hawkes" not in variants["anhp-no-hawkes"].tables["model"]
    assert variants["anhp-less-decay"].tables["train"]["decay"] == 0.1
    assert "anhp-hawkes" in {one.name for one in candidates_for(LOG, "cpu", decays=2)}
    assert "anhp-hawkes" not in {one.name for one in candidates_for(LOG, "cpu")}
