"""Proofs that need one another, in words: which facts, by which rules, and after which event."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from foretell.ground.timeline import Timeline


def cycle_message(
    timeline: Timeline, fact: np.ndarray, state: np.ndarray, head: np.ndarray, body: np.ndarray, instances: np.ndarray
) -> str:
    """One cycle, as early as there is one. Slots have a `fact` and a `state`; slot `head` needs `body` by an instantiation."""
    needs: dict[int, dict[int, int]] = {}
    for one, other, instance in zip(head.tolist(), body.tolist(), instances.tolist(), strict=True):
        needs.setdefault(one, {}).setdefault(other, instance)
    cycle = _cycle(needs, state)
    return "\n".join(_lines(timeline, [int(fact[slot]) for slot in cycle], int(state[cycle[0]]), _by(needs, cycle)))


def _by(needs: dict[int, dict[int, int]], cycle: list[int]) -> list[int]:
    return [needs[one][other] for one, other in pairwise(cycle)]


def _cycle(needs: dict[int, dict[int, int]], state: np.ndarray) -> list[int]:
    """Slots each of which needs the next; the first stands at the end again."""
    readers: dict[int, list[int]] = {}
    waiting = {slot: sum(other in needs for other in found) for slot, found in needs.items()}
    for slot, found in needs.items():
        for other in found:
            readers.setdefault(other, []).append(slot)
    done = [slot for slot, count in waiting.items() if not count]
    while done:  # what can be computed is on no cycle
        for reader in readers.get(done.pop(), ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                done.append(reader)
    left = {slot for slot, count in waiting.items() if count}
    path = [min(left, key=lambda slot: (int(state[slot]), slot))]
    places = {path[0]: 0}
    while True:
        slot = next(other for other in needs[path[-1]] if other in left)
        if slot in places:
            return [*path[places[slot] :], slot]
        places[slot] = len(path)
        path.append(slot)


def _lines(timeline: Timeline, facts: list[int], state: int, instances: list[int]) -> Iterator[str]:
    grounding = timeline.grounding
    rules = [grounding.program.rules[grounding.rule[one]] for one in instances]
    names = [grounding.text(fact) for fact in facts]
    functor = grounding.functors[grounding.keys[facts[0]][0]]
    when = "before the first event" if state <= 1 else f"after event {state - 1} (`{timeline.after(state)}`)"
    yield (
        f"{rules[0].rule.span.place}: the embedding of `{names[0]}` needs itself {when}: "
        "proofs through facts with embeddings must not be cyclic"
    )
    for (one, other), numbered in zip(pairwise(names), rules, strict=True):
        yield f"  {one} is deduced from {other} ({numbered.name}, {numbered.rule.span.place})"
    yield f"  hint: give one of them no embedding, as in `:- embed({functor}, 0).`, or use `<-`, which looks at the past"
