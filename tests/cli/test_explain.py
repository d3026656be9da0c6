"""`foretell explain`: tables, documented JSON, a picture, and questions that have no answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.invoking import fine, foretell, refused

PROGRAMS = Path(__file__).resolve().parents[2] / "programs"
LIBRARY, LOANS = PROGRAMS / "library.ndtt", PROGRAMS / "library" / "example.jsonl"
ASK = (LOANS, "--sequence", "may")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained A-NDTT."""
    folder = tmp_path_factory.mktemp("explain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORETELL_CACHE", str(folder / "cache"))
        options = ("--dim", 4, "--layers", 2, "--epochs", 2, "--quiet")
        fine("train", "--model", "andtt", "--program", LIBRARY, "--data", LOANS, "--out", folder / "run", *options)
    return folder / "run"


def test_json_has_the_documented_shape(run: Path):
    (found,) = fine("explain", run, *ASK, "--at", 10.5, "--event", "return(cleo,dune)", "--json").json
    assert found.keys() == {
        "sequence", "time", "index", "event", "intensity", "probability", "total", "possible", "highest", "layers", "facts",
    }  # fmt: skip
    assert (found["sequence"], found["time"], found["index"], found["layers"]) == ("may", 10.5, 7, 2)
    assert found["event"] == "return(cleo,dune)" and 0.0 < found["probability"] < 1.0
    assert [one.keys() for one in found["highest"]] == [{"event", "intensity"}] * 5
    assert {one["fact"] for one in found["facts"]} == {
        "return(cleo,dune)",
        "reader(cleo)",
        "book(dune)",
        "lent(cleo,dune)",
    }
    for fact in found["facts"]:
        assert fact.keys() == {"fact", "dim", "contributions"} and fact["dim"] == 4
        for one in fact["contributions"]:
            assert one.keys() == {
                "kind", "rule", "binding", "place", "text", "share", "norms", "effect", "proofs", "proofs_not_shown", "attention",
            }  # fmt: skip
            assert one["kind"] in ("own", "deduce", "add") and len(one["norms"]) == 3
            for proof in one["proofs"]:
                assert proof.keys() == {"share", "constant", "body"}
            for layer in one["attention"]:
                assert layer.keys() == {"layer", "kept", "additions", "not_shown", "not_shown_weight"}
                weights = [past["weight"] for past in layer["additions"]]
                assert layer["kept"] + layer["not_shown_weight"] + sum(weights) == pytest.approx(1.0)
                for past in layer["additions"]:
                    assert past.keys() == {"event", "event_index", "time", "ago", "conditions", "weight"}


def test_it_agrees_with_foretell_intensity(run: Path):
    (found,) = fine("explain", run, *ASK, "--at", 10.5, "--top", 0, "--json").json
    (asked,) = fine("intensity", run, *ASK, "--at", 10.5, "--json").json
    highest = {one["event"]: one["intensity"] for one in found["highest"]}
    assert highest == pytest.approx(asked["queries"][0]["intensities"])
    assert found["event"] == max(highest, key=lambda name: highest[name]) == next(iter(highest))


def test_tables_say_what_is_possible_why_and_what_is_attended_to(run: Path):
    shown = fine("explain", run, *ASK, "--at", 10.5, "--event", "return(cleo,dune)", "--top", 2).out
    for words in (
        "sequence may, just before 10.5: 6 events seen, after borrow(cleo,dune) at 10",
        "more possible events; total intensity",
        "why return(cleo,dune): what each rule contributes",
        "lent(R, B) <- borrow(R, B).",
        "which past events are attended to",
        "more heads with smaller effects",
    ):
        assert words in shown, words


def test_a_picture_is_written_and_with_json_only_json_is_printed(run: Path, tmp_path: Path):
    pytest.importorskip("matplotlib")
    outcome = fine("explain", run, *ASK, "--at", 10.5, "--plot", tmp_path / "why.svg", "--json")
    assert outcome.json and (tmp_path / "why.svg").stat().st_size > 5000
    assert "picture: " in fine("explain", run, *ASK, "--at", 10.5, "--plot", tmp_path / "why.png").out
    assert (tmp_path / "why.png").stat().st_size > 5000


def test_a_picture_that_cannot_be_written_leaves_nothing_on_stdout_and_a_folder_is_made(run: Path, tmp_path: Path):
    pytest.importorskip("matplotlib")
    (tmp_path / "file").write_text("")
    ask = ("explain", run, *ASK, "--at", 10.5, "--plot")
    assert "cannot be written" in refused(*ask, tmp_path / "file" / "why.png")
    fine(*ask, tmp_path / "new" / "why.png")
    assert (tmp_path / "new" / "why.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--at", "nan"], "--at nan: expected a time from 0 on"),
        (["--at", "-1"], "--at -1: expected a time from 0 on"),
        (["--at", "32"], "sequence may was observed until 31 only"),
        (["--at", "9.5", "--event", "borrow(ada,dune)"], "`not waits(_,dune)` fails: `waits(cleo,dune)` is true"),
        (["--at", "9.5", "--event", "borow(ada,dune)"], "did you mean `borrow`?"),
        (["--at", "9.5", "--event", "lent(ada,dune)"], "`lent/2` is not an event"),
        (["--at", "9.5", "--plot", "why.gif"], "why.gif: expected a name that ends in .png, .svg, .pdf"),
    ],
)
def test_questions_without_an_answer_are_refused(more: list[str], message: str, run: Path):
    assert message in refused("explain", run, *ASK, *more)


def test_one_sequence_is_explained(run: Path):
    assert "there are 2 sequences (may, june); say which one with --sequence" in refused(
        "explain", run, LOANS, "--at", 1
    )
    assert "no sequence 'july'" in refused("explain", run, LOANS, "--at", 1, "--sequence", "july")
    assert fine("explain", run, LOANS, "--at", 5, "--sequence", "1", "--json").json[0]["sequence"] == "june"


@pytest.mark.parametrize("kind", ["anhp", "hawkes", "poisson"])
def test_without_rules_past_events_are_left_out(kind: str, trained: dict[str, Path], tmp_path: Path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"times": [1.0, 1.5, 2.0, 3.0, 4.5, 8.0], "types": [0, 1, 0, 0, 1, 0], "t_end": 9.0}')
    ask = ("explain", trained[kind], log, "--at", 5)
    (found,) = fine(*ask, "--top", 2, "--json").json
    assert found.keys() == {
        "sequence", "time", "index", "event", "intensity", "probability", "total", "possible", "highest",
        "past", "past_not_shown", "older", "older_effect",
    }  # fmt: skip
    assert [one.keys() for one in found["past"]] == [
        {"event", "event_index", "time", "ago", "effect", "total_effect"}
    ] * 2
    assert (found["index"], found["past_not_shown"], found["older"]) == (6, 3, 0) and found["older_effect"] is None
    assert (abs(found["past"][0]["effect"]) > 1e-6) == (kind != "poisson")
    shown = fine(*ask, "--top", 2, "--past", 3).out
    for words in (
        "possible events",
        f"why {found['event']}: which past events matter",
        "older event",
        "and 1 more past event",
    ):
        assert words in shown, words


def test_a_picture_of_past_events(trained: dict[str, Path], tmp_path: Path):
    pytest.importorskip("matplotlib")
    fine("explain", trained["anhp"], "--at", 5, "--sequence", 0, "--plot", tmp_path / "why.svg")
    assert (tmp_path / "why.svg").stat().st_size > 5000
    assert "nothing to draw" in refused(
        "explain", trained["anhp"], "--at", 0, "--sequence", 0, "--plot", tmp_path / "none.svg"
    )
    assert "is not one of the" in refused("explain", trained["anhp"], "--at", 5, "--sequence", 0, "--event", "nothing")


def test_a_time_must_be_given(run: Path):
    assert foretell("explain", run, *ASK).code == 2
