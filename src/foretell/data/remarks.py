"""Merge similar remarks about several files of a data set: `(path, sentence)` in, `(path, sentence)` out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_NUMBER = re.compile(r"[0-9](?:[0-9,.]*[0-9])?")


def kind_of(sentence: str) -> str:
    """Return a sentence without its numbers, which is equal for similar remarks about different files."""
    return _NUMBER.sub("#", sentence)


def once_per_kind(remarks: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the first remark of each kind, followed by the other files that it applies to, with their numbers if they differ."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for path, sentence in remarks:
        kinds.setdefault(kind_of(sentence), []).append((path, sentence))
    return [_joined(found) for found in kinds.values()]


def _joined(found: Sequence[tuple[str, str]]) -> tuple[str, str]:
    (path, sentence), *others = found
    also = [f"{Path(other).name}{_numbers(sentence, said)}" for other, said in others if (other, said) != found[0]]
    return path, f"{sentence}; likewise {', '.join(also)}" if also else sentence


def _numbers(sentence: str, other: str) -> str:
    """Return the part of `other` from the first to the last differing number, in parentheses: ` (733 of 733)`."""
    pairs = list(zip(_NUMBER.finditer(sentence), _NUMBER.finditer(other), strict=True))
    differing = [there for here, there in pairs if here[0] != there[0]]
    return f" ({other[differing[0].start() : differing[-1].end()]})" if differing else ""
