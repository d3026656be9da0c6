"""Names with markup, quotes, control characters, right-to-left marks and ten kilobytes, through every command that shows names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.invoking import fine, foretell

NAMES = [
    "<img src=x onerror=alert(1)>",
    "'\"`; DROP TABLE events; --",
    "\x1b[2J\x1b[31mred\x07",
    "\u202egnp.exe\u2066",
    "line\nbreak\rback\x08",
    "=HYPERLINK(1)",
    "[bold]rich[/bold]",
    "\x9b31mC1\x85\u2028\u2029",
    "n" * 10_000,
]
FORBIDDEN = {chr(code) for code in (*range(32), *range(127, 160))} - {"\n"} | set(
    "\u2028\u2029\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data whose events and sequences have such names, and a run on them."""
    made = tmp_path_factory.mktemp("names")
    for number, split in enumerate(("train", "dev", "test")):
        rows = [
            {"id": f"{name[:200]}{number}", "times": [0.5, 1.0, 1.5], "events": [name, NAMES[0], name], "t_end": 2.0}
            for name in NAMES
        ]
        (made / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fine("train", "--data", made, "--model", "poisson", "--out", made / "run", "--quiet")
    return made


COMMANDS = {
    "describe": ["data", "describe", "{}"],
    "evaluate": ["evaluate", "{}/run", "--floors"],
    "predict": ["predict", "{}/run", "{}/test.jsonl"],
    "sample": ["sample", "{}/run", "--history", "{}/test.jsonl", "--horizon", "1", "--n", "1"],
    "intensity": ["intensity", "{}/run", "{}/test.jsonl", "--at", "1.7"],
    "params": ["params", "{}/run"],
    "train": ["train", "--data", "{}", "--model", "poisson", "--out", "{}/again"],
    "compare": ["compare", "{}/run", "{}/run"],
    "convert": ["data", "convert", "{}/test.jsonl", "{}/out.csv"],
    "unknown": ["predict", "{}/run", "{}/other.jsonl"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_that_a_terminal_obeys_is_printed(name: str, folder: Path):
    row = {"times": [0.5], "events": ["\x1b[2Jnew\u202e"], "t_end": 1.0, "id": "\x1b]0;title\x07"}
    (folder / "other.jsonl").write_text(json.dumps(row) + "\n")
    outcome = foretell(*(str(one).format(folder, folder) for one in COMMANDS[name]))
    assert outcome.code in (0, 1) and "Traceback" not in outcome.err, outcome.err
    for text in (outcome.out, outcome.err):
        found = {one for one in text if one in FORBIDDEN}
        assert not found, (found, text[:2_000])


@pytest.mark.parametrize("name", ["predict", "sample", "evaluate", "intensity", "params"])
def test_json_has_the_names_as_they_are_and_no_raw_control_characters(name: str, folder: Path):
    outcome = fine(*(str(one).format(folder, folder) for one in COMMANDS[name]), "--json")
    assert not {one for one in outcome.out if one in FORBIDDEN - {"\u2028", "\u2029"}}
    outcome.json  # noqa: B018 (which it must be)


def test_a_report_shows_the_names_as_text(folder: Path):
    fine("report", folder / "run", "-o", folder / "page.html")
    page = (folder / "page.html").read_text()
    assert "<img src=x" not in page and "n" * 300 not in page
    assert not {one for one in page if one in FORBIDDEN - {"\t"}}
    assert "␛[2J␛[31mred␇" in page
