"""Declarations and uses → one record a functor; two arities, contradicting declarations and reserved names are mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from foretell.lang.diagnostics import Diagnostic
from foretell.lang.program import BOS, EOS, Functor, FunctorKind, UncheckedProgram, Undeclared
from foretell.lang.source import Span
from foretell.lang.syntax import Atom, Embed, EventDeclaration, Key, Table, conditions
from foretell.wording import shown

RESERVED = (BOS, EOS)


@dataclass
class _Declared:
    kind: tuple[FunctorKind, Span] | None = None
    event_dim: tuple[int | None, Span] | None = None
    dim: tuple[int, Span] | None = None
    key: tuple[int, Span] | None = None


@dataclass(frozen=True)
class Functors:
    """All functors in the order of their first use or declaration, and where each was declared."""

    by_name: dict[str, Functor]
    declared_at: dict[str, Span]
    found: list[Diagnostic]


@dataclass
class _Resolving:
    declared: dict[str, _Declared] = field(default_factory=dict)
    default: tuple[int, Span] | None = None
    arity: dict[str, tuple[int, Span]] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    found: list[Diagnostic] = field(default_factory=list)

    def refuse(self, code: str, span: Span, message: str, hint: str | None = None) -> None:
        self.found.append(Diagnostic(code, span, message, hint))

    def use(self, name: str, arity: int, span: Span) -> None:
        self.names[name] = None
        first = self.arity.setdefault(name, (arity, span))
        if first[0] != arity:
            self.refuse(
                "two-arities",
                span,
                f"{shown(name)} has {_arguments(arity)} here and {_arguments(first[0])} at {first[1].place}",
                "give it the same arguments everywhere, or use two names",
            )

    def twice(self, span: Span, name: str, what: str, here: object, before: object, place: Span) -> None:
        self.refuse(
            "declared-twice",
            span,
            f"{shown(name)} is declared with {what} {here} here and {before} at {place.place}",
            "keep one of the declarations",
        )


def resolve(gathered: UncheckedProgram, undeclared: Undeclared) -> Functors:
    state = _Resolving()
    for one in gathered.declarations:
        if isinstance(one, EventDeclaration):
            _event(state, one)
        elif isinstance(one, Embed):
            _embed(state, one)
        elif isinstance(one, Key):
            _key(state, one)
        elif isinstance(one, Table):
            _reserve(state, one.functor, one.span)
            state.names[one.functor] = None
    for atom in _atoms(state, gathered):
        state.use(atom.functor, len(atom.args), atom.functor_span)
    for table in gathered.tables:
        state.use(table.functor, table.arity, table.span)
    accepted = _undeclared_events(state, gathered) if undeclared == "exogenous" else set()
    by_name = {name: _functor(state, name, accepted) for name in state.names}
    declared_at = {name: span for name, one in state.declared.items() if (span := _first_span(one)) is not None}
    return Functors(by_name, declared_at, state.found)


def _functor(state: _Resolving, name: str, accepted: set[str]) -> Functor:
    declared = state.declared.get(name) or _Declared()
    kind = declared.kind[0] if declared.kind else "exogenous" if name in accepted else "fact"
    dim = declared.dim[0] if declared.dim else state.default[0] if state.default else None
    arity = state.arity[name][0] if name in state.arity else None
    return Functor(name, arity, kind, dim, declared.key[0] if declared.key else None)


def _first_span(declared: _Declared) -> Span | None:
    found = [one[1] for one in (declared.kind, declared.dim, declared.key) if one is not None]
    return found[0] if found else None


def _undeclared_events(state: _Resolving, gathered: UncheckedProgram) -> set[str]:
    """Functors that some rule waits for and that nothing declares an event."""
    firsts = (one.rule.body[0] for one in gathered.rules if one.rule.kind != "deduce")
    names = {atom.functor for atom in firsts if isinstance(atom, Atom)} - {BOS}
    return {name for name in names if name not in state.declared or state.declared[name].kind is None}


def _event(state: _Resolving, one: EventDeclaration) -> None:
    if _reserve(state, one.functor, one.span):
        return
    declared = state.declared.setdefault(one.functor, _Declared())
    kind: FunctorKind = "exogenous" if one.exogenous else "event"
    if declared.kind is None:
        declared.kind, declared.event_dim = (kind, one.span), (one.dim, one.span)
    elif declared.kind[0] != kind:
        state.refuse(
            "declared-twice",
            one.span,
            f"{shown(one.functor)} is declared `{kind}` here and `{declared.kind[0]}` at {declared.kind[1].place}",
            "an exogenous event is never predicted, an event is: keep one of the declarations",
        )
        return
    elif declared.event_dim is not None and declared.event_dim[0] != one.dim:
        before = "the default" if declared.event_dim[0] is None else declared.event_dim[0]
        here = "the default" if one.dim is None else one.dim
        state.twice(one.span, one.functor, "dimension", here, before, declared.event_dim[1])
        return
    if one.dim is not None:
        _dim(state, declared, one.functor, one.dim, one.span)
    state.names[one.functor] = None
    if one.arity is not None:
        state.use(one.functor, one.arity, one.span)


def _embed(state: _Resolving, one: Embed) -> None:
    if one.functor is None:
        if state.default is not None and state.default[0] != one.dim:
            state.twice(one.span, "_", "dimension", one.dim, *state.default)
        state.default = state.default or (one.dim, one.span)
    elif not _reserve(state, one.functor, one.span):
        state.names[one.functor] = None
        _dim(state, state.declared.setdefault(one.functor, _Declared()), one.functor, one.dim, one.span)


def _dim(state: _Resolving, declared: _Declared, name: str, dim: int, span: Span) -> None:
    if declared.dim is not None and declared.dim[0] != dim:
        state.twice(span, name, "dimension", dim, *declared.dim)
    declared.dim = declared.dim or (dim, span)


def _key(state: _Resolving, one: Key) -> None:
    if _reserve(state, one.functor, one.span):
        return
    state.names[one.functor] = None
    declared = state.declared.setdefault(one.functor, _Declared())
    if declared.key is not None and declared.key[0] != one.length:
        state.twice(one.span, one.functor, "key length", one.length, *declared.key)
    declared.key = declared.key or (one.length, one.span)


def _reserve(state: _Resolving, name: str, span: Span) -> bool:
    if name not in RESERVED:
        return False
    state.refuse("reserved-name", span, f"{shown(name)} is reserved and cannot be declared", "use another name")
    return True


def _atoms(state: _Resolving, gathered: UncheckedProgram) -> Iterator[Atom]:
    """Every atom that stands for facts or events; reserved names are refused on the way."""
    hint = "`bos` may only be the first condition of `<-`, without arguments; use another name for other things"
    for one in gathered.rules:
        rule = one.rule
        first = rule.body[0] if rule.kind != "deduce" else None
        for atom in (rule.head, *(atom for atom, _ in conditions(rule.body))):
            if atom.functor not in RESERVED:
                yield atom
            elif atom is not first or atom.functor == EOS or atom.args:
                state.refuse("reserved-name", atom.functor_span, f"{shown(atom.functor)} is reserved", hint)


def _arguments(number: int) -> str:
    return "no arguments" if number == 0 else "1 argument" if number == 1 else f"{number} arguments"
