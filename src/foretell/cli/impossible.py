"""`--impossible`: what becomes of events that the model's rules forbid; said on stderr, with how many they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from foretell.cli.replay import Impossible, say_impossible
from foretell.errors import ForetellError

if TYPE_CHECKING:
    from foretell.data import Dataset, EventData
    from foretell.lang.program import Program
    from foretell.models.base import IntensityModel


def program_of(model: IntensityModel, impossible: Impossible) -> Program | None:
    """The rules that may forbid an event; a model without rules forbids nothing, so there is nothing to choose."""
    from foretell.models.rules.rule_model import RuleModel

    if isinstance(model, RuleModel):
        return model.program
    if impossible is not Impossible.error:
        raise ForetellError(
            f"--impossible={impossible.value}: {model.title} has no rules, and nothing is impossible in it; leave the option out"
        )
    return None


def settled(
    model: IntensityModel, data: EventData, impossible: Impossible, quiet: bool = False
) -> tuple[EventData, int]:
    """Data as the model may see them, and how many events were left out or marked; `error` names all sequences that have such events."""
    from foretell.ground.impossible import settle_impossible

    program = program_of(model, impossible)
    if program is None:
        return data, 0
    found = settle_impossible(program, data, impossible.value)
    say_impossible(found.impossible, impossible, data.name, quiet)
    return found.data, found.impossible


def settled_splits(
    model: IntensityModel, dataset: Dataset, impossible: Impossible, quiet: bool = False
) -> tuple[Dataset, dict[str, int]]:
    """The same for every split; but with `error` nothing is replayed: `fit` does that anyway, and names what is impossible."""
    program = program_of(model, impossible)
    if program is None or impossible is Impossible.error:
        return dataset, dict.fromkeys(dataset.splits(), 0)
    found = {name: settled(model, data, impossible, quiet) for name, data in dataset.splits().items()}
    counts = {name: count for name, (_, count) in found.items()}
    return replace(dataset, **{name: data for name, (data, _) in found.items()}), counts
