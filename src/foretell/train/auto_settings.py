"""Rules for `kind = "auto"`: they choose a model and its training settings for training data, each with its reason.

The rules were fitted on the data sets of `experiments/defaults`; its table is their evidence. Settings in the configuration itself
override a rule. A run needs a certain number of steps; epochs and patience are computed from it.
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
    has_weeks: bool = False  # whether there are timestamps that span more than two weeks

    @property
    def per_type(self) -> float:
        return self.events / max(self.types, 1)

    @property
    def mean_length(self) -> float:
        return self.events / max(self.sequences, 1)


@dataclass(frozen=True)
class ChosenSetting:
    """A key of the configuration, its value, and the reason for the value."""

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
    """Return the settings that suit the data.

    `decays` is the number of decays of an already fitted Hawkes process, `program` whether there are rules, and `whole` whether sequences
    stay uncut, however long.
    """
    on_gpu = device.startswith("cuda")
    rules = _of_rule_model if program else _of_model
    windows = [] if program or whole else list(_of_windows(traits))  # facts of a program depend on the whole past
    calendar = list(_of_calendar(traits))
    if windows:
        many = traits.sequences + traits.events // WINDOW_EVENTS
        traits = replace(traits, sequences=many, longest=WINDOW_EVENTS)
    model = [*_of_data(traits), *windows, *rules(traits, on_gpu, decays), *calendar]
    return [*model, *_of_training(traits, on_gpu, program)]


LARGE = 20_000  # training events from which a wider model pays off
WINDOW_EVENTS = 1024  # events per window; the same number before it are its history
DEV_SHARE = 0.1  # share of training sequences used as dev, if there is no dev split
MANY_TIES = 0.002  # share of gaps that are ties
FEW_EVENTS, FEW_PER_TYPE = 5_000, 20.0  # below either number, regularisation is necessary
# With fewer events the calendar overfits: on dev env-permit (5,626 events) loses 0.09, sepsis (9,922 events) gains nothing.
CALENDAR_EVENTS = 10_000
MANY_PER_TYPE = 150.0  # events per type above which a network does not need to start from a Hawkes process


def _of_data(traits: DataTraits) -> Iterator[ChosenSetting]:
    if not traits.has_dev and traits.sequences >= ENOUGH_TO_SPLIT:
        yield ChosenSetting("data.dev_share", DEV_SHARE, "there is no dev split to stop on")
    if traits.ties > MANY_TIES:
        why = f"{100 * traits.ties:.1f} % of gaps are 0, where a density has no upper limit"
        yield ChosenSetting("data.dequantise", True, why)


def _of_windows(traits: DataTraits) -> Iterator[ChosenSetting]:
    """Choose windows for long sequences: A-NHP's time and memory grow with the square of a sequence's length."""
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
    """Whether to start from a Hawkes process. It gains 0.5 nats per event on IPTV and RoboCup, but costs up to 0.3 on bookorder."""
    return traits.per_type < MANY_PER_TYPE or traits.events < FEW_EVENTS


def _of_rule_model(traits: DataTraits, on_gpu: bool, decays: int) -> Iterator[ChosenSetting]:
    """Choose S2-NDTT: on dev of RoboCup, three seeds (experiments/field), it has -4.672 nats per event, NDTT -4.739, A-NDTT -4.847.

    On a CPU one of its epochs takes two to three times as long as A-NDTT's; a fit of 25 epochs takes minutes there.
    """
    yield ChosenSetting("model.kind", "s2ndtt", "best of the models with rules on dev in experiments/field")
    yield ChosenSetting("model.dim", 16, "as experiments/field found on dev")
    yield ChosenSetting(
        "model.intensity_shape", 4, "intensities may also fall after an event, as experiments/field found"
    )


STEPS = {"cpu": 1_500, "cuda": 2_500}  # in a whole run
PATIENT_STEPS = 350
BATCH_EVENTS = 64, 1_000  # per step: minimum and maximum
STEPS_PER_EPOCH = 20  # the target for small data sets
EPOCHS = {"cpu": (8, 80), "cuda": (20, 125)}
EPOCHS_OF_RULES = {"cpu": (8, 25), "cuda": (20, 40)}  # the best epoch was 12 to 24 for every model and schedule
DECAY, DECAY_OF_RULES = 1.0, 3.0  # for data with few events


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
    """Return the value of `key` in the configuration; None if it is not set."""
    section, name = key.split(".")
    return table.get(section, {}).get(name)


def with_settings(table: Mapping[str, Any], chosen: list[ChosenSetting]) -> dict[str, Any]:
    """Return the configuration with the chosen settings added; settings that it has already are kept."""
    found = {key: dict(value) if isinstance(value, Mapping) else value for key, value in table.items()}
    if found.get("model", {}).get("kind") == AUTO:
        del found["model"]["kind"]
    for one in chosen:
        section, name = one.key.split(".")
        found.setdefault(section, {}).setdefault(name, one.value)
    return found
