"""Options that all models made of rules have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from foretell.models.registry import EmbeddingOptions


@dataclass(frozen=True)
class RuleOptions(EmbeddingOptions):
    """`dim` is that of functors whose dimension the program does not declare."""

    smallest: ClassVar[int] = 0
    program: str = ""  # a file of rules, P.ndtt
    undeclared: Literal["error", "exogenous"] = "error"  # events of the data that the program does not declare
    intensity_scales: int = 0  # of a mixture over time scales that intensities are multiplied by
    intensity_shape: int = 0  # time scales of a factor of intensities that may also fall after an event

    earlier: ClassVar[dict[str, Any]] = {"intensity_scales": 0, "intensity_shape": 0}

    def mistakes(self) -> list[str]:
        counts = {name: getattr(self, name) for name in ("intensity_scales", "intensity_shape")}
        told = "expected 0 (none) or a number of time scales"
        return super().mistakes() + [f"{name} = {count}: {told}" for name, count in counts.items() if count < 0]
