"""Timed noise: draws, rates and integrals against its slow twin, and its file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy import stats

from foretell.batches.batch import Batch, make_batch
from foretell.data import EventData, Origin
from foretell.errors import ForetellError
from foretell.models.rules.possible_events import possible_events
from foretell.objective import noise as drawing
from foretell.objective.nce import NoiseSource
from foretell.objective.noise import NoiseEvents, NoiseProcess
from foretell.objective.noise_parts import TimedNoise, load_noise, save_noise
from foretell.options import Window
from foretell.reference.timed import SlowTimed
from foretell.train.noise import fit_noise
from tests.objective.test_nce import hawkes_noise, slow, slow_timed, timed_noise
from tests.objective.test_noise import SHOPPING, shop
from tests.samples import NAMES, as_history, event_data, random_data

CPU = torch.device("cpu")
FALSE_ALARMS = 1e-6
DATA = random_data(61, [5, 0, 9, 2, 1])
TIES = random_data(62, [7, 12, 0, 1], ties=True)
NEVER = event_data([([1.0, 1.0, 4.0], [0, 0, 2]), ([], []), ([3.0], [2])])  # `b` never happens


def draws(process: TimedNoise, batch: Batch, streams: int, seed: int = 0, **options: Any) -> NoiseEvents:
    return NoiseProcess(process, CPU).draw(batch, streams, torch.Generator().manual_seed(seed), **options)


def each(noise: NoiseEvents) -> list[tuple[int, int, int, float, float]]:
    """Row, gap, mark, time and log-rate of what was drawn."""
    row, place = torch.nonzero(noise.valid, as_tuple=True)
    columns = (row, *(one[row, place] for one in (noise.seen, noise.chosen, noise.times, noise.log_rate)))
    return list(zip(*(one.tolist() for one in columns), strict=True))


def expected_counts(twin: SlowTimed, data: EventData, batch: Batch, streams: int) -> np.ndarray:
    """`M·∫λ^q` by gap and mark, over the gaps that count."""
    found = np.zeros((*batch.gap_length.shape, len(data.vocabulary)))
    for row, gap, mark in np.ndindex(*found.shape):
        if batch.gap_counts[row, gap]:
            begin, end = float(batch.gap_start[row, gap]), float(batch.gap_end[row, gap])
            history = as_history(data, row)[:gap]
            found[row, gap, mark] = streams * twin.integral(data.vocabulary[mark], begin, end, history)
    return found


def counts(noise: NoiseEvents, shape: tuple[int, ...]) -> np.ndarray:
    found = np.zeros(shape)
    for row, gap, mark, *_ in each(noise):
        found[row, gap, mark] += 1
    return found


def assert_poisson(found: np.ndarray, mean: np.ndarray) -> None:
    """A false alarm in one of a million runs, over all counts together."""
    assert not found[mean == 0.0].any()
    found, mean = found[mean > 0.0], mean[mean > 0.0]
    tail = np.minimum(stats.poisson.cdf(found, mean), stats.poisson.sf(found - 1, mean))
    assert tail.min() * 2 * len(mean) > FALSE_ALARMS


@pytest.mark.parametrize("data", [DATA, TIES, NEVER], ids=["plain", "ties", "a mark that never happens"])
def test_counts_by_gap_and_mark_are_poisson_with_the_integral_as_their_mean(data: EventData):
    process, streams = timed_noise(3), 300
    batch = make_batch(data, range(len(data)))
    mean = expected_counts(slow_timed(process, data.vocabulary.names), data, batch, streams)
    assert_poisson(counts(draws(process, batch, streams), mean.shape), mean)
    without = streams * process.hawkes.exact_integral(process.hawkes.encode(batch), batch).detach().numpy()
    assert mean.sum() > 1.2 * (without * batch.gap_counts.numpy()).sum()  # the step functions are a good part of it


@pytest.mark.parametrize("data", [DATA, TIES], ids=["plain", "ties"])
def test_times_inside_gaps_follow_the_intensity(data: EventData):
    """The share of a gap's integral that lies before an event of a mark is uniform, for every mark."""
    process, batch = timed_noise(3), make_batch(data, range(len(data)))
    twin = slow_timed(process, data.vocabulary.names)
    shares: list[list[float]] = [[], [], []]
    for row, gap, mark, time, _ in each(draws(process, batch, 60, seed=1)):
        begin, end = float(batch.gap_start[row, gap]), float(batch.gap_end[row, gap])
        assert begin <= time <= end
        name, history = data.vocabulary[mark], as_history(data, row)[:gap]
        shares[mark].append(twin.integral(name, begin, time, history) / twin.integral(name, begin, end, history))
    for one in shares:
        assert len(one) > 200
        assert stats.kstest(one, "uniform").pvalue > FALSE_ALARMS / 3


@pytest.mark.parametrize("data", [DATA, TIES, NEVER], ids=["plain", "ties", "a mark that never happens"])
def test_rates_are_those_of_a_loop_over_the_definition(data: EventData):
    process, batch = timed_noise(3), make_batch(data, range(len(data)))
    twin, noise = slow_timed(process, data.vocabulary.names), draws(timed_noise(3), batch, 3, seed=2)
    for row, gap, mark, time, log_rate in each(noise):
        wanted = twin.intensity(data.vocabulary[mark], time, as_history(data, row)[:gap])
        assert log_rate == pytest.approx(math.log(wanted), rel=1e-9, abs=1e-9)
    for row, sequence in enumerate(data):
        for place, kind in enumerate(data.names_of(sequence)):
            wanted = twin.intensity(kind, float(sequence.times[place]), as_history(data, row)[:place])
            assert float(noise.log_rate_at_events[row, place]) == pytest.approx(math.log(wanted), rel=1e-9, abs=1e-9)


def test_an_event_at_the_time_of_the_last_of_its_mark_is_at_the_beginning_of_the_clock():
    process = timed_noise(3)
    noise = draws(process, make_batch(NEVER, range(3)), 1)
    rate = slow(process.hawkes, NAMES[:3]).intensity("a", 1.0, as_history(NEVER, 0)[:1])
    dated = float(process.since_start.at(torch.tensor([1.0]).double(), torch.tensor([0])))
    again = float(process.since_own.rate[0, 0])
    assert again > 0.0
    assert float(noise.log_rate_at_events[0, 1]) == pytest.approx(math.log(rate + dated + again))


@pytest.mark.parametrize("window", ["all", "events-2-to-I"])
@pytest.mark.parametrize("origin", ["window", "first-event"])
def test_there_is_no_noise_where_nothing_is_scored(window: Window, origin: Origin):
    rows = [([0.0, 1.0, 1.0, 4.0], [0, 1, 2, 0]), ([0.0], [1])]
    data = event_data(rows, origin=origin)
    batch = make_batch(data, range(2), window=window, width=7)
    process, streams = timed_noise(3), 500
    mean = expected_counts(slow_timed(process, data.vocabulary.names), data, batch, streams)
    noise = draws(process, batch, streams)
    assert noise.drawn > 100
    assert_poisson(counts(noise, mean.shape), mean)


def test_data_without_any_event_draw_from_the_first_clock_alone():
    process, data = timed_noise(3), event_data([([], []), ([], [])])
    quiet = replace(process, since_own=process.since_own.scaled(torch.zeros(3)))
    batch = make_batch(data, [0, 1])
    one, two = draws(process, batch, 40), draws(quiet, batch, 40)
    assert one.drawn == two.drawn > 50 and torch.equal(one.times, two.times)


def test_blocks_of_sequences_are_the_batch(monkeypatch: pytest.MonkeyPatch):
    process, data, streams = timed_noise(3), random_data(63, [30, 12, 25]), 100
    batch = make_batch(data, range(3))
    mean = expected_counts(slow_timed(process, data.vocabulary.names), data, batch, streams)
    monkeypatch.setattr(drawing, "WEIGHTS_AT_ONCE", 1)
    assert_poisson(counts(draws(process, batch, streams), mean.shape), mean)


def test_pseudo_events_are_told_from_what_clocks_draw():
    process, batch = timed_noise(3), make_batch(DATA, range(5))
    noise = draws(process, batch, 2, pseudo_rate=40.0)
    expected = 40.0 * 3 * float(batch.gap_length.sum())
    assert abs(int((noise.valid & noise.pseudo).sum()) - expected) < 5.5 * math.sqrt(expected)
    assert not draws(process, batch, 2).pseudo.any()


def test_noise_of_rules_comes_as_often_as_clocks_say_while_something_is_possible():
    model, streams = shop(), 2000
    batch = model.collator.batch(SHOPPING, [0, 1], unscored=model.unscored)
    fitted = fit_noise(model, SHOPPING, None, "timed")
    assert isinstance(fitted, TimedNoise) and fitted.vocabulary.names == ("buy", "leave", "bell")
    assert not fitted.since_start.rate[2].any() and not fitted.since_own.rate[2].any()  # it is not predicted
    marks = [[0, 1, 1, 1, 2, 0], [1]]
    by_functor = event_data(
        [(one.times.tolist(), kinds) for one, kinds in zip(SHOPPING, marks, strict=True)], t_end=[6.0, 3.0]
    )
    mean = expected_counts(slow_timed(fitted, by_functor.vocabulary.names), by_functor, batch, streams)
    mean[..., :2] *= possible_events(model, batch).count > 0
    mean[..., 2] = 0.0
    noise = NoiseSource(model, fitted, streams).draw(batch, torch.Generator().manual_seed(4))
    text = model.histories.grounding.text
    functor = {"buy": 0, "leave": 1}
    row, place = torch.nonzero(noise.valid, as_tuple=True)
    found = np.zeros(mean.shape)
    for r, p in zip(row.tolist(), place.tolist(), strict=True):
        found[r, int(noise.seen[r, p]), functor[text(int(noise.chosen[r, p])).split("(")[0]]] += 1
    assert_poisson(found, mean)


def test_a_file_gives_back_the_same_numbers(tmp_path: Path):
    process, path = timed_noise(3), tmp_path / "noise.safetensors"
    save_noise(process, path)
    found = load_noise(path)
    assert isinstance(found, TimedNoise) and found.vocabulary == process.vocabulary
    for name in ("mu", "alpha", "beta"):
        assert torch.equal(getattr(found.hawkes, name), getattr(process.hawkes, name))
    for name in ("since_start", "since_own"):
        for part in ("edges", "rate", "mass"):
            assert torch.equal(getattr(getattr(found, name), part), getattr(getattr(process, name), part))
    again = tmp_path / "again.safetensors"
    save_noise(found, again)
    assert again.read_bytes() == path.read_bytes()


def test_other_kinds_are_kept_as_models(tmp_path: Path):
    save_noise(hawkes_noise(2), tmp_path / "noise.safetensors")
    found = load_noise(tmp_path / "noise.safetensors")
    assert not isinstance(found, TimedNoise) and found.kind == "hawkes"


Tensors = dict[str, torch.Tensor]
Change = Callable[[Tensors], Tensors]


def without(name: str) -> Change:
    return lambda tensors: {key: one for key, one in tensors.items() if key != name}


def with_one(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    return lambda tensors: tensors | {name: change(tensors[name]).contiguous()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("since_own.rate"), "since_own.rate"),
        (without("beta"), "beta"),
        (with_one("alpha", lambda one: one[:2]), r"alpha is torch.float64 \[2, 3, 2\], expected \[3, 3, 2\]"),
        (with_one("mu", lambda one: one.float()), "mu is torch.float32"),
        (with_one("since_start.edges", lambda one: one + 1.0), "do not rise from 0"),
        (with_one("since_start.rate", lambda one: -one), "not all finite and 0 or more"),
        (with_one("since_start.rate", lambda one: one[:, :1]), "of one shape"),
        (with_one("since_start.rate", lambda one: one + 1e308), "infinite integral"),
        (lambda tensors: tensors | {"more": torch.ones(1)}, "more"),
        (
            lambda tensors: tensors | {f"since_own.{n}": tensors[f"since_own.{n}"][:2] for n in ("edges", "rate")},
            "not of 3",
        ),
    ],
)
def test_a_damaged_file_is_named_and_so_is_what_is_wrong(change: Change, message: str, tmp_path: Path):
    path = tmp_path / "noise.safetensors"
    save_noise(timed_noise(3), path)
    description = {"format": 1, "kind": "timed", "types": ["a", "b", "c"], "unseen": [], "longest": None}
    description |= {"spec": {"decays": 2, "dtype": "float64", "fitted": True}}
    save_file(change(load_file(path)), path, {"foretell": json.dumps(description)})
    with pytest.raises(ForetellError, match=rf"noise.safetensors: not a foretell model .*{message}"):
        load_noise(path)


@pytest.mark.parametrize("content", [b"", b"no tensors", b"\x08\0\0\0\0\0\0\0{}      "])
def test_what_is_no_such_file_at_all_is_refused(content: bytes, tmp_path: Path):
    path = tmp_path / "noise.safetensors"
    path.write_bytes(content)
    with pytest.raises(ForetellError, match=r"noise.safetensors: not a foretell model"):
        load_noise(path)
    save_noise(timed_noise(2), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ForetellError, match=r"noise.safetensors: not a foretell model"):
        load_noise(path)


def test_a_file_of_another_format_is_refused(tmp_path: Path):
    path = tmp_path / "noise.safetensors"
    save_noise(timed_noise(2), path)
    save_file(load_file(path), path, {"foretell": json.dumps({"format": 9, "kind": "timed"})})
    with pytest.raises(ForetellError, match="its format is 9, this version reads format 1"):
        load_noise(path)
