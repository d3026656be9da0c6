"""A model whose possible events are products → the same model with all of them listed, for methods that do not support products."""

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
_histories: WeakKeyDictionary[Histories, Histories] = WeakKeyDictionary()  # of products → of rows


def listed_model(model: Model, what: str) -> Model:
    """`what` lists them, which is said once. The two share their parameters."""
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
    """The model itself, if its events can be drawn without being listed."""
    grounding = model.histories.grounding
    rules = [grounding.program.rules[one.rule].rule for one in grounding.products]
    return listed_model(model, "sampling") if any(one.parameter_variables for one in rules) else model
