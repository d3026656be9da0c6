"""Long sequences part by part: values of the whole, gradients that end with a part (against the slow twins), training that resumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import foretell as ft
from foretell.batches import carrying
from foretell.batches.batch import make_batch
from foretell.batches.carrying import BatchPart, CarriesState, PartOrder
from foretell.batches.order import epoch_order
from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.likelihood import EventScores, score_events
from foretell.evaluate.next_time import predict_next_times
from foretell.models.base import IntensityModel
from foretell.models.recurrent.nhp import NHP
from foretell.models.recurrent.rmtpp import RMTPP
from foretell.models.state_space.s2p2 import S2P2
from foretell.objective.loglik import quadrature, training_loss
from foretell.reference.events import History
from foretell.reference.likelihood import Point, event_logs, integral
from foretell.reference.nhp import Cell
from foretell.reference.s2p2 import SlowS2P2
from foretell.sampling.core.start import start_sampler
from foretell.shards import shard_map
from foretell.shards.place import WorkPlace
from foretell.shards.shard_map import Shards
from foretell.train.config import make_config
from foretell.train.fit import TrainingInterrupt, fit
from foretell.train.likelihood_task import mean_log_likelihood
from foretell.train.run import RunFolder
from tests.models import test_nhp_twin, test_rmtpp_twin, test_s2p2_twin
from tests.samples import as_history, random_data, randomise
from tests.train.small import exciting, options, same_tensors, small_model
from tests.train.test_resume import StopAfter, same_run

KINDS = ("nhp", "rmtpp", "s2p2")
PART = 4


def made(kind: str, data: EventData, seed: int = 1) -> Any:
    settings: dict[str, Any] = {"dim": 4, "dtype": torch.float64}
    model = {"nhp": NHP, "rmtpp": RMTPP, "s2p2": S2P2}[kind](data.vocabulary, **settings)
    model = randomise(model, seed, 0.4)
    model.time_scale, model.fitted = 1.7, True
    return model


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(carrying, "PART_EVENTS", PART)
    yield


def sequences(origin: Any = "window") -> EventData:
    """Lengths around one, two and three parts, ties across a boundary, and events and time that are history only."""
    data = random_data(5, [0, 1, 3, 4, 5, 8, 9, 13], ties=True)
    first, *others = list(data)
    last = replace(others[-1], scored_from=4.4, unscored=np.arange(13) == 7)
    chosen = [first, *others[:-1], last]
    if origin == "first-event":
        chosen = [replace(one, times=one.times * (np.arange(len(one)) > 0)) for one in chosen[1:]]
    return replace(data, sequences=chosen, origin=origin, report=None)


def same_scores(one: EventScores, other: EventScores) -> None:
    for name in ("sequence", "event", "type", "predicted_type"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("time", "log_intensity", "log_total", "integral", "tail", "log_likelihoods"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("origin", ["window", "first-event"])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_part_by_part_are_those_of_the_whole(kind: str, origin: str, monkeypatch: pytest.MonkeyPatch):
    data = sequences(origin)
    model = made(kind, data)
    assert isinstance(model, CarriesState)
    whole = score_events(model, data), mean_log_likelihood(model, data, 3), predict_next_times(model, data)
    monkeypatch.setattr(carrying, "PART_EVENTS", PART)
    same_scores(score_events(model, data), whole[0])
    assert mean_log_likelihood(model, data, 3) == pytest.approx(whole[1], rel=1e-10)
    apart = predict_next_times(model, data)
    np.testing.assert_array_equal(apart.event, whole[2].event)
    # What panels of a march are cut at depends on which sequences march together, within its tolerance.
    np.testing.assert_allclose(apart.predicted, whole[2].predicted, rtol=1e-4)


def test_draws_part_by_part_are_the_same_in_every_shard(
    short_parts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data = sequences()
    model = made("nhp", data)
    alone = score_events(model, data, integral="stratified", points=4, seed=3)
    monkeypatch.setattr(shard_map, "SHARD_EVENTS", 1)
    shards = Shards(WorkPlace(), tmp_path, {}, print)
    apart = score_events(model, data, integral="stratified", points=4, seed=3, shards=shards)
    assert len(list(tmp_path.glob("*/shard-*.parquet"))) > 3
    np.testing.assert_array_equal(apart.integral, alone.integral)
    exact = score_events(model, data)
    assert not np.array_equal(alone.integral, exact.integral)
    assert abs(float(alone.log_likelihoods.sum() - exact.log_likelihoods.sum())) < 3.0 * 43 * alone.used.standard_error


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_goes_on_from_the_state_of_the_whole_history(kind: str, monkeypatch: pytest.MonkeyPatch):
    data = sequences()
    model, histories = made(kind, data), [data[3], data[7], data[1]]
    seen, times = [4, 11, 1], torch.tensor([[10.5, 12.0]] * 3, dtype=torch.float64)
    expected = start_sampler(model, histories, seen).intensities(times)
    monkeypatch.setattr(carrying, "PART_EVENTS", PART)
    torch.testing.assert_close(start_sampler(model, histories, seen).intensities(times), expected, rtol=1e-10, atol=0)


# Gradients


class CutS2P2(SlowS2P2):
    """What goes in after `cut` is a number."""

    cut: History = ()

    def step(self, layer: int, history: History) -> Tensor:
        found = super().step(layer, history)
        return found.detach() if history and history == self.cut and layer > 1 else found


def cut_twin(kind: str, model: Any, prefix: History) -> Any:
    """The slow twin, whose state after `prefix` is a number that nothing is learned from."""
    if kind == "nhp":
        twin = test_nhp_twin.twin_of(model)
        if prefix:
            cell = twin.after(prefix)
            twin.memo.clear()
            twin.memo[prefix] = Cell(*(one.detach() for one in cell[:4]), cell.since)
        return twin
    if kind == "rmtpp":
        twin = test_rmtpp_twin.twin_of(model)
        if prefix:
            state = twin.after(prefix).detach()
            twin.memo.clear()
            twin.memo[prefix] = state
        return twin
    plain = test_s2p2_twin.twin_of(model)
    twin = CutS2P2(plain.arrays, plain.types, plain.layers, plain.width, plain.scale)
    if prefix:
        states = {
            ("state", layer, prefix): plain.state_after(layer, prefix).detach() for layer in range(1, model.layers + 1)
        }
        streams = {
            ("stream", layer, prefix): plain.stream_after(layer, prefix).detach()
            for layer in range(1, model.layers + 1)
        }
        twin.memo.update(states | streams)
        object.__setattr__(twin, "cut", prefix)
    return twin


def slow_part(kind: str, model: Any, data: EventData, row: int, part: range, nodes: int) -> Tensor:
    """The log-likelihood of the events of a part and the gaps before them; of the last part the tail, too."""
    history = as_history(data, row)
    twin = cut_twin(kind, model, history[: part.start])
    points = quadrature(make_batch(data, [row]), nodes)
    gap = points.gap.expand_as(points.weights)[0].tolist()
    last = part.stop >= len(history)
    every = zip(points.queries.times[0].tolist(), gap, points.weights[0].tolist(), strict=True)
    seen = [
        Point(time, place, weight)
        for time, place, weight in every
        if weight > 0.0 and (part.start <= place < part.stop or (last and place == len(history)))
    ]
    logs = event_logs(twin.intensity, history[: part.stop], part.start)
    return sum(logs, start=torch.zeros((), dtype=torch.float64)) - integral(twin.intensity, twin.types, history, seen)


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_has_the_value_of_the_whole_and_the_gradient_of_a_twin_that_is_cut(kind: str):
    data = random_data(3, [9, 6, 2], ties=True)
    model = made(kind, data)
    parameters, carried, total = list(model.parameters()), None, 0.0
    for part in (range(4), range(4, 8), range(8, 9)):
        batch = replace(model.collator.batch(data, range(3), part=part), carried=carried)
        history = model.encode(batch)
        points = quadrature(batch, 3)
        fast = training_loss(model, batch, points, history=history).negative_log_likelihood
        rows = [row for row in range(3) if len(data[row]) > part.start]
        slow = -sum(slow_part(kind, model, data, row, part, 3) for row in rows)
        torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)
        found = [torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (fast, slow)]
        for of_fast, of_slow, parameter in zip(*found, parameters, strict=True):
            zeros = torch.zeros_like(parameter)
            made_of = [zeros if one is None else one for one in (of_fast, of_slow)]
            torch.testing.assert_close(*made_of, rtol=1e-8, atol=1e-9)
        carried, total = model.carry(history, batch), total + float(fast.detach())
    whole = make_batch(data, range(3))
    expected = training_loss(model, whole, quadrature(whole, 3)).negative_log_likelihood
    assert total == pytest.approx(float(expected.detach()), rel=1e-10)


# Training


def test_an_epoch_goes_through_every_event_once_and_each_part_follows_the_one_before():
    data = random_data(1, [3, 17, 9, 8, 1, 12, 16])
    order = PartOrder(epoch_order(data, 3, np.random.default_rng(0)), 8)
    seen: set[tuple[int, int]] = set()
    before: BatchPart | None = None
    for place in range(len(order)):
        step = order.step(place)
        if not step.begins:
            assert before is not None and before.indices is step.indices and before.events.stop == step.events.start
        for index in step.indices.tolist():
            fresh = {(index, event) for event in step.events if event < data.lengths[index]}
            assert not fresh & seen
            seen |= fresh
        before = step
    assert len(seen) == data.event_count


LONG, DEV = exciting(7, 3, t_end=40.0), exciting(3, 4, t_end=40.0)


def trained(kind: str, **more: Any) -> Any:
    settings = {"epochs": 3, "batch": 3, "carry_events": 16, "dtype": "float64", "lr": 5e-3} | more
    run, keywords = settings.pop("run", None), {}
    for name in ("stop", "resume"):
        if name in settings:
            keywords[name] = settings.pop(name)
    model = {"nhp": NHP, "rmtpp": RMTPP, "s2p2": S2P2}[kind](LONG.vocabulary, dim=4, dtype=torch.float64)
    return fit(model, LONG, DEV, options(**settings), run=run, **keywords)


@pytest.mark.parametrize("kind", KINDS)
def test_training_in_parts_learns_what_training_on_the_whole_does(kind: str):
    in_parts, whole = trained(kind, epochs=12), trained(kind, epochs=12, carry_events=0)
    assert in_parts.records[-1]["step"] > 3 * whole.records[-1]["step"]
    assert in_parts.best > whole.best - 0.02  # more steps per epoch, and hardly anything is older than a part
    assert in_parts.records[0]["train"] < in_parts.records[-1]["train"]
    of_intensities = [one.records[0]["epoch_states"] for one in (in_parts, whole)]
    assert of_intensities[0] == of_intensities[1] or kind == "rmtpp"


@pytest.mark.parametrize("kind", KINDS)
def test_stopping_inside_a_sequence_and_resuming_changes_nothing(kind: str, tmp_path: Path):
    undisturbed, disturbed = (RunFolder.create(tmp_path / name, make_config({})) for name in ("one", "two"))
    trained(kind, run=undisturbed)
    with pytest.raises(TrainingInterrupt):
        trained(kind, run=disturbed, stop=StopAfter(3))
    trained(kind, run=disturbed, resume=True)
    assert same_run(undisturbed.path, disturbed.path)


def test_threads_and_pieces_change_no_number_and_states_are_handed_on_by_row():
    several = trained("nhp", epochs=1, piece=40).model.state_dict()
    whole = trained("nhp", epochs=1, piece=100_000).model.state_dict()
    for name, one in several.items():
        torch.testing.assert_close(one, whole[name], rtol=1e-9, atol=1e-12)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert same_tensors(trained("nhp", epochs=1, piece=40).model.state_dict(), several)
    finally:
        torch.set_num_threads(before)


def test_a_checkpoint_without_its_states_is_a_message(tmp_path: Path):
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    run = RunFolder.create(tmp_path / "one", make_config({}))
    with pytest.raises(TrainingInterrupt):
        trained("nhp", run=run, stop=StopAfter(2))
    path = run.path / "checkpoint.safetensors"
    with safe_open(path, "pt") as file:
        about = file.metadata()
    tensors = {name: one for name, one in load_file(path).items() if not name.startswith("carried.")}
    assert len(tensors) == len(load_file(path)) - 4
    save_file(tensors, path, about)
    with pytest.raises(ForetellError, match="lacks the states of the sequences"):
        trained("nhp", run=run, resume=True)


def test_a_model_that_looks_back_at_events_says_so():
    model: IntensityModel = small_model(LONG)
    with pytest.raises(ForetellError, match="has no state to hand on"):
        fit(model, LONG, None, options(carry_events=16))


@pytest.mark.parametrize(
    "changes", [{"objective": "nce"}, {"integral": "uniform"}], ids=["noise contrast", "uniform draws"]
)
def test_what_draws_over_whole_sequences_is_refused(changes: dict[str, Any]):
    with pytest.raises(ForetellError, match=r"train.carry_events = 16: .* draws over whole sequences"):
        ft.fit(NHP(LONG.vocabulary, dim=4), LONG, epochs=1, carry_events=16, **changes)
