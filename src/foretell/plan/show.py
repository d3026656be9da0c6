"""Describes a program's network as text: what layout and book determine without data, and its size for given sequences.

Nothing here depends on a device. Tiles do, so the command prints them itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.ground.timeline import Grounding, Timeline
from foretell.lang.syntax import Atom, pretty_atom, pretty_rule
from foretell.plan.parameters import DimensionLayout, ParameterBook, events_of
from foretell.wording import counted

if TYPE_CHECKING:
    from foretell.plan.slots import SequenceSlots  # `check --show plan` does not need it

SHOWN_NAMES = 3


# --- without data ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters of one kind and shape, with their names. `Tensor` gives their position."""

    kind: str  # deduce.W, add.V, …, own.W, beta
    shape: tuple[int, ...]
    layers: int  # the number of copies, one per layer
    names: tuple[str, ...]

    @property
    def numbers(self) -> int:
        return len(self.names) * self.layers * prod(self.shape)


@dataclass(frozen=True)
class Tensor:
    """A tensor that stacks parameters of rules. Each of its rows is one parameter, or a block of one."""

    key: str  # vectors_8, blocks_8_8, beta, add_…; with the parameter's letter if the stack has several
    shape: tuple[int, ...]  # the shape of a row
    rows: int

    @property
    def numbers(self) -> int:
        return self.rows * prod(self.shape)


def tensors_of(book: ParameterBook, layers: int) -> list[Tensor]:
    """Return the tensors in the order of the program, without empty ones (dimension 0)."""
    found = [
        Tensor(
            stack.key if len(stack.shapes) == 1 else f"{stack.key}.{letter}",
            (layers, *shape) if stack.layered else shape,
            stack.count,
        )
        for stack in book.stacks.values()
        for letter, shape in stack.shapes.items()
    ]
    return [one for one in found if one.numbers]


def alike_of(layout: DimensionLayout, book: ParameterBook, layers: int) -> list[ParameterGroup]:
    """Return the groups in the order of the program, without empty ones (dimension 0)."""
    found = []
    for family in book.families.values():
        if not family.is_learned:
            continue
        repeated = layers if family.stem == "add" else 1
        for letter, shape in family.shapes.items():
            kind = letter if family.stem == "beta" else f"{family.stem}.{letter}"
            found.append(ParameterGroup(kind, shape, repeated, tuple(family.names)))
    for name in events_of(layout.program):
        found.append(ParameterGroup("intensity.w", (1 + layout.dimension(name),), 1, (name,)))
        found.append(ParameterGroup("intensity.tau", (), 1, (name,)))
    return [one for one in found if one.numbers]


def network_json(layout: DimensionLayout, book: ParameterBook, layers: int) -> dict[str, Any]:
    kinds = alike_of(layout, book, layers)
    return {
        "functors": [
            {"functor": str(one), "kind": one.kind, "dim": layout.dimension(name), "changes": name in layout.changing}
            for name, one in layout.program.functors.items()
        ],
        "rules": [{"rule": rule, "does": does, "text": text} for rule, does, text in _rules(layout, book)],
        "kinds": [{**asdict(one), "parameters": one.numbers} for one in kinds],
        "tensors": [{**asdict(one), "parameters": one.numbers} for one in tensors_of(book, layers)],
        "parameters": sum(one.numbers for one in kinds),
    }


def network_lines(layout: DimensionLayout, book: ParameterBook, layers: int) -> list[str]:
    """Describe the functors with their dimensions, the computation of each rule, and the parameters by name and by tensor."""
    functors = [
        (str(one), one.kind, str(layout.dimension(name)), _when(layout, name))
        for name, one in layout.program.functors.items()
    ]
    kinds = alike_of(layout, book, layers)
    shapes = [
        (one.kind, _times(one.shape), f"× {one.layers * len(one.names):,}", f"{one.numbers:,}", _some(one.names))
        for one in kinds
    ]
    tensors = [(one.key, _times(one.shape), f"× {one.rows:,}", f"{one.numbers:,}") for one in tensors_of(book, layers)]
    total = sum(one.numbers for one in kinds)
    return [
        "functors (kind, dimension, embedding)",
        *_aligned(functors, right=(2,)),
        "rules (what each computes)",
        *_aligned(_rules(layout, book)),
        f"parameters (shape, how many, numbers): {total:,} in all, {counted(layers, 'layer')}",
        *_aligned(shapes, right=(2, 3)),
        *(f"  {name}: as many as data give values to {', '.join(values)}" for name, values in _unbound(book)),
        "tensors that the parameters of rules lie in (shape of a row, rows, numbers)",
        *_aligned(tensors, right=(2, 3)),
    ]


def _unbound(book: ParameterBook) -> list[tuple[str, tuple[str, ...]]]:
    """Return the names with variables that have no values yet."""
    named = [
        (place, pretty_atom(one.name), one.groups)
        for place, one in enumerate(book.shapes)
        if one.stem != "remove" and one.groups
    ]
    given = {name for place, name, _ in named if place in book.given}
    return list({name: (name, groups) for _, name, groups in named if name not in given}.values())


def _when(layout: DimensionLayout, name: str) -> str:
    if not layout.dimension(name):
        return "none: true or false"
    return "changes with time" if name in layout.changing else "one for ever"


def _rules(layout: DimensionLayout, book: ParameterBook) -> list[tuple[str, str, str]]:
    """Describe the rules. Facts of one functor share an entry; each fact has its own vector."""
    found: list[tuple[str, str, str]] = []
    facts: Counter[str] = Counter()
    for place, numbered in enumerate(layout.program.rules):
        rule, laid = numbered.rule, layout.rules[place]
        if rule.is_fact:
            facts[rule.head.functor] += 1
        else:
            boolean = laid is None or not layout.dimension(laid.head)
            found.append((numbered.name, _does(book, place, boolean), pretty_rule(rule)))
    for table in layout.program.tables:
        facts[table.functor] += len(table.rows)
    own = [
        ("facts", f"own: {counted(count, 'vector')}" if layout.dimension(functor) else "true", functor)
        for functor, count in facts.items()
    ]
    return [*own, *found]


def _does(book: ParameterBook, place: int, boolean: bool) -> str:
    shapes = book.shapes[place]
    if shapes.stem == "remove":
        return "remove"
    if boolean:
        return f"{shapes.stem}: true or false"
    matrices = ", ".join(f"{letter} {_times(shape)}" for letter, shape in shapes.matrices.items())
    each = f" for each {', '.join(shapes.groups)}" if shapes.groups else ""
    return f"{shapes.stem}: {matrices}{each}"


def _times(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "1"


def _some(names: Sequence[str]) -> str:
    more = f" … and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


# --- with data -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SequenceSizes:
    """The sizes of one sequence's plan: totals, and counts by functor and by rule."""

    sequence: str
    events: int
    unscored: int  # events that are only history
    points: int
    slots: int
    levels: int
    proofs: int
    additions: int
    ranges: int  # queries to attention: pairs of a slot and a rule (with its values) that added to the slot's fact
    pairs: int  # the sum over these queries of the additions that each attends to
    possible: int  # possible events at queries
    slots_by_functor: dict[str, int]
    proofs_by_rule: dict[str, int]
    additions_by_rule: dict[str, int]
    ranges_by_rule: dict[str, int]
    pairs_by_rule: dict[str, int]

    def line(self) -> str:
        unscored = f" ({self.unscored:,} unscored)" if self.unscored else ""
        return (
            f"sequence {self.sequence}: {counted(self.events, 'event')}{unscored}, {counted(self.points, 'point')}, "
            f"{counted(self.slots, 'slot')} in {counted(self.levels, 'level')}, {counted(self.proofs, 'proof')}, "
            f"{counted(self.additions, 'addition')}, {counted(self.ranges, 'range')} attended to "
            f"({counted(self.pairs, 'pair')}), {counted(self.possible, 'possible event')}"
        )


def sizes_of(timeline: Timeline, slots: SequenceSlots, layout: DimensionLayout) -> SequenceSizes:
    grounding = slots.grounding
    functor = np.asarray([key[0] for key in grounding.keys], dtype=np.int64)
    rule = np.asarray(grounding.rule, dtype=np.int64)
    if slots.local is not None:  # events of products, and their proofs
        functor = np.concatenate([functor[: slots.local.facts_from], slots.local.functor])
        rule = np.concatenate([rule[: slots.local.instances_from], slots.local.rule])
    own = np.asarray([one is not None and one.kind == "own" for one in layout.rules], dtype=bool)
    proved, added = rule[slots.proof_instance], rule[slots.addition_instance]
    asked, length = added[slots.ask_low], slots.ask_high - slots.ask_low
    proved = proved[~own[proved]]
    return SequenceSizes(
        timeline.sequence,
        len(timeline.events),
        int((~timeline.possible_events).sum()),
        len(slots.point_state),
        len(slots.slot_fact),
        int(slots.slot_level.max(initial=-1)) + 1,
        len(proved),
        len(added),
        len(asked),
        int(length.sum()),
        len(slots.possible_slot),
        _counts(functor[slots.slot_fact], lambda one: str(grounding.functors[one])),
        _counts(proved, grounding.rule_name),
        _counts(added, grounding.rule_name),
        _counts(asked, grounding.rule_name),
        _counts(asked, grounding.rule_name, length),
    )


def product_words(grounding: Grounding) -> str:
    """Describe the rules whose possible events are products, with their parts."""
    rules, told = grounding.program.rules, []
    for one in grounding.products:
        atoms = [literal for literal in rules[one.rule].rule.body if isinstance(literal, Atom)]
        parts = (", ".join(pretty_atom(atoms[place]) for place in part.atoms) for part in one.parts)
        told.append(f"{rules[one.rule].name} ({' × '.join(parts)})")
    return f"possible events are kept as products: {'; '.join(told)}"


def _counts(values: np.ndarray, name_of: Callable[[int], str], weights: np.ndarray | None = None) -> dict[str, int]:
    sums = np.bincount(values, weights)
    return {name_of(value): int(sums[value]) for value in np.unique(values).tolist()}


SUMMED_UP = {
    "events": "events",
    "unscored": "unscored events",
    "points": "points",
    "slots": "slots",
    "levels": "levels",
    "proofs": "proofs",
    "additions": "additions",
    "ranges": "ranges attended to",
    "pairs": "pairs",
    "possible": "possible events",
}


def summary_lines(found: Sequence[SequenceSizes]) -> list[str]:
    """Summarise all sequences: sums, the median sequence, and the largest one with its name."""
    rows = [("", "in all", "median", "largest", "of sequence")]
    for name, shown in SUMMED_UP.items():
        values = [getattr(one, name) for one in found]
        most = max(range(len(values)), key=values.__getitem__)
        total = "" if name == "levels" else f"{sum(values):,}"
        if any(values):
            rows.append((shown, total, f"{np.median(values):,.0f}", f"{values[most]:,}", found[most].sequence))
    return [counted(len(found), "sequence"), *_aligned(rows, right=(1, 2, 3))]


def sizes_lines(found: Sequence[SequenceSizes], layout: DimensionLayout, each: bool = False) -> list[str]:
    """Return the lines of sizes: one line per sequence, or a summary unless `each`; then totals by functor and by rule."""
    text = {one.name: pretty_rule(one.rule) for one in layout.program.rules}
    slots, proofs, added, ranges, pairs = (
        sum((Counter(getattr(one, name)) for one in found), Counter[str]())
        for name in ("slots_by_functor", "proofs_by_rule", "additions_by_rule", "ranges_by_rule", "pairs_by_rule")
    )
    functors = [(str(layout.program.functors.get(name, name)), f"{slots[name]:,}") for name in sorted(slots)]
    return [
        *([one.line() for one in found] if each or len(found) < 2 else summary_lines(found)),
        "slots by functor",
        *_aligned(functors, right=(1,)),
        "proofs by rule",
        *_aligned([(name, f"{proofs[name]:,}", text[name]) for name in text if proofs[name]], right=(1,)),
        "additions by rule, the ranges of them that are attended to, and pairs",
        *_aligned(
            [(name, *(f"{one[name]:,}" for one in (added, ranges, pairs)), text[name]) for name in text if added[name]],
            right=(1, 2, 3),
        ),
    ]


def _aligned(rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> list[str]:
    if not rows:
        return ["  none"]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    layout = "".join(f"  {{:{'>' if place in right else '<'}{width}}}" for place, width in enumerate(widths))
    return [layout.format(*row).rstrip() for row in rows]
