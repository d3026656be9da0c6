"""Scores of models on held-out data. The package is also the function: `foretell.evaluate(model, data)`."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """A module that can be called: importing the package hides the function of its name; help and signature are the function's."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return _function()(*args, **options)

    def __getattribute__(self, name: str) -> Any:
        if name == "__doc__":
            return inspect.getdoc(_function())
        if name == "__signature__":
            return inspect.signature(_function())
        return super().__getattribute__(name)


def _function() -> Any:
    from foretell.evaluate.scores import evaluate

    return evaluate


sys.modules[__name__].__class__ = _CallablePackage
