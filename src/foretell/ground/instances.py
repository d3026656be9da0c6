"""Every instantiation of a rule that was ever found: an integer for (rule, body facts), with its head and its group `r`.

An instantiation is found once by a join and then remembered; becoming active or inactive again is a flag.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretell.ground.relation import Index


class Instances:
    def __init__(self) -> None:
        self.rule: list[int] = []
        self.group: list[int] = []
        self.head: list[int] = []
        self.body: list[tuple[int, ...]] = []
        self.absent: list[Sequence[tuple[Index, Any]]] = []  # what must stay empty: negated conditions
        self.watched: list[Sequence[int]] = []  # body facts that can become false
        self.active = bytearray()
        self.groups: list[tuple[int, ...]] = []  # rule, then the values of the variables in its parameter names
        self._ids: dict[tuple[int, tuple[int, ...]], int] = {}
        self._group_ids: dict[tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self.rule)

    def find(self, rule: int, body: tuple[int, ...]) -> int | None:
        return self._ids.get((rule, body))

    def make(
        self,
        rule: int,
        body: tuple[int, ...],
        head: int,
        group_values: tuple[int, ...],
        absent: Sequence[tuple[Index, Any]] = (),
        watched: Sequence[int] = (),
        remember: bool = True,
    ) -> int:
        """`remember=False` for rows of tables, which nothing ever looks for again."""
        number = len(self.rule)
        if remember:
            self._ids[rule, body] = number
        self.rule.append(rule)
        self.group.append(self.group_id(rule, group_values))
        self.head.append(head)
        self.body.append(body)
        self.absent.append(absent)
        self.watched.append(watched)
        self.active.append(0)
        return number

    def group_id(self, rule: int, values: tuple[int, ...]) -> int:
        key = (rule, *values)
        found = self._group_ids.get(key)
        if found is None:
            found = self._group_ids[key] = len(self.groups)
            self.groups.append(key)
        return found
