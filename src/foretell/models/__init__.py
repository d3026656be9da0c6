"""Models of event sequences. Each has its own file and is listed here by its kind."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretell.models.attention.anhp import ANHP
    from foretell.models.classical.hawkes import Hawkes
    from foretell.models.classical.poisson import Poisson
    from foretell.models.classical.weekly import WeeklyPoisson
    from foretell.models.last_event.sahp import SAHP
    from foretell.models.last_event.thp import THP
    from foretell.models.recurrent.nhp import NHP
    from foretell.models.recurrent.rmtpp import RMTPP
    from foretell.models.rules.andtt import ANDTT
    from foretell.models.rules.ndtt import NDTT
    from foretell.models.rules.s2ndtt import S2NDTT
    from foretell.models.state_space.s2p2 import S2P2

__all__ = [
    "ANDTT",
    "ANHP",
    "NDTT",
    "NHP",
    "RMTPP",
    "S2NDTT",
    "S2P2",
    "SAHP",
    "THP",
    "Hawkes",
    "Poisson",
    "WeeklyPoisson",
]

# In the form of an entry point of another package: kind = "module:class". A module is imported at first use.
BUILT_IN = {
    "anhp": "foretell.models.attention.anhp:ANHP",
    "andtt": "foretell.models.rules.andtt:ANDTT",
    "ndtt": "foretell.models.rules.ndtt:NDTT",
    "s2ndtt": "foretell.models.rules.s2ndtt:S2NDTT",
    "nhp": "foretell.models.recurrent.nhp:NHP",
    "rmtpp": "foretell.models.recurrent.rmtpp:RMTPP",
    "s2p2": "foretell.models.state_space.s2p2:S2P2",
    "thp": "foretell.models.last_event.thp:THP",
    "sahp": "foretell.models.last_event.sahp:SAHP",
    "hawkes": "foretell.models.classical.hawkes:Hawkes",
    "poisson": "foretell.models.classical.poisson:Poisson",
    "weekly": "foretell.models.classical.weekly:WeeklyPoisson",
}
# Methods of models that need higher layers. `foretell/__init__.py` puts them here.
ATTACHED: dict[str, Callable[..., Any]] = {}
# Encoders with a head for a task other than intensities: saved and loaded like models, but not a model kind of a configuration.
TASK_HEADS = {
    "anhp-masked": "foretell.models.task_heads:MaskedANHP",
    "anhp-classifier": "foretell.models.task_heads:Classifier",
}


def __getattr__(name: str) -> object:
    homes = {home.partition(":")[2]: home.partition(":")[0] for home in BUILT_IN.values()}
    if name not in homes:
        raise AttributeError(f"module 'foretell.models' has no attribute {name!r}")
    return getattr(importlib.import_module(homes[name]), name)
