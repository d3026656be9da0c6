"""Import hook for modules that have moved: an import of the old name works for one more release, with a warning.

`moved.toml` has a table per old module: its keys are new modules, its values the names that moved there.
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
    """Return a dict from each old module to its new modules, each with the names that moved there."""
    import tomllib  # imported here, because few programs need it

    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


class MovedModules(MetaPathFinder, Loader):
    """Import finder and loader for the old names of moved modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("foretell.") or fullname not in moved_modules():
            return None
        return ModuleSpec(fullname, self, is_package=True)  # so that old names of submodules are found, too

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # Python then makes an empty module

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
    """Append the finder to `sys.meta_path`, unless it is already there."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
