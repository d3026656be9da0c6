"""parse(pretty(p)) == p, for programs of any shape."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from foretell import terms
from foretell.lang.load import parse
from foretell.lang.source import Source, Span
from foretell.lang.statement import PARAMETERS, number_anonymous
from foretell.lang.syntax import (
    COMPARISONS,
    ORDERS,
    Atom,
    Compare,
    Constant,
    Count,
    Duration,
    Embed,
    EventDeclaration,
    FeatureDeclaration,
    GivenDeclaration,
    Include,
    Key,
    Not,
    Promise,
    Rule,
    SourceFile,
    Table,
    Variable,
    pretty,
)

NOWHERE = Span(Source("made", ""), 0, 0)
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=6)
word = st.sampled_from(["eve", "not", "for", "event", "pass", "bos", "3", "-7", "'3'", *PARAMETERS]) | text.map(
    terms.constant
)
variable = st.sampled_from(["X", "Y", "Épée", "_1", "_2", "_Any"]).map(lambda name: Variable(name, NOWHERE))
anonymous = st.just(Variable("_", NOWHERE, True))
term = word.map(lambda name: Constant(name, NOWHERE)) | variable | anonymous
side = st.sampled_from(["3", "-7"]).map(lambda name: Constant(name, NOWHERE)) | variable
arguments = st.lists(term, max_size=3).map(tuple)
atom = st.builds(lambda functor, args: Atom(functor, args, NOWHERE, NOWHERE), word, arguments)
literal = (
    atom
    | atom.map(lambda one: Not(one, NOWHERE))
    | st.builds(lambda sign, left, right: Compare(sign, left, right, NOWHERE), st.sampled_from(["=", "!="]), term, term)
    | st.builds(lambda sign, left, right: Compare(sign, left, right, NOWHERE), st.sampled_from([*ORDERS]), side, side)
    | st.builds(
        lambda one, sign, right: Count("count", one, sign, right, NOWHERE), atom, st.sampled_from([*COMPARISONS]), side
    )
)
durations = st.none() | st.sampled_from(
    [Duration("30m", 1800.0, True, NOWHERE), Duration("1.5", 1.5, False, NOWHERE), Duration("2", 2.0, False, NOWHERE)]
)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    kind = draw(st.sampled_from(["deduce", "add", "remove"]))
    body = tuple(draw(st.lists(literal, min_size=0 if kind == "deduce" else 1, max_size=4)))
    names = [draw(st.none() | atom) for _ in range(2)]
    lives = draw(durations) if kind == "add" else None
    return number_anonymous(Rule(kind, draw(atom), body, names[0], names[1], NOWHERE, lives))


def numbered(body: tuple) -> tuple:
    """A body whose `_` are numbered as in a statement of its own."""
    head = Atom("h", (), NOWHERE, NOWHERE)
    return number_anonymous(Rule("deduce", head, body, None, None, NOWHERE)).body


def columns(least: int):
    return st.lists(text, unique=True, min_size=least, max_size=3).map(tuple)


number = st.integers(0, 1_000_000)
declaration = (
    st.builds(lambda name, dim: Embed(name, dim, NOWHERE), st.none() | word, number)
    | st.builds(
        lambda name, other, dim, arity: EventDeclaration(name, other, dim, arity, NOWHERE),
        word,
        st.booleans(),
        st.none() | number,
        st.none() | st.integers(1, 4),
    )
    | st.builds(lambda name, length: Key(name, length + 1 if length < 1_000_000 else length, NOWHERE), word, number)
    | text.map(lambda path: Include(path, NOWHERE))
    | st.builds(lambda name, arity: GivenDeclaration(name, arity, NOWHERE), word, st.sampled_from([None, 1, 3]))
    | st.builds(lambda name, path, some: Table(name, path, some, NOWHERE), word, text, columns(0))
    | st.builds(lambda name, some: FeatureDeclaration(name, some, NOWHERE), word, columns(1))
    | rules().filter(lambda one: bool(one.body)).map(lambda one: Promise(numbered(one.body), NOWHERE))
)


@settings(max_examples=300, deadline=None)
@given(st.lists(rules() | declaration, max_size=5).map(tuple))
def test_what_is_printed_reads_back_as_the_same_program(statements):
    made = SourceFile(NOWHERE.source, statements)
    found = parse(Source("printed", pretty(made)))
    assert not found.errors, "\n".join(one.render() for one in found.errors)
    assert found.file == made
    assert pretty(found.file) == pretty(made)
