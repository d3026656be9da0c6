"""What is committed of experiments is what the code makes of their numbers: tables, corrections, verdicts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from foretell.errors import ForetellError
from foretell.reproduce.command import RESULTS, with_published, write_results
from foretell.reproduce.experiment import Choice, experiments, names, read_definition
from foretell.reproduce.queue import ReproduceOptions, open_progress

PUBLISHED = [
    name for name in names() if (experiments() / name / RESULTS).exists() and read_definition(name).kind == "models"
]


def without_fits(name: str, out: Path):
    return open_progress(name, ReproduceOptions(out=out, fit=False))


def test_some_results_are_published():
    assert {"mimic2", "stackoverflow", "robocup", "iptv"} <= set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_verdicts_and_tables_are_those_of_the_published_numbers(name, tmp_path):
    folder = tmp_path / "experiments" / name
    shutil.copytree(experiments() / name, folder)
    for other in experiments().glob("*/*.toml"):  # settings that definitions take from each other
        target = tmp_path / "experiments" / other.parent.name / other.name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(other, target)
    shutil.copytree(experiments().parent / "programs", tmp_path / "programs")
    before = {one: (folder / one).read_text() for one in (RESULTS, "results.md")}
    (folder / "results.md").unlink()
    write_results(without_fits(str(folder), tmp_path / "out"), published=True)
    after = {one: (folder / one).read_text() for one in before}
    assert after["results.md"] == before["results.md"]
    assert_same(json.loads(after[RESULTS]), json.loads(before[RESULTS]), "")


def assert_same(found: Any, expected: Any, place: str) -> None:
    """Equal, numbers up to the order in which a processor adds them."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), place
        for key, value in expected.items():
            assert_same(found[key], value, f"{place}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), place
        for number, value in enumerate(expected):
            assert_same(found[number], value, f"{place}[{number}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), place
    else:
        assert found == expected, place


def test_published_records_of_other_settings_or_of_a_quick_run_are_not_taken_over(tmp_path):
    course = without_fits("mimic2", tmp_path)
    assert len(course.results.records) == 0
    known = with_published(course)
    assert len(known.records) == len(known.units) == 141 and known.earlier["experiment"] == "mimic2"
    quick = open_progress("mimic2", ReproduceOptions(out=tmp_path, fit=False, choice=Choice(quick=True)))
    assert not with_published(quick).records
    with pytest.raises(ForetellError, match="no unit is done there"):
        write_results(without_fits("synth_hawkes1", tmp_path), published=True)
