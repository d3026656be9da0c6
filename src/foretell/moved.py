"""Modules of the last release that have moved: an import from the old place works for one more release, with a warning.

`moved.toml` has a table for each old module: the new modules, and the names that each of them has now.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


@cache
def moved_modules() -> dict[str, dict[str, list[str]]]:
    """Old module → new modules, each with the names that moved there."""
    import tomllib  # few programs need it

    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


class MovedModules(MetaPathFinder, Loader):
    """Finds modules of the last release that have been moved."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("foretell.") or fullname not in moved_modules():
            return None
        return ModuleSpec(fullname, self, is_package=True)  # what was inside an old package may be looked for, too

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # an empty one, as Python makes it

    def exec_module(self, module: ModuleType) -> None:
        places = moved_modules()[module.__name__]
        home_of = {name: home for home, names in places.items() for name in names}
        message = f"{module.__name__} has moved to {' and '.join(places)}; the old path goes with the next release"
        warnings.warn(message, DeprecationWarning, stacklevel=2)

        def find(name: str) -> object:
            if name not in home_of:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return getattr(importlib.import_module(home_of[name]), name)

        module.__dict__.update(__getattr__=find, __all__=sorted(home_of))


def install() -> None:
    """Look for moved modules after all other places; once, however often the package is loaded."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
