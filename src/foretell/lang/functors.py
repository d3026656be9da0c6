"""Declarations and uses → one record per functor. Reports contradicting declarations and reserved names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from foretell.lang.arities import arguments
from foretell.lang.diagnostics import Diagnostic
from foretell.lang.program import BOS, EOS, Functor, FunctorKind, UncheckedProgram
from foretell.lang.source import Span
from foretell.lang.syntax import (
    Atom,
    Embed,
    EventDeclaration,
    FeatureDeclaration,
    GivenDeclaration,
    Key,
    Table,
    conditions,
)
from foretell.options import Undeclared
from foretell.terms import bare
from foretell.wording import did_you_mean, shown

RESERVED = (BOS, EOS)


@dataclass
class _Declared:
    kind: tuple[FunctorKind, Span] | None = None
    event_dim: tuple[int | None, Span] | None = None
    dim: tuple[int, Span] | None = None
    key: tuple[int, Span] | None = None


@dataclass(frozen=True)
class Functors:
    """All functors in the order of their first use or declaration, with the places of their declarations."""

    by_name: dict[str, Functor]
    declared_at: dict[str, Span]
    features: dict[str, tuple[str, ...]]  # event functor → names of feature columns
    found: list[Diagnostic]


@dataclass
class _Resolving:
    declared: dict[str, _Declared] = field(default_factory=dict)
    default: tuple[int, Span] | None = None
    arity: dict[str, tuple[int, Span]] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    given: dict[str, Span] = field(default_factory=dict)
    features: dict[str, FeatureDeclaration] = field(default_factory=dict)
    columns: dict[str, tuple[tuple[str, ...], Span]] = field(default_factory=dict)  # features of tables, by functor
    found: list[Diagnostic] = field(default_factory=list)

    def refuse(self, code: str, span: Span, message: str, hint: str | None = None) -> None:
        self.found.append(Diagnostic(code, span, message, hint))

    def use(self, name: str, arity: int, span: Span) -> None:
        self.names[name] = None
        first = self.arity.setdefault(name, (arity, span))
        assert first[0] == arity, f"{name} has several numbers of arguments: see `arities`"

    def twice(self, span: Span, name: str, what: str, here: object, before: object, place: Span) -> None:
        message = f"{shown(name)} is declared with {what} {here} here and {before} at {place.place}"
        self.refuse("declared-twice", span, message, "keep one of the declarations")

    def once(
        self, before: tuple[int, Span] | None, value: int, span: Span, name: str, what: str = "dimension"
    ) -> tuple[int, Span]:
        """Return the first declared value. If another declaration has a different value, report a mistake."""
        if before is not None and before[0] != value:
            self.twice(span, name, what, value, *before)
        return before or (value, span)

    def is_reserved(self, name: str, span: Span) -> bool:
        if name not in RESERVED:
            return False
        self.refuse("reserved-name", span, f"{shown(name)} is reserved and cannot be declared", "use another name")
        return True


def resolve(gathered: UncheckedProgram, undeclared: Undeclared) -> Functors:
    state = _Resolving()
    for one in gathered.declarations:
        if isinstance(one, Embed) and one.functor is None:
            state.default = state.once(state.default, one.dim, one.span, "_")
        elif isinstance(one, Table):
            state.is_reserved(one.functor, one.span)
            state.names[one.functor] = None
            _table(state, one)
        elif isinstance(one, FeatureDeclaration):
            _features(state, one)
        elif isinstance(one, GivenDeclaration):
            _given(state, one)
        elif not isinstance(one, EventDeclaration | Embed | Key) or state.is_reserved(str(one.functor), one.span):
            continue
        elif isinstance(one, EventDeclaration):
            _event(state, one)
        else:
            name = str(one.functor)
            state.names[name] = None
            if one.arity is not None:
                state.use(name, one.arity, one.span)
            declared = state.declared.setdefault(name, _Declared())
            if isinstance(one, Embed):
                declared.dim = state.once(declared.dim, one.dim, one.span, name)
            else:
                declared.key = state.once(declared.key, one.length, one.span, name, "key length")
    for atom in _atoms(state, gathered):
        state.use(atom.functor, len(atom.args), atom.functor_span)
    for table in gathered.tables:
        state.use(table.functor, table.arity, table.span)
    for name in state.given:
        if state.declared.get(name, _Declared()).kind is not None:
            message = f"{shown(name)} is declared an event, and facts that come with a sequence happen at no time"
            state.refuse("declared-twice", state.given[name], message, "keep one of the declarations")
    accepted = _undeclared_events(state, gathered) if undeclared == "exogenous" else set()
    by_name = {name: _functor(state, name, accepted) for name in state.names}
    _logs(state, by_name, gathered, undeclared)
    _without_embedding(state, by_name, gathered.unread)
    declared_at = {name: span for name, one in state.declared.items() if (span := _first_span(one)) is not None}
    columns = {name: one.columns for name, one in state.features.items()}
    return Functors(by_name, declared_at, columns, state.found)


def _functor(state: _Resolving, name: str, accepted: set[str]) -> Functor:
    declared = state.declared.get(name) or _Declared()
    kind = declared.kind[0] if declared.kind else "exogenous" if name in accepted else "fact"
    default = state.default[0] if state.default else None
    default = None if kind == "event" and default == 0 else default  # 0 would make its rate constant
    dim = declared.dim[0] if declared.dim else default
    if kind == "event" and dim == 0 and declared.dim:
        reason = f"{shown(name)} has dimension 0: with no embedding, its rate is one constant whenever it is possible"
        hint = "leave the dimension out, or give it one above 0, so that facts and the past can change its rate"
        state.found.append(Diagnostic("constant-rate", declared.dim[1], reason, hint, "warning"))
    arity = state.arity[name][0] if name in state.arity else None
    return Functor(name, arity, kind, dim, declared.key[0] if declared.key else None)


def _first_span(declared: _Declared) -> Span | None:
    found = [one[1] for one in (declared.kind, declared.dim, declared.key) if one is not None]
    return found[0] if found else None


def _undeclared_events(state: _Resolving, gathered: UncheckedProgram) -> set[str]:
    """Return the functors in the first condition of `<-` rules that are not declared as events."""
    firsts = (one.rule.body[0] for one in gathered.rules if one.rule.kind != "deduce")
    names = {atom.functor for atom in firsts if isinstance(atom, Atom)} - {BOS}
    return {name for name in names if name not in state.declared or state.declared[name].kind is None}


def _event(state: _Resolving, one: EventDeclaration) -> None:
    declared = state.declared.setdefault(one.functor, _Declared())
    kind: FunctorKind = "exogenous" if one.exogenous else "event"
    if declared.kind is None:
        declared.kind, declared.event_dim = (kind, one.span), (one.dim, one.span)
    elif declared.kind[0] != kind:
        before = f"`{declared.kind[0]}` at {declared.kind[1].place}"
        message = f"{shown(one.functor)} is declared `{kind}` here and {before}"
        hint = "an exogenous event is never predicted, an event is: keep one of the declarations"
        state.refuse("declared-twice", one.span, message, hint)
        return
    elif declared.event_dim is not None and declared.event_dim[0] != one.dim:
        here, before = ("the default" if dim is None else dim for dim in (one.dim, declared.event_dim[0]))
        state.twice(one.span, one.functor, "dimension", here, before, declared.event_dim[1])
        return
    if one.dim is not None:
        declared.dim = state.once(declared.dim, one.dim, one.span, one.functor)
    state.names[one.functor] = None
    if one.arity is not None:
        state.use(one.functor, one.arity, one.span)


def _given(state: _Resolving, one: GivenDeclaration) -> None:
    if state.is_reserved(one.functor, one.span):
        return
    state.names[one.functor] = None
    state.given.setdefault(one.functor, one.span)
    if one.arity is not None:
        state.use(one.functor, one.arity, one.span)


def _table(state: _Resolving, one: Table) -> None:
    first = state.columns.setdefault(one.functor, (one.features, one.span))
    if first[0] != one.features:
        here, before = (", ".join(some) or "none" for some in (one.features, first[0]))
        state.twice(one.span, one.functor, "features", here, before, first[1])


def _logs(
    state: _Resolving, by_name: Mapping[str, Functor], gathered: UncheckedProgram, undeclared: Undeclared
) -> None:
    """Check tables from a log: the event must exist and have an argument at this place."""
    for one in gathered.tables:
        if one.log is None or one.log.functor in gathered.unread or not gathered.is_complete:
            continue
        name = one.log.functor
        known = [functor for functor in by_name.values() if bare(functor.name) == name]
        if all(functor.kind == "fact" for functor in known) and undeclared == "error":
            message = f"`{one.log}` takes what stands in events, and nothing declares {shown(name)} an event"
            events = [name for name, functor in by_name.items() if functor.kind != "fact"]
            hint = did_you_mean(name, events, otherwise=f"declare it: `:- exogenous({name}).` if it occurs in the data")
            state.refuse("unknown-event", one.span, message, hint)
        elif known and all(functor.arity is not None and functor.arity < one.log.place for functor in known):
            message = f"`{one.log}`: {shown(str(known[0]))} has {arguments(known[0].arity or 0)}"
            state.refuse("bad-declaration", one.span, message, "places of arguments are counted from 1")


def _features(state: _Resolving, one: FeatureDeclaration) -> None:
    if state.is_reserved(one.functor, one.span):
        return
    state.names[one.functor] = None
    if one.arity is not None:
        state.use(one.functor, one.arity, one.span)
    first = state.features.setdefault(one.functor, one)
    if first.columns != one.columns:
        here, before = (", ".join(some.columns) for some in (one, first))
        state.twice(one.span, one.functor, "features", here, before, first.span)


def _without_embedding(state: _Resolving, by_name: Mapping[str, Functor], unread: set[str]) -> None:
    """Report features of functors that are not events or have no embedding."""
    for name, one in state.features.items():
        if by_name[name].kind == "fact" and name not in unread:
            message = f"{shown(name)} is not an event, and `features` names columns of events"
            hint = (
                f"declare it, `:- event({name}).`; facts have numbers in a table: `:- table({name}, …, features(…)).`"
            )
            state.refuse("no-place-for-features", one.span, message, hint)
    spans = {name: one.span for name, one in state.features.items()}
    spans |= {name: span for name, (columns, span) in state.columns.items() if columns}
    for name, span in spans.items():
        if by_name[name].dim == 0:
            message = f"{shown(name)} has dimension 0: there is no embedding that its features could enter"
            hint = f"give it one: `:- embed({name}, 8).`"
            state.refuse("no-place-for-features", span, message, hint)


def _atoms(state: _Resolving, gathered: UncheckedProgram) -> Iterator[Atom]:
    """Yield all atoms for facts or events. Reports reserved names."""
    hint = "`bos` may only be the first condition of `<-`, without arguments; use another name for other things"
    heads = [one.rule.head for one in gathered.rules]
    for place, rule in enumerate(gathered.bodies()):
        first = rule.body[0] if rule.kind != "deduce" else None
        for atom in (*heads[place : place + 1], *(atom for atom, _ in conditions(rule.body))):
            if atom.functor not in RESERVED:
                yield atom
            elif atom is not first or atom.functor == EOS or atom.args:
                state.refuse("reserved-name", atom.functor_span, f"{shown(atom.functor)} is reserved", hint)
