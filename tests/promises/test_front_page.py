"""The front page: its lines of Python run, it is short, and no page calls missing what is there."""

from __future__ import annotations

import re

import pytest
import typer

import foretell as ft
from foretell.cli.main import app
from foretell.models.registry import model_specs
from tests.promises.test_pages import PAGES, ROOT, fenced, text_of

README = ROOT / "README.md"
TWO_SCREENS = 100  # lines
MISSING = re.compile(r"\b(?:not yet|not supported|not implemented)\b[:,]?[^.]*", re.IGNORECASE)
# What pages may call it, and what is there if it exists.
CAPABILITIES = {
    r"devices|gpus|several processes": "foretell train --processes",
    r"machines|clusters": "foretell evaluate --on",
    r"neural models": "foretell train --model",
    r"carried|carry": "foretell train --carry-events",
    r"covariates|columns": "foretell train --covariates",
    r"down-?sampling": "foretell evaluate --downsample",
    r"tensorboard|loggers": "foretell train --log",
    r"pretraining": "foretell pretrain",
    r"classif": "foretell train --task",
}


def options() -> set[str]:
    """Every command, and every command with each of its options."""
    group = typer.main.get_command(app)
    found = set()
    for name, command in getattr(group, "commands").items():  # noqa: B009
        found.add(f"foretell {name}")
        found |= {f"foretell {name} {opt}" for param in command.params for opt in param.opts}
    return found


def contradicted(text: str, there: set[str]) -> list[str]:
    """Sentences that call missing what exists: a command, a model, a public name, or one of the capabilities."""
    names = {name.rpartition(" ")[2] for name in there} | set(ft.__all__) | {spec.title for spec in model_specs()}
    wrong = []
    for sentence in MISSING.findall(text):
        quoted = {word for code in re.findall(r"`([^`]+)`", sentence) for word in code.split()}
        titles = {word for word in re.findall(r"[\w-]+", sentence) if word in names and not word.islower()}
        known = [name for pattern, name in CAPABILITIES.items() if re.search(pattern, sentence, re.IGNORECASE)]
        if quoted & names or titles or any(name in there for name in known):
            wrong.append(sentence)
    return wrong


def ten_lines() -> str:
    return next(body for body in fenced(README, "python") if "ft.evaluate" in body)


def test_the_first_lines_of_python_are_ten_at_the_most():
    assert len([line for line in ten_lines().splitlines() if line.strip()]) <= 10


@pytest.mark.slow
def test_the_first_lines_of_python_print_what_is_shown(capsys: pytest.CaptureFixture[str]):
    exec(ten_lines(), {})
    score, guess = capsys.readouterr().out.strip().splitlines()
    shown_score, shown_guess = next(body for body in fenced(README, "text")).strip().splitlines()
    assert float(score.split()[0]) == pytest.approx(float(shown_score.split()[0]), abs=0.05)
    assert guess.split("(")[0].split()[:2] == shown_guess.split("(")[0].split()[:2]


def test_the_documentation_is_two_screens_away_at_the_most():
    before, _, after = README.read_text(encoding="utf-8").partition("\n## Documentation\n")
    assert after and len(before.splitlines()) <= TWO_SCREENS


def test_no_page_calls_missing_what_is_there():
    there = options()
    wrong = {str(page.relative_to(ROOT)): contradicted(text_of(page), there) for page in PAGES}
    wrong.pop("CHANGELOG.md")  # tells of the past
    assert not any(wrong.values()), {page: sentences for page, sentences in wrong.items() if sentences}


def test_such_sentences_would_be_found():
    there = options()
    assert all(name in there for name in CAPABILITIES.values())
    for sentence in (
        "Not yet: other neural models.",
        "Not yet: several devices; floors.",
        "`foretell tune` is not implemented: `foretell tune`.",
        "not yet S2P2",
        "Not yet: state that is carried from window to window.",
    ):
        assert contradicted(sentence, there), sentence
    assert not contradicted("Not yet: prediction among millions of possible events.", there)
