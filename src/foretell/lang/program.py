"""A checked program: rules numbered, functors resolved, tables read, dependencies sorted. Databases and models are built from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal as OneOf
from typing import get_args

from foretell.errors import ForetellError
from foretell.lang.diagnostics import Diagnostic
from foretell.lang.source import Source, Span
from foretell.lang.syntax import Rule, Statement
from foretell.wording import counted, printable

FunctorKind = OneOf["fact", "event", "exogenous"]
Undeclared = OneOf["error", "exogenous"]
DEFAULT_DIM = 32  # that of the models
BOS, EOS = "bos", "eos"


@dataclass(frozen=True, slots=True)
class Functor:
    name: str
    arity: int | None  # None: declared, used nowhere, and its arity not given
    kind: FunctorKind
    dim: int | None  # as declared; None: the model's
    key: int | None  # key and query length of rules that add it, where declared

    def __str__(self) -> str:
        return self.name if self.arity is None else f"{self.name}/{self.arity}"


@dataclass(frozen=True, slots=True)
class NumberedRule:
    """A fact or rule with its place in the program: `rule1`, `rule2`, …"""

    number: int
    rule: Rule

    @property
    def name(self) -> str:
        return f"rule{self.number}"


@dataclass(frozen=True)
class FactTable:
    """Facts that come from a file: one row each, constants in their one spelling, no row twice."""

    functor: str
    arity: int
    rows: list[tuple[str, ...]] = field(repr=False)
    span: Span = field(repr=False)
    path: str  # as the program writes it
    header: tuple[str, ...]  # names of the columns


@dataclass(frozen=True)
class UncheckedProgram:
    """All that was read, before it is checked: rules numbered, tables loaded, and the mistakes found so far."""

    rules: tuple[NumberedRule, ...]
    declarations: tuple[Statement, ...]
    tables: tuple[FactTable, ...]
    sources: tuple[Source, ...]
    found: tuple[Diagnostic, ...]
    unread: frozenset[str]  # functors of which not all is known, because a statement or table could not be read
    is_complete: bool  # False: a file is missing, so that any functor may be made true by it


@dataclass(frozen=True, slots=True)
class Component:
    """Functors that are deduced from one another; a component comes after all it depends on."""

    functors: tuple[str, ...]
    recursive: bool


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A program that was read and found to be without mistakes; `from_file`, `named` and `from_text` make one."""

    rules: tuple[NumberedRule, ...]
    tables: tuple[FactTable, ...]
    functors: Mapping[str, Functor]
    components: tuple[Component, ...]  # of the `:-` rules, in order of dependence
    stratum: Mapping[str, int]  # of each functor: how many negations lie below it
    undeclared: Undeclared
    warnings: tuple[Diagnostic, ...]
    sources: tuple[Source, ...]
    digest: str  # of everything above that has a meaning: equal programs replay equally

    def __repr__(self) -> str:
        rules = sum(not one.rule.is_fact for one in self.rules)
        facts = len(self.rules) - rules + sum(len(one.rows) for one in self.tables)
        events = sum(one.kind != "fact" for one in self.functors.values())
        parts = ", ".join(counted(*one) for one in ((rules, "rule"), (facts, "fact"), (events, "event")))
        return f"<Program {printable(self.sources[0].name)}: {parts}>"

    @staticmethod
    def from_file(path: str | Path, *, undeclared: Undeclared = "error", dim: int = DEFAULT_DIM) -> Program:
        """Read and check a program with all it includes; raises `ProgramError` with every mistake of it.

        Where there is no such file, the name of a shipped program will do: `"robocup"`.
        """
        from foretell.lang.load import load_program

        _check_choice(undeclared)
        return load_program(Path(path), undeclared=undeclared, dim=dim)

    @staticmethod
    def named(name: str, *, undeclared: Undeclared = "error", dim: int = DEFAULT_DIM) -> Program:
        """A program that ships with foretell: `Program.named("robocup")` is for the data `load("robocup")`."""
        from foretell.lang.load import load_shipped

        _check_choice(undeclared)
        return load_shipped(name, undeclared=undeclared, dim=dim)

    @staticmethod
    def from_text(
        text: str,
        name: str = "<program>",
        *,
        folder: str | Path = ".",
        undeclared: Undeclared = "error",
        dim: int = DEFAULT_DIM,
    ) -> Program:
        """The same for a text; includes and tables are looked for in `folder`."""
        from foretell.lang.load import read_program

        _check_choice(undeclared)
        return read_program(Source(name, text), Path(folder), undeclared=undeclared, dim=dim)


def _check_choice(undeclared: str) -> None:
    choices = get_args(Undeclared)
    if undeclared not in choices:
        raise ForetellError(f"undeclared={undeclared!r}: expected {' or '.join(map(repr, choices))}")
