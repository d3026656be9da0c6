"""What a report says in sentences, draws of futures and influences, and which sections it leaves out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.data import Card, Dataset, EventData
from foretell.data.summary import summarise
from foretell.evaluate.scores import ScoringOptions, score
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.models.classical.poisson import Poisson
from foretell.report.canvas import is_bursty
from foretell.report.entry import Entry
from foretell.report.page import Contents, report_page
from foretell.report.sections.futures import futures_section
from foretell.report.sections.influence import influence_of, influence_section
from foretell.report.sections.verdict import verdict
from foretell.train.fit import fit
from tests.samples import event_data, random_data


def silent(words: str, done: int, of: int) -> None:
    """No progress."""


def entry(name: str, model: IntensityModel, data: EventData, *, floor: bool = False) -> Entry:
    scored = score(model, data, ScoringOptions(times=False))
    return Entry(name, model, data, scored.events, scored.evaluation.to_json(), floor=floor)


def poisson(data: EventData, factor: float = 1.0) -> Poisson:
    """Fitted, with rates that are off by a factor."""
    model = fit(Poisson(data.vocabulary), data).model
    assert isinstance(model, Poisson)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(np.log(factor))
    return model


DATA = random_data(3, [9, 12, 8, 10, 11, 9, 12])


def test_the_best_run_is_named_with_its_lead_and_so_is_the_best_floor():
    runs = [entry("right", poisson(DATA), DATA), entry("wrong", poisson(DATA, 8.0), DATA)]
    lead = runs[0].evaluation["log_likelihood"]["value"] - runs[1].evaluation["log_likelihood"]["value"]
    (said,) = verdict(runs)
    assert said.startswith(f"right (Poisson) predicts best: {lead:.3f} nats per event (95 % interval ")
    assert "more than the next, wrong (Poisson); chance does not explain it (p " in said
    floor = entry("Floor", poisson(DATA, 3.0), DATA, floor=True)
    assert verdict([floor, *runs])[1].startswith("The best floor, Floor, is ")


def test_a_floor_that_does_better_is_told_and_a_lead_by_chance_is_called_one():
    floor = entry("Floor", poisson(DATA), DATA, floor=True)
    (said,) = verdict([floor, entry("run", poisson(DATA, 8.0), DATA)])
    assert said.startswith("A floor does better: Floor has ") and "train longer" in said
    (said,) = verdict([floor, entry("run", poisson(DATA, 1.02), DATA)])
    of_runs = verdict([floor, entry("worst", poisson(DATA, 9.0), DATA), entry("run", poisson(DATA, 8.0), DATA)])
    assert of_runs[0].startswith("A floor") and of_runs[1].startswith("Of the runs, run (Poisson) predicts best")
    assert said.startswith("A floor does as well: ") and "that may be chance" in said


def test_where_there_is_nothing_to_compare_nothing_is_said():
    run = entry("run", poisson(DATA), DATA)
    other = random_data(4, [5, 6])
    assert verdict([run]) == [] and verdict([run, entry("other", poisson(other), other)]) == []


def test_an_influence_is_what_leaving_the_event_out_changes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("foretell.report.sections.influence.EVENTS_OF_A_GROUP", 1000)
    data = random_data(5, [8] * 4)
    model = fit(Hawkes(data.vocabulary), data).model
    found = influence_of(entry("run", model, data))
    assert found is not None and found.events.sum() == data.event_count
    kinds, others = len(found.grouping.names), found.grouping.places(data.vocabulary)
    expected = np.zeros((kinds, kinds))
    counts = np.zeros(kinds)
    for (
        sequence
    ) in data:  # the slow way, over all events: intensities of a Hawkes process differ by what the event itself adds
        for place in range(len(sequence)):
            at = sequence.times[place] + found.after
            with_it, without = (model.intensity(sequence.first(kept, at), [at])[0] for kept in (place + 1, place))
            row = others[sequence.types[place]]
            counts[row] += 1
            expected[row] += np.log(with_it / without)[np.argsort(others)]
    assert np.log(found.factors) == pytest.approx(expected / counts[:, None], abs=1e-9)
    assert found.factors.max() > 1.0


def test_one_type_and_a_process_without_memory_have_no_influences():
    run = entry("run", poisson(DATA), DATA)
    assert influence_of(run) is None and influence_section([run], silent) is None
    alone = event_data([([1.0, 2.0, 4.0, 5.0], [0, 0, 0, 0])] * 3)
    assert influence_of(entry("run", fit(Hawkes(alone.vocabulary), alone).model, alone)) is None


def test_futures_begin_where_some_events_are_still_to_come_and_end_with_the_last():
    run = entry("run", poisson(DATA), DATA)
    section = futures_section([run], [1], "hours", 0.0, silent)
    assert section is not None
    numbers, times = section.numbers["futures"], DATA[1].times
    assert (numbers["cut"], numbers["end"]) == (times[-5], times[-1])
    assert [row[0] for row in numbers["happened"] if row[0] > numbers["cut"]] == times[-4:].tolist()
    futures = numbers["runs"][0]["futures"]
    assert len(futures) == 12 and all(numbers["cut"] < row[0] <= numbers["end"] for one in futures for row in one)
    few = event_data([([1.0, 2.0], [0, 1])])
    assert futures_section([entry("run", poisson(few), few)], [0], "", 0.0, silent) is None


def test_a_total_with_rare_high_peaks_is_bursty():
    flat = np.full(1000, 0.1)
    peaks = flat.copy()
    peaks[:30] = 40.0
    assert is_bursty(peaks) and not is_bursty(flat) and not is_bursty(np.zeros(5))


def test_sections_with_nothing_to_say_are_left_out_and_the_foot_says_how_the_page_was_made():
    data = event_data([([1.0, 2.0, 4.0, 5.0, 7.0], [0, 0, 0, 0, 0])] * 3)
    run = entry("run", poisson(data), data)
    summary = summarise(Dataset(data, data, data, data.vocabulary, Card("alone", "window", "hours", 1)))
    command = "foretell report <run>"
    text = report_page(Contents(summary, [run], [0], day="2031-05-06", command=command))
    for gone in ("learning", "functors", "confusion", "influence", "moments"):
        assert f'<section id="{gone}"' not in text, gone
    assert '<section id="scores"' in text and 'class="verdict"' not in text
    foot = text[text.index("<footer>") :]
    assert "Made on 2031-05-06 by <code>foretell report &lt;run&gt;</code>." in foot
    assert "Poisson" in foot and f">{sum(one.numel() for one in run.model.parameters())}<" in foot
