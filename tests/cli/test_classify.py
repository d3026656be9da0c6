"""`foretell train --task classify`: properties of sequences and of events, scored, predicted, and refused where they are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.models.task_heads import Classifier
from foretell.train.config import ClassifyOptions
from foretell.train.run import RunFolder
from tests.cli.invoking import fine, refused
from tests.cli.test_predict import piped
from tests.train.labelled import folder, rows, write

SMALL = "--dim", 6, "--layers", 1, "--epochs", 25, "--lr", 0.02, "--batch", 8, "--quiet"


@pytest.fixture(scope="module")
def moods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("data") / "moods")


@pytest.fixture(scope="module")
def kinds(moods: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of sequences."""
    run = tmp_path_factory.mktemp("runs") / "kinds"
    fine("train", "--data", moods, "--task", "classify", "--label", "kind", *SMALL, "--out", run)
    return run


def test_a_run_of_classification_explains_itself(kinds: Path):
    run = RunFolder.open(kinds)
    assert run.config().task == ClassifyOptions(label="kind")
    model = run.network()
    assert isinstance(model, Classifier) and model.labels == ("busy", "calm") and model.of == "sequences"
    assert model.counts.sum() == 40


def test_a_property_of_sequences_is_learned_and_beats_the_majority(kinds: Path):
    found = fine("evaluate", kinds, "--json").json
    assert found["of"] == "sequences" and found["labels"] == found["sequences"] == 24 and found["unlabelled"] == 0
    assert found["scores"]["accuracy"]["value"] > found["majority"]["accuracy"]["value"] + 0.2
    assert found["scores"]["log_loss"]["value"] < found["majority"]["log_loss"]["value"]
    assert found["scores"]["macro_f1"]["value"] > found["majority"]["macro_f1"]["value"]
    assert found["majority_label"] in found["classes"] == ["busy", "calm"]
    shown = fine("evaluate", kinds).out
    assert "macro-F1" in shown and "majority: always" in shown


@pytest.mark.parametrize("history", ["two-sided", "causal"])
def test_a_property_of_events_is_learned(moods: Path, tmp_path: Path, history: str):
    run = tmp_path / "run"
    summary = fine(
        "train", "--data", moods, "--label", "mood", "--context", history, *SMALL, "--out", run, "--json"
    ).json
    assert (summary["task"], summary["of"], summary["labels"]) == ("classify", "events", ["down", "up"])
    found = fine("evaluate", run, "--json").json
    assert found["history"] == history and found["unlabelled"] > 0
    assert found["scores"]["accuracy"]["value"] > 0.95  # the event's own type tells
    rows = fine("predict", run, "--json").json
    assert all(len(row["labels"]) == len(row["probabilities"]) for row in rows)


def test_labels_are_predicted_for_data_that_have_none(kinds: Path, tmp_path: Path):
    lines = [{key: line[key] for key in ("id", "times", "events", "t_end")} for line in rows(3, 9)]
    path = write(tmp_path / "new.jsonl", lines)
    found = fine("predict", kinds, path, "--json").json
    assert [row["sequence"] for row in found] == ["s0", "s1", "s2"]
    for row in found:
        assert sum(row["probabilities"].values()) == pytest.approx(1.0)
        assert row["label"] == max(row["probabilities"], key=row["probabilities"].__getitem__)
    (alone,) = fine("predict", kinds, path, "--sequence", "s1", "--json").json
    assert alone["label"] == found[1]["label"] and alone["probabilities"] == pytest.approx(found[1]["probabilities"])
    assert "probability" in fine("predict", kinds, path).out
    assert "nothing to score" in refused("evaluate", kinds, path)
    through_a_pipe = piped(path.read_text(), "predict", kinds, "-", "--json").json
    assert [row["label"] for row in through_a_pipe] == [row["label"] for row in found]


def test_a_classifier_starts_from_a_pretrained_encoder(moods: Path, tmp_path: Path):
    fine("pretrain", "--data", moods, "--dim", 6, "--layers", 1, "--epochs", 2, "--quiet", "--out", tmp_path / "start")
    options = "--data", moods, "--init", tmp_path / "start", "--label", "kind", "--epochs", 2, "--quiet"
    found = fine("train", *options, "--out", tmp_path / "run", "--json").json
    assert found["init"]["taken"] == ["fine", "attention"]
    fine("evaluate", tmp_path / "run", "--json")
    embedded = fine("embed", tmp_path / "run", "--json").json
    assert len(embedded) == 24


def test_labels_that_cannot_be_used_are_refused_and_nothing_is_left(moods: Path, tmp_path: Path):
    run = tmp_path / "run"
    base = "train", "--data", moods, "--task", "classify", "--out", run
    assert "Give --label, a key of the data" in refused(*base)
    assert "no sequence has this key; did you mean `kind`?" in refused(*base, "--label", "kinds")
    assert "task.kind = 'clasify'" in refused("train", "--data", moods, "--task", "clasify", "--label", "kind")
    assert 'task.history = \'both\': expected "causal" or "two-sided"' in refused(
        *base, "--label", "kind", "--context", "both"
    )
    message = refused(*base, "--label", "kind", "--model", "hawkes")
    assert "classification is for A-NHP" in message
    assert not run.exists()


@pytest.mark.parametrize("command", [("sample", "--horizon", 1), ("intensity", "--at", 1), ("params",)])
def test_other_commands_say_what_a_classifier_is_for(command: tuple[object, ...], kinds: Path):
    assert "A-NHP, classifier, which has no intensities" in refused(command[0], kinds, *command[1:])


def test_questions_about_the_future_are_refused(kinds: Path):
    assert "leave it out" in refused("evaluate", kinds, "--floors")
    assert "--points, --no-times:" in refused("evaluate", kinds, "--points", 3, "--no-times")
    assert "--from, --by:" in refused("predict", kinds, "--from", 3, "--by", "samples")
