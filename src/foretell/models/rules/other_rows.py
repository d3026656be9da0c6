"""A model made of rules → the same model with other rows for tables of its program.

Parameters stay. Rows that training never met are the mean of the trained ones, as are all groups that come of them; where a table has
features, their numbers give them their vectors. Numbers count as in training.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from foretell.batches.timelines import Histories
from foretell.data import EventData
from foretell.ground.given import with_log
from foretell.lang.fact_table import numbers_of
from foretell.lang.other_rows import with_tables
from foretell.lang.program import Program

if TYPE_CHECKING:
    from foretell.models.rules.rule_model import RuleModel


class TakesRows:
    """A model whose program has tables."""

    def with_tables(self, files: Mapping[str, str | Path]) -> Self:
        """A copy of the model with other rows for some tables of its program; the model itself stays as it is.

        Parameters stay, too. Rows that training never met, and the groups that come of them, have the mean of the trained ones; rows of a
        table with features have the vectors that their numbers give them.

        Args:
            files: CSV or Parquet files by the name of their table: `model.with_tables({"user": "new.csv"})`.

        Returns:
            The copy.

        Raises:
            ForetellError: there is no such table, or its file cannot be read or has other columns.
        """
        made: Any = copy.deepcopy(self)
        use_program(made, with_tables(made.program, files))
        return made


def fill_from_log(model: RuleModel[Any], data: EventData) -> None:
    """Rows of tables `from_log` that wait for training data: all is made of the program, and made again now that they are known."""
    if model.program.waits_for_log:
        make, how = vars(type(model))["__init__"], {"seed": model.rule_network.seed, "dtype": model.dtype}
        make(model, with_log(model.program, data), model.vocabulary, model.options, **how)


def use_program(model: RuleModel[Any], program: Program) -> None:
    """`program` is the model's own, but for rows of its tables."""
    if program is model.program:
        return
    layout, book, before = replace(model.layout, program=program), model.book, model.histories
    model.program, model.layout, book.layout, book.program = program, layout, layout, program
    numbers = numbers_of(program.tables)
    for of_functors in book.feature_rows.values():
        for functor, one in of_functors.items():
            one.numbers = {**one.numbers, **numbers.get(functor, {})}
            one.recount(one.columns)
    model.histories = Histories(program, layout)
    model.histories.set_clock(before.clock)
    for place, table in enumerate(program.tables, len(program.rules)):
        for row in table.rows:
            book.numbers(place, row)
    book.read(model.histories.grounding)
    model.rule_network.forget_inputs()
    model.rule_network.grow(model.dtype, model.device)
    covariates, calendar = model.collator.covariates, model.collator.calendar
    model.collator = model._make_collator()  # pyright: ignore[reportPrivateUsage]
    model.collator.covariates, model.collator.calendar = covariates, calendar
