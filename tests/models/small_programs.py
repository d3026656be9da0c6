"""Small programs, each for one thing, with the events that show it; and models of these, with sequences for them."""

from __future__ import annotations

from typing import Any, TypeVar

import torch

from foretell.data import EventData, EventSequence
from foretell.lang.program import Program
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT
from foretell.models.rules.s2ndtt import S2NDTT
from tests.ground.timelines import event_data
from tests.samples import randomise_rules

SMALL = {
    "rules that share a matrix cut it up in different ways": (
        ":- event(g). :- event(h). :- embed(p, 1). :- embed(q, 2).\np(a). p(b). q.\nq <- g.\ng :- p(a), q :: w.\nh :- q, p(X) :: w.\n",
        ["g", "h", "g", "h"],
    ),
    "an exponent's name on `<-` makes no heads": (
        ":- event(g). :- exogenous(e, 1).\ng.\ng : b(X) <- e(X,Y) :: w(Y).\n!g <- e(c,a).\n",
        ["e(a,a)", "e(b,a)", "e(a,b)", "g", "e(c,a)", "e(a,a)", "e(b,a)"],
    ),
    "names that differ in a constant are different matrices": (
        ":- event(g). :- embed(p, 3).\np(a). p(b).\ng :- p(a) :: w(a).\ng :- p(b) :: w(b).\ng <- g, p(X) :: v(1).\ng <- g, p(a) :: v(2).\n",
        ["g", "g"],
    ),
    "a fact and a rule without embedded conditions share a vector": (
        ":- event(g). :- embed(p, 0). :- embed(h, 2).\np(a). p(b).\nh :: w.\nh :- p(a) :: w.\nh :- p(X) :: u(X).\nh :: u(b).\ng :- h.\n",
        ["g"],
    ),
    "an exogenous event whose dimension no fact has": (
        ":- event(g). :- exogenous(e, 5).\ng.\ng <- e.\n",
        ["e", "g", "e"],
    ),
    "an exogenous event that is a fact at times": (
        ":- event(g, 3). :- exogenous(e, 5). :- exogenous(x, 1).\ng.\ne <- x.\n!e <- g.\ng <- e.\n",
        ["e", "x", "e", "g", "e", "x", "x", "e"],
    ),
    "one event removes and adds": (
        ":- event(g). :- event(on).\non.\ng <- on.\n!g <- on, g.\ng <- bos.\n",
        ["g", "on", "on", "g", "on"],
    ),
    "one name for two rules that add different facts": (
        ":- event(g). :- event(h).\ng. h.\ng <- g :: w. h <- g :: w. g <- h :: w.\n",
        ["g", "h", "g"],
    ),
    "an event that happens in two ways at once": (
        ":- event(g). :- embed(p, 1).\np(a). p(b).\ng :- p(X).\ng <- g, p(X).\n",
        ["g", "g"],
    ),
    "names with several numbers of arguments": (
        ":- event(g). :- event(h). :- exogenous(e/1, 2). :- exogenous(e/2). :- embed(p/2, 2). :- embed(p/1, 1). :- key(h/1, 1).\n"
        "p(a). p(b). p(a, b).\ng(X) :- p(X), not h(X).\ng(X, Y) :- p(X, Y), g(X) :: w(X).\nh :- g(a).\nh(X) <- e(X), p(X).\n"
        "h <- e(X, Y), p(X, Y).\n!h(X) <- g(X), h(X).\ng(X, Y) <- e(X, Y), h :: v(Y).\np(X, X) <- g(X, _).\n",
        ["e(a)", "e(a,b)", "e(a,b)", "g(a,b)", "h(a)", "g(b)", "e(b)", "h", "e(b,b)", "h(b)"],
    ),
    "negation turns proofs on and off": (
        ":- event(g). :- exogenous(e). :- embed(on, 1).\nq.\non <- e. !on <- g.\ng :- q, not on.\ng :- q.\n",
        ["e", "g", "e", "e", "g"],
    ),
    "nothing has an embedding": (
        ":- embed(_, 0). :- event(g). :- event(h).\ng. h :- g. on <- g. h <- h, on.\n",
        ["g", "h", "g"],
    ),
    "a fact that is written twice": (":- event(g).\ng. g. g :: w.\n", ["g"]),
}

ROUND = """
:- event(e).
:- exogenous(link).
edge(a,b).
edge(X,Y) <- link(X,Y).
near(X,Y) :- edge(X,Y).
near(X,Y) :- edge(X,Z), near(Z,Y).
e :- near(X,Y).
"""


def spaced(*sequences: list[str]) -> EventData:
    """Events that are not quite a unit apart."""
    rough = event_data(*sequences)
    rows = [EventSequence(one.times * 0.7, one.types, 0.7 * len(one) + 0.4, one.id) for one in rough]
    return EventData(rows, rough.vocabulary, "window", "small")


def small_andtt(text: str, *sequences: list[str], **options: Any) -> tuple[ANDTT, EventData]:
    """With random parameters."""
    data = spaced(*sequences)
    model = ANDTT(
        Program.from_text(text, dim=2), data.vocabulary, **{"dim": 2, "layers": 2, "dtype": torch.float64, **options}
    )
    model.ground(data)
    randomise_rules(model, 8)
    model.time.set_range(0.4, 5.0)
    model.time_scale = 0.8
    return model, data


Cells = TypeVar("Cells", NDTT, S2NDTT)


def small_ndtt(text: str, *sequences: list[str], **options: Any) -> tuple[NDTT, EventData]:
    return _with_cells(NDTT, text, *sequences, **options)


def small_s2ndtt(text: str, *sequences: list[str], **options: Any) -> tuple[S2NDTT, EventData]:
    return _with_cells(S2NDTT, text, *sequences, **{"layers": 2, "states": 3, **options})


def _with_cells(make: type[Cells], text: str, *sequences: list[str], **options: Any) -> tuple[Cells, EventData]:
    """With random parameters."""
    data = spaced(*sequences)
    model = make(Program.from_text(text, dim=2), data.vocabulary, dim=2, dtype=torch.float64, **options)
    model.ground(data)
    model.time_scale = 0.8
    return randomise_rules(model, 8), data
