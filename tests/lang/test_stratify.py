"""Components come after what they depend on, strata count negations, and negation through a cycle is found."""

from __future__ import annotations

import random

from foretell.lang.stratify import strong_components
from tests.lang.reading import errors, program, warnings


def test_strata_count_the_negations_below():
    found = program("a(x). b(X) :- a(X), not z(X). z(y). c(X) :- a(X), not b(X). d(X) :- c(X).").stratum
    assert found == {"a": 0, "z": 0, "b": 1, "c": 2, "d": 2}


def test_a_component_comes_after_all_it_depends_on():
    text = "e(x,y). p(X,Y) :- e(X,Y). p(X,Z) :- p(X,Y), p(Y,Z). q(X) :- p(X,X), not r(X). r(X) :- s(X). s(X) :- r(X). s(y)."
    found = program(text)
    order = [set(one.functors) for one in found.components]
    place = {name: number for number, group in enumerate(order) for name in group}
    assert {"r", "s"} in order and place["e"] < place["p"] < place["q"] and place["r"] < place["q"]
    assert [one.functors for one in found.components if one.recursive] in ([("p",), ("r", "s")], [("r", "s"), ("p",)])
    assert sorted(found.stratum[name] for name in place) == [
        found.stratum[n] for g in found.components for n in g.functors
    ]


def test_a_rule_that_looks_at_the_past_breaks_a_cycle():
    assert errors(":- event(e). a :- not b. b <- e. e :- a.") == []
    assert errors(":- event(e). b. a :- b, not c. c :- a. e :- a.") == ["negation-cycle"]


def test_negation_through_a_long_way_round_is_found():
    assert errors("x. a :- x, not b. b :- c. c :- x, d. d :- a.") == ["negation-cycle"]
    assert errors("x. a :- x, not a.") == ["negation-cycle"]
    assert errors("x. a :- x, not b. b :- x, not c. c :- x.") == []


def test_recursion_is_a_warning_only_where_embeddings_go_round():
    path = "e(x,y). p(X,Y) :- e(X,Y). p(X,Z) :- p(X,Y), e(Y,Z)."
    assert warnings(path) == ["cyclic-proof"]
    assert warnings(f":- embed(p, 0). {path}") == []
    assert warnings(path, dim=0) == []
    assert warnings(":- embed(b, 0). a(x). a(X) :- b(X). b(X) :- a(X).") == []  # b carries nothing back


def test_components_are_those_of_reachability():
    generator = random.Random(0)
    for _ in range(50):
        names = [str(number) for number in range(generator.randint(1, 9))]
        below = {name: [other for other in names if generator.random() < 0.2] for name in names}
        reach = {name: {name} for name in names}
        for _ in names:
            for name in names:
                reach[name] |= {far for other in below[name] for far in reach[other]}
        groups = strong_components(below)
        assert sorted(name for group in groups for name in group) == sorted(names)
        place = {name: number for number, group in enumerate(groups) for name in group}
        for one in names:
            for other in names:
                mutual = other in reach[one] and one in reach[other]
                assert mutual == (place[one] == place[other])
                if other in reach[one]:
                    assert place[other] <= place[one]


def test_a_chain_of_any_length_needs_no_recursion():
    length = 5_000
    found = program("a0." + "".join(f"a{number + 1} :- a{number}." for number in range(length)))
    assert [one.functors[0] for one in found.components] == [f"a{number}" for number in range(length + 1)]
