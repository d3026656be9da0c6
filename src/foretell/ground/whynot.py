"""Why a fact is not true: for every rule that could make it true, the first condition that fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

from foretell import terms
from foretell.ground.timeline import NEVER, Timeline
from foretell.lang.program import NumberedRule
from foretell.lang.syntax import (
    Atom,
    Compare,
    Constant,
    Count,
    Literal,
    Not,
    Rule,
    Term,
    Variable,
    literal_terms,
    pretty_rule,
)

Binding = dict[str, str]  # variable → constant
SHOWN_EVENTS = 3
SHOWN_RULE = 200  # the length in characters at which a shown rule is cut
MOST_STEPS = 20_000  # the limit of steps in the search for the failing condition


@dataclass(frozen=True)
class Failure:
    rule: str
    place: str
    text: str  # the rule as written in the program
    kind: str
    reasons: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        what = {"add": "add it", "given": "come with the sequence"}.get(self.kind, "deduce it")
        yield f"{self.rule} ({self.place}) could {what}: {self.text}"
        for reason in self.reasons:
            yield f"  {reason}"


def failures(timeline: Timeline, functor: str, args: tuple[str, ...], state: int) -> list[Failure]:
    past = _Past(timeline)
    found = []
    for numbered in timeline.grounding.program.rules:
        rule = numbered.rule
        if rule.kind == "remove" or rule.head.functor != functor or rule.is_fact:
            continue
        binding: Binding | None = _match(rule.head.args, args, {})
        if binding is None:
            continue
        if functor in timeline.grounding.program.given and numbered.is_made:
            told = f"sequence {timeline.sequence} has no such fact among its `facts`"
            found.append(Failure(numbered.name, rule.span.place, f":- given({functor}).", "given", (told,)))
            continue
        if numbered.is_made:
            found += _not_in_log(timeline, functor)
            continue
        binding = _with_equalities(rule.body, binding)
        if binding is None:
            reasons: list[str] = ["its equalities rule this fact out"]
        elif rule.kind == "deduce":
            reasons = [_failing(past, rule.body, binding, state)]
        else:
            reasons = _not_added(past, numbered, binding, functor, args, state)
        found.append(Failure(numbered.name, rule.span.place, _text(rule), rule.kind, tuple(reasons)))
    return found


def _not_in_log(timeline: Timeline, functor: str) -> list[Failure]:
    """Report arguments that occur in no event, neither in training nor in this sequence."""
    told = f"it is no row, and in no event of sequence {timeline.sequence}"
    tables = [one for one in timeline.grounding.program.tables if one.functor == functor and one.log is not None]
    return [
        Failure(f"table {functor}", one.span.place, f":- table({functor}, {one.log}).", "given", (told,))
        for one in tables
    ]


class _Past:
    """The facts of any state of a timeline as names, by functor."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._states: dict[int, dict[str, list[tuple[str, ...]]]] = {}

    def facts(self, state: int, functor: str) -> list[tuple[str, ...]]:
        found = self._states.get(state)
        if found is None:
            grounding = self.timeline.grounding
            found = {}
            for fact in self.timeline.facts_at(state):
                key = grounding.keys[fact]
                found.setdefault(grounding.functors[key[0]], []).append(self.args(fact))
            self._states = {state: found}  # only one state is kept, because a database can be large
        return found.get(functor, [])

    def args(self, fact: int) -> tuple[str, ...]:
        grounding = self.timeline.grounding
        return tuple(grounding.constants[arg] for arg in grounding.keys[fact][1:])


def _text(rule: Rule) -> str:
    written = pretty_rule(rule)
    return written if len(written) <= SHOWN_RULE else f"{written[:SHOWN_RULE]} …"


def _failing(past: _Past, body: tuple[Literal, ...], binding: Binding, state: int) -> str:
    """Return the condition at which the search, in program order, came furthest. Comparisons wait until their variables are bound."""
    steps = MOST_STEPS
    best = (-1, "")
    stack: list[tuple[Binding, tuple[Literal, ...], int]] = [(binding, body, 0)]
    while stack and steps > 0:
        steps -= 1
        found, left, done = stack.pop()
        now = _with_equalities(body, found)
        if now is None:
            values = ", ".join(f"{name} = {value}" for name, value in found.items())
            best = max(best, (done, f"its equalities fail for {values}"), key=itemgetter(0))
            continue
        place = next((place for place, one in enumerate(left) if _decidable(one, now)), None)
        if place is None:
            return "its conditions hold in another state only"
        literal, rest = left[place], left[:place] + left[place + 1 :]
        following, reason = _try(past, literal, now, state)
        if not following:
            best = max(best, (done, reason), key=itemgetter(0))
            continue
        if not rest:
            return "all its conditions hold"
        stack.extend((one, rest, done + 1) for one in following[:steps])
    return best[1]


def _decidable(literal: Literal, binding: Binding) -> bool:
    if isinstance(literal, Atom):
        return True
    variables = (term for term in literal_terms(literal) if isinstance(term, Variable))
    counts = isinstance(literal, Not | Count)
    return all(one.name in binding or (counts and one.is_anonymous) for one in variables)


def _try(past: _Past, literal: Literal, binding: Binding, state: int) -> tuple[list[Binding], str]:
    """Return all bindings that satisfy a condition, or the reason why there are none."""
    if isinstance(literal, Compare):
        left, right = (_value(side, binding) or "" for side in (literal.left, literal.right))
        if literal.holds(left, right):
            return [binding], ""
        return [], f"`{literal}` fails: {f'both are {left}' if left == right else f'they are {left} and {right}'}"
    if isinstance(literal, Not):
        for fact in past.facts(state, literal.atom.functor):
            if _match(literal.atom.args, fact, binding) is not None:
                true = _written(literal.atom.functor, fact)
                return [], f"`not {_shown(literal.atom, binding)}` fails: `{true}` is true"
        return [binding], ""
    if isinstance(literal, Count):
        facts = [
            one
            for one in past.facts(state, literal.atom.functor)
            if _match(literal.atom.args, one, binding) is not None
        ]
        number, right = literal.of(facts), _value(literal.right, binding) or ""
        if literal.holds(number, right):
            return [binding], ""
        counted = f"{literal.word}({_shown(literal.atom, binding)})"
        return (
            [],
            f"`{counted} {literal.sign} {right}` fails: {'there is none' if number is None else f'it is {number}'}",
        )
    matches = (_match(literal.args, fact, binding) for fact in past.facts(state, literal.functor))
    following = [found for found in matches if found is not None]
    if following:
        return following, ""
    shown = _shown(literal, binding)
    free = any(isinstance(arg, Variable) and arg.name not in binding for arg in literal.args)
    return [], f"no fact matches `{shown}`" if free else f"`{shown}` is not true"


def _not_added(
    past: _Past, numbered: NumberedRule, binding: Binding, functor: str, args: tuple[str, ...], state: int
) -> list[str]:
    timeline, rule = past.timeline, numbered.rule
    erased = _erased(timeline, numbered.place - 1, functor, args, state)
    event = rule.body[0]
    assert isinstance(event, Atom), "the first condition of `<-` is an event"
    reasons = [] if erased is None else [erased[1]]
    matching = 0
    for place in range(state - 1, -1 if erased is None else erased[0], -1):
        if place == 0:
            name, values = "bos", ()
        elif timeline.is_expiry[place - 1]:
            continue
        else:
            fact = int(timeline.events[place - 1])
            name, values = timeline.grounding.functors[timeline.grounding.keys[fact][0]], past.args(fact)
        found = _match(event.args, values, binding) if name == event.functor else None
        if found is None:
            continue
        matching += 1
        if len(reasons) < SHOWN_EVENTS:
            reason = _failing(past, rule.body[1:], found, place) if rule.body[1:] else "it was removed"
            number = timeline.event_number(place)
            when = "at the start" if place == 0 else f"at event {number}, time {timeline.time_of(place + 1):g}"
            reasons.append(f"{when}, `{_written(name, values)}`: {reason}")
        elif matching > 1000:
            break
    if erased is not None:
        return reasons
    if not matching:
        return [f"no event `{_shown(event, binding)}` has happened"]
    if matching > len(reasons):
        reasons.append(f"… and {matching - len(reasons)} earlier events that did not add it either")
    return reasons


def _erased(timeline: Timeline, rule: int, functor: str, args: tuple[str, ...], state: int) -> tuple[int, str] | None:
    """Return the change that ended this rule's last addition of the fact, as number and text; None if there is no such addition."""
    grounding = timeline.grounding
    fact = grounding.find(functor, args)
    ended = [
        (event, erased)
        for instance, event, erased in timeline.additions.tolist()
        if grounding.head[instance] == fact and grounding.rule[instance] == rule and event < state and erased != NEVER
    ]
    if not ended:
        return None
    event, erased = max(ended)
    removers = [one for one, when in timeline.removals.tolist() if when == erased and grounding.head[one] == fact]
    by = f" ({grounding.rule_name(grounding.rule[removers[0]])})" if removers else ""
    number = timeline.event_number(event)
    when = "at the start" if event == 0 else f"by event {number} at {timeline.time_of(event + 1):g}"
    at = f"{timeline.time_of(erased + 1):g}"
    if erased and timeline.is_expiry[erased - 1]:
        return erased, f"it was added {when} and expired at {at}"
    cause = grounding.text(int(timeline.events[erased - 1])) if erased else "bos"
    return erased, f"it was added {when} and removed by event {timeline.event_number(erased)}, `{cause}` at {at}{by}"


def _match(pattern: tuple[Term, ...], values: tuple[str, ...], binding: Binding) -> Binding | None:
    if len(pattern) != len(values):
        return None
    found = binding
    for term, value in zip(pattern, values, strict=True):
        if isinstance(term, Constant):
            if term.text != value:
                return None
        elif term.is_anonymous:
            continue
        elif found.get(term.name, value) != value:
            return None
        elif term.name not in found:
            found = {**found, term.name: value}
    return found


def _with_equalities(body: tuple[Literal, ...], binding: Binding) -> Binding | None:
    """Return the binding extended by `=` conditions until nothing changes; None if two different values meet."""
    equalities = [one for one in body if isinstance(one, Compare) and one.equal]
    if not equalities:
        return binding
    found = dict(binding)
    before = -1
    while len(found) > before:
        before = len(found)
        for one in equalities:
            left, right = _value(one.left, found), _value(one.right, found)
            if left is not None and right is not None and left != right:
                return None
            for side, value in ((one.left, right), (one.right, left)):
                if isinstance(side, Variable) and value is not None:
                    found.setdefault(side.name, value)
    return found


def _value(term: Term, binding: Binding) -> str | None:
    return term.text if isinstance(term, Constant) else binding.get(term.name)


def _shown(atom: Atom, binding: Binding) -> str:
    return _written(atom.functor, tuple(_value(arg, binding) or str(arg) for arg in atom.args))


def _written(functor: str, args: tuple[str, ...]) -> str:
    return terms.fact(functor, args)
