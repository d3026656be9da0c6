"""Graph search: everything that can be reached from a start, and forward chaining."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def closure(start: Iterable[Node], after: Mapping[Node, Iterable[Node]]) -> set[Node]:
    """Return all nodes that can be reached from `start`."""
    found = set(start)
    waiting = list(found)
    while waiting:
        new = [one for one in after.get(waiting.pop(), ()) if one not in found]
        found.update(new)
        waiting += new
    return found


def chained(rules: Sequence[tuple[Node, Collection[Node]]], given: Iterable[Node]) -> Iterator[int]:
    """Forward chaining: yield the numbers of the rules (head, body) whose bodies become true, in rounds. `given` is true from the start."""
    missing: list[int] = []
    users: dict[Node, list[int]] = {}
    for number, (_, body) in enumerate(rules):
        needed = set(body)
        missing.append(len(needed))
        for one in needed:
            users.setdefault(one, []).append(number)
    true = dict.fromkeys(given)
    queue, ready = deque(true), [number for number, count in enumerate(missing) if not count]
    while queue or ready:
        for number in ready:
            yield number
            head = rules[number][0]
            if head not in true:
                true[head] = None
                queue.append(head)
        ready = []
        for number in users.get(queue.popleft(), ()) if queue else ():
            missing[number] -= 1
            if not missing[number]:
                ready.append(number)
