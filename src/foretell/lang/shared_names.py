"""Finds parameter names that two rules share although they need different shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from foretell.lang.diagnostics import Diagnostic
from foretell.lang.fact_table import FactTable
from foretell.lang.program import Functor, NumberedRule, RuleShapes, Shape, dimension, pattern_of, shapes_of
from foretell.lang.syntax import Atom, Constant, Equalities, Term, Variable
from foretell.wording import shown


class _Family:
    """Names with one functor and arity, indexed by the constants in their arguments, so that thousands need not be compared
    pairwise."""

    def __init__(self, arity: int) -> None:
        self.members: list[tuple[RuleShapes, NumberedRule]] = []
        self.seen: set[object] = set()
        self.at: list[dict[str | None, list[int]]] = [{} for _ in range(arity)]  # key None: a variable

    def is_new(self, shapes: RuleShapes) -> bool:
        key = (pattern_of(shapes.name), tuple(shapes.matrices.items()))
        new = key not in self.seen
        self.seen.add(key)
        return new

    def candidates(self, name: Atom) -> Iterable[int]:
        """Return the members that agree with the name at the most selective argument."""
        best: list[int] | None = None
        for term, members in zip(name.args, self.at, strict=True):
            if isinstance(term, Constant):
                found = members.get(term.text, []) + members.get(None, [])
                best = found if best is None or len(found) < len(best) else best
        return range(len(self.members)) if best is None else sorted(best)

    def add(self, shapes: RuleShapes, rule: NumberedRule) -> None:
        for term, members in zip(shapes.name.args, self.at, strict=True):
            members.setdefault(term.text if isinstance(term, Constant) else None, []).append(len(self.members))
        self.members.append((shapes, rule))


def check_names(
    rules: Iterable[NumberedRule], tables: Iterable[FactTable], functors: Mapping[str, Functor], dim: int
) -> Iterator[Diagnostic]:
    """Report rules that share a matrix, because their names can be bound to the same term, but need different shapes."""
    families: dict[tuple[str, str, int], _Family] = {}
    own: dict[tuple[str, int], list[NumberedRule]] = {}  # facts with default names, as rows of tables have
    for one in rules:
        if one.rule.is_fact and one.rule.matrix is None:
            own.setdefault((one.rule.head.functor, len(one.rule.head.args)), []).append(one)
            continue
        shapes = shapes_of(one, functors, dim, dim)
        if not shapes.matrices:
            continue
        arity = len(shapes.name.args)
        family = families.setdefault((shapes.stem, shapes.name.functor, arity), _Family(arity))
        if not family.is_new(shapes):
            continue
        for number in family.candidates(shapes.name):
            earlier, rule = family.members[number]
            if earlier.matrices != shapes.matrices and unify(earlier.name.args, shapes.name.args):
                yield _clash(one, shapes, earlier, f"{rule.name} ({rule.rule.span.place})")
                break
        family.add(shapes, one)
    plain = (one for one in tables if not one.features)
    named = [(one.functor, one.arity, one.rows, f"the facts of a table ({one.span.place})") for one in plain]
    for (functor, arity), facts in own.items():
        rows = [tuple(str(arg) for arg in one.rule.head.args) for one in facts]
        named.append((functor, arity, rows, f"the facts from {facts[0].rule.span.place} on"))
    for functor, arity, rows, where in named:
        shape = {"W": (dimension(functors, functor, dim), 1)}
        family = families.get(("deduce", functor, arity))
        for shapes, rule in family.members if family is not None else ():
            if shapes.matrices != shape and any(_matches(shapes.name, row) for row in rows):
                yield _clash(rule, shapes, RuleShapes("deduce", shapes.name, None, shape), where)


def _clash(one: NumberedRule, here: RuleShapes, there: RuleShapes, where: str) -> Diagnostic:
    letter = next(name for name in here.matrices if here.matrices[name] != there.matrices[name])
    span = one.rule.matrix.span if one.rule.matrix is not None else one.rule.head.span
    return Diagnostic(
        "shape-clash",
        span,
        f"{shown(str(here.name))} names a matrix of {_sides(here.matrices[letter])} here and of "
        f"{_sides(there.matrices[letter])} for {shown(str(there.name))} in {where}",
        "give one of them another name, or declare dimensions that agree",
    )


def _sides(shape: Shape) -> str:
    return f"{shape[0]} × {shape[1]}"


def _matches(name: Atom, row: tuple[str, ...]) -> bool:
    bound: dict[str, str] = {}
    for term, cell in zip(name.args, row, strict=True):
        wanted = term.text if isinstance(term, Constant) else bound.setdefault(term.name, cell)
        if wanted != cell:
            return False
    return True


def unify(left: tuple[Term, ...], right: tuple[Term, ...]) -> bool:
    """Whether some binding makes two flat lists equal. Equal names in the two lists are different variables."""
    own = (replace(term, name=f"{term.name} of the right") if isinstance(term, Variable) else term for term in right)
    equalities = Equalities()
    return all([equalities.unite(*pair) for pair in zip(left, own, strict=True)])
