"""Numbers in embeddings, of facts in tables and of events that have happened, against the slow twins: values and gradients in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

import foretell as ft
from foretell.data import EventData, EventSequence, Vocabulary
from foretell.data.attributes import Attribute, AttributeTable, SequenceAttributes
from foretell.data.columns import Columns
from foretell.lang.program import Program
from foretell.models.build import load_model, save_model
from foretell.models.rules.rule_model import RuleModel
from tests.models.rule_twin import check_intensities, check_loss, settings_of, twin_of
from tests.samples import randomise_rules

TABLE = "item,Amount,weight\na,1.5,\nb,-2,7\nc,,1e3\nd,4,0.25\n"
SHOP = """
:- event(buy, 3). :- event(look). :- exogenous(visit, 2). :- exogenous(leave).
:- table(price, "price.csv", features("Amount", weight)).
:- features(buy, amount, rating).
:- features(visit, amount).
user(u). user(v).
buy(U, I) :- in(U), price(I).
buy(U, I) :- wants(U, I) :: w(I).
look(U) :- user(U), price(b).
in(U) <- visit(U), user(U).
wants(U, I) <- look(U), price(I).
wants(U, I) <- buy(U, I), price(I), in(U).
in(U) <- buy(U, I), look(U).
seen(I) <- visit(U), price(I).
look(U) :- seen(I), user(U).
!in(U) <- leave(U).
"""
NUMBERS_ALONE = """
:- table(price, "price.csv", features(weight, "Amount")).
:- event(buy). :- embed(price, 2).
price(a). price(e).
buy(I) :- price(I).
buy(I) <- buy(I), price(I).
"""
EVENTS_ALONE = """
:- event(g). :- features(g, amount). :- exogenous(e). :- features(e, rating).
g. h <- g. g :- h. g <- e : b. !h <- e.
"""
HISTORY = {
    "shop": [
        "visit(u)",
        "look(u)",
        "buy(u,a)",
        "buy(u,c)",
        "leave(u)",
        "look(v)",
        "visit(v)",
        "buy(u,b)",
        "buy(v,d)",
        "visit(w)",
    ],
    "expiring": [
        "visit(u)",
        "look(u)",
        "buy(u,a)",
        "buy(u,c)",
        "visit(v)",
        "look(v)",
        "leave(u)",
        "look(u)",
        "visit(u)",
        "look(v)",
    ],
    "numbers": ["buy(a)", "buy(b)", "buy(a)", "buy(e)", "buy(d)"],
    "events": ["g", "e", "g", "g", "e", "e", "g"],
}
EXPIRING = (
    SHOP.replace("price(I).\nwants", "price(I) for 0.3 :: short.\nwants", 1)
    .replace("in(U).\nin(U) <- buy(U, I), look(U).", "in(U) for 0.45.\nin(U) <- buy(U, I), look(U) for 0.2.")
    .replace("seen(I) <- visit(U), price(I).", "seen(I) <- visit(U), price(I) for 0.25.")
)
TEXTS = {
    "expiring": EXPIRING,
    "shop": SHOP,
    "numbers": NUMBERS_ALONE,
    "events": EVENTS_ALONE.replace("g <- e : b.", "g : b <- e."),
}
KINDS = pytest.mark.parametrize("kind", ["andtt", "ndtt", "s2ndtt"])
PROGRAMS = pytest.mark.parametrize("what", list(TEXTS))
MODELS = {"andtt": ft.ANDTT, "ndtt": ft.NDTT, "s2ndtt": ft.S2NDTT}


def program_of(what: str, folder: Path, dim: int = 2) -> Program:
    (folder / "price.csv").write_text(TABLE)
    return Program.from_text(TEXTS[what], folder=folder, dim=dim)


def data_of(what: str, seed: int = 0) -> EventData:
    """Two sequences and an empty one; some numbers are missing."""
    events, draw = HISTORY[what], np.random.default_rng(seed)
    vocabulary = Vocabulary(tuple(dict.fromkeys([*events, *(["buy(v,a)"] if what in ("shop", "expiring") else [])])))
    made = []
    for place, names in enumerate((events, events[: len(events) // 2], [])):
        times = np.cumsum(draw.choice([0.0, 0.3, 0.9], len(names)) * draw.random(len(names)))
        types = np.asarray([vocabulary.index(name) for name in names], dtype=np.int32)
        made.append(EventSequence(times, types, float(times.max(initial=0.0)) + 0.5, str(place)))
    columns = Columns.of(made)
    count = len(columns.types)
    amount = np.where(draw.random(count) < 0.3, np.nan, draw.normal(5.0, 2.0, count))
    rating = np.where(draw.random(count) < 0.5, np.nan, draw.integers(0, 3, count))
    found = replace(columns, attributes={"amount": Attribute(amount), "rating": Attribute(rating.astype(np.float64))})
    return EventData(found, vocabulary)


def model_of(kind: str, what: str, folder: Path, seed: int = 3) -> tuple[RuleModel, EventData]:
    program, data = program_of(what, folder), data_of(what)
    made = (
        MODELS[kind](program, data.vocabulary, dim=2, layers=2)
        if kind != "ndtt"
        else ft.NDTT(program, data.vocabulary, dim=2)
    )
    made.double().prepare(data)
    return randomise_rules(made, seed), data


@KINDS
@PROGRAMS
def test_intensities_loss_and_gradients_are_those_of_the_twin(kind: str, what: str, tmp_path: Path) -> None:
    model, data = model_of(kind, what, tmp_path)
    wanted = twin_of(model).wanted(model.program, settings_of(model), data.names_of(data[0]))
    shapes = {name: tuple(array.shape) for name, array in model.named_arrays().items()}
    assert wanted.items() <= shapes.items()
    check_intensities(model, data, 5)
    check_loss(model, data, 5)


def gone_on(past: EventSequence, time: float, kind: int, numbers: tuple[float, float]) -> EventSequence:
    """One more event, with these numbers."""
    own = past.attributes
    assert own is not None
    before = [own.table.of_events[name].values[own.row : own.row + len(past)] for name in ("amount", "rating")]
    columns = zip(("amount", "rating"), before, numbers, strict=True)
    table = AttributeTable({name: Attribute(np.append(values, one)) for name, values, one in columns}, {})
    types = np.append(past.types, kind).astype(np.int32)
    own = SequenceAttributes(table, 0, 0)
    return replace(past, times=np.append(past.times, time), types=types, t_end=time + 9.0, attributes=own)


@KINDS
@PROGRAMS
@pytest.mark.parametrize("how", ["drawn", "missing"])
def test_samplers_go_on_with_the_numbers_of_a_training_event_of_the_type(
    kind: str, what: str, how: Literal["drawn", "missing"], tmp_path: Path
) -> None:
    model, data = model_of(kind, what, tmp_path)
    features, draw = model.rule_network.features, np.random.default_rng(1)
    names = list(model.vocabulary.names)
    values = {name: (float(draw.normal(5.0, 2.0)), float("nan")) for name in names}  # of one training event per type
    by_name = {one.name: one for one in features.columns}
    columns = [one for one in ("amount", "rating") if one in by_name]
    if columns:
        rows = [[values[name][("amount", "rating").index(one)] for one in by_name] for name in names]
        made = [
            [one.standardised(np.asarray(row[place])).item() for place, one in enumerate(by_name.values())]
            for row in rows
        ]
        features.keep(torch.tensor(made, dtype=torch.float64), torch.arange(len(names) + 1))
    past = data[0]
    start = float(past.times[-1])
    sampler = model.sampler([past], [len(past)])
    sampler.draw_covariates(torch.Generator().manual_seed(1), how)
    for step in range(4):
        at = start + np.array([0.2, 0.7]) + step
        for time, one in zip(at, model.possible_intensities(past, at), strict=True):
            here = sampler.passed(torch.tensor([time], dtype=torch.float64))
            rates = here.intensities(torch.tensor([[time]], dtype=torch.float64))[0, 0]
            told = {here.name(0, choice): float(rate) for choice, rate in enumerate(rates) if rate > 0.0}
            assert told == pytest.approx(one, rel=1e-9)
        window, here = torch.from_numpy(at[None]).split(1, 1), sampler.passed(torch.from_numpy(at[:1]))
        inside = torch.linspace(float(at[0]), float(at[1]), 9, dtype=torch.float64)[None]
        assert (here.intensities(inside).sum(-1) <= here.bounds(*window).upper * (1.0 + 1e-12)).all()
        time = float(at[1]) + 0.1
        rates = sampler.passed(torch.tensor([time], dtype=torch.float64)).intensities(torch.tensor([[time]]).double())
        possible = rates[0, 0].nonzero().squeeze(1).tolist()
        choice = possible[step % len(possible)]
        name = sampler.name(0, choice)
        sampler.append(torch.tensor([time], dtype=torch.float64), torch.tensor([choice]))
        model.widen([name])
        numbers = values[name] if how == "drawn" and name in values else (math.nan, math.nan)
        past = gone_on(past, time, model.vocabulary.index(name), numbers)


@KINDS
def test_a_new_row_of_a_table_has_an_embedding_without_training(kind: str, tmp_path: Path) -> None:
    """The vector of a row is its numbers alone: two rows with the same numbers are told apart by nothing else."""
    (tmp_path / "price.csv").write_text("item,amount\na,1\nb,4\nc,4\n")
    text = ':- event(buy). :- table(price, "price.csv", features(amount)).\nbuy(I) :- price(I).\n'
    model = MODELS[kind](Program.from_text(text, folder=tmp_path, dim=3), Vocabulary(("buy(a)",)), dim=3).double()
    rates = model.possible_intensities(EventSequence(np.zeros(0), np.zeros(0, dtype=np.int32), 1.0), [0.5])[0]
    assert rates["buy(b)"] == rates["buy(c)"] != rates["buy(a)"]
    assert "deduce.features(price).W" in model.named_arrays()
    assert not any("price(a)" in name for name in model.named_arrays())


@KINDS
def test_a_saved_model_keeps_its_numbers(kind: str, tmp_path: Path) -> None:
    model, data = model_of(kind, "shop", tmp_path)
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert isinstance(again, RuleModel)
    features = model.rule_network.features
    assert again.rule_network.features.columns == features.columns
    for name in ("kept", "kept_missing", "kept_offsets"):
        assert torch.equal(getattr(again.rule_network.features, name), getattr(features, name)), name
    assert features.kept.dtype == torch.float64
    times = np.linspace(0.1, 6.0, 5)
    np.testing.assert_array_equal(again.intensity(data[0], times), model.intensity(data[0], times))


def test_numbers_count_in_standard_deviations_of_training_events(tmp_path: Path) -> None:
    model, data = model_of("andtt", "events", tmp_path)
    amount = data.columns.attributes["amount"].values
    first = next(one for one in model.rule_network.features.columns if one.name == "amount")
    assert first.mean == pytest.approx(float(np.nanmean(amount))) and first.scale == pytest.approx(
        float(np.nanstd(amount))
    )
    numbers = model.numbers_of(data[0], model.histories.timeline(model.vocabulary, data[0])[1])
    assert numbers is not None and bool(numbers.isnan().any())
    np.testing.assert_allclose(numbers[:, 0], (amount[: len(data[0])] - first.mean) / first.scale)


def test_an_event_of_the_future_changes_nothing_by_its_numbers(tmp_path: Path) -> None:
    model, data = model_of("s2ndtt", "events", tmp_path)
    own = data[0].attributes
    assert own is not None
    late = data[0].times[3]
    changed = own.table.of_events["amount"].values[own.row : own.row + len(data[0])].copy()
    changed[3:] = 99.0
    table = AttributeTable({**own.table.of_events, "amount": Attribute(changed)}, {})
    other = replace(data[0], attributes=SequenceAttributes(table, 0, 0))
    before, after = [float(late) * 0.5, float(late)], [float(late) + 0.4]
    np.testing.assert_array_equal(model.intensity(data[0], before), model.intensity(other, before))
    assert not np.array_equal(model.intensity(data[0], after), model.intensity(other, after))


def test_training_data_without_any_number_are_refused(tmp_path: Path) -> None:
    data = data_of("events")
    without = EventData(replace(data.columns, attributes={}), data.vocabulary)
    with pytest.raises(ft.ForetellError, match="features: `amount` has no number in the training data"):
        ft.ANDTT(program_of("events", tmp_path), data.vocabulary, dim=2).prepare(without)
