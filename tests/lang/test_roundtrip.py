"""parse(pretty(p)) == p, for programs of any shape."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from foretell import terms
from foretell.lang.load import parse
from foretell.lang.source import Source, Span
from foretell.lang.statement import PARAMETERS, number_anonymous
from foretell.lang.syntax import (
    Atom,
    Compare,
    Constant,
    Embed,
    EventDeclaration,
    Include,
    Key,
    Not,
    Rule,
    SourceFile,
    Table,
    Variable,
    pretty,
)

NOWHERE = Span(Source("made", ""), 0, 0)
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=6)
word = st.sampled_from(["eve", "not", "event", "pass", "bos", "3", "-7", "'3'", *PARAMETERS]) | text.map(terms.constant)
variable = st.sampled_from(["X", "Y", "Épée", "_1", "_2", "_Any"]).map(lambda name: Variable(name, NOWHERE))
anonymous = st.just(Variable("_", NOWHERE, True))
term = word.map(lambda name: Constant(name, NOWHERE)) | variable | anonymous
arguments = st.lists(term, max_size=3).map(tuple)
atom = st.builds(lambda functor, args: Atom(functor, args, NOWHERE, NOWHERE), word, arguments)
literal = (
    atom
    | atom.map(lambda one: Not(one, NOWHERE))
    | st.builds(lambda equal, left, right: Compare(equal, left, right, NOWHERE), st.booleans(), term, term)
)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    kind = draw(st.sampled_from(["deduce", "add", "remove"]))
    body = tuple(draw(st.lists(literal, min_size=0 if kind == "deduce" else 1, max_size=4)))
    names = [draw(st.none() | atom) for _ in range(2)]
    return number_anonymous(Rule(kind, draw(atom), body, names[0], names[1], NOWHERE))


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
    | st.builds(lambda name, path: Table(name, path, NOWHERE), word, text)
)


@settings(max_examples=300, deadline=None)
@given(st.lists(rules() | declaration, max_size=5).map(tuple))
def test_what_is_printed_reads_back_as_the_same_program(statements):
    made = SourceFile(NOWHERE.source, statements)
    found = parse(Source("printed", pretty(made)))
    assert not found.errors, "\n".join(one.render() for one in found.errors)
    assert found.file == made
    assert pretty(found.file) == pretty(made)
