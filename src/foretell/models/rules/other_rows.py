"""Replace the rows of tables in the program of a model made of rules.

Parameters stay. New rows, and all new groups that they lead to, get the mean of the trained parameters; if a table has features, the
vectors of its rows are computed from their numbers. The scales of numbers are those of training.
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
        """Return a copy of the model with other rows in some tables of its program. The model itself does not change.

        Parameters stay, too. New rows, and the groups that they lead to, have the mean of the trained parameters. In a table with features,
        the vectors of rows are computed from their numbers.

        Args:
            files: CSV or Parquet files by the name of the table: `model.with_tables({"user": "new.csv"})`.

        Returns:
            The copy.

        Raises:
            ForetellError: there is no such table, or its file cannot be read or has other columns.
        """
        made: Any = copy.deepcopy(self)
        use_program(made, with_tables(made.program, files))
        return made


def fill_from_log(model: RuleModel[Any], data: EventData) -> None:
    """Fill tables `from_log` that still lack their training data, and build the model again with the complete program."""
    if model.program.waits_for_log:
        make, how = vars(type(model))["__init__"], {"seed": model.rule_network.seed, "dtype": model.dtype}
        make(model, with_log(model.program, data), model.vocabulary, model.options, **how)


def use_program(model: RuleModel[Any], program: Program) -> None:
    """Use `program`, which must be the model's own except for rows of tables."""
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
