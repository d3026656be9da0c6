"""Slots that are alike without looking back: the same fact, by the same proofs, from bodies alike. Layer 0 is computed once for each class.

A slot is known by two 64-bit sums over its proofs, built up from the lowest level. Slots whose first sums are equal and whose second
sums differ would be told apart by refusing to share at all.
"""

from __future__ import annotations

import numpy as np

Ints = np.ndarray
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


def classes_of(fact: Ints, level: Ints, instance: Ints, head: Ints, body: Ints) -> tuple[Ints, Ints]:
    """Slots [S] and their proofs [R] → the class of each slot, and one slot of each class."""
    first, second = (_sums(fact, level, instance, head, body, factor) for factor in _FACTORS)
    _, representative, number = np.unique(first, return_index=True, return_inverse=True)
    if not (second[representative][number] == second).all():
        number = representative = np.arange(len(fact))
    return number, representative


def _sums(fact: Ints, level: Ints, instance: Ints, head: Ints, body: Ints, factor: np.uint64) -> np.ndarray:
    known = _mixed(fact.astype(np.uint64), factor)
    by_instance = _mixed(instance.astype(np.uint64) + np.uint64(1 << 40), factor)
    order = np.argsort(level[head], kind="stable")
    edges = np.searchsorted(level[head][order], np.arange(int(level.max(initial=0)) + 2))
    for number in range(len(edges) - 1):
        rows = order[edges[number] : edges[number + 1]]
        if not len(rows):
            continue
        proof = by_instance[rows]
        for place in range(body.shape[1]):
            slot = body[rows, place]
            seen = np.where(slot >= 0, known[slot], np.uint64(0))
            proof = _mixed(proof + seen * np.uint64(2 * place + 3), factor)
        rows_by_head = np.argsort(head[rows], kind="stable")
        heads = head[rows][rows_by_head]
        start = np.flatnonzero(np.concatenate([[True], heads[1:] != heads[:-1]]))
        known[heads[start]] = _mixed(known[heads[start]] + np.add.reduceat(proof[rows_by_head], start), factor)
    return known


def _mixed(values: np.ndarray, factor: np.uint64) -> np.ndarray:
    values = (values ^ (values >> np.uint64(31))) * factor
    values = (values ^ (values >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return values ^ (values >> np.uint64(32))
