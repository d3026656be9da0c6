"""`kind = "auto"`: training data in, a model and how to train it out, by rules that are all in this file, each with its reason.

The rules were fitted on the data sets of `experiments/defaults`, whose table is their evidence. What a configuration says itself
overrules a rule. Steps are what counts: epochs and patience are as many as make enough of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foretell.data import EventData
from foretell.data.calendar import calendar_of
from foretell.models.units import gaps
from foretell.train.splits import ENOUGH_TO_SPLIT, LONG

AUTO = "auto"


@dataclass(frozen=True)
class DataTraits:
    """The properties of the training data that the rules use."""

    events: int
    types: int
    sequences: int
    longest: int  # events of the longest sequence
    ties: float  # share of gaps that are 0
    has_dev: bool
    has_weeks: bool = False  # absolute times, and more than two weeks of them

    @property
    def per_type(self) -> float:
        return self.events / max(self.types, 1)

    @property
    def mean_length(self) -> float:
        return self.events / max(self.sequences, 1)


@dataclass(frozen=True)
class ChosenSetting:
    """A key of the configuration, its value, and why."""

    key: str  # "model.dim"
    value: Any
    why: str


def traits_of(train: EventData, dev: EventData | None) -> DataTraits:
    between = gaps(train)
    return DataTraits(
        events=train.event_count,
        types=len(train.vocabulary),
        sequences=len(train),
        longest=int(train.lengths.max(initial=0)),
        ties=float((between == 0.0).mean()) if len(between) else 0.0,
        has_dev=dev is not None,
        has_weeks=calendar_of(train) is not None,
    )


def choose_settings(
    traits: DataTraits, device: str, *, decays: int = 0, program: bool = False, whole: bool = False
) -> list[ChosenSetting]:
    """What suits the data. `decays`: of a Hawkes process that is fitted already; `program`: there are rules.

    `whole`: sequences stay as they are, however long.
    """
    on_gpu = device.startswith("cuda")
    rules = _of_rule_model if program else _of_model
    windows = [] if program or whole else list(_of_windows(traits))  # the facts of a program come from all of the past
    calendar = list(_of_calendar(traits))
    if windows:
        many = traits.sequences + traits.events // WINDOW_EVENTS
        traits = replace(traits, sequences=many, longest=WINDOW_EVENTS)
    model = [*_of_data(traits), *windows, *rules(traits, on_gpu, decays), *calendar]
    return [*model, *_of_training(traits, on_gpu, program)]


LARGE = 20_000  # training events, from which on a wider model pays
WINDOW_EVENTS = 1024  # as many as are seen before them
DEV_SHARE = 0.1  # of the training sequences, where there is no dev split
MANY_TIES = 0.002  # of gaps
FEW_EVENTS, FEW_PER_TYPE = 5_000, 20.0  # below either, regularisation decides
# Below so many events the calendar is learned by heart: on dev env-permit (5,626) loses 0.09, sepsis (9,922) gains nothing.
CALENDAR_EVENTS = 10_000
MANY_PER_TYPE = 150.0  # events of a type, from which on a network needs no Hawkes process to start from


def _of_data(traits: DataTraits) -> Iterator[ChosenSetting]:
    if not traits.has_dev and traits.sequences >= ENOUGH_TO_SPLIT:
        yield ChosenSetting("data.dev_share", DEV_SHARE, "there is no dev split to stop on")
    if traits.ties > MANY_TIES:
        why = f"{100 * traits.ties:.1f} % of gaps are 0, where a density has no upper limit"
        yield ChosenSetting("data.dequantise", True, why)


def _of_windows(traits: DataTraits) -> Iterator[ChosenSetting]:
    """A-NHP's time and memory for a sequence grow with the square of its length."""
    if traits.longest > LONG:
        why = f"a sequence has {traits.longest:,} events: it is cut into windows, each with as many events of history"
        yield ChosenSetting("data.window_events", WINDOW_EVENTS, why)


def _of_model(traits: DataTraits, on_gpu: bool, decays: int) -> Iterator[ChosenSetting]:
    yield ChosenSetting("model.kind", "anhp", "best or near the best on all sets that were tried")
    large = traits.events >= LARGE
    dim = 64 if large and on_gpu else 32
    yield ChosenSetting("model.dim", dim, f"{traits.events:,} training events" + (", on a GPU" if on_gpu else ""))
    yield ChosenSetting("model.dropout", 0.1, "as the wider of the two settings of experiments/field")
    if decays and wants_hawkes(traits):
        why = f"{traits.per_type:,.0f} events per type: it starts as a Hawkes process, and has it to fall back on"
        yield ChosenSetting("model.hawkes", decays, why)


def _of_calendar(traits: DataTraits) -> Iterator[ChosenSetting]:
    if traits.has_weeks and traits.events < CALENDAR_EVENTS:
        why = f"{traits.events:,} events are too few to learn from days and weeks what comes again"
        yield ChosenSetting("model.calendar", False, why)


def wants_hawkes(traits: DataTraits) -> bool:
    """Few events per type: worth 0.5 nats per event on IPTV and RoboCup; elsewhere it costs up to 0.3 (bookorder)."""
    return traits.per_type < MANY_PER_TYPE or traits.events < FEW_EVENTS


def _of_rule_model(traits: DataTraits, on_gpu: bool, decays: int) -> Iterator[ChosenSetting]:
    """Dev of RoboCup, three seeds (experiments/field): S2-NDTT as here -4.672 nats per event, NDTT -4.739, A-NDTT -4.847.

    An epoch takes two to three times as long as A-NDTT's on a CPU; a fit of 25 epochs there takes minutes.
    """
    yield ChosenSetting("model.kind", "s2ndtt", "best of the models with rules on dev in experiments/field")
    yield ChosenSetting("model.dim", 16, "as experiments/field found on dev")
    yield ChosenSetting(
        "model.intensity_shape", 4, "intensities may also fall after an event, as experiments/field found"
    )


STEPS = {"cpu": 1_500, "cuda": 2_500}  # of a whole run
PATIENT_STEPS = 350
BATCH_EVENTS = 64, 1_000  # per step, at the least and at the most
STEPS_PER_EPOCH = 20  # wanted, where data are few
EPOCHS = {"cpu": (8, 80), "cuda": (20, 125)}
EPOCHS_OF_RULES = {"cpu": (8, 25), "cuda": (20, 40)}  # the best epoch was 12 to 24, whatever the model and the schedule
DECAY, DECAY_OF_RULES = 1.0, 3.0  # where events are few


def _of_training(traits: DataTraits, on_gpu: bool, program: bool) -> Iterator[ChosenSetting]:
    where = "cuda" if on_gpu else "cpu"
    wanted = float(np.clip(traits.events / STEPS_PER_EPOCH, *BATCH_EVENTS))
    batch = int(np.clip(round(wanted / max(traits.mean_length, 1.0)), 1, max(traits.sequences, 1)))
    per_epoch = -(-traits.sequences // batch)
    limits = (EPOCHS_OF_RULES if program else EPOCHS)[where]
    epochs = int(np.clip(math.ceil(STEPS[where] / per_epoch), *limits))
    patience = max(5, min(epochs, math.ceil(PATIENT_STEPS / per_epoch)))
    yield ChosenSetting("train.batch", batch, f"about {batch * traits.mean_length:,.0f} events per step")
    yield ChosenSetting("train.epochs", epochs, f"{epochs * per_epoch:,} steps at the most")
    if traits.has_dev or traits.sequences >= ENOUGH_TO_SPLIT:
        yield ChosenSetting("train.patience", patience, f"{patience * per_epoch:,} steps without a better dev score")
    yield ChosenSetting(
        "train.lr", 5e-3 if program else 3e-3, "as experiments/field and experiments/robocup found on dev"
    )
    yield ChosenSetting("train.schedule", "cosine", "ends with small steps, whatever their number")
    yield ChosenSetting("train.clip", 1.0, "bursts make single steps very large")
    yield ChosenSetting("train.points", 2 if on_gpu else 1, "a second integration point is free on a GPU alone")
    if traits.events < FEW_EVENTS or traits.per_type < FEW_PER_TYPE:
        why = f"{traits.events:,} events of {traits.types} types are few; as experiments/robocup and experiments/field found on dev"
        yield ChosenSetting("train.decay", DECAY_OF_RULES if program else DECAY, why)
        yield ChosenSetting("train.pseudo_count", 0.5, why)


def setting_of(table: Mapping[str, Any], key: str) -> Any:
    """The value in the configuration itself; None if it has none."""
    section, name = key.split(".")
    return table.get(section, {}).get(name)


def with_settings(table: Mapping[str, Any], chosen: list[ChosenSetting]) -> dict[str, Any]:
    """A configuration with the chosen settings where it says nothing itself."""
    found = {key: dict(value) if isinstance(value, Mapping) else value for key, value in table.items()}
    if found.get("model", {}).get("kind") == AUTO:
        del found["model"]["kind"]
    for one in chosen:
        section, name = one.key.split(".")
        found.setdefault(section, {}).setdefault(name, one.value)
    return found
