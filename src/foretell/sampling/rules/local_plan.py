"""A state and some facts → how their embeddings are deduced from one another, level by level: rows of tables, no numbers yet.

A slot is a fact that is needed. Proofs that apply one block to one slot share the product. Where a slot has several proofs by one `r`
and the exponent is not 1, these are targets of their own behind the level's slots, and are pooled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from foretell.plan.int_arrays import joined, offsets
from foretell.sampling.rules.states import DatabaseState, DatabaseStates

Ints = np.ndarray


@dataclass(frozen=True)
class DeductionRows:
    """What one `r` does to the conditions of a proof."""

    vector: int  # row in the table of vectors
    blocks: tuple[int, ...]  # rows in the table of blocks, one for each embedded condition
    beta: float


@dataclass(frozen=True, eq=False)
class Level:
    """Slots `[start, stop)`."""

    start: int
    stop: int
    block: Ints  # [N]: of each product
    input: Ints  # [N]: slots of lower levels
    sum_target: Ints  # [X]: which targets products are part of
    sum_product: Ints  # [X]
    vector_target: Ints  # [V]
    vector: Ints  # [V]
    pool: Ints  # [pooled]: of each target behind the slots
    pool_slot: Ints  # [pools]: places among the level's slots
    pool_beta: np.ndarray  # float64 [pools]

    @property
    def slots(self) -> int:
        return self.stop - self.start

    @property
    def targets(self) -> int:
        return self.slots + len(self.pool)


@dataclass(frozen=True, eq=False)
class LocalPlan:
    fact: Ints  # [S]
    levels: tuple[Level, ...]
    row: dict[int, int]  # of each fact


def make_local_plan(
    states: DatabaseStates, state: DatabaseState, roots: Iterable[int], deduction: Callable[[int], DeductionRows]
) -> LocalPlan:
    """Of what `roots` need in a state; `deduction` says what the `r` of a group uses."""
    needed = _closed(states, state, roots)
    level = _levels(states, state, needed)
    order = sorted(needed, key=lambda fact: (level[fact], fact))
    row = {fact: number for number, fact in enumerate(order)}
    starts = np.searchsorted([level[fact] for fact in order], np.arange(max(level.values(), default=-1) + 2))
    grounding = states.grounding
    levels = []
    for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        products: dict[tuple[int, int], int] = {}
        sums: list[tuple[int, int]] = []
        vectors: list[tuple[int, int]] = []
        pool: list[int] = []
        pool_slot: list[int] = []
        pool_beta: list[float] = []
        for slot in range(start, stop):
            by_group: dict[int, list[tuple[int, ...]]] = {}
            for instance, body in needed[order[slot]]:
                by_group.setdefault(grounding.group[instance], []).append(body)
            for group, bodies in by_group.items():
                used = deduction(group)
                pooled = len(bodies) > 1 and used.beta != 1.0
                if pooled:
                    pool_slot.append(slot - start)
                    pool_beta.append(used.beta)
                for body in bodies:
                    target = slot - start
                    if pooled:
                        target = stop - start + len(pool)
                        pool.append(len(pool_slot) - 1)
                    vectors.append((target, used.vector))
                    for block, fact in zip(used.blocks, body, strict=True):
                        number = products.setdefault((block, row[fact]), len(products))
                        sums.append((target, number))
        levels.append(
            Level(
                start,
                stop,
                *_columns(list(products)),
                *_columns(sorted(sums)),
                *_columns(vectors),
                np.asarray(pool, dtype=np.int64),
                np.asarray(pool_slot, dtype=np.int64),
                np.asarray(pool_beta, dtype=np.float64),
            )
        )
    return LocalPlan(np.asarray(order, dtype=np.int64), tuple(levels), row)


def side_by_side(parts: Sequence[LocalPlan]) -> tuple[LocalPlan, list[Ints]]:
    """One of all of them, and where each one's slots are in it."""
    depth = max((len(part.levels) for part in parts), default=0)
    rows = [np.empty(len(part.fact), dtype=np.int64) for part in parts]
    fact = np.empty(sum(len(part.fact) for part in parts), dtype=np.int64)
    levels: list[Level] = []
    start = 0
    for number in range(depth):
        mine = [(place, part.levels[number]) for place, part in enumerate(parts) if number < len(part.levels)]
        slots, products = offsets([one.slots for _, one in mine]), offsets([len(one.block) for _, one in mine])
        pooled, pools = offsets([len(one.pool) for _, one in mine]), offsets([len(one.pool_slot) for _, one in mine])
        stop = start + int(slots[-1])
        for (place, one), shift in zip(mine, slots.tolist(), strict=False):
            own = np.arange(one.slots) + start + shift
            rows[place][one.start : one.stop] = own
            fact[own] = parts[place].fact[one.start : one.stop]

        def target(one: Level, of: Ints, k: int, slots: Ints = slots, pooled: Ints = pooled) -> Ints:
            return np.where(of < one.slots, of + slots[k], of - one.slots + slots[-1] + pooled[k])

        levels.append(
            Level(
                start,
                stop,
                joined([one.block for _, one in mine]),
                joined([rows[place][one.input] for place, one in mine]),
                joined([target(one, one.sum_target, k) for k, (_, one) in enumerate(mine)]),
                joined([one.sum_product + products[k] for k, (_, one) in enumerate(mine)]),
                joined([target(one, one.vector_target, k) for k, (_, one) in enumerate(mine)]),
                joined([one.vector for _, one in mine]),
                joined([one.pool + pools[k] for k, (_, one) in enumerate(mine)]),
                joined([one.pool_slot + slots[k] for k, (_, one) in enumerate(mine)]),
                np.concatenate([np.zeros(0), *(one.pool_beta for _, one in mine)]),
            )
        )
        start = stop
    return LocalPlan(fact, tuple(levels), {}), rows


Needed = dict[int, list[tuple[int, tuple[int, ...]]]]  # of every fact its proofs: instantiation, embedded conditions


def _closed(states: DatabaseStates, state: DatabaseState, roots: Iterable[int]) -> Needed:
    needed: Needed = {}
    waiting = list(roots)
    while waiting:
        fact = waiting.pop()
        if fact in needed:
            continue
        found: list[tuple[int, tuple[int, ...]]] = []
        needed[fact] = found
        if states.dimension(fact):
            for instance in (*states.always_proofs.get(fact, ()), *state.proofs.get(fact, ())):
                body = states.body(instance)
                found.append((instance, body))
                waiting.extend(body)
    return needed


def _levels(states: DatabaseStates, state: DatabaseState, needed: Needed) -> dict[int, int]:
    """Longest paths through the proofs; these must have no cycle."""
    left = {fact: len({one for _, body in proofs for one in body}) for fact, proofs in needed.items()}
    readers: dict[int, list[int]] = {}
    for fact, proofs in needed.items():
        for one in {one for _, body in proofs for one in body}:
            readers.setdefault(one, []).append(fact)
    level = {fact: 0 for fact, count in left.items() if not count}
    done = list(level)
    for fact in done:
        for reader in readers.get(fact, ()):
            level[reader] = max(level.get(reader, 0), level[fact] + 1)
            left[reader] -= 1
            if not left[reader]:
                done.append(reader)
    if len(done) < len(needed):
        states.refuse_cycle(state)
    return level


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
    both = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]
