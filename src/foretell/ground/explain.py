"""Why a fact holds in a state of a timeline (its proofs, down to additions and facts), or why not (what fails in each rule)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from foretell.errors import ForetellError
from foretell.ground.product_rows import listed
from foretell.ground.timeline import Timeline
from foretell.ground.whynot import Failure, failures
from foretell.lang.reachable import chained
from foretell.terms import NameProblem, normalise
from foretell.wording import did_you_mean

SHOWN_PROOFS, SHOWN_ADDITIONS = 5, 5
MOST_LINES, MOST_FACTS = 400, 10_000  # limits of a proof tree: lines printed, facts collected


@dataclass(frozen=True)
class Addition:
    """An event that added the fact, which was not removed since."""

    rule: str
    place: str
    event_index: int
    time: float
    conditions: tuple[str, ...]  # the event comes first
    until: float | None = None  # the time at which the addition expires; None: it does not expire

    def words(self) -> str:
        when = "at the start" if self.event_index == 0 else f"by event {self.event_index} at {self.time:g}"
        rest = f" with {', '.join(self.conditions[1:])}" if self.conditions[1:] else ""
        until = "" if self.until is None else f", until {self.until:g}"
        return f"added {when}: {self.conditions[0]}{rest}{until}  ({self.rule}, {self.place})"

    def to_json(self) -> dict[str, Any]:
        event, *conditions = self.conditions
        found = {**asdict(self), "event": event, "conditions": conditions}
        return {name: value for name, value in found.items() if name != "until" or value is not None}


@dataclass(frozen=True)
class Proof:
    """A rule that deduces the fact from other facts. A fact of the program has a proof without conditions."""

    rule: str
    place: str
    body: tuple[str, ...]
    given: bool = False  # whether the fact came with the sequence

    def words(self) -> str:
        if self.given:
            return f"given with the sequence: {self.place}"
        return f"{'deduced by' if self.body else 'a fact of the program:'} {self.rule}, {self.place}"


@dataclass(frozen=True)
class ProofExplanation:
    """The proofs and additions of one fact. Facts named in its proofs have explanations of their own."""

    fact: str
    proofs: tuple[Proof, ...]
    additions: tuple[Addition, ...]
    more: int = 0  # the number of proofs and additions that are not shown

    def to_json(self) -> dict[str, Any]:
        additions = [one.to_json() for one in self.additions]
        proofs = [asdict(one) for one in self.proofs]
        return {"fact": self.fact, "proofs": proofs, "additions": additions, "not_shown": self.more}


@dataclass(frozen=True)
class WhyAnswer:
    fact: str
    sequence: str
    state: int
    holds: bool
    because: dict[str, ProofExplanation]  # by fact, starting with the requested one; empty if it is not true
    failures: tuple[Failure, ...]
    remarks: tuple[str, ...] = ()  # hints about a fact that is not true

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        if self.holds:
            found = self._tree()
            more = [f"… and {len(found) - MOST_LINES} lines more"] if len(found) > MOST_LINES else []
            return [*found[:MOST_LINES], *more]
        no_rule = ", and no fact, table or rule of the program can make it so"
        told = [f"  {line}" for one in self.failures for line in one.lines()]
        return [f"`{self.fact}` is not true{':' if self.failures else no_rule}", *told, *self.remarks]

    def _tree(self) -> list[str]:
        """Return the lines of the proof tree, depth first. There is no recursion in Python, because proofs can be long."""
        told: set[str] = set()
        found: list[str] = []
        stack: list[tuple[str, str | None]] = [("", self.fact)]  # (indent, fact) to expand, or (finished line, None)
        while stack:
            indent, fact = stack.pop()
            node = self.because.get(fact) if fact is not None else None
            if fact is None or node is None or fact in told:
                found.append(indent if fact is None else f"{indent}{fact}{'  (see above)' if fact in told else ''}")
                continue
            told.add(fact)
            found.append(f"{indent}{fact}")
            inner = indent + "  "
            found.extend(f"{inner}{addition.words()}" for addition in node.additions)
            following: list[tuple[str, str | None]] = []
            for proof in node.proofs:
                following.append((f"{inner}{proof.words()}", None))
                following.extend((inner + "  ", one) for one in proof.body)
            if node.more:
                following.append((f"{inner}… and {node.more} more proofs or additions", None))
            stack.extend(reversed(following))
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "fact": self.fact,
            "sequence": self.sequence,
            "index": self.state,
            "holds": self.holds,
            "because": [one.to_json() for one in self.because.values()],
            "failures": [asdict(one) for one in self.failures],
            "remarks": list(self.remarks),
        }


def why(timeline: Timeline, fact: str, state: int) -> WhyAnswer:
    """Explain why a fact holds in a state of the database, or why it does not.

    Args:
        timeline: the timeline of one sequence, from `replay`.
        fact: its name, as in data files.
        state: 0 is before everything, 1 after `bos`, n + 1 after n events.

    Returns:
        A proof, or the conditions that fail.

    Raises:
        ForetellError: the program has no such functor, or the sequence no such state.

    Example:
        >>> program = ft.Program.from_text("user(ann). :- event(buy). buy(U) :- user(U). has(U) <- buy(U).")
        >>> data = ft.EventData.from_names([["buy(ann)"]], [[1.0]])
        >>> timeline = ft.replay(program, data).timelines[0]
        >>> [ft.why(timeline, "has(ann)", state).holds for state in (1, 2)]
        [False, True]
    """
    if not isinstance(timeline, Timeline):
        found = type(timeline).__name__
        raise ForetellError(
            f"timeline: expected one of a replay's timelines, found {found}; give replay(…).timelines[0]"
        )
    timeline.check_state(state)
    name = _name(fact)
    functor, args = timeline.grounding.program.split(name)
    known = timeline.grounding.program.functors.get(functor)
    if known is None:
        hint = did_you_mean(functor, timeline.grounding.program.functors, before="; ")
        raise ForetellError(f"`{name}`: the program has no functor `{functor}`{hint}")
    if known.arity is not None and known.arity != len(args):
        raise ForetellError(f"`{name}` has {len(args)} arguments; the program has `{known}`")
    timeline = _with_rows(timeline, functor, args)
    number = timeline.grounding.find(functor, args)
    tree = _Tree(timeline, state)
    if number is not None and tree.is_true(number):
        return WhyAnswer(name, timeline.sequence, state, True, tree.because(number), ())
    found = tuple(failures(timeline, functor, args, state))
    return WhyAnswer(name, timeline.sequence, state, False, {}, found, tuple(_remarks(timeline, functor, args, state)))


def _with_rows(timeline: Timeline, functor: str, args: tuple[str, ...]) -> Timeline:
    """Return the timeline, with the event listed if it is an event of a product."""
    grounding = timeline.grounding
    products = grounding.products_of(functor)
    if not products or any(arg not in grounding.constants for arg in args):
        return timeline
    constants = {name: number for number, name in enumerate(grounding.constants)}
    return listed(timeline, [(products[0].functor, *(constants[arg] for arg in args))])


def _name(fact: str) -> str:
    """Return the canonical spelling of a fact. Raises an error for other syntax of programs."""
    text = fact.strip()
    if text.startswith("not ") or text.startswith("!"):
        word = text.split()[0][:3]
        raise ForetellError(
            f"{fact!r}: ask about the fact itself, without {word!r}; the answer says whether it is true"
        )
    try:
        return normalise(text[:-1] if text.endswith(").") else text)
    except NameProblem as problem:
        what = str(problem).replace("event `", "`").replace("an event name", "the fact")
        ask = "Ask about one fact with its values; a replay lists all that are true at a time"
        raise ForetellError(f"{what}. {ask}") from None


def _remarks(timeline: Timeline, functor: str, args: tuple[str, ...], state: int) -> list[str]:
    """Return remarks on arguments that occur nowhere, and on exogenous events, which are never true."""
    grounding = timeline.grounding
    found = []
    for value in dict.fromkeys(args):
        if value not in grounding.constants:
            hint = did_you_mean(value, grounding.constants, before="; ")
            found.append(f"`{value}` occurs nowhere in the program or in this sequence{hint}")
    if grounding.program.functors[functor].kind == "exogenous":
        fact = grounding.find(functor, args)
        places = [place for place, event in enumerate(timeline.events[: state - 1].tolist()) if event == fact]
        last = f"; last at {timeline.time_of(places[-1] + 2):g}" if places else "; it has not happened yet"
        found.append(f"`{functor}` is exogenous: it may happen at any time, and need not be true for that{last}")
    return found


class _Tree:
    """The proofs and additions that are in force in one state, by head."""

    def __init__(self, timeline: Timeline, state: int) -> None:
        self.timeline, self.grounding, self.state = timeline, timeline.grounding, state

    @cached_property
    def proofs(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for instance in self.timeline.proofs_at(self.state):
            found.setdefault(self.grounding.head[instance], []).append(instance)
        return found

    @cached_property
    def additions(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for instance, event, _ in self.timeline.additions_at(self.state).tolist():
            found.setdefault(self.grounding.head[instance], []).append((instance, event))
        return found

    def is_true(self, fact: int) -> bool:
        rows = self.timeline.holds
        now = (rows[:, 0] == fact) & (rows[:, 1] <= self.state) & (self.state < rows[:, 2])
        return bool(now.any()) or bool((self.grounding.always == fact).any())

    @cached_property
    def rank(self) -> dict[int, int]:
        """Return the deduction round of each fact. Proofs that only use facts of lower rank are not circular."""
        given = [*(fact for fact in self.additions if self.is_true(fact)), *self.timeline.given]
        rank = dict.fromkeys(given, 0)
        proofs = [(head, self.grounding.body[one]) for head, instances in self.proofs.items() for one in instances]
        for number in chained(proofs, given):
            head, body = proofs[number]
            rank.setdefault(head, 1 + max((rank[one] for one in body), default=-1))
        return rank

    def because(self, fact: int) -> dict[str, ProofExplanation]:
        """Return the explanations of all facts that shown proofs name, in order of occurrence."""
        made: dict[str, ProofExplanation] = {}
        seen = {fact}
        waiting = [fact]
        while waiting and len(made) < MOST_FACTS:
            one = waiting.pop()
            proofs = self._well_founded(one)[:SHOWN_PROOFS]
            made[self.grounding.text(one)] = self._node(one, proofs)
            for other in reversed([other for proof in proofs for other in self.grounding.body[proof]]):
                if other not in seen and not self.grounding.is_brought(other):
                    seen.add(other)
                    waiting.append(other)
        return made

    def _well_founded(self, fact: int) -> list[int]:
        rank, body = self.rank.get(fact, 0), self.grounding.body
        proofs = self.proofs.get(fact, [])
        lower = [one for one in proofs if rank == 0 or all(self.rank.get(other, 0) < rank for other in body[one])]
        return lower or [one for one in proofs if not body[one]]

    def _node(self, fact: int, proofs: list[int]) -> ProofExplanation:
        rows = self.additions.get(fact, [])
        recent = sorted(rows, key=lambda row: -row[1])[:SHOWN_ADDITIONS]
        time_of = self.timeline.time_of
        additions = tuple(
            Addition(
                *self._source(one),
                self.timeline.event_number(event),
                time_of(event + 1),
                self._body(one),
                self.timeline.end_of(one, event),
            )
            for one, event in recent
        )
        more = len(self.proofs.get(fact, ())) - len(proofs) + len(rows) - len(additions)
        shown = tuple(Proof(*self._source(one), self._body(one), self._is_given(one)) for one in proofs)
        return ProofExplanation(self.grounding.text(fact), shown, additions, more)

    def _source(self, instance: int) -> tuple[str, str]:
        """Return the rule of a rule instance as text, and its place in the program."""
        rule, rules, tables = self.grounding.rule[instance], self.grounding.program.rules, self.grounding.program.tables
        span = rules[rule].rule.span if rule < len(rules) else tables[rule - len(rules)].span
        return self.grounding.group_name(self.grounding.group[instance]), span.place

    def _body(self, instance: int) -> tuple[str, ...]:
        grounding = self.grounding
        return tuple(grounding.text(fact) for fact in grounding.body[instance] if not grounding.is_brought(fact))

    def _is_given(self, instance: int) -> bool:
        return any(map(self.grounding.is_brought, self.grounding.body[instance]))
