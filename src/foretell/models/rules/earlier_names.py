"""Names of a program's parameters in files of earlier versions, in which facts and rules were numbered together.

In these, a fact that occurs twice in the program had two vectors. Now it has one, their mean, which is used twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from foretell.models.rules.rule_network import RuleNetwork
from foretell.plan.parameters import ParameterBook

NUMBERING = 2  # of rules, in the names of parameters: rules alone; in files without it, facts and rules together


def meet_saved_names(network: RuleNetwork, book: ParameterBook, saved: Iterable[Any], *, numbering: int | None) -> None:
    """The names of a saved model's parameters, which must be those of its program."""
    families = list(book.families.values())
    renamed = book.renamed if numbering is None else {}
    rows: dict[str, list[int]] = {}
    names = [(place, renamed.get(str(name), str(name))) for place, name in saved]
    for place, name in names:
        if not 0 <= place < len(families):
            raise ValueError("its parameters are not those of its program")
        number = families[place].number(name)
        for stack, row in zip(families[place].stacks, families[place].rows[number], strict=True):
            rows.setdefault(stack.key, []).append(row)
    if [(family.place, name) for family, name in book.order] != list(dict.fromkeys(names)):
        raise ValueError("its parameters are not those of its program")
    if len(set(names)) < len(names):
        network.merge_on_loading(rows)


def renamed_parameters(book: ParameterBook, arrays: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a file of format 1 under their names of today."""
    found: dict[str, list[Any]] = {}
    for key, value in arrays.items():
        stem, _, rest = key.partition(".")
        name, dot, letter = rest.partition(".")
        is_ours = stem in ("deduce", "add") and name in book.renamed
        found.setdefault(f"{stem}.{book.renamed[name]}{dot}{letter}" if is_ours else key, []).append(value)
    return {
        key: values[0] if len(values) == 1 else np.mean(np.asarray(values), 0).tolist() for key, values in found.items()
    }
