"""Options that all models made of rules have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from foretell.models.registry import EmbeddingOptions


@dataclass(frozen=True)
class RuleOptions(EmbeddingOptions):
    """`dim` is that of functors whose dimension the program does not declare."""

    smallest: ClassVar[int] = 0
    program: str = ""  # a file of rules, P.ndtt
    undeclared: Literal["error", "exogenous"] = "error"  # events of the data that the program does not declare
