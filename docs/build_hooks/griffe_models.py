"""Reference pages of models: their constructors show every option, as `help` does, and not the `**changes` of the source.

A model's docstring and signature are put together when it is registered, so they are taken from the imported class.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import griffe

from foretell import models


class RegisteredModels(griffe.Extension):
    """Models under their names in `foretell`, with the docstring and the parameters that they have at run time."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:  # the reader of docstrings knows the plural alone
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        for home in models.BUILT_IN.values():
            module, _, name = home.partition(":")
            pkg.set_member(name, griffe.Alias(name, f"{module}.{name}", parent=pkg))

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        home = f"{cls.module.path}:{cls.name}"
        if home not in models.BUILT_IN.values():
            return
        found = getattr(importlib.import_module(cls.module.path), cls.name)
        cls.docstring = griffe.Docstring(inspect.getdoc(found) or "", parent=cls, parser="google")
        shown = [_parameter(one) for one in inspect.signature(found).parameters.values()]
        cls.members["__init__"] = griffe.Function("__init__", parameters=griffe.Parameters(*shown), parent=cls)


def _parameter(one: inspect.Parameter) -> griffe.Parameter:
    default = None if one.default is one.empty else repr(one.default)
    annotation = one.annotation if isinstance(one.annotation, str) else inspect.formatannotation(one.annotation)
    return griffe.Parameter(
        one.name,
        annotation=annotation.replace("typing.", "").replace("collections.abc.", ""),
        kind=griffe.ParameterKind(one.kind.description),
        default=default,
    )
