"""The replay of some sequences as plain arrays: what a worker hands back, and what is kept on disk.

Numbers below those of the freshly loaded program mean the same everywhere; what came up beyond them travels with its name.
"""

from __future__ import annotations

import json
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
    groups: list[tuple[int, ...]]
    instances: list[tuple[int, int, int, tuple[int, ...]]]  # rule, group, head, body
    sequences: list[SequenceRows]
    impossible: int = 0  # events that the program made impossible, skipped or kept as the caller wished

    def arrays(self) -> dict[str, np.ndarray]:
        """For a file: integers and one text, nothing that could be code."""
        names: dict[str, Any] = {
            "functors": self.functors,
            "constants": self.constants,
            "impossible": self.impossible,
        }
        flat = [value for instance in self.instances for value in (*instance[:3], len(instance[3]), *instance[3])]
        stored = {
            "names": np.frombuffer(json.dumps(names).encode(), dtype=np.uint8),
            "facts": _ragged(self.facts),
            "groups": _ragged(self.groups),
            "instances": np.asarray(flat, dtype=np.int32),
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
        flat = stored["instances"].tolist()
        instances, place = [], 0
        while place < len(flat):
            rule, group, head, size = flat[place : place + 4]
            instances.append((rule, group, head, tuple(flat[place + 4 : place + 4 + size])))
            place += 4 + size
        return Chunk(
            names["functors"],
            names["constants"],
            _unravel(stored["facts"]),
            _unravel(stored["groups"]),
            instances,
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
    """What these sequences used of all that the engine knows, numbered from where the loaded program ends."""
    made, keys, symbols = engine.instances, engine.symbols.keys, engine.symbols
    used = _beyond(engine.base_instances, [r[:, 0] for s in sequences for r in (s.proofs, s.additions, s.removals)])
    facts: dict[int, None] = dict.fromkeys(
        _beyond(engine.base_facts, [column for s in sequences for column in (s.events, s.holds[:, 0])])
    )
    groups: dict[int, None] = {}
    for instance in used:
        for fact in (made.head[instance], *made.body[instance]):
            if fact >= engine.base_facts:
                facts[fact] = None
        if made.group[instance] >= engine.base_groups:
            groups[made.group[instance]] = None
    functors = {keys[fact][0]: None for fact in facts if keys[fact][0] >= engine.base_functors}
    values = [value for fact in facts for value in keys[fact][1:]]
    values += [value for group in groups for value in made.groups[group][1:]]
    constants = {value: None for value in values if value >= engine.base_constants}
    functor_of = _renumbering(engine.base_functors, functors)
    constant_of = _renumbering(engine.base_constants, constants)
    fact_of = _renumbering(engine.base_facts, facts)
    group_of = _renumbering(engine.base_groups, groups)
    instance_of = _renumbering(engine.base_instances, used)

    fact_table = _lookup(len(keys), fact_of)
    instance_table = _lookup(len(made), instance_of)

    return Chunk(
        [symbols.functors[functor] for functor in functors],
        [symbols.constants[constant] for constant in constants],
        [
            (functor_of.get(keys[fact][0], keys[fact][0]), *(constant_of.get(value, value) for value in keys[fact][1:]))
            for fact in facts
        ],
        [
            (made.groups[group][0], *(constant_of.get(value, value) for value in made.groups[group][1:]))
            for group in groups
        ],
        [
            (
                made.rule[one],
                group_of.get(made.group[one], made.group[one]),
                fact_of.get(made.head[one], made.head[one]),
                tuple(fact_of.get(fact, fact) for fact in made.body[one]),
            )
            for one in used
        ],
        [
            SequenceRows(
                rows.kept,
                fact_table[rows.events],
                rows.possible,
                renumbered(rows.holds, fact_table),
                *(renumbered(r, instance_table) for r in (rows.proofs, rows.additions, rows.removals)),
            )
            for rows in sequences
        ],
        impossible,
    )


def _beyond(base: int, columns: list[np.ndarray]) -> dict[int, None]:
    if not columns:
        return {}
    return dict.fromkeys(int(one) for one in np.unique(np.concatenate(columns)) if one >= base)


def _renumbering(base: int, used: dict[int, None]) -> dict[int, int]:
    return {old: base + place for place, old in enumerate(used)}


def _lookup(count: int, numbers: dict[int, int]) -> np.ndarray:
    table = np.arange(max(count, 1), dtype=np.int32)
    table[list(numbers)] = list(numbers.values())
    return table


def renumbered(rows: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The same rows, their first column looked up in a table."""
    out = rows.copy()
    out[:, 0] = table[rows[:, 0]]
    return out
