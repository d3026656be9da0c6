"""Options of all models made of rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from foretell.models.registry import EmbeddingOptions
from foretell.options import option


@dataclass(frozen=True)
class RuleOptions(EmbeddingOptions):
    """`dim` is the dimension of functors for which the program does not declare one."""

    smallest: ClassVar[int] = 0
    program: str = option("", doc="A file of rules, P.ndtt.")
    undeclared: Literal["error", "exogenous"] = option(
        "error",
        flag="Events that the program does not declare: an error, or taken to be exogenous.",
        doc="Events of the data that the program does not declare: a mistake, or not predicted.",
    )
    intensity_scales: int = option(0, doc="Time scales of the mixture that multiplies intensities; 0: none.")
    intensity_shape: int = option(
        0, doc="Time scales of a factor of intensities that may also fall after an event; 0: none."
    )

    earlier: ClassVar[dict[str, Any]] = {"intensity_scales": 0, "intensity_shape": 0, "calendar": False}

    def mistakes(self) -> list[str]:
        counts = {name: getattr(self, name) for name in ("intensity_scales", "intensity_shape")}
        told = "expected 0 (none) or a number of time scales"
        return super().mistakes() + [f"{name} = {count}: {told}" for name, count in counts.items() if count < 0]
