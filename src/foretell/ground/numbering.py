"""Translates the numbers of chunks to those of an engine, as if the engine had replayed all sequences itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from foretell.data import EventData
from foretell.ground.chunk import Chunk, SequenceRows, grounding_of, timeline_of
from foretell.ground.engine import Engine
from foretell.ground.expiry import lifetimes_of
from foretell.ground.timeline import Grounding, Timeline


@dataclass(frozen=True, eq=False)
class ChunkNumbers:
    """The numbers that an engine gave to the facts and rule instances of a chunk. Numbers of the loaded program need no translation."""

    base_facts: int
    facts: np.ndarray  # int32: by position in the chunk
    base_instances: int
    instances: np.ndarray  # int32: by position in the chunk

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """Return two arrays from a chunk's numbers to the engine's: for facts, and for rule instances."""
        return _table(self.base_facts, self.facts), _table(self.base_instances, self.instances)


def adopt_numbers(engine: Engine, chunk: Chunk) -> ChunkNumbers:
    """Register a chunk's facts and rule instances with the engine. New ones get the engine's next numbers.

    Adopting chunks in order gives the same numbers as replaying all their sequences in order.
    """
    symbols, keys = engine.symbols, engine.keys
    functor = _table(engine.base_functors, (symbols.functor(name) for name in chunk.functors))
    for number in functor[engine.base_functors :].tolist():
        engine.wiring.know(number)
    constant = _table(engine.base_constants, (symbols.constant(name) for name in chunk.constants))
    new_facts = ((int(functor[key[0]]), *constant[list(key[1:])].tolist()) for key in chunk.facts)
    fact = _table(engine.base_facts, (engine.fact(key) for key in new_facts))

    def instance(number: int, body: tuple[int, ...]) -> int:
        rule = engine.wiring.rules[number]
        binding = list(rule.template)
        for pattern, one in zip(rule.positives, body, strict=True):
            for slot, value in zip(pattern.slots, keys[one][1:], strict=True):
                binding[slot] = value
        engine.steps = engine.limits.steps
        return engine.instance(rule, body, binding)

    found = (instance(rule, tuple(fact[body].tolist())) for rule, *body in chunk.instances)
    made = np.fromiter(found, dtype=np.int32)
    return ChunkNumbers(engine.base_facts, fact[engine.base_facts :], engine.base_instances, made)


def renumbered(rows: SequenceRows, fact: np.ndarray, made: np.ndarray) -> SequenceRows:
    """Return a chunk's sequence with facts and rule instances renumbered by two tables."""
    return SequenceRows(
        rows.kept,
        fact[rows.events],
        rows.possible,
        holds=_renumbered(rows.holds, fact),
        proofs=_renumbered(rows.proofs, made),
        additions=_renumbered(rows.additions, made),
        removals=_renumbered(rows.removals, made),
        part_holds=_renumbered(rows.part_holds, fact),
        part_proofs=_renumbered(rows.part_proofs, made),
        expired=rows.expired,
        expiry_times=rows.expiry_times,
    )


def adopt_chunks(
    engine: Engine, chunks: Sequence[Chunk], data: EventData, grounding: Grounding | None = None
) -> list[Timeline]:
    """Return the timelines of all sequences in the engine's numbering. `grounding` is that of the engine."""
    tables = [(chunk, *adopt_numbers(engine, chunk).tables()) for chunk in chunks]
    rows = [renumbered(one, fact, made) for chunk, fact, made in tables for one in chunk.sequences]
    grounding = grounding_of(engine) if grounding is None else grounding
    lifetimes = lifetimes_of(engine.program, data.clock)
    return [timeline_of(grounding, one.id, one.times, found, lifetimes) for one, found in zip(data, rows, strict=True)]


def _table(base: int, beyond: Iterable[int]) -> np.ndarray:
    """Return an array from a chunk's numbers to the engine's. The first `base` numbers stay the same."""
    return np.concatenate([np.arange(base, dtype=np.int32), np.fromiter(beyond, dtype=np.int32)])


def _renumbered(rows: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return the rows with their first column looked up in a table."""
    return np.column_stack([table[rows[:, 0]], rows[:, 1:]])
