"""Declarations and uses → one record a functor; two arities, contradicting declarations and reserved names are mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from foretell.lang.diagnostics import Diagnostic
from foretell.lang.program import BOS, EOS, Functor, FunctorKind, UncheckedProgram
from foretell.lang.source import Span
from foretell.lang.syntax import Atom, Embed, EventDeclaration, Key, Not, Rule, Table, chained, conditions
from foretell.options import Undeclared
from foretell.wording import counted, did_you_mean, shown

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
            message = f"{shown(name)} has {_arguments(arity)} here and {_arguments(first[0])} at {first[1].place}"
            self.refuse("two-arities", span, message, "give it the same arguments everywhere, or use two names")

    def twice(self, span: Span, name: str, what: str, here: object, before: object, place: Span) -> None:
        message = f"{shown(name)} is declared with {what} {here} here and {before} at {place.place}"
        self.refuse("declared-twice", span, message, "keep one of the declarations")

    def once(
        self, before: tuple[int, Span] | None, value: int, span: Span, name: str, what: str = "dimension"
    ) -> tuple[int, Span]:
        """What a functor is declared with: the first declaration counts, and another must say the same."""
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
        elif not isinstance(one, EventDeclaration | Embed | Key) or state.is_reserved(str(one.functor), one.span):
            continue
        elif isinstance(one, EventDeclaration):
            _event(state, one)
        else:
            name = str(one.functor)
            state.names[name] = None
            declared = state.declared.setdefault(name, _Declared())
            if isinstance(one, Embed):
                declared.dim = state.once(declared.dim, one.dim, one.span, name)
            else:
                declared.key = state.once(declared.key, one.length, one.span, name, "key length")
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
    return counted(number, "argument") if number else "no arguments"


MOST_SUGGESTIONS = 20  # each compares a name with all others


@dataclass(frozen=True)
class Use:
    """A functor in a body."""

    atom: Atom
    rule: Rule
    place: int
    negated: bool

    @property
    def is_event(self) -> bool:
        """What `<-` waits for."""
        return self.rule.kind != "deduce" and self.place == 0


class Reach:
    def __init__(self, gathered: UncheckedProgram, functors: Functors, undeclared: Undeclared) -> None:
        self.gathered, self.functors, self.undeclared = gathered, functors, undeclared
        self.kind = {name: functor.kind for name, functor in functors.by_name.items()}
        self.suggestions = 0
        self.suggested: dict[tuple[str, bool], str | None] = {}

    @cached_property
    def uses(self) -> list[Use]:
        return [
            Use(atom, one.rule, place, isinstance(literal, Not))
            for one in self.gathered.rules
            for place, literal in enumerate(one.rule.body)
            for atom, _ in conditions((literal,))
            if atom.functor not in RESERVED
        ]

    @cached_property
    def produced(self) -> set[str]:
        """Functors that some fact, table or rule is about."""
        heads = {one.rule.head.functor for one in self.gathered.rules if one.rule.kind != "remove"}
        return heads | {table.functor for table in self.gathered.tables}

    def is_root(self, use: Use) -> bool:
        """Nothing at all makes it true, and it is needed."""
        name = use.atom.functor
        if name in self.produced or name in self.gathered.unread:
            return False
        if self.kind[name] != "fact" and use.rule.kind != "deduce" and not isinstance(use.rule.body[0], Atom):
            return False  # the event stands in the wrong place, which is reported
        return not (use.is_event and self.kind[name] != "event")

    def holds(self, given: Iterable[str]) -> set[str]:
        """The least fixed point, with some functors taken for granted."""
        true = set(given) | {table.functor for table in self.gathered.tables}
        rules = [
            (one.rule.head.functor, [*self._needed(one.rule)])
            for one in self.gathered.rules
            if one.rule.kind != "remove"
        ]
        return true | {rules[number][0] for number in chained(rules, true)}

    def _needed(self, rule: Rule) -> Iterator[str]:
        for place, literal in enumerate(rule.body):
            if not isinstance(literal, Atom) or literal.functor in RESERVED:
                continue
            if rule.kind != "deduce" and place == 0 and self.kind[literal.functor] != "event":
                continue  # exogenous events may occur at any time; one that is undeclared is reported elsewhere
            yield literal.functor

    def suggest(self, name: str, events_only: bool = False) -> str | None:
        if (name, events_only) not in self.suggested:
            self.suggestions += 1
            known = [one for one in self.kind if one in self.produced or self.kind[one] != "fact"]
            if events_only:
                known = [one for one in known if self.kind[one] != "fact"]
            found = (did_you_mean(name, known) or None) if self.suggestions <= MOST_SUGGESTIONS else None
            self.suggested[name, events_only] = found
        return self.suggested[name, events_only]

    def label(self, name: str) -> str:
        return shown(str(self.functors.by_name[name]))


def check_reach(reach: Reach) -> Iterator[Diagnostic]:
    yield from _events(reach)
    if not reach.gathered.is_complete:
        return  # a file is missing, and could make anything true
    roots = [use for use in reach.uses if reach.is_root(use)]
    for use in roots:
        yield _never(reach, use)
    granted = {use.atom.functor for use in roots} | reach.gathered.unread
    granted |= {name for name in reach.kind if name not in reach.produced}
    possible = reach.holds(granted)
    told: set[str] = set()
    for use in reach.uses:
        name = use.atom.functor
        excused = use.is_event and reach.kind[name] != "event"
        if name not in possible and name not in told and not excused:
            told.add(name)
            message = f"{reach.label(name)} can never be true: each of its rules needs it to be true already"
            hint = "add a fact, or a rule that does not depend on it"
            yield Diagnostic("never-true", use.atom.span, message, hint)
    yield from _warnings(reach, possible & reach.produced, told | {use.atom.functor for use in roots})


def _never(reach: Reach, use: Use) -> Diagnostic:
    name, label = use.atom.functor, reach.label(use.atom.functor)
    exogenous = reach.kind[name] == "exogenous"
    if exogenous and use.rule.kind == "deduce" and not use.negated:
        message = f"`:-` where `<-` was meant: {label} is an exogenous event, which occurs and is never true"
        return Diagnostic("wrong-arrow", use.atom.functor_span, message, "write `<-`, and the event first")
    hint = reach.suggest(name)
    if use.is_event:
        message = f"{label} can never happen: no fact, table or rule makes it possible"
        hint = hint or f"give a rule that makes it possible, or declare it: `:- exogenous({_short(name)}).`"
    elif exogenous:
        message = f"{label} is an exogenous event: it occurs and is never true"
        message += ", so `not` always holds" if use.negated else ""
        hint = "an exogenous event can only be the first condition of `<-`"
    else:
        message = f"{label} can never be true: no fact, table or rule makes it so"
        message += ", and `not` always holds" if use.negated else ""
        hint = hint or "add facts, a `:- table(…).` or a rule for it, or remove the condition"
    return Diagnostic("never-true", use.atom.functor_span, message, hint)


def _events(reach: Reach) -> Iterator[Diagnostic]:
    """The first condition of `<-` must be able to be an event."""
    for one in reach.gathered.rules:
        if one.rule.kind == "deduce":
            continue
        first = one.rule.body[0]
        if not isinstance(first, Atom):
            what = "a negation" if isinstance(first, Not) else "a comparison"
            message = f"the first condition of `<-` is the event, and this is {what}"
            yield Diagnostic("event-first", first.span, message, "put the event first: `forum(T) <- create(T), …`")
            continue
        name = first.functor
        if name in RESERVED or reach.kind[name] != "fact" or name in reach.gathered.unread:
            continue
        if reach.undeclared == "exogenous" or not reach.gathered.is_complete:
            continue
        message = f"{reach.label(name)} can never happen: nothing declares it an event"
        if name in reach.produced:
            hint = f"declare it, `:- event({_short(name)}).`"
            hint += ", or write `:-` if it is a condition" if one.rule.kind == "add" else ", or begin with an event"
        else:
            hint = reach.suggest(name, True) or f"declare it: `:- exogenous({_short(name)}).` if it occurs in the data"
        yield Diagnostic("unknown-event", first.functor_span, message, hint)


def _warnings(reach: Reach, possible: set[str], told: set[str]) -> Iterator[Diagnostic]:
    added = {one.rule.head.functor for one in reach.gathered.rules if one.rule.kind == "add"}
    ignored = added | reach.gathered.unread | set(RESERVED)
    for one in reach.gathered.rules:
        head = one.rule.head
        if one.rule.kind == "remove" and head.functor not in ignored:
            message = f"no rule adds {reach.label(head.functor)}, so there is nothing to remove"
            hint = reach.suggest(head.functor) if head.functor not in reach.produced else None
            hint = hint or "removal erases what `<-` added; what is deduced or written stays true"
            yield Diagnostic("removes-nothing", head.functor_span, message, hint, "warning")
    yield from _events_as_conditions(reach)
    used = reach.produced | {use.atom.functor for use in reach.uses} | reach.gathered.unread
    used |= {one.rule.head.functor for one in reach.gathered.rules}
    for name, span in reach.functors.declared_at.items():
        functor = reach.functors.by_name.get(name)
        if functor is None or name in told or name in reach.gathered.unread:
            continue
        if functor.kind == "event" and name not in possible:
            message = f"{shown(str(functor))} is declared an event, and no rule ever makes it possible"
            hint = f"write a rule for it, `{_short(name)} :- …`, or declare it exogenous"
            yield _warn("event-never-possible", span, message, hint)
        elif name not in used and functor.kind != "exogenous":  # which the data may have, and no rule need wait for
            yield _warn("unused-declaration", span, f"{shown(name)} is declared and used nowhere", reach.suggest(name))
        elif functor.key is not None and name not in added:
            message = f"no rule adds {shown(name)}, so its key length is used nowhere"
            yield _warn("unused-declaration", span, message, "remove the declaration of its key")


def _events_as_conditions(reach: Reach) -> Iterator[Diagnostic]:
    """`lies(P,W) :- admit(P,W).` holds while the event is possible, and `<-` is what most people mean."""
    for use in reach.uses:
        name = use.atom.functor
        if use.rule.kind != "deduce" or use.negated or reach.kind[name] != "event":
            continue
        if reach.kind[use.rule.head.functor] != "event":
            message = f"{reach.label(name)} is an event: as a condition of `:-` it means 'is possible now', not 'has happened'"
            more = ", …" if len(use.rule.body) > 1 else "."
            hint = (
                f"for 'has happened' write `<-`, with the event first: {shown(f'{use.rule.head} <- {use.atom}{more}')}"
            )
            yield _warn("event-as-condition", use.atom.functor_span, message, hint)


def _warn(code: str, span: Span, message: str, hint: str | None) -> Diagnostic:
    return Diagnostic(code, span, message, hint or "remove the declaration", "warning")


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:39]}…"
