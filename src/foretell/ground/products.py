"""Products of the independent parts of a rule, as patterns over integers. They decide whether an event is possible without listing events.

The engine stores the matches of each part as facts of an internal functor (`lang/products.py`). An event is possible by the rule while the
facts of all its parts are true and no filter excludes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from foretell.ground.database import CompiledRule, FactKey, Symbols, compile_rule
from foretell.lang.products import ProductRule, RulePart, product_rules
from foretell.lang.program import Program
from foretell.lang.syntax import ORDERS, Atom, Compare, Constant, Variable

KEPT_AS_ROWS = 4096  # up to this many possible events of one functor, listing them is faster than products


@dataclass(frozen=True, slots=True)
class PartPattern:
    """The facts of one part, or of a blocker: a part that must not hold."""

    rule: int  # the rule that deduces them; numbered after the program's rules and tables
    functor: int
    places: tuple[int, ...]  # places of their arguments in the event's key; 1 is the first argument
    atoms: tuple[int, ...]  # places of their conditions among the positive conditions of the whole rule

    def key(self, event: FactKey) -> FactKey:
        return (self.functor, *[event[place] for place in self.places])


@dataclass(frozen=True, slots=True)
class ComparedPlaces:
    """`X != Y`, `X < Y`, …: compares two arguments of the event."""

    left: int
    right: int
    compare: Callable[[int, int], bool] | None  # None: `!=`
    numbers: list[int | None]  # the integer of each constant: a reference to the list in `Symbols`

    def holds(self, event: Sequence[int]) -> bool:
        if self.compare is None:
            return event[self.left] != event[self.right]
        left, right = self.numbers[event[self.left]], self.numbers[event[self.right]]
        return left is not None and right is not None and self.compare(left, right)


@dataclass(frozen=True, slots=True)
class EventProduct:
    """The events that one rule makes possible."""

    rule: int  # the position in the program's rules
    functor: int  # the functor of the events
    arity: int
    parts: tuple[PartPattern, ...]
    blockers: tuple[PartPattern, ...]
    compares: tuple[ComparedPlaces, ...]
    fixed: tuple[tuple[int, int], ...]  # (place in the key, constant)
    repeats: tuple[tuple[int, int], ...]  # pairs of places in the key that must be equal
    carrier: int  # the part whose proofs have the groups of the rule

    @property
    def is_filtered(self) -> bool:
        return bool(self.blockers or self.compares)

    def fits(self, event: FactKey) -> bool:
        """Whether the event matches the head and satisfies the comparisons of its arguments."""
        return (
            all(event[place] == constant for place, constant in self.fixed)
            and all(event[a] == event[b] for a, b in self.repeats)
            and all(one.holds(event) for one in self.compares)
        )

    def allows(self, event: FactKey, is_true: Callable[[FactKey], bool]) -> bool:
        return (
            len(event) == 1 + self.arity
            and self.fits(event)
            and all(is_true(part.key(event)) for part in self.parts)
            and not any(is_true(blocker.key(event)) for blocker in self.blockers)
        )


@dataclass(frozen=True)
class CompiledProducts:
    """The products of a program, and the rules that deduce the facts of their parts."""

    products: tuple[EventProduct, ...]
    rules: tuple[CompiledRule, ...]
    heads: tuple[str, ...]  # functors of the heads of these rules
    group_rule: dict[int, int]  # rule of a part → the rule whose groups its instances have

    @property
    def by_rule(self) -> frozenset[int]:
        return frozenset(one.rule for one in self.products)


def compile_products(program: Program, symbols: Symbols, some: Iterable[ProductRule]) -> CompiledProducts:
    base = len(program.rules) + len(program.tables)
    products: list[EventProduct] = []
    rules: list[CompiledRule] = []
    heads: list[str] = []
    group_rule: dict[int, int] = {}

    def pattern(part: RulePart, places: dict[str, int]) -> PartPattern | None:
        rule = compile_rule(base + len(rules), part.rule, symbols)
        if rule is None:
            return None
        rules.append(rule)
        heads.append(part.functor)
        return PartPattern(rule.index, rule.head.functor, tuple(places[one] for one in part.variables), part.atoms)

    for one in some:
        places: dict[str, int] = {}
        fixed, repeats = [], []
        for place, term in enumerate(one.rule.head.args, 1):
            if isinstance(term, Constant):
                fixed.append((place, symbols.constant(term.text)))
            elif term.name in places:
                repeats.append((places[term.name], place))
            else:
                places[term.name] = place
        parts = [pattern(part, places) for part in one.parts]
        blockers = [pattern(part, places) for part in one.blockers]
        if any(part is None for part in parts):
            continue  # a part can never hold, so the rule never fires
        carrier = parts[one.carrier]
        assert carrier is not None
        group_rule[carrier.rule] = one.place
        products.append(
            EventProduct(
                one.place,
                symbols.functor(one.rule.head.functor),
                len(one.rule.head.args),
                tuple(part for part in parts if part is not None),
                tuple(part for part in blockers if part is not None),
                tuple(_compared(compare, places, symbols) for compare in one.compares),
                tuple(fixed),
                tuple(repeats),
                one.carrier,
            )
        )
    return CompiledProducts(tuple(products), tuple(rules), tuple(heads), group_rule)


def _compared(compare: Compare, places: dict[str, int], symbols: Symbols) -> ComparedPlaces:
    assert isinstance(compare.left, Variable) and isinstance(compare.right, Variable)
    order = ORDERS.get(compare.sign)
    return ComparedPlaces(places[compare.left.name], places[compare.right.name], order, symbols.numbers)


def candidates(program: Program) -> tuple[ProductRule, ...]:
    """Return the rules that may be worth a product, judged by the number of constants in the program."""
    if program.products == "never":
        return ()
    found, _ = product_rules(program)
    if program.products == "always" or not found:
        return found
    constants = len({arg.text for one in program.rules for arg in _constants(one.rule.head)})
    constants += sum(len({cell for row in table.rows for cell in row}) for table in program.tables)
    most: dict[str, int] = {}
    for one in found:
        size = prod(max(constants, 1) ** len(part.variables) for part in one.parts)
        most[one.rule.head.functor] = most.get(one.rule.head.functor, 0) + size
    return tuple(one for one in found if most[one.rule.head.functor] > KEPT_AS_ROWS)


def _constants(atom: Atom) -> list[Constant]:
    return [arg for arg in atom.args if isinstance(arg, Constant)]


def large(
    program: Program,
    some: Sequence[ProductRule],
    products: Sequence[EventProduct],
    size_of: Callable[[PartPattern], int],
) -> tuple[ProductRule, ...]:
    """Return the rules with many events after loading. `size_of` gives the number of facts that a part has or may get."""
    if program.products == "always":
        return tuple(some)
    most: dict[int, int] = {}
    for one in products:
        most[one.functor] = most.get(one.functor, 0) + prod(size_of(part) for part in one.parts)
    kept = {one.rule for one in products if most[one.functor] > KEPT_AS_ROWS}
    return tuple(one for one in some if one.place in kept)
