"""The replay of some sequences as plain arrays: what a worker hands back, and what is kept on disk.

Numbers below those of the freshly loaded program mean the same everywhere; what came up beyond them travels with its name, in the order
in which it came up, so that an engine which adopts chunk after chunk numbers everything as if it had replayed all sequences itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.ground.engine import Engine
from foretell.ground.symbols import FactKey


@dataclass(frozen=True, eq=False)
class SequenceRows:
    """One sequence, in the numbering of its chunk."""

    kept: np.ndarray  # int32: places, among the sequence's events, of those that were applied
    events: np.ndarray  # int32
    possible: np.ndarray  # bool
    holds: np.ndarray  # int32 [·, 3]
    proofs: np.ndarray  # int32 [·, 3]
    additions: np.ndarray  # int32 [·, 2]: instantiation, event
    removals: np.ndarray  # int32 [·, 2]


ARRAYS = ("kept", "events", "possible", "holds", "proofs", "additions", "removals")


@dataclass(frozen=True, eq=False)
class Chunk:
    functors: list[str]
    constants: list[str]
    facts: list[FactKey]
    instances: list[tuple[int, ...]]  # rule, body
    sequences: list[SequenceRows]
    impossible: int = 0  # events that the program made impossible, skipped or kept as the caller wished

    def arrays(self) -> dict[str, np.ndarray]:
        """For a file: integers and one text, nothing that could be code."""
        names: dict[str, Any] = {
            "functors": self.functors,
            "constants": self.constants,
            "impossible": self.impossible,
        }
        stored = {
            "names": np.frombuffer(json.dumps(names).encode(), dtype=np.uint8),
            "facts": _ragged(self.facts),
            "instances": _ragged(self.instances),
        }
        for name in ARRAYS:
            parts = [getattr(sequence, name) for sequence in self.sequences]
            stored[f"{name}.sizes"] = np.asarray([len(part) for part in parts], dtype=np.int64)
            stored[name] = np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)
        return stored

    @staticmethod
    def from_arrays(stored: dict[str, np.ndarray]) -> Chunk:
        names = json.loads(stored["names"].tobytes())
        columns = {}
        for name in ARRAYS:
            cuts = np.cumsum(stored[f"{name}.sizes"])[:-1]
            columns[name] = np.split(stored[name], cuts) if len(stored[f"{name}.sizes"]) else []
        sequences = [SequenceRows(*parts) for parts in zip(*(columns[name] for name in ARRAYS), strict=True)]
        return Chunk(
            names["functors"],
            names["constants"],
            _unravel(stored["facts"]),
            _unravel(stored["instances"]),
            sequences,
            names["impossible"],
        )


def _ragged(rows: list[tuple[int, ...]]) -> np.ndarray:
    return np.asarray([value for row in rows for value in (len(row), *row)], dtype=np.int32)


def _unravel(stored: np.ndarray) -> list[tuple[int, ...]]:
    flat, rows, place = stored.tolist(), [], 0
    while place < len(flat):
        rows.append(tuple(flat[place + 1 : place + 1 + flat[place]]))
        place += 1 + flat[place]
    return rows


def make_chunk(engine: Engine, sequences: list[SequenceRows], impossible: int) -> Chunk:
    """All that came up beyond the loaded program, in the order in which it did; the engine replayed these sequences and no others."""
    symbols, made = engine.symbols, engine.instances
    beyond = slice(engine.base_instances, None)
    return Chunk(
        symbols.functors[engine.base_functors :],
        symbols.constants[engine.base_constants :],
        symbols.keys[engine.base_facts :],
        [(rule, *body) for rule, body in zip(made.rule[beyond], made.body[beyond], strict=True)],
        sequences,
        impossible,
    )


def adopt(engine: Engine, chunk: Chunk) -> list[SequenceRows]:
    """The sequences in the engine's own numbering, which goes on with what is new to it.

    One chunk after another, that is the numbering that all their sequences would have been given in turn.
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
    made = _table(engine.base_instances, found)
    return [
        SequenceRows(
            rows.kept,
            fact[rows.events],
            rows.possible,
            _renumbered(rows.holds, fact),
            *(_renumbered(one, made) for one in (rows.proofs, rows.additions, rows.removals)),
        )
        for rows in chunk.sequences
    ]


def _table(base: int, beyond: Iterable[int]) -> np.ndarray:
    """From a chunk's numbers to the engine's: those of the loaded program are the same."""
    return np.concatenate([np.arange(base, dtype=np.int32), np.fromiter(beyond, dtype=np.int32)])


def _renumbered(rows: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The same rows, their first column looked up in a table."""
    return np.column_stack([table[rows[:, 0]], rows[:, 1:]])
