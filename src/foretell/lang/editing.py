"""Answers an editor's requests about a program that is being edited: mistakes, hovers, definitions, completions, renames.

It uses all statements that can be read, so hovers, definitions and completions also work in programs with mistakes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from foretell import terms
from foretell.errors import ForetellError
from foretell.lang.arities import one_arity_each
from foretell.lang.check import check
from foretell.lang.counts import count_parameters
from foretell.lang.declarations import DECLARATIONS
from foretell.lang.diagnostics import Diagnostic, ProgramError
from foretell.lang.fact_table import FactTable
from foretell.lang.functors import Functors, resolve
from foretell.lang.load import gather
from foretell.lang.occurrences import Occurrence, occurrences
from foretell.lang.program import DEFAULT_DIM, NumberedRule, dimension, shapes_of
from foretell.lang.source import Source, Span
from foretell.lang.syntax import ANONYMOUS, Atom, Literal, Rule, pretty_atom, pretty_literal, pretty_rule
from foretell.lang.tokens import tokenize
from foretell.options import Undeclared
from foretell.wording import counted, listed, shown

LAYERS = 2  # the default number of model layers
MOST_CONSTANTS = 1_000  # the largest number of constants that are offered at one place
MOST_RULES = 12  # the largest number of rules that a hover lists
KINDS = {"fact": "fact", "event": "event", "exogenous": "exogenous event"}


class RenameError(ForetellError):
    """Raised if a name cannot be changed, or not to the new name."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A possible completion, with its kind."""

    text: str
    kind: str  # functor, constant, variable or declaration
    detail: str


class EditedProgram:
    """The edited text with its folder and all files that it includes."""

    def __init__(self, text: str, path: Path, undeclared: Undeclared = "error", dim: int = DEFAULT_DIM) -> None:
        self.source, self.dim = Source(str(path), text), dim
        self.undeclared: Undeclared = undeclared
        self.read = gather(self.source, path.parent, path)
        self.gathered = one_arity_each(self.read)

    @cached_property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        try:
            return check(self.read, undeclared=self.undeclared, dim=self.dim).warnings
        except ProgramError as error:
            return error.diagnostics

    @cached_property
    def functors(self) -> Functors:
        return resolve(self.gathered, self.undeclared)

    @cached_property
    def names(self) -> list[Occurrence]:
        """All occurrences of names; those of the edited text come first."""
        return [one for source in self.gathered.sources for one in occurrences(source)]

    # --- places ---

    def at(self, offset: int) -> Occurrence | None:
        """Return the name at an offset of the edited text or just before it, or None."""
        own = [one for one in self.names if one.span.source is self.source]
        inside = [one for one in own if one.span.start <= offset <= one.span.end]
        return inside[-1] if inside else None

    def rule_at(self, offset: int) -> NumberedRule | None:
        for one in self.gathered.rules:
            span = one.rule.span
            if span.source is self.source and span.start <= offset <= span.end:
                return one
        return None

    def alike(self, one: Occurrence) -> list[Occurrence]:
        """Return all occurrences of the same name: variables within their statement, functors with their number of arguments."""
        return [other for other in self.names if _same(one, other)]

    def definitions(self, offset: int) -> list[Span]:
        """Return where a functor is declared, comes from a table or becomes true; where a variable is bound; or the file of a path."""
        one = self.at(offset)
        if one is None or one.name == ANONYMOUS:
            return []
        if one.role == "path":
            wanted = (Path(self.source.name).parent / terms.plain(one.name)).resolve()
            found = [source for source in self.gathered.sources if Path(source.name).resolve() == wanted]
            return [Span(found[0] if found else Source(str(wanted), "", is_read=False), 0, 0)]
        alike = self.alike(one)
        if one.role == "variable":
            inside = [other for other in alike if other.functor is not None]
            return [(inside[1] if len(inside) > 1 else alike[0]).span]
        wanted_roles = ("declared", "head") if one.is_functor else (one.role,)
        found = [other.span for other in alike if other.role in wanted_roles]
        return found if one.is_functor else found[:1]

    # --- renaming ---

    def rename(self, offset: int, new: str) -> list[tuple[Span, str]]:
        """Return (span, replacement text) for every occurrence of the name. Raises `RenameError`."""
        one = self.at(offset)
        if one is None or one.role in ("word", "path"):
            raise RenameError("there is no name here that can be renamed")
        if one.role == "constant":
            raise RenameError(f"{shown(one.name)} is a constant: tables and data have it, too, and would not change")
        tokens = tokenize(Source("<name>", new))
        is_variable = len(tokens) == 1 and tokens[0].type == "VARIABLE" and tokens[0].text != ANONYMOUS
        if one.role == "variable":
            if one.name == ANONYMOUS or not is_variable:
                raise RenameError(
                    f"{shown(new)} is not the name of a variable: variables begin with an upper-case letter"
                )
            if any(other.name == new for other in self.names if _statement_of(other) == _statement_of(one)):
                raise RenameError(f"the statement has a variable {shown(new)} already")
            return [(other.span, new) for other in self.alike(one)]
        if len(tokens) != 1 or tokens[0].type not in ("NAME", "INTEGER", "STRING"):
            hint = f"; write {terms.constant(new)}" if new.strip() else ""
            raise RenameError(f"{shown(new)} is not a name: names begin with a lower-case letter, or are quoted{hint}")
        spelled = terms.unquote(new) if tokens[0].type == "STRING" else new
        changed = Occurrence(one.role, spelled, one.span, one.statement, one.arity)
        if spelled in ("bos", "eos") and one.is_functor:
            raise RenameError(f"{shown(spelled)} is reserved")
        if spelled != one.name and any(_same(changed, other) for other in self.names):
            raise RenameError(f"there is a {shown(spelled)} already: both would become one")
        places = self.alike(one)
        together = next((other for other in places if other.arity is None), None)
        keys = self._keys(one.name, None) if one.is_functor and together is not None else []
        if together is not None and len(keys) > 1:
            keys = sorted(keys)
            declared = f"the declaration at {together.span.place} is about {listed(keys)}"
            raise RenameError(f"{declared}: declare each by itself first, as in `:- embed({keys[0]}, 8).`")
        return [(other.span, new) for other in places]

    # --- meaning ---

    def hover(self, offset: int) -> tuple[str, Span] | None:
        """Return Markdown about the name at an offset and its rule, with the span; None if there is nothing to show."""
        one, rule = self.at(offset), self.rule_at(offset)
        parts = [self._about(one)] if one is not None and one.is_functor else []
        parts += [self._about_rule(rule)] if rule is not None else []
        if one is not None and one.role == "word" and one.name in DECLARATIONS:
            parts.append(f"```ndtt\n{DECLARATIONS[one.name]}\n```")
        span = one.span if one is not None else rule.rule.span if rule is not None else None
        return ("\n\n---\n\n".join(parts), span) if parts and span is not None else None

    def _keys(self, name: str, arity: int | None) -> list[str]:
        """Return the keys of a name in `functors`. Without `arity`, a name with several numbers of arguments has several keys."""
        return [
            key
            for key, one in self.functors.by_name.items()
            if terms.bare(key) == name and (key == name or arity in (None, one.arity))
        ]

    def _about(self, one: Occurrence) -> str:
        keys = self._keys(one.name, one.arity)
        return "\n\n".join(map(self._about_functor, keys)) or f"`{one.name}`: nothing declares it or makes it true"

    def _about_functor(self, name: str) -> str:
        functor = self.functors.by_name[name]
        dim = dimension(self.functors.by_name, name, self.dim)
        size = f"embedded in {dim} dimensions" if dim else "true or false, without an embedding"
        told = [f"`{functor}`: {KINDS[functor.kind]}, {size}"]
        for table in self.gathered.tables:
            if table.functor == name:
                told.append(_about_table(table))
        rules = [rule for rule in self.gathered.rules if rule.rule.head.functor == name]
        facts = sum(rule.rule.is_fact for rule in rules)
        told += [f"{counted(facts, 'fact')} in the program"] if facts else []
        rest = [rule for rule in rules if not rule.rule.is_fact]
        if rest:
            lines = [f"{pretty_rule(rule.rule)}  % {rule.name}" for rule in rest[:MOST_RULES]]
            lines += [f"% … and {len(rest) - MOST_RULES} more"] if len(rest) > MOST_RULES else []
            told.append("```ndtt\n" + "\n".join(lines) + "\n```")
        return "\n\n".join(told)

    def _about_rule(self, one: NumberedRule) -> str:
        shapes = shapes_of(one, self.functors.by_name, self.dim, self.dim)
        each = f", one set for each value of {listed(shapes.groups)}" if shapes.groups else ""
        name = pretty_atom(shapes.name)
        layer = ".LAYER" if shapes.stem == "add" else ""
        rows = [
            f"- `{shapes.stem}.{name}{layer}.{letter}`: {shape[0]} × {shape[1]}{each}"
            for letter, shape in shapes.matrices.items()
            if shape[0]
        ]
        if shapes.beta is not None and rows:
            rows.append(f"- `{shapes.stem}.{pretty_atom(shapes.beta)}.beta`: a number from 1 up")
        told = f"{'fact' if one.rule.is_fact else one.name}: {meaning(one.rule)}"
        return "\n\n".join([told, *(["\n".join(rows)] if rows else [])])

    def lenses(self) -> list[tuple[Span, str]]:
        """Return the number of parameters of each rule in the edited text, for models with the default number of layers."""
        known, rules = self.functors, [one for one in self.gathered.rules if not one.rule.is_fact]
        counts = count_parameters(rules, (), known.by_name, {}, dim=self.dim, layers=LAYERS)
        found = []
        for one in counts.rules:
            if one.rule.rule.span.source is not self.source:
                continue
            each = f" for each {' and '.join(one.shapes.groups)}" if one.shapes.groups else ""
            shared = f", shared with {one.shared_with}" if one.shared_with else ""
            count = f"{counted(one.parameters, 'parameter')}{each}{shared}" if one.shapes.matrices else "removes"
            found.append((one.rule.rule.span, f"{one.rule.name}: {count}"))
        return found

    # --- completion ---

    def completions(self, offset: int) -> list[Proposal]:
        """Return declarations at the start of a declaration, functors where a head or condition can start, else constants and variables."""
        tokens = [one for one in tokenize(Source("<before>", self.source.text[:offset]))]
        if tokens and tokens[-1].end == offset and tokens[-1].type in ("NAME", "VARIABLE", "INTEGER", "ODD_WORD"):
            tokens.pop()  # the word that is being typed
        start = max((place + 1 for place, one in enumerate(tokens) if one.type == "STOP"), default=0)
        statement = tokens[start:]
        if len(statement) == 1 and statement[0].type == "RULE":
            return [Proposal(word, "declaration", example) for word, example in DECLARATIONS.items()]
        functor, place = _argument_place([one.text for one in statement])
        is_declaration = bool(statement) and statement[0].type == "RULE"
        if functor is None or (is_declaration and place == 0):
            return list(self._functors())
        number = sum(one.type == "STOP" for one in tokens)
        typed = self.at(offset)
        others = [one for one in self.names if one is not typed]
        return [*self._variables(others, number), *self._constants(others, functor, place)]

    def _functors(self) -> Iterator[Proposal]:
        for name, one in self.functors.by_name.items():
            yield Proposal(terms.bare(name), "functor", f"{one}, {KINDS[one.kind]}")

    def _variables(self, names: list[Occurrence], statement: int) -> Iterator[Proposal]:
        own = (one for one in names if one.span.source is self.source and one.statement == statement)
        found = dict.fromkeys(one.name for one in own if one.role == "variable" and one.name != ANONYMOUS)
        return (Proposal(name, "variable", "variable of this statement") for name in found)

    def _constants(self, names: list[Occurrence], functor: str, place: int) -> Iterator[Proposal]:
        """Yield the constants that facts, tables and other rules have in this argument."""
        found: dict[str, str] = {}
        for table in self.gathered.tables:
            if terms.bare(table.functor) == functor and place < table.arity:
                for row in table.rows:
                    found.setdefault(row[place], f"{table.header[place]} in {table.path}")
                    if len(found) >= MOST_CONSTANTS:
                        break
        for one in names:
            if one.role == "constant" and one.functor == functor and one.place == place:
                found.setdefault(one.name, f"in {functor}(…)")
        return (Proposal(name, "constant", detail) for name, detail in list(found.items())[:MOST_CONSTANTS])


def _about_table(table: FactTable) -> str:
    if table.log is not None:
        return f"what stands at place {table.log.place} of `{table.log.functor}` in the log of training"
    return f"{counted(len(table.rows), 'fact')} from `{table.path}` ({', '.join(table.header)})"


def _statement_of(one: Occurrence) -> tuple[int, int]:
    return id(one.span.source), one.statement


def _same(one: Occurrence, other: Occurrence) -> bool:
    if one.name != other.name or one.name == ANONYMOUS:
        return one is other
    if one.role == "variable" or other.role == "variable":
        return one.role == other.role and _statement_of(one) == _statement_of(other)
    if one.is_functor and other.is_functor:
        return one.arity == other.arity or None in (one.arity, other.arity)
    return one.role == other.role and one.role in ("parameter", "constant")


def _argument_place(words: list[str]) -> tuple[str | None, int]:
    """Return the functor of the last open parenthesis, and the place of its next argument."""
    opened: list[tuple[str, int]] = []
    for place, word in enumerate(words):
        if word == "(":
            opened.append((words[place - 1] if place else "", 0))
        elif word == ")":
            del opened[-1:]
        elif word == "," and opened:
            opened[-1] = (opened[-1][0], opened[-1][1] + 1)
    return opened[-1] if opened else (None, 0)


# --- rules in words ---


def meaning(rule: Rule) -> str:
    """Return the meaning of a rule as a sentence."""
    head = f"`{pretty_atom(rule.head)}`"
    if rule.is_fact:
        return f"{head} is true, always"
    if rule.kind == "deduce":
        return f"{head} is true whenever {_all(rule.body)}"
    event, rest = rule.body[0], rule.body[1:]
    when = "at the beginning of the sequence" if _is_bos(event) else f"when {_literal(event)} occurs"
    when += f" while {_all(rest)}" if rest else ""
    if rule.kind == "remove":
        return f"{when}, what was added for {head} is erased"
    until = "from then on" if rule.duration is None else f"for {rule.duration}"
    return f"{when}, {head} becomes true and attends to this event {until}"


def _is_bos(literal: Literal) -> bool:
    return isinstance(literal, Atom) and literal.functor == "bos"


def _literal(literal: Literal) -> str:
    return f"`{pretty_literal(literal)}`"


def _all(body: Iterable[Literal]) -> str:
    found = [_literal(one) for one in body]
    return f"{' and '.join(found)} {'holds' if len(found) == 1 else 'hold'}"
