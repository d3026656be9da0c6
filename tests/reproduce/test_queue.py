"""Which unit is next: the longest first, the GPU never idle and never crowded, what is timed alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.reproduce import queue
from foretell.reproduce.assignment import Assignment, Worker, placed, work_on_unit
from foretell.reproduce.experiment import Choice, Definition, Results, merged
from foretell.reproduce.queue import ExperimentProgress, ReproduceOptions, _next
from foretell.reproduce.unit import Unit, UnitFolder
from foretell.shards.pool import ShardTask, SharedInput
from foretell.shards.processes import ProcessPool


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)


def course_of(*units: Unit) -> ExperimentProgress:
    return ExperimentProgress("x", Definition("x", Path("x"), {}), None, Results(Path("out"), units, {}))  # pyright: ignore[reportArgumentType]


def job_of(unit: Unit, device: str = "cpu") -> Assignment:
    return Assignment("x", Choice(), unit, "out", None, device, None)


def order(units: list[Unit], wanted: ReproduceOptions) -> list[str]:
    """All at once, as far as they may run beside each other."""
    course, busy = course_of(*units), []
    while (found := _next([course], busy, wanted)) is not None:
        busy.append(job_of(found[1], queue.device_of(found[1], wanted.device)))
    return [job.unit.name for job in busy]


def test_the_gpu_is_served_first_up_to_its_share_and_then_the_longest():
    units = [
        Unit("short", minutes=1.0),
        Unit("long", minutes=9.0),
        *(Unit(f"gpu{n}", minutes=float(n), device="cuda") for n in range(3)),
    ]
    assert order(units, ReproduceOptions(Path(), gpu_jobs=2)) == ["gpu2", "gpu1", "long", "short"]
    assert order(units, ReproduceOptions(Path(), device="cpu")) == ["long", "gpu2", "short", "gpu1", "gpu0"]


def test_nothing_runs_beside_a_unit_that_is_timed():
    timed, other = Unit("timed", alone=True), Unit("other")
    assert order([timed, other], ReproduceOptions(Path())) == ["other"]
    assert order([timed], ReproduceOptions(Path())) == ["timed"]
    assert _next([course_of(timed, other)], [job_of(timed)], ReproduceOptions(Path())) is None


def test_a_folder_is_named_by_its_whole_path_and_a_shipped_experiment_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert (placed("mine"), placed("robocup")) == (str(tmp_path / "mine"), "robocup")


def test_tables_of_a_quick_run_are_merged_and_the_rest_replaced():
    assert merged({"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"y": 3}, "b": [2], "c": 4}) == {
        "a": {"x": 1, "y": 3},
        "b": [2],
        "c": 4,
    }


def test_a_unit_is_done_only_for_the_settings_that_it_was_done_with(tmp_path):
    folder, unit = UnitFolder(tmp_path / "u"), Unit("u", {"seed": 0, "sizes": (1, 2)})
    assert folder.state(unit) == "pending"
    folder.begin(unit)
    folder.fail(unit, "no luck")
    assert folder.state(unit) == "failed" and folder.error() == "no luck"
    folder.begin(unit)
    folder.finish(unit, {"dev": 1.0})
    assert folder.state(unit) == "done"
    assert folder.state(Unit("u", {"seed": 1, "sizes": (1, 2)})) == "pending"


@pytest.mark.slow  # a process imports torch
def test_a_process_that_dies_takes_only_its_unit_with_it(experiment, tmp_path):
    pool = ProcessPool(1)
    text = (experiment / "experiment.toml").read_text().replace("epochs = 2", "epochs = 100000\npatience = 0")
    (experiment / "experiment.toml").write_text(text)
    from foretell.reproduce.experiment import read_definition
    from foretell.reproduce.models import Models

    unit = Models(read_definition(str(experiment))).units({})[0]
    job = Assignment(str(experiment), Choice(), unit, str(tmp_path), None, "cpu", None)
    pool.start(ShardTask(job, work_on_unit, SharedInput(Worker()), job))
    process = pool.workers[0].process
    assert process is not None
    process.kill()
    ended = []
    while not ended:
        ended = pool.wait()
    assert ended[0].name == job and "exit code -9" in ended[0].lost
    assert pool.busy() == [] and pool.workers == []
    pool.close()


def test_a_program_is_found_beside_the_definition_or_from_above_the_experiments(tmp_path):
    folder = tmp_path / "experiments" / "mine"
    folder.mkdir(parents=True)
    definition = Definition("mine", folder, {})
    (folder / "rules.ndtt").touch()
    assert definition.placed({"program": "rules.ndtt"}) == {"program": str(folder / "rules.ndtt")}
    assert definition.placed({"program": "more/rules.ndtt"}) == {"program": str(tmp_path / "more" / "rules.ndtt")}
    assert definition.placed({"program": "robocup", "dim": 4}) == {"program": "robocup", "dim": 4}
