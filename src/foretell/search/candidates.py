"""The candidates of a search for data with given traits: each is a model with its training settings and the reason for trying it.

The first is the model that `foretell train` chooses by rule (`train/auto_settings`). Then follows one of every other suitable kind, trained
by the same rules, and then variants of the first, each with one setting changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from foretell.errors import ForetellError
from foretell.models.registry import find_model
from foretell.options import unknown_keys
from foretell.train.auto_settings import DataTraits, choose_settings, with_settings

Tables = dict[str, dict[str, Any]]  # the tables "model" and "train" of a configuration

# Changes to the settings that the rules choose, found on dev in `experiments/field`; RMTPP's loss explodes at the usual learning rate.
OTHER_KINDS: dict[str, Tables] = {
    "nhp": {"model": {"dim": 32}, "train": {}},
    "s2p2": {"model": {"dropout": 0.1}, "train": {"lr": 5e-3}},
    "rmtpp": {"model": {"dim": 32}, "train": {"lr": 1e-3}},
}
RULE_KINDS: dict[str, Tables] = {
    "andtt": {"model": {"dim": 16, "layers": 1}, "train": {"decay": 1.0}},
    "ndtt": {"model": {"dim": 16}, "train": {"decay": 1.0}},
}
# The keys of [model] that a search takes.
RULE_KEYS = ["program", "undeclared"]
HAWKES_UNTIL = 2_000.0  # events per type below which starting from a Hawkes process is tried


@dataclass(frozen=True)
class Candidate:
    """A model with its training settings. A `variant` differs from the rules in one choice; it must be clearly better to be chosen."""

    name: str  # part of its folders' names: letters, digits, dashes
    title: str
    tables: Tables
    why: str
    variant: bool = False


def rules_of(model: Mapping[str, Any]) -> dict[str, str]:
    """Return the checked keys of [model] that a user may fix: the program, and how to treat events that it does not declare."""
    problems = unknown_keys(model, RULE_KEYS, "auto", "model.")
    if "undeclared" in model and "program" not in model:
        problems.append("auto: `undeclared` is about events of rules, and there are none: give a program, too")
    if problems:
        raise ForetellError("\n".join(problems))
    return {key: str(value) for key, value in model.items()}


def candidates_for(
    traits: DataTraits,
    device: str,
    *,
    program: str = "",
    undeclared: str = "",
    decays: int = 0,
    without_rules: bool = True,
) -> list[Candidate]:
    """Return the candidates, in order. `undeclared`: the option of models of rules; `decays`: of a fitted Hawkes process;
    `without_rules`: include models without rules."""
    rules = {"program": program, **({"undeclared": undeclared} if undeclared else {})}
    found = list(_of_rules(traits, device, rules)) if program else []
    if without_rules:
        found += _plain(traits, device, decays, first=not program)
    return found


def _of_rules(traits: DataTraits, device: str, rules: Mapping[str, str]) -> Iterator[Candidate]:
    chosen = _by_rule(traits, device, program=True)
    chosen["model"] |= rules
    kind = chosen["model"]["kind"]
    yield Candidate(kind, find_model(kind).about.title, chosen, "what the rules choose for data with a program")
    few = "decay" in chosen["train"]
    for other, own in RULE_KINDS.items():
        train = {key: value for key, value in own["train"].items() if key != "decay" or few}
        tables = {"model": {"kind": other, **rules, **own["model"]}, "train": {**chosen["train"], **train}}
        yield Candidate(other, find_model(other).about.title, tables, "another kind of model made of the same rules")


def _plain(traits: DataTraits, device: str, decays: int, first: bool) -> Iterator[Candidate]:
    chosen = _by_rule(traits, device, decays=decays)
    kind = chosen["model"]["kind"]
    title = find_model(kind).about.title
    why = "what the rules choose for these data" if first else "what the rules choose for these data without a program"
    yield Candidate(kind, title, chosen, why)
    for other, own in OTHER_KINDS.items():
        tables = {"model": {"kind": other, **own["model"]}, "train": {**chosen["train"], **own["train"]}}
        yield Candidate(other, find_model(other).about.title, tables, "another kind of model")
    if first:
        for name, words, changes in _variants(traits, chosen, decays):
            yield Candidate(f"{kind}-{name}", f"{title}, {words}", _changed(chosen, changes), f"{words}", variant=True)


def _variants(traits: DataTraits, chosen: Tables, decays: int) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield name, description and changed settings of each variant; a setting of None is removed."""
    if "hawkes" in chosen["model"]:
        yield "no-hawkes", "without a Hawkes process", {"model": {"hawkes": None}}
    elif decays and traits.per_type < HAWKES_UNTIL:
        yield "hawkes", "from a Hawkes process", {"model": {"hawkes": decays}}
    yield "wide", "twice as wide", {"model": {"dim": 2 * chosen["model"]["dim"]}}
    yield "dropout", "dropout 0.3", {"model": {"dropout": 0.3}}
    if "decay" in chosen["train"]:
        yield "less-decay", "weight decay 0.1", {"train": {"decay": 0.1}}
    else:
        yield "decay", "weight decay 1", {"train": {"decay": 1.0, "pseudo_count": 0.5}}
    yield "slow", "learning rate 0.001", {"train": {"lr": 1e-3}}


def _by_rule(traits: DataTraits, device: str, *, decays: int = 0, program: bool = False) -> Tables:
    chosen = choose_settings(traits, device, decays=decays, program=program, whole=True)
    found = with_settings({}, chosen)
    return {"model": found["model"], "train": found["train"]}


def _changed(tables: Tables, changes: Mapping[str, Any]) -> Tables:
    made = {section: {**tables[section], **changes.get(section, {})} for section in ("model", "train")}
    return {section: {key: value for key, value in own.items() if value is not None} for section, own in made.items()}
