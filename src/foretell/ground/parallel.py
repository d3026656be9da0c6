"""Chunks replayed side by side in processes of their own, which have the program once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TYPE_CHECKING

from foretell.data import EventData
from foretell.ground.chunk import Chunk
from foretell.ground.engine import Engine
from foretell.lang.program import Program

if TYPE_CHECKING:
    from foretell.ground.replay import ReplayOptions

_program: Program | None = None


def in_processes(
    program: Program, parts: list[tuple[int, EventData]], options: ReplayOptions, workers: int
) -> Iterator[tuple[int, Chunk]]:
    """(place, chunk) as they are done. A mistake in one stops the others."""
    context = multiprocessing.get_context("spawn")  # a forked copy of a process with threads may hang
    with ProcessPoolExecutor(min(workers, len(parts)), context, _load, (program,)) as pool:
        futures = {pool.submit(_replay, data, options): place for place, data in parts}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            for future in futures:
                future.cancel()


def _load(program: Program) -> None:
    global _program
    _program = program


def _replay(data: EventData, options: ReplayOptions) -> Chunk:
    from foretell.ground.replay import replay_chunk

    assert _program is not None
    return replay_chunk(Engine(_program, options.limits), data, options)
