"""The build hook that makes pages of notebooks, as a module."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

HOOK = Path(__file__).parents[2] / "docs" / "build_hooks" / "notebooks.py"


@cache
def notebook_pages() -> ModuleType:
    """`docs/build_hooks/notebooks.py`, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("notebook_pages", HOOK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
