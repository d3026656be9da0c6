"""The next event of sequences by quadrature: integrates its density from the end of each sequence, up to which nothing more happens."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from foretell.batches.batch import Batch
from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.distribution import Moments, PredictionRequest, distribution_of, has_mean
from foretell.evaluate.drawn_total import DRAWN, drawn_total, is_drawn
from foretell.evaluate.likelihood import with_names
from foretell.evaluate.next_event_density import Horizon, NextEventDensity, Places, Tolerance, march
from foretell.evaluate.next_time import QUANTILES
from foretell.evaluate.patterns import EventPattern, PossibleNames, never_matches
from foretell.evaluate.prediction import NextEventDistribution
from foretell.evaluate.silent_future import expires, silent_futures
from foretell.models.base import IntensityModel
from foretell.models.capabilities import HasRules
from foretell.models.rules.rule_model import RuleModel
from foretell.shards.shard_map import Shards, tables_of
from foretell.shards.store import Table
from foretell.terms import bare, split
from foretell.train.likelihood_task import batch_at, batch_items

log = logging.getLogger("foretell")

CLOSE = Tolerance(tolerance=1e-5, finest=1.0 / 512.0)


def by_quadrature(
    model: IntensityModel,
    data: EventData,
    asked: PredictionRequest,
    until: Horizon,
    progress: Callable[[int, int], None] | None,
    shards: Shards | None,
) -> list[NextEventDistribution]:
    drawn = is_drawn(model, data)
    if drawn:
        log.warning(
            "possible events are too many to be listed: the total intensity is estimated from %d of them, and only those that match "
            "a pattern have probabilities", DRAWN,
        )  # fmt: skip
    wide, possible = (model, None) if drawn else _with_all_possible(model, data)
    if asked.pattern is not None and isinstance(model, RuleModel):
        names = (name for name in wide.vocabulary.names if model.program.split(name)[0] in model.functors)
        check_pattern(asked.pattern, names, _may_come(model))
    data = replace(data, vocabulary=wide.vocabulary, origin="window")
    gaps = data.gaps()
    until = replace(until, first=float(min(until.first, gaps[gaps > 0.0].min(initial=math.inf))))
    counts = None if possible is None else [len(names) for names in possible]
    asking = _Quadrature(wide, data, asked, until, counts, drawn)
    tables = tables_of("next-events", outlook_batches, asking, batch_items(data, wide, 1), shards, progress)
    return in_order(tables)


@dataclass(frozen=True)
class _Quadrature:
    """The inputs of predictions from the ends of sequences, except their indices."""

    wide: IntensityModel  # the model with a name for every possible event
    data: EventData
    asked: PredictionRequest
    until: Horizon
    possible: list[int] | None  # events that may be next, per sequence; None: those with a probability
    drawn: bool = False  # whether the total intensity is estimated from drawn events, since too many are possible


@torch.no_grad()
def outlook_batches(asking: _Quadrature, items: Sequence[np.ndarray]) -> Iterator[Table]:
    """Yield a table per batch, with the outlook of each of its sequences."""
    for indices in items:
        if asking.drawn:
            yield outlook_table(indices, [_drawn_outlook(asking, index) for index in indices.tolist()])
            continue
        with asking.wide.evaluating():
            own, batch, places = _ends(asking.wide, asking.data, indices, asking.until)
            marched = march(own, batch, own.encode(batch), places, asking.until, CLOSE, QUANTILES)
        found = []
        for row, index in enumerate(indices.tolist()):
            masses = marched.masses[row, 0].double().cpu().numpy()
            count = asking.possible[index] if asking.possible is not None else int((masses > 0.0).sum())
            moments = _moments(marched, row, asking.data[index].t_end)
            probabilities = dict(zip(own.vocabulary.names, masses.tolist(), strict=True))
            found.append(distribution_of(asking.asked, "quadrature", moments, probabilities, count))
        yield outlook_table(indices, found)


def _drawn_outlook(asking: _Quadrature, index: int) -> NextEventDistribution:
    """Return an outlook with an estimated total intensity; its events are those that match the pattern."""
    assert isinstance(asking.wide, RuleModel)
    found = drawn_total(asking.wide, asking.data, index, asking.asked.pattern)
    own, data = found.model, replace(asking.data, vocabulary=found.model.vocabulary, origin="window")
    with own.evaluating():
        own, batch, places = _ends(own, data, np.asarray([index]), asking.until)
        marched = march(own, batch, own.encode(batch), places, asking.until, CLOSE, QUANTILES)
        share = found.standard_error(batch)
    moments = _moments(marched, 0, data[index].t_end)
    # To first order, times are inversely proportional to the total.
    error = math.hypot(moments.mean_error, share * (moments.mean - data[index].t_end))
    masses = dict(zip(own.vocabulary.names, marched.masses[0, 0].double().tolist(), strict=True))
    probabilities = {name: masses[name] for name in found.asked.names}
    moments = replace(moments, mean_error=error)
    made = distribution_of(asking.asked, "quadrature", moments, probabilities, found.possible)
    return replace(made, drawn=found.asked.drawn, total_error=share)


def _moments(marched: NextEventDensity, row: int, begin: float) -> Moments:
    return Moments(
        mean=begin + float(marched.mean[row, 0]),
        mean_error=float(marched.error[row, 0]),
        quantiles=[begin + one for one in marched.quantiles[row, 0].tolist()],
        no_event=float(marched.survival[row, 0]),
        defined=has_mean(float(marched.survival[row, 0])),
        horizon=begin + float(marched.end[row, 0]),
    )


def outlook_table(sequences: np.ndarray, found: Sequence[NextEventDistribution]) -> Table:
    """Return a table of predictions in JSON, from which every float is restored exactly."""
    return {"sequence": np.asarray(sequences), "outlook": [json.dumps(asdict(one)) for one in found]}


def in_order(tables: Sequence[Table]) -> list[NextEventDistribution]:
    rows = [row for table in tables for row in zip(table["sequence"].tolist(), table["outlook"], strict=True)]
    return [NextEventDistribution.from_dict(json.loads(text)) for _, text in sorted(rows)]


def _ends(
    model: IntensityModel, data: EventData, indices: np.ndarray, until: Horizon
) -> tuple[IntensityModel, Batch, Places]:
    """Return a batch of whole histories, the places of their ends, and the model with all names that are needed there."""
    if expires(model):
        chosen = [(data[one], len(data[one]), data[one].t_end) for one in indices.tolist()]
        future = silent_futures(model, data, chosen, until.last)
        start = torch.tensor([[end] for _, _, end in chosen], dtype=torch.float64, device=model.device)
        return future.model, future.batch, Places(start, future.seen, torch.ones_like(start, dtype=torch.bool))
    batch = batch_at(data, indices, model, "all")
    start, seen = batch.t_end.unsqueeze(1), batch.lengths.unsqueeze(1)
    return model, batch, Places(start, seen, torch.ones_like(seen, dtype=torch.bool))


def _with_all_possible(model: IntensityModel, data: EventData) -> tuple[IntensityModel, list[list[str]] | None]:
    """Return the model with a name for every event that is possible at the end of some history, and these events per history."""
    if not isinstance(model, HasRules):
        return model, None
    # Just after the last event, so that events count that it made possible.
    possible = [list(model.possible_intensities(one, [math.nextafter(one.t_end, math.inf)])[0]) for one in data]
    return with_names(model, (name for names in possible for name in names)), possible


def _may_come(model: RuleModel) -> PossibleNames:
    """Return all events that the program declares, with all constants of its facts and of the events so far."""
    arities: dict[str, set[int]] = {}
    for one in (model.program.functors[name] for name in model.functors):
        if one.arity is not None:
            arities.setdefault(bare(one.name), set()).add(one.arity)
    met = (argument for name in model.vocabulary.names for argument in split(name)[1])
    constants = {*model.histories.grounding.constants, *met}
    return PossibleNames(arities, constants)


def check_pattern(pattern: EventPattern, names: Iterable[str], may_come: PossibleNames | None = None) -> None:
    problem = never_matches(pattern, names, may_come)
    if problem is not None:
        raise ForetellError(problem)
