"""Turn a model whose possible events are products into one with listed events, for methods that do not support products."""

from __future__ import annotations

import copy
import logging
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from foretell.batches.timelines import Histories
from foretell.models.rules.rule_model import RuleModel

log = logging.getLogger("foretell")
Model = TypeVar("Model", bound=RuleModel[Any])
_histories: WeakKeyDictionary[Histories, Histories] = WeakKeyDictionary()  # from histories with products to listed ones


def listed_model(model: Model, what: str) -> Model:
    """Return a model that lists events and shares its parameters with `model`. The first time, warn that `what` lists them."""
    grounding = model.histories.grounding
    if not grounding.products:
        return model
    rows = _histories.get(model.histories)
    if rows is None:
        names = ", ".join(dict.fromkeys(grounding.functors[one.functor] for one in grounding.products))
        log.warning("%s: possible events are kept as products, and %s lists them one by one", names, what)
        rows = _histories[model.histories] = Histories(replace(model.program, products="never"), model.layout)
    made = copy.copy(model)
    made.histories = rows
    made.collator = made._make_collator()  # pyright: ignore[reportPrivateUsage]
    made.collator.covariates, made.collator.calendar = model.collator.covariates, model.collator.calendar
    return made


def sampled_model(model: Model) -> Model:
    """Return the model itself if its events can be drawn without a list, else a model that lists them."""
    grounding = model.histories.grounding
    rules = [grounding.program.rules[one.rule].rule for one in grounding.products]
    return listed_model(model, "sampling") if any(one.parameter_variables for one in rules) else model
