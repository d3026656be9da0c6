"""Names of a program's parameters in files of earlier versions, which numbered facts and rules together.

In these files, a fact that occurs twice in the program has two vectors. Now it has one, their mean, which is used twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from foretell.models.rules.rule_network import RuleNetwork
from foretell.plan.parameters import ParameterBook

NUMBERING = 2  # rules are numbered alone; files without it number facts and rules together


def meet_saved_names(network: RuleNetwork, book: ParameterBook, saved: Iterable[Any], *, numbering: int | None) -> None:
    """Check that the names of a saved model's parameters are those of its program, and add them to the book."""
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
    """Return the parameters of a file of format 1 under their present names."""
    found: dict[str, list[Any]] = {}
    for key, value in arrays.items():
        stem, _, rest = key.partition(".")
        name, dot, letter = rest.partition(".")
        is_ours = stem in ("deduce", "add") and name in book.renamed
        found.setdefault(f"{stem}.{book.renamed[name]}{dot}{letter}" if is_ours else key, []).append(value)
    return {
        key: values[0] if len(values) == 1 else np.mean(np.asarray(values), 0).tolist() for key, values in found.items()
    }
