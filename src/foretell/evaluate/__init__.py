"""A model and held-out data in, scores with their uncertainty out.

The package is also the function: `foretell.evaluate(model, data)` is `foretell.evaluate.scores.evaluate`, whether or not something has
imported the package, and so put it in the function's place, before.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        from foretell.evaluate.scores import evaluate

        return evaluate(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
