"""What was noticed in several files of a data set, each kind of remark once: `(path, sentence)` in, `(path, sentence)` out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_NUMBER = re.compile(r"[0-9](?:[0-9,.]*[0-9])?")


def kind_of(sentence: str) -> str:
    """A sentence without its numbers, which is equal for similar messages about different files."""
    return _NUMBER.sub("#", sentence)


def once_per_kind(remarks: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The first remark of each kind, and at its end which files it holds of, too, with their numbers where these differ."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for path, sentence in remarks:
        kinds.setdefault(kind_of(sentence), []).append((path, sentence))
    return [_joined(found) for found in kinds.values()]


def _joined(found: Sequence[tuple[str, str]]) -> tuple[str, str]:
    (path, sentence), *others = found
    also = [f"{Path(other).name}{_numbers(sentence, said)}" for other, said in others if (other, said) != found[0]]
    return path, f"{sentence}; likewise {', '.join(also)}" if also else sentence


def _numbers(sentence: str, other: str) -> str:
    """` (733 of 733)`: what stands in `other` from the first number that differs to the last."""
    pairs = list(zip(_NUMBER.finditer(sentence), _NUMBER.finditer(other), strict=True))
    differing = [there for here, there in pairs if here[0] != there[0]]
    return f" ({other[differing[0].start() : differing[-1].end()]})" if differing else ""
