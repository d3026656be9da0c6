"""Evaluation as a whole: the numbers by hand on tiny examples, what is reported beside them, and the table behind them."""

from __future__ import annotations

import builtins
import gzip
import json
import math
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pyarrow import parquet

from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.evaluate.record import Origin, digest_of, read_scores, write_scores
from foretell.evaluate.scores import ScoringOptions, evaluate, score
from foretell.models.attention.anhp import ANHP
from foretell.models.classical.poisson import Poisson
from tests.samples import event_data, random_data, randomise

TINY = event_data([([1.0, 4.0], [0, 1]), ([2.0], [0]), ([], [])], types=2, t_end=[5.0, 4.0, 3.0])


def poisson(data: EventData, *rates: float) -> Poisson:
    model = Poisson(data.vocabulary)
    with torch.no_grad():
        model.log_rate.copy_(torch.tensor(rates, dtype=torch.float64).log())
    return model


def test_every_score_of_a_tiny_example_is_the_one_computed_by_hand():
    evaluation = evaluate(poisson(TINY, 0.5, 0.25), TINY)
    whole = (2 * math.log(0.5) + math.log(0.25) - 0.75 * 12.0) / 3.0
    assert evaluation.log_likelihood.value == pytest.approx(whole)
    assert evaluation.time_log_likelihood.value == pytest.approx(math.log(0.75) - 0.75 * 12.0 / 3.0)
    assert evaluation.type_log_likelihood.value == pytest.approx((2 * math.log(2.0 / 3.0) + math.log(1.0 / 3.0)) / 3.0)
    assert evaluation.error_rate.value == pytest.approx(1.0 / 3.0)  # `a` is always expected; one event is a `b`
    errors = [1.0 - 4.0 / 3.0, 3.0 - 4.0 / 3.0, 2.0 - 4.0 / 3.0]
    assert evaluation.rmse is not None
    assert evaluation.rmse.value == pytest.approx(math.sqrt(sum(e * e for e in errors) / 3.0), rel=1e-5)
    assert evaluation.events == 3 and evaluation.sequences == 3 and evaluation.undefined_times == 0


def test_the_most_intense_type_is_the_one_predicted_at_each_time():
    data = random_data(2, [6, 4])
    model = randomise(ANHP.preset("plain", data.vocabulary, dim=4, dtype=torch.float64), seed=1)
    model.time.set_range(0.5, 10.0)
    events = score(model, data, ScoringOptions(times=False)).events
    wrong = 0
    from foretell.batches.batch import Queries, make_batch

    for place, sequence in enumerate(data):
        batch = make_batch(data, [place])
        found = model.intensities(model.state(model.encode(batch), Queries.of_events(batch)))[0].argmax(-1)
        wrong += int((found.numpy() != sequence.types).sum())
        assert found.tolist() == events.predicted_type[events.sequence == place].tolist()
    assert evaluate(model, data, times=False).error_rate.value == pytest.approx(wrong / 10.0)


def test_intervals_hold_their_values():
    data = random_data(3, [5, 2, 9] * 10)
    evaluation = evaluate(poisson(data, 0.2, 0.2, 0.1), data)
    for estimate in (evaluation.log_likelihood, evaluation.time_log_likelihood, evaluation.rmse, evaluation.error_rate):
        assert estimate is not None and estimate.low < estimate.value < estimate.high


def test_the_same_seed_gives_the_same_intervals():
    data = random_data(4, [5] * 25)
    model = poisson(data, 0.2, 0.2, 0.1)
    assert evaluate(model, data, seed=1) == evaluate(model, data, seed=1)
    assert evaluate(model, data, seed=1).log_likelihood != evaluate(model, data, seed=2).log_likelihood


def test_evaluation_leaves_the_model_and_the_random_state_as_they_were():
    data = random_data(5, [5, 3])
    model = ANHP.preset("plain", data.vocabulary, dim=4, dropout=0.5).train()
    state = torch.get_rng_state()
    one, two = (evaluate(model, data, times=False) for _ in range(2))
    assert model.training and torch.equal(torch.get_rng_state(), state)
    assert one == two, "dropout must be off"


def test_without_times_there_is_no_rmse():
    assert evaluate(poisson(TINY, 1.0, 1.0), TINY, times=False).rmse is None


def test_the_mean_absolute_error_and_the_type_without_its_time_are_those_computed_by_hand():
    evaluation = evaluate(poisson(TINY, 0.5, 0.25), TINY)
    assert evaluation.mae is not None and evaluation.error_rate_without_time is not None
    assert evaluation.mae.value == pytest.approx((1.0 / 3.0 + 5.0 / 3.0 + 2.0 / 3.0) / 3.0, rel=1e-5)
    assert evaluation.error_rate_without_time.value == pytest.approx(1.0 / 3.0)


def test_the_error_without_the_time_is_that_of_the_types_predicted_without_it():
    data = random_data(9, [6, 5, 7])
    model = randomise(ANHP.preset("plain", data.vocabulary, dim=4, dtype=torch.float64), seed=3, spread=1.0)
    model.time.set_range(0.5, 10.0)
    found = score(model, data)
    assert found.times is not None and found.evaluation.error_rate_without_time is not None
    real = found.events.is_event
    wrong = np.mean(found.times.type_without_time != found.events.type[real])
    assert found.evaluation.error_rate_without_time.value == pytest.approx(wrong)
    assert (found.times.type_without_time != found.events.predicted_type[real]).any(), "it is another question"


def test_time_rescaling_and_calibration_are_in_the_evaluation():
    evaluation = evaluate(poisson(TINY, 0.5, 0.25), TINY, times=False)
    assert evaluation.rescaling.residuals == 3 and 0.0 < evaluation.rescaling.p_value <= 1.0
    assert evaluation.rescaling.mean == pytest.approx(0.75 * np.mean([1.0, 3.0, 1.0 + 2.0]))
    assert evaluation.calibration.coverage(0.9).value == 1.0
    assert evaluation.mae is None and evaluation.error_rate_without_time is None


def test_score_and_evaluate_take_the_same_options():
    import inspect

    asked = inspect.signature(evaluate).parameters
    options = {one.name: one.default for one in fields(ScoringOptions)}
    assert {name: asked[name].default for name in options} == options
    assert [*asked] == ["model", "data", *options, "progress"]
    assert [*inspect.signature(score).parameters] == ["model", "data", "options", "progress", "shards"]


def test_nothing_to_score_is_an_error():
    model = poisson(TINY, 1.0, 1.0)
    with pytest.raises(ForetellError, match="nothing to score"):
        evaluate(model, event_data([([], [])], types=2))
    with pytest.raises(ForetellError, match="no event counts in the window 'events-2-to-I'"):
        evaluate(model, event_data([([1.0], [0])], types=2), window="events-2-to-I")
    with pytest.raises(ForetellError, match="nothing to score"):
        evaluate(model, EventData([], TINY.vocabulary))
    with pytest.raises(ForetellError, match="not those of the model"):
        evaluate(model, random_data(0, [3]))
    with pytest.raises(ForetellError, match="seed = -1"):
        evaluate(model, TINY, seed=-1)


def test_the_json_has_plain_numbers_and_the_documented_keys():
    found = json.loads(json.dumps(evaluate(poisson(TINY, 0.5, 0.25), TINY).to_json(), allow_nan=False))
    assert {"model", "data", "window", "sequences", "events", "log_likelihood", "rmse", "error_rate"} <= found.keys()
    assert found["log_likelihood"].keys() == {"value", "low", "high"}
    assert found["integral"]["method"] == "closed form" and found["window"] == "all"


def test_rows_of_the_table_add_up_to_the_log_likelihood_of_each_sequence(tmp_path: Path):
    scored = score(poisson(TINY, 0.5, 0.25), TINY)
    path = write_scores(scored, TINY, tmp_path)
    table = parquet.read_table(path).to_pydict()
    assert path.name == "scores.parquet"
    summed = dict.fromkeys(("0", "1", "2"), 0.0)
    for name, value in zip(table["sequence"], table["log_likelihood"], strict=True):
        summed[name] += value
    assert list(summed.values()) == pytest.approx(scored.events.log_likelihoods.tolist())
    for row, value in enumerate(table["log_likelihood"]):
        assert value == pytest.approx(table["log_intensity"][row] - table["integral"][row] - table["tail"][row])
    assert table["event"] == ["a", "b", "a", ""] and table["index"] == [0, 1, 0, -1]
    assert table["predicted_event"] == ["a", "a", "a", ""]
    assert table["predicted_time"][:3] == pytest.approx([4.0 / 3.0, 1.0 + 4.0 / 3.0, 4.0 / 3.0], rel=1e-5)
    written = json.loads((tmp_path / "evaluation.json").read_text())
    assert written == scored.evaluation.to_json()
    assert sum(table["log_likelihood"]) / 3 == pytest.approx(written["log_likelihood"]["value"])


ORIGIN = Origin("model", "data", "all", "quadrature", 10, 0)


def origin_of(path: Path, data: EventData, **changes: object) -> Origin:
    return Origin.of(path, data, ScoringOptions(**changes))  # type: ignore[arg-type]


def test_scores_read_back_are_those_that_were_written(tmp_path: Path):
    data = random_data(5, [4, 0, 7, 1])
    model = poisson(data, 0.2, 0.2, 0.1)
    (tmp_path / "model").write_bytes(b"weights")
    origin = origin_of(tmp_path / "model", data)
    scored = score(model, data)
    write_scores(scored, data, tmp_path, origin)
    again = read_scores(tmp_path, model, data, origin)
    assert again is not None and again.evaluation == scored.evaluation
    for name in ("sequence", "event", "type", "log_intensity", "log_predicted", "integral", "tail", "predicted_type"):
        np.testing.assert_array_equal(getattr(again.events, name), getattr(scored.events, name))


def test_scores_of_something_else_are_not_read(tmp_path: Path):
    data = random_data(6, [4, 3])
    model = poisson(data, 0.2, 0.2, 0.1)
    weights = tmp_path / "model"
    weights.write_bytes(b"weights")
    origin = origin_of(weights, data)
    assert read_scores(tmp_path, model, data, origin) is None, "there are none"
    write_scores(score(model, data, ScoringOptions(times=False)), data, tmp_path, origin)
    assert read_scores(tmp_path, model, data, origin) is None, "without next times"
    assert read_scores(tmp_path, model, data, origin, times=False) is not None
    other = random_data(7, [4, 3])
    for changed in (origin_of(weights, other), origin_of(weights, data, seed=1), origin_of(weights, data, points=5)):
        assert read_scores(tmp_path, model, data, changed, times=False) is None
    weights.write_bytes(b"other weights")
    assert read_scores(tmp_path, model, data, origin_of(weights, data), times=False) is None
    (tmp_path / "scores.parquet").write_bytes(b"broken")
    assert read_scores(tmp_path, model, data, origin, times=False) is None


def test_rows_and_a_summary_of_different_evaluations_are_not_read_together(tmp_path: Path):
    """As a process leaves them that is killed between the two."""
    data = random_data(6, [4, 3])
    first, second = poisson(data, 0.2, 0.2, 0.1), poisson(data, 0.4, 0.1, 0.1)
    other = replace(ORIGIN, model="other")
    for part in ("one", "two"):
        (tmp_path / part).mkdir()
    write_scores(score(first, data), data, tmp_path / "one", ORIGIN)
    write_scores(score(second, data), data, tmp_path / "two", other)
    for name in ("scores.parquet", "evaluation.json"):
        kept = (tmp_path / "one" / name).read_bytes()
        (tmp_path / "one" / name).write_bytes((tmp_path / "two" / name).read_bytes())
        for model, origin in ((first, ORIGIN), (second, other)):
            assert read_scores(tmp_path / "one", model, data, origin) is None
        (tmp_path / "one" / name).write_bytes(kept)
    assert read_scores(tmp_path / "one", first, data, ORIGIN) is not None


def test_rows_with_times_are_not_read_with_a_summary_without_them(tmp_path: Path):
    data = random_data(6, [4, 3])
    model = poisson(data, 0.2, 0.2, 0.1)
    write_scores(score(model, data), data, tmp_path, ORIGIN)
    kept = (tmp_path / "evaluation.json").read_bytes()
    write_scores(score(model, data, ScoringOptions(times=False)), data, tmp_path, ORIGIN)
    (tmp_path / "evaluation.json").write_bytes(kept)
    assert read_scores(tmp_path, model, data, ORIGIN) is None


def test_a_digest_is_of_events_by_name_and_of_what_is_scored():
    data = random_data(8, [4, 3])
    wider = EventData(data.sequences, type(data.vocabulary)((*data.vocabulary.names, "never")), data.origin, data.name)
    marked = [type(s)(s.times, s.types, s.t_end, s.id, s.metadata, np.arange(len(s)) == 0) for s in data]
    assert digest_of(data) == digest_of(wider)
    assert digest_of(data) != digest_of(EventData(marked, data.vocabulary, data.origin, data.name))
    assert digest_of(data) != digest_of(data.select([0]))


def test_without_pyarrow_the_same_table_is_written_as_json_lines(tmp_path: Path, monkeypatch, caplog):
    scored = score(poisson(TINY, 0.5, 0.25), TINY)
    expected = parquet.read_table(write_scores(scored, TINY, tmp_path)).to_pylist()
    importing = builtins.__import__

    def without(name: str, *args: object, **kwargs: object):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return importing(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    path = write_scores(scored, TINY, tmp_path)
    monkeypatch.undo()
    assert path.name == "scores.jsonl.gz" and "pyarrow is not installed" in caplog.text
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line, parse_constant=lambda word: pytest.fail(word)) for line in file]
    assert [row.keys() for row in rows] == [row.keys() for row in expected]
    assert not (tmp_path / "scores.parquet").exists(), "one table, not two of different evaluations"
    for row, wanted in zip(rows, expected, strict=True):
        for key, value in wanted.items():
            same = row[key] is None if isinstance(value, float) and np.isnan(value) else row[key] == value
            assert same, key


def test_the_package_and_the_function_of_the_same_name_are_both_callable():
    import foretell as ft
    import foretell.evaluate.queries  # puts the package in the function's place

    data = ft.load("robocup")
    model = ft.Poisson(data.vocabulary)
    ft.fit(model, data.train)
    first, second = (ft.evaluate(model, data.test, times=False) for _ in range(2))
    assert first == second
