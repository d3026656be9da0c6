"""An NDTT from the command line, trained and asked about the future: only what its rules allow is ever drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.lang.program import Program
from foretell.reference.database import is_possible, states
from tests.cli.invoking import fine, refused

PROGRAMS = Path(__file__).resolve().parents[2] / "programs"
LIBRARY, LOANS = PROGRAMS / "library.ndtt", PROGRAMS / "library" / "example.jsonl"
MAY = [
    "borrow(ada,dune)", "borrow(ben,emma)", "reserve(cleo,dune)", "return(ben,emma)",
    "return(ada,dune)", "borrow(cleo,dune)", "borrow(ada,emma)", "return(cleo,dune)",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ndtt") / "run"
    options = ("--program", LIBRARY, "--data", LOANS, "--dim", 4, "--epochs", 2, "--quiet")
    fine("train", "--model", "ndtt", *options, "--out", folder)
    return folder


def test_sampled_futures_are_possible_by_the_rules(run: Path):
    found = fine("sample", run, "--history", LOANS, "--horizon", 25, "--n", 2, "--seed", 3, "--json").json
    program, drawn = Program.from_file(LIBRARY), 0
    for future in found[0]["futures"]:
        after = list(states(program, [*MAY, *future["events"]]))[1 + len(MAY) :]
        for state, event in zip(after, future["events"], strict=False):
            assert is_possible(program, state, event)
            drawn += 1
    assert drawn > 3
    assert all(one["cost"]["accepted"] <= one["cost"]["proposals"] for one in found)


def test_the_same_seed_gives_the_same_futures(run: Path):
    asked = ("sample", run, "--history", LOANS, "--horizon", 10, "--json", "--seed")
    assert fine(*asked, 3).json == fine(*asked, 3).json


def test_a_pattern_is_predicted_by_integrals_as_by_samples(run: Path):
    asked = ("predict", run, LOANS, "--by", "both", "--n", 800, "--seed", 4, "--pattern", "return(ada,B)", "--json")
    found = fine(*asked).json[0]
    drawn = found["samples"]["pattern"]["probability"]
    p = found["pattern"]["probability"]
    assert 0.0 < p < 1.0 and abs(drawn - p) < 5.5 * (p * (1 - p) / 800) ** 0.5
    assert [one["event"] for one in found["pattern"]["events"]] == ["return(ada,emma)"]


def test_a_pattern_that_nothing_matches_is_refused(run: Path):
    assert "can never match" in refused("predict", run, LOANS, "--pattern", "burn(B)")
