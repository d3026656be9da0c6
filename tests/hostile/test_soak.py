"""Thousands of answers in one process: memory and open files stay where they are."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from foretell.data import load
from foretell.evaluate.predict import predict_each
from foretell.ground.replay import replay
from foretell.lang.program import Program
from tests.train.small import exciting, small_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc"),
]

MIB = 1 << 20
PREDICTIONS, REPLAYED = 5_000, 1_000_000
GROWTH = 40 * MIB  # after the first tenth of the work, which fills caches


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def stays_flat(work: Callable[[], None], rounds: int) -> None:
    for _ in range(max(1, rounds // 10)):
        work()
    memory, files = resident(), len(os.listdir("/proc/self/fd"))
    for _ in range(rounds):
        work()
    assert resident() - memory < GROWTH, (resident() - memory) / MIB
    assert len(os.listdir("/proc/self/fd")) == files


def test_five_thousand_predictions_take_no_more_memory_than_the_first():
    data = exciting(50, 3)
    model = small_model(data)
    stays_flat(lambda: assert_all(predict_each(model, data)), PREDICTIONS // len(data))


def assert_all(found: object) -> None:
    assert found


def test_a_million_replayed_events_take_no_more_memory_than_the_first():
    program, split = Program.named("robocup"), load("robocup").train
    assert split is not None
    stays_flat(lambda: assert_all(replay(program, split)), -(-REPLAYED // split.event_count))
