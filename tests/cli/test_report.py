"""`foretell report`: one page that needs nothing else, of one run or several, and questions that have no page for an answer."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.cli.invoking import fine, refused

VOID = {"meta", "link", "input", "br"}


class Tags(HTMLParser):
    """Every tag closed that was opened, and what they point to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src", "srcset", "action") and value]
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def made(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def numbers(path: Path) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="numbers">(.*?)</script>', made(path), re.S)[1])  # type: ignore[index]


@pytest.fixture(scope="module")
def page(trained: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    fine("report", trained["anhp"], trained["hawkes"], "-o", path, "--quiet")
    return path


def test_a_page_is_well_formed_and_points_only_into_itself(page: Path):
    tags = Tags(made(page))
    assert tags.open == [] and len(tags.ids) == len(set(tags.ids))
    assert all(link == "data:," or link[1:] in tags.ids for link in tags.links)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", made(page))
    assert "@import" not in made(page) and "url(" not in made(page).replace("url(#", "")


def test_it_has_scores_of_every_run_and_of_the_floors_that_are_no_runs(page: Path):
    table = re.search(r'<table class="scores">.*?</table>', made(page), re.S)
    assert table is not None
    for name in ("Poisson", "anhp (A-NHP)", "hawkes (Hawkes)"):
        assert f">{name}</th>" in table[0], name
    forest = numbers(page)["charts"]["forest"]["rows"]
    assert [row["name"] for row in forest] == ["Poisson", "anhp (A-NHP)", "hawkes (Hawkes)"]
    assert all(row["low"] <= row["value"] <= row["high"] for row in forest)


def test_its_scores_are_those_of_evaluate(trained: dict[str, Path], copied: Path, tmp_path: Path):
    evaluated = fine("evaluate", copied, "--no-times", "--json", "--quiet").json
    fine("report", copied, "--no-floors", "-o", tmp_path / "new.html", "--quiet")
    (row,) = numbers(tmp_path / "new.html")["charts"]["forest"]["rows"]
    for part in ("value", "low", "high"):
        assert row[part] == pytest.approx(evaluated["log_likelihood"][part], rel=1e-4)


def test_scores_that_evaluate_left_are_used_while_the_model_is_the_same(copied: Path, tmp_path: Path):
    out = tmp_path / "report.html"
    fine("report", copied, "--no-floors", "-o", out, "--quiet")
    assert "left in the run folder" not in made(out) and "RMSE of next time" not in made(out)
    fine("evaluate", copied, "--quiet")
    fine("report", copied, "--no-floors", "-o", out, "--quiet")
    assert "left in the run folder" in made(out) and "RMSE of next time" in made(out)
    fine("report", copied, "--split", "dev", "--no-floors", "-o", out, "--quiet")
    assert "left in the run folder" not in made(out)


def test_making_a_report_leaves_the_run_as_it_was(copied: Path, tmp_path: Path):
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*")}
    fine("report", copied, "-o", tmp_path / "report.html", "--quiet")
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*")} == before


def test_json_says_what_was_written(trained: dict[str, Path], tmp_path: Path):
    out = tmp_path / "folder" / "r.html"
    told = fine("report", trained["poisson"], "--no-floors", "-o", out, "--json", "--quiet").json
    assert told.keys() == {"path", "bytes", "seconds", "runs", "sequence"}
    assert told["path"] == str(out) and told["bytes"] == out.stat().st_size and told["runs"] == ["poisson"]
    assert [path.name for path in out.parent.iterdir()] == ["r.html"]


def test_the_longest_sequence_is_shown_or_the_one_asked_for(trained: dict[str, Path], bursts: Path, tmp_path: Path):
    from foretell.data import load

    test = load(str(bursts)).test
    assert test is not None
    ask = ("report", trained["poisson"], "--no-floors", "-o", tmp_path / "r.html", "--json", "--quiet")
    longest = test[int(test.lengths.argmax())]
    assert fine(*ask).json["sequence"] == longest.id
    assert len(numbers(tmp_path / "r.html")["charts"]["course"]["events"]) == len(longest)
    assert fine(*ask, "--sequence", test[2].id).json["sequence"] == test[2].id


def test_it_may_begin_later_in_the_sequence(trained: dict[str, Path], tmp_path: Path):
    ask = ("report", trained["poisson"], "--no-floors", "-o", tmp_path / "r.html", "--quiet")
    fine(*ask, "--from", 4.0)
    course = numbers(tmp_path / "r.html")["charts"]["course"]
    assert course["start"] == 4 and min(time for time, *_ in course["events"]) >= 4.0 and min(course["times"]) == 4
    assert "--from 8.0: expected a time from the start of sequence" in refused(*ask, "--from", 8.0)


def test_other_data_may_be_named(trained: dict[str, Path], bursts: Path, tmp_path: Path):
    out = tmp_path / "r.html"
    fine("report", trained["anhp"], "--data", bursts, "--split", "dev", "--no-floors", "-o", out, "--quiet")
    assert "Scores below are of dev" in made(out)


def test_runs_with_the_same_name_are_told_apart(anhp: Path, copied: Path, tmp_path: Path):
    other = tmp_path / "other" / "copied"
    other.parent.mkdir()
    other.symlink_to(anhp)
    told = fine("report", copied, other, "--no-floors", "-o", tmp_path / "r.html", "--json", "--quiet").json
    assert len(set(told["runs"])) == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["-o", "report.pdf"], "report.pdf: expected a name that ends in .html or .htm"),
        (["--sequence", "nobody"], "no sequence 'nobody'"),
        (["--split", "later"], "there is no split 'later'"),
        (["--data", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_reported_is_refused(more: list[str], message: str, trained: dict[str, Path]):
    assert message in refused("report", trained["poisson"], *more)


def test_a_run_named_twice_is_refused(anhp: Path):
    assert "this run is named twice" in refused("report", anhp, anhp)


def test_a_page_that_cannot_be_written_leaves_nothing_behind(trained: dict[str, Path], tmp_path: Path):
    (tmp_path / "file").write_text("")
    ask = ("report", trained["poisson"], "--no-floors", "--quiet", "-o", tmp_path / "file" / "r.html")
    assert "cannot be written" in refused(*ask)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
