"""`Forecaster` on frames, and results as frames: what it gives is what the functions behind it give, in the kind that came in."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import foretell as ft
from foretell.evaluate.compare import ComparedRun, compare
from foretell.evaluate.scores import ScoringOptions, score
from tests.cli.invoking import fine, refused

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pytest.importorskip("narwhals")

NAMES = {"sequence": "customer", "time": "when", "event": "product"}
START = pd.Timestamp("2024-01-01", tz="Europe/Berlin")


def orders(customers=12, seed=0):
    random = np.random.default_rng(seed)
    days = [np.cumsum(random.gamma(4.0, 2.0, size=6)) for _ in range(customers)]
    return pd.DataFrame(
        {
            "customer": np.repeat(np.arange(100, 100 + customers), 6),
            "when": START + pd.to_timedelta(np.concatenate(days), unit="D").round("s"),
            "product": random.choice(["tea", "milk", "mug"], size=6 * customers),
        }
    )


@pytest.fixture(scope="module")
def fitted():
    return ft.Forecaster("anhp", dim=4, layers=1, epochs=1, periods=0).fit(orders(), **NAMES)


def test_it_fits_predicts_simulates_and_scores_as_the_functions_behind_it_do(fitted):
    new = orders(2, seed=1)
    data = ft.from_frame(new, **NAMES, vocabulary=fitted.model_.vocabulary).train
    week = 7.0 * 86400.0 / fitted.clock_.seconds_per_unit
    one = ft.predict_each(fitted.model_, data, horizon=week, top=2)
    found = fitted.predict(new, horizon="7d", top=2)
    pd.testing.assert_frame_equal(found, one.to_frame())
    assert found["sequence"].tolist() == [100, 100, 101, 101] and found["rank"].tolist() == [1, 2, 1, 2]
    assert str(found["time"].dt.tz) == "Europe/Berlin"
    futures = ft.sample_futures(fitted.model_, data, horizon=week, n=3, seed=5)
    drawn = fitted.simulate(new, horizon="7d", n=3, seed=5)
    assert list(drawn.columns) == ["sequence", "sample", "time", "event"]
    assert len(drawn) == sum(len(future.times) for each in futures for future in each.futures) > 0
    assert ((drawn["time"] > new["when"].min()) & (drawn["time"] < new["when"].max() + pd.Timedelta("8D"))).all()
    assert fitted.score(new) == ft.evaluate(fitted.model_, data, times=False).log_likelihood.value


def test_probabilities_within_a_horizon_are_those_of_the_density_up_to_it(fitted):
    data = ft.from_frame(orders(1, seed=2), **NAMES, vocabulary=fitted.model_.vocabulary).train
    horizons, none = [0.5, 2.0, 6.0], []
    for horizon in horizons:
        (one,) = ft.predict_each(fitted.model_, data, horizon=horizon, top=3)
        assert one.outlook.horizon == pytest.approx(one.start + horizon, rel=1e-9)
        assert sum(event.probability for event in one.events) + one.no_event == pytest.approx(1.0, abs=1e-4)
        none.append(one.no_event)
    assert none[0] > none[1] > none[2] > 0.0
    draws = ft.sample_next(fitted.model_, data, n=20_000, horizon=2.0, seed=1)[0]
    assert float((~draws.found).mean()) == pytest.approx(none[1], abs=5.0 * 0.5 / 20_000**0.5)
    times = np.linspace(0.0, 2.0, 2001) + data[0].t_end
    total = ft.intensities_at(fitted.model_, data, np.nextafter(times, np.inf))[0].intensities.sum(axis=1)
    assert np.exp(-np.trapezoid(total, times)) == pytest.approx(none[1], rel=1e-3)
    with pytest.raises(ft.ForetellError, match="positive length"):
        ft.predict_each(fitted.model_, data, horizon=0.0)


def test_frames_come_out_in_the_kind_that_came_in_and_from_other_kinds_of_times(fitted):
    new = orders(2, seed=1)
    expected = fitted.predict(new, horizon="7d")
    polars = fitted.predict(pl.from_pandas(new), horizon="7d")
    assert isinstance(polars, pl.DataFrame) and polars["sequence"].to_list() == [100, 101]
    np.testing.assert_allclose(polars["probability"], expected["probability"])
    text = new.assign(when=new["when"].map(lambda one: one.isoformat()), customer=new["customer"].astype(str))
    again = fitted.predict(text, horizon="7d")
    np.testing.assert_allclose(again["probability"], expected["probability"])
    assert again["sequence"].tolist() == ["100", "101"]


def test_predictions_from_a_later_time_know_that_nothing_happened_since(fitted):
    new = orders(1, seed=1)
    found = fitted.predict(new, observed_until="2024-05-01")
    assert found["start"][0] == pd.Timestamp("2024-05-01", tz="Europe/Berlin") < found["time"][0]
    with pytest.raises(ft.DataError, match="last event is after the end"):
        fitted.predict(new, observed_until="2024-01-02")


def test_it_is_saved_and_loaded_with_its_columns_and_its_clock(fitted, tmp_path):
    new = orders(2, seed=1)
    fitted.save(tmp_path / "orders")
    loaded = ft.Forecaster.load(tmp_path / "orders")
    pd.testing.assert_frame_equal(loaded.predict(new, horizon="7d"), fitted.predict(new, horizon="7d"))
    assert loaded.get_params() == fitted.get_params() and loaded.clock_ == fitted.clock_
    assert ft.RunFolder.open(tmp_path / "orders").model().vocabulary == fitted.model_.vocabulary
    with pytest.raises(ft.ForetellError, match="overwrite=True"):
        fitted.save(tmp_path / "orders")
    loaded.save(tmp_path / "orders", overwrite=True)
    (tmp_path / "orders" / "forecaster.json").write_text('{"model": 1}')
    with pytest.raises(ft.ForetellError, match="not what a forecaster wrote"):
        ft.Forecaster.load(tmp_path / "orders")
    (tmp_path / "orders" / "forecaster.json").unlink()
    with pytest.raises(ft.ForetellError, match="not saved by a forecaster"):
        ft.Forecaster.load(tmp_path / "orders")


def test_parameters_are_those_of_scikit_learn(fitted):
    assert fitted.get_params() == {
        "model": "anhp", "program": None, "dim": 4, "layers": 1, "epochs": 1, "periods": 0,
    }  # fmt: skip
    clone = fitted.clone()
    assert clone.get_params() == fitted.get_params() and not hasattr(clone, "model_")
    assert clone.set_params(epochs=3, model="hawkes") is clone
    assert clone.get_params()["epochs"] == 3 and clone.model == "hawkes" and fitted.settings["epochs"] == 1
    assert eval(repr(fitted), {"Forecaster": ft.Forecaster}).get_params() == fitted.get_params()


def test_scikit_learn_clones_it_and_knows_whether_it_is_fitted(fitted):
    base = pytest.importorskip("sklearn.base")
    validation = pytest.importorskip("sklearn.utils.validation")
    clone = base.clone(fitted)
    assert clone.get_params() == fitted.get_params() and not hasattr(clone, "model_")
    validation.check_is_fitted(fitted)


def test_mistakes_are_told_before_anything_is_learned(fitted):
    with pytest.raises(ft.ForetellError, match=r"'epoch' of anhp; did you mean `epochs`") as error:
        ft.Forecaster("anhp", epoch=3, dimm=4).fit(orders(), **NAMES)
    assert len(str(error.value).splitlines()) == 2
    with pytest.raises(ft.ForetellError, match="call fit first"):
        ft.Forecaster().predict(orders())
    with pytest.raises(ft.ForetellError, match="horizon '7x'"):
        fitted.predict(orders(1), horizon="7x")
    with pytest.raises(ft.DataError, match="`socks` is not one of the 3 "):
        fitted.predict(orders(1).assign(product="socks"))  # nothing would be left
    with pytest.raises(ft.ForetellError, match="has no rules"):
        ft.Forecaster("anhp", program="robocup").fit(orders(), **NAMES)


def test_event_types_that_training_never_saw_are_left_out_and_said(fitted, caplog):
    new = orders(1)
    more = pd.concat([new, new.tail(1).assign(product="socks")])
    assert fitted.score(more) == fitted.score(new)
    assert "1 event of 1 type that training never saw (`socks`) was left out" in caplog.text
    assert fitted._config.data.unknown == "skip"
    other = ft.Forecaster("poisson").fit(orders(), **NAMES, unknown="other")
    assert list(other.model_.vocabulary) == ["milk", "mug", "tea", "other"] and other.predict(more).event[0] != "socks"
    strict = ft.Forecaster("poisson").fit(orders(), **NAMES, unknown="error")
    with pytest.raises(ft.DataError, match=r"`socks` is not one of the 3 .*unknown=\"skip\""):
        strict.predict(more)


def test_what_was_said_once_is_not_said_again(caplog):
    forecaster = ft.Forecaster("poisson").fit(orders(), **NAMES)
    assert caplog.text.count("first event, which is given") == 1 and "11 train, 1 dev" in caplog.text
    forecaster.predict(orders(1))
    forecaster.score(orders(1))
    assert caplog.text.count("first event, which is given") == 1


def test_a_dev_frame_and_settings_of_the_data():
    forecaster = ft.Forecaster("poisson").fit(orders(), **NAMES, dev=orders(2, seed=3).replace("mug", "cup"))
    assert "cup" in forecaster.model_.vocabulary
    assert (
        ft.Forecaster("poisson", split=(0.5, 0.5, 0.0)).fit(orders(), **NAMES)._facts["splits"]["dev"]["sequences"] == 6
    )


def test_rules_become_the_network_and_are_saved(tmp_path):
    program = ft.Program.from_text(":- event(tea).\n:- event(milk).\ntea.\nmilk.\n")
    frame = orders(10).replace("mug", "tea")
    forecaster = ft.Forecaster(program=program, dim=2, epochs=1).fit(frame, **NAMES)
    assert forecaster.model_.kind == "andtt"
    forecaster.save(tmp_path / "rules")
    loaded = ft.Forecaster.load(tmp_path / "rules")
    assert loaded.score(frame) == forecaster.score(frame)


def test_results_of_the_functions_are_frames(fitted):
    data = ft.from_frame(orders(2, seed=1), **NAMES, vocabulary=fitted.model_.vocabulary).train
    times = ft.intensities_at(fitted.model_, data, [1.0, 2.0])
    frame = times.to_frame()
    assert list(frame.columns) == ["sequence", "time", "event", "intensity"] and len(frame) == 2 * 2 * 3
    np.testing.assert_array_equal(frame["intensity"][:3], times[0].intensities[0])
    assert frame["time"][0] == data.to_frame()["time"][0] + pd.Timedelta(fitted.clock_.seconds_per_unit, unit="s")
    vectors = ft.embeddings_of(fitted.model_, data, "top").to_frame("polars")
    assert vectors.shape == (data.event_count, 3 + fitted.model_.options.dim)
    scored = ft.evaluate(fitted.model_, data, times=False)
    assert scored.to_frame().set_index("score")["value"]["log_likelihood"] == scored.log_likelihood.value
    assert "format" not in scored.to_json()
    drawn = ft.sample_next(fitted.model_, data, n=4, horizon=1e-9).to_frame()
    assert len(drawn) == 8 and drawn["time"].isna().all() and drawn["event"].isna().all()
    for result in (times, scored, ft.predict_each(fitted.model_, data)):
        assert re.match(r"<table><caption>.*</table>$", result._repr_html_(), re.DOTALL)


def test_a_comparison_is_a_frame_of_differences():
    data = ft.from_frame(orders(8), **NAMES).train
    models = [ft.Poisson(data.vocabulary), ft.Hawkes(data.vocabulary)]
    runs = []
    for model in models:
        ft.fit(model, data)
        runs.append(ComparedRun(model.title, score(model, data, ScoringOptions(times=False)), data))
    found = compare(runs, permutations=100)
    frame = found.to_frame()
    assert frame["score"].tolist() == [one.metric for one in found.differences]
    assert frame["value"].tolist() == [one.difference.value for one in found.differences]
    assert {"p_events", "p_sequences", "significant", "better"} <= set(frame.columns)


def test_an_empty_list_of_results_is_an_empty_frame(fitted):
    assert len(ft.predict_each(fitted.model_, ft.EventData([], fitted.model_.vocabulary)).to_frame()) == 0


def test_the_ten_lines_of_the_readme_run(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (lines,) = [body for body in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "Forecaster" in body]
    assert len(lines.strip().splitlines()) <= 10
    orders().rename(columns={"when": "ordered_at"}).to_csv(tmp_path / "orders.csv", index=False)
    monkeypatch.chdir(tmp_path)
    quick = ft.Forecaster("hawkes")
    monkeypatch.setattr(ft, "Forecaster", lambda: quick, raising=False)
    scope: dict = {}
    exec(lines, scope)
    assert {"sequence", "time", "event"} <= set(scope["next_orders"].columns)
    assert "sample" in scope["futures"].columns


def test_the_command_line_reads_other_files_as_the_frame_was_read(fitted, tmp_path):
    fitted.save(tmp_path / "orders")
    new = orders(2, seed=1)
    new.to_csv(tmp_path / "new.csv", index=False)
    run = ft.RunFolder.open(tmp_path / "orders")
    data = ft.load_file(tmp_path / "new.csv", run.model().vocabulary, options=run.reading())
    expected = ft.from_frame(new, **NAMES, vocabulary=fitted.model_.vocabulary).train
    np.testing.assert_array_equal(data.columns.times, expected.columns.times)
    assert data.clock.unit == fitted.clock_.unit


def test_commands_say_what_a_saved_one_needs_and_report_does_without_floors(fitted, tmp_path):
    run, new, page = tmp_path / "run", tmp_path / "new.csv", tmp_path / "page.html"
    fitted.save(run)
    orders(4, seed=3).to_csv(new, index=False)
    for command in ("evaluate", "report"):
        said = refused(command, run)
        assert (
            "fitted in Python to data that it does not name" in said and f"`foretell report {run} --data FILE`" in said
        )
    assert "leave out --floors" in refused("evaluate", run, new, "--floors")
    scored = fine("evaluate", run, new, "--no-times")
    assert "training was stopped" not in scored.out + scored.err
    reported = fine("report", run, "--data", new, "-o", page)
    assert page.stat().st_size > 0 and "so that no floors can be fitted to them" in reported.err
