"""Chunks → timelines that share one numbering. New names are sorted, so that the numbers do not depend on how the work was shared out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from foretell.data import EventData
from foretell.ground.chunk import Chunk, SequenceRows, renumbered
from foretell.ground.engine import Engine
from foretell.ground.timeline import NEVER, Grounding, Timeline


def assemble(engine: Engine, chunks: Sequence[Chunk], data: EventData) -> list[Timeline]:
    """`engine` gives the numbering of the loaded program; what it learned later is not looked at."""
    merged = _Merged(engine, chunks)
    grounding = merged.grounding(engine)
    timelines = []
    place = 0
    for chunk, numbers in zip(chunks, merged.numbers, strict=True):
        for rows in chunk.sequences:
            timelines.append(_timeline(grounding, data, place, rows, numbers))
            place += 1
    return timelines


class _Numbers:
    """From a chunk's numbers to the shared ones."""

    def __init__(self) -> None:
        self.functor = self.constant = self.fact = self.group = self.instance = np.empty(0, dtype=np.int32)


class _Merged:
    def __init__(self, engine: Engine, chunks: Sequence[Chunk]) -> None:
        symbols, made, functors = engine.symbols, engine.instances, engine.base_functors
        self.numbers = [_Numbers() for _ in chunks]
        self.functors = symbols.functors[:functors] + _new(symbols.functors[:functors], (c.functors for c in chunks))
        known = symbols.constants[: engine.base_constants]
        self.constants = known + _new(known, (chunk.constants for chunk in chunks))
        functor_ids = {name: number for number, name in enumerate(self.functors)}
        constant_ids = {name: number for number, name in enumerate(self.constants)}
        for numbers, chunk in zip(self.numbers, chunks, strict=True):
            numbers.functor = _table(functors, [functor_ids[name] for name in chunk.functors])
            numbers.constant = _table(engine.base_constants, [constant_ids[name] for name in chunk.constants])
        renamed = [
            [(int(n.functor[key[0]]), *(int(n.constant[arg]) for arg in key[1:])) for key in chunk.facts]
            for n, chunk in zip(self.numbers, chunks, strict=True)
        ]
        self.keys, tables = _merge(symbols.keys[: engine.base_facts], renamed)
        for numbers, table in zip(self.numbers, tables, strict=True):
            numbers.fact = table
        renamed = [
            [(group[0], *(int(n.constant[value]) for value in group[1:])) for group in chunk.groups]
            for n, chunk in zip(self.numbers, chunks, strict=True)
        ]
        self.groups, tables = _merge(made.groups[: engine.base_groups], renamed)
        for numbers, table in zip(self.numbers, tables, strict=True):
            numbers.group = table
        base = [(made.rule[i], made.group[i], made.head[i], made.body[i]) for i in range(engine.base_instances)]
        instances = [
            [
                (rule, int(n.group[group]), int(n.fact[head]), tuple(int(n.fact[fact]) for fact in body))
                for rule, group, head, body in chunk.instances
            ]
            for n, chunk in zip(self.numbers, chunks, strict=True)
        ]
        self.instances, tables = _merge(base, instances)
        for numbers, table in zip(self.numbers, tables, strict=True):
            numbers.instance = table

    def grounding(self, engine: Engine) -> Grounding:
        rule, group, head, body = zip(*self.instances, strict=True) if self.instances else ((), (), (), ())
        return Grounding(
            engine.program,
            tuple(self.functors),
            tuple(self.constants),
            self.keys,
            rule,
            group,
            head,
            body,
            self.groups,
            *permanent(engine),
        )


def permanent(engine: Engine) -> tuple[np.ndarray, np.ndarray]:
    """Facts and proofs that hold for ever."""
    facts = [fact for fact in range(engine.base_facts) if engine.permanent[fact]]
    return np.asarray(facts, dtype=np.int32), np.asarray(sorted(engine.permanent_proofs), dtype=np.int32)


def _new(known: list[str], others: Iterable[list[str]]) -> list[str]:
    old = set(known)
    return sorted({name for names in others for name in names} - old)


def _table(base: int, beyond: list[int]) -> np.ndarray:
    return np.concatenate([np.arange(base, dtype=np.int32), np.asarray(beyond, dtype=np.int32)])


def _merge(base: list, chunks: list[list]) -> tuple[list, list[np.ndarray]]:
    """All rows, those beyond `base` sorted and each once; and for each chunk the table of its numbers."""
    new = sorted({row for rows in chunks for row in rows})
    ids = {row: len(base) + number for number, row in enumerate(new)}
    return base + new, [_table(len(base), [ids[row] for row in rows]) for rows in chunks]


def _timeline(grounding: Grounding, data: EventData, place: int, rows: SequenceRows, numbers: _Numbers) -> Timeline:
    sequence = data.sequences[place]
    holds = renumbered(rows.holds, numbers.fact)
    proofs = renumbered(rows.proofs, numbers.instance)
    additions = renumbered(rows.additions, numbers.instance)
    removals = renumbered(rows.removals, numbers.instance)
    return Timeline(
        grounding,
        sequence.id,
        np.asarray(sequence.times)[rows.kept],
        numbers.fact[rows.events],
        rows.possible,
        holds[np.lexsort((holds[:, 1], holds[:, 0]))],
        proofs[np.lexsort((proofs[:, 1], proofs[:, 0]))],
        with_erasures(grounding, additions, removals),
        removals,
    )


def with_erasures(grounding: Grounding, additions: np.ndarray, removals: np.ndarray) -> np.ndarray:
    """(instantiation, event) → (instantiation, event, erased), sorted by (r, head, event).

    The next removal of its head erases an addition.
    """
    heads_of = np.asarray(grounding.head, dtype=np.int64)
    groups_of = np.asarray(grounding.group, dtype=np.int64)
    erased = np.full(len(additions), NEVER, dtype=np.int32)
    heads = heads_of[additions[:, 0]] if len(additions) else np.empty(0, dtype=np.int64)
    if len(removals) and len(additions):
        stride = 1 + max(int(additions[:, 1].max()), int(removals[:, 1].max()))
        ends = np.unique(heads_of[removals[:, 0]] * stride + removals[:, 1])
        place = np.searchsorted(ends, heads * stride + additions[:, 1], side="right")
        found = ends[np.minimum(place, len(ends) - 1)]
        matches = (place < len(ends)) & (found // stride == heads)
        erased[matches] = (found % stride)[matches]
    groups = groups_of[additions[:, 0]] if len(additions) else heads
    order = np.lexsort((additions[:, 0], additions[:, 1], heads, groups))
    return np.column_stack([additions, erased])[order].astype(np.int32)
