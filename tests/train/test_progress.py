"""What is shown while a model is trained: the place in all epochs, the time that is left, and the best score so far."""

import io
import sys

import pytest

import foretell as ft
from foretell.durations import short_duration
from foretell.train import progress_bar
from foretell.train.progress import TrainingProgress
from foretell.train.progress_bar import Bar, LineBar, NotebookBar, training_bar
from tests.samples import random_data


class BarLog(Bar):
    def __init__(self):
        self.moves = []

    def move(self, words, done, of, left=None):
        self.moves.append((words, done, of, left))


def trained(**how):
    data = random_data(0, [3, 4, 5, 3, 4, 5])
    return ft.fit(ft.NHP(data.vocabulary, dim=4), data, dev=data, epochs=2, batch=2, **how)


def test_the_bar_goes_through_all_epochs_and_says_the_best_score_so_far():
    log = BarLog()
    found = trained(callbacks=[TrainingProgress(log, epochs=2)])
    steps = log.moves[1:]
    assert [(done, of) for _, done, of, _ in steps] == [(place, 6) for place in range(1, 7)]
    assert steps[0][0] == "epoch 1 of 2"
    assert steps[3][0] == f"epoch 2 of 2, best dev {found.records[0]['dev']:.4f}"


def test_the_time_that_is_left_is_that_of_the_whole_run(monkeypatch):
    log, now = BarLog(), [0.0]
    monkeypatch.setattr("foretell.train.progress.time.monotonic", lambda: now[0])
    shown = TrainingProgress(log, epochs=10, patience=3)
    for step in range(1, 5):
        now[0] += 60.0
        shown.on_step(1, step, 4)
    assert [one[3] for one in log.moves] == [
        "",
        "",
        "at most 38 min left",
        "at most 37 min left",
        "at most 36 min left",
    ]


def test_a_worse_epoch_does_not_change_the_best_score():
    log = BarLog()
    shown = TrainingProgress(log, epochs=3)
    shown.on_epoch({"epoch": 1, "dev": -1.0, "train": -2.0, "best_epoch": 1})
    shown.on_epoch({"epoch": 2, "dev": -3.0, "train": -2.0, "best_epoch": 1})
    shown.on_step(3, 1, 4)
    assert log.moves[-1][0] == "epoch 3 of 3, best dev -1.0000"


def test_nothing_is_shown_where_stderr_is_no_terminal_unless_it_is_asked_for(capsys, monkeypatch):
    monkeypatch.setattr(progress_bar, "PLAIN_LINE_EVERY", 0.0)
    trained()
    assert capsys.readouterr().err == ""
    trained(progress=True)
    assert "epoch 2 of 2, best dev" in capsys.readouterr().err


@pytest.mark.parametrize(("progress", "shows"), [(None, True), (False, False)])
def test_a_terminal_has_a_bar_that_can_be_turned_off(monkeypatch, progress, shows):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    trained(progress=progress)
    assert ("best dev" in terminal.getvalue()) == shows


def test_a_notebook_has_one_element_that_is_drawn_anew(monkeypatch):
    monkeypatch.setattr(progress_bar, "NOTEBOOK_EVERY", 0.0)
    drawn = []

    class Handle:
        def update(self, shown):
            drawn.append(shown._repr_html_())

    monkeypatch.setattr(progress_bar, "notebook_display", lambda: lambda shown, display_id: Handle())
    found = trained()
    assert len(drawn) == 1 + 6 + 1  # before, at every step, and at the end
    assert f"2 epochs, best dev {found.best:.4f}" in drawn[-1] and "<progress" in drawn[-1]
    with training_bar(None) as shown:
        assert isinstance(shown, NotebookBar)
        shown.keep("<b>")
        assert "&lt;b&gt;" in drawn[-1] and "<b>" in repr(shown)


def test_plain_lines_come_now_and_then(capsys, monkeypatch):
    shown = LineBar()
    shown.move("epoch 1", 1, 10)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress_bar, "PLAIN_LINE_EVERY", 0.0)
    shown.move("epoch 1", 2, 10, "5 s left")
    assert capsys.readouterr().err == "epoch 1 2/10, 5 s left\n"


@pytest.mark.parametrize(
    ("seconds", "said"), [(4.4, "4 s"), (100, "2 min"), (7000, "1 h 57 min"), (200_000, "2 d 8 h")]
)
def test_a_duration_is_said_in_two_units_at_most(seconds, said):
    assert short_duration(seconds) == said
