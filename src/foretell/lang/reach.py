"""Rules, facts and tables → everything that can ever be true or happen (a least fixed point). Reports conditions that never can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from foretell.lang.diagnostics import Diagnostic
from foretell.lang.functors import RESERVED, Functors
from foretell.lang.program import UncheckedProgram
from foretell.lang.reachable import chained
from foretell.lang.source import Span
from foretell.lang.syntax import Atom, Count, GivenDeclaration, Not, Rule, conditions
from foretell.options import Undeclared
from foretell.terms import bare
from foretell.wording import did_you_mean, listed, shown

MOST_SUGGESTIONS = 20  # the number of names for which a suggestion is searched; each search compares all names


@dataclass(frozen=True)
class Use:
    """An atom in a body."""

    atom: Atom
    rule: Rule
    place: int
    negated: bool

    @property
    def is_event(self) -> bool:
        """Whether this is the event of a `<-` rule."""
        return self.rule.kind != "deduce" and self.place == 0


class Reach:
    def __init__(self, gathered: UncheckedProgram, functors: Functors, undeclared: Undeclared) -> None:
        self.gathered, self.functors, self.undeclared = gathered, functors, undeclared
        self.kind = {name: functor.kind for name, functor in functors.by_name.items()}
        self.suggested: dict[tuple[str, bool], str | None] = {}

    @cached_property
    def uses(self) -> list[Use]:
        return [
            Use(atom, rule, place, isinstance(literal, Not))
            for rule in self.gathered.bodies()
            for place, literal in enumerate(rule.body)
            for atom, _ in conditions((literal,))
            if atom.functor not in RESERVED
        ]

    @cached_property
    def produced(self) -> set[str]:
        """The functors of all facts and tables and of the heads of rules."""
        heads = {one.rule.head.functor for one in self.gathered.rules if one.rule.kind != "remove"}
        return heads | self._from_outside

    @cached_property
    def _from_outside(self) -> set[str]:
        """The functors whose facts come from tables or with sequences."""
        given = {one.functor for one in self.gathered.declarations if isinstance(one, GivenDeclaration)}
        return given | {table.functor for table in self.gathered.tables}

    def is_root(self, use: Use) -> bool:
        """Whether the functor is used but nothing makes it true, so this is the cause of other mistakes."""
        name = use.atom.functor
        if name in self.produced or name in self.gathered.unread:
            return False
        if self.kind[name] != "fact" and use.rule.kind != "deduce" and not isinstance(use.rule.body[0], Atom):
            return False  # the event is in the wrong place, which is reported elsewhere
        return not (use.is_event and self.kind[name] != "event")

    def holds(self, given: Iterable[str]) -> set[str]:
        """Return the functors that can hold, as a least fixed point. Functors in `given` are assumed to hold."""
        true = set(given) | self._from_outside
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
                continue  # exogenous events may occur at any time; undeclared events are reported elsewhere
            yield literal.functor

    def suggest(self, name: str, events_only: bool = False) -> str | None:
        if (name, events_only) not in self.suggested:
            known: list[str] = []
            if len(self.suggested) < MOST_SUGGESTIONS:
                reachable = set() if events_only else self.produced
                known = [one for one, kind in self.kind.items() if one in reachable or kind != "fact"]
            alike = [one for one in known if one != name and bare(one) == bare(name)]  # other numbers of arguments
            meant = f"did you mean {listed(alike)}?" if alike else did_you_mean(name, known)
            self.suggested[name, events_only] = meant or None
        return self.suggested[name, events_only]

    def label(self, name: str) -> str:
        return shown(str(self.functors.by_name[name]))


def check_reach(reach: Reach) -> Iterator[Diagnostic]:
    yield from _events(reach)
    if not reach.gathered.is_complete:
        return  # a file is missing, which could make anything true
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
    """Check that the first condition of each `<-` rule can be an event."""
    for one in reach.gathered.rules:
        if one.rule.kind == "deduce":
            continue
        first = one.rule.body[0]
        if not isinstance(first, Atom):
            what = "a negation" if isinstance(first, Not) else "a count" if isinstance(first, Count) else "a comparison"
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
        elif name not in used and functor.kind != "exogenous":  # such events need no rule
            yield _warn("unused-declaration", span, f"{shown(name)} is declared and used nowhere", reach.suggest(name))
        elif functor.key is not None and name not in added:
            message = f"no rule adds {shown(name)}, so its key length is used nowhere"
            yield _warn("unused-declaration", span, message, "remove the declaration of its key")


def _events_as_conditions(reach: Reach) -> Iterator[Diagnostic]:
    """Warn about `lies(P,W) :- admit(P,W).`, which holds while the event is possible. Usually `<-` is meant."""
    for use in reach.uses:
        name = use.atom.functor
        if use.rule.kind != "deduce" or use.negated or reach.kind[name] != "event":
            continue
        if reach.kind.get(use.rule.head.functor, "event") != "event":  # a promise may be about possible events
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
