"""Text → syntax tree: every form of the language and of the authors' programs, layout, and places."""

from __future__ import annotations

import pytest

from foretell.lang.syntax import (
    Atom,
    Compare,
    Embed,
    EventDeclaration,
    Include,
    Key,
    Not,
    Rule,
    Table,
    Variable,
    pretty_statement,
)
from tests.lang.reading import marked, parsed, statements


def rule(text: str) -> Rule:
    (found,) = statements(text)
    assert isinstance(found, Rule)
    return found


def test_the_forms_of_the_language_are_read():
    found = statements(
        """
        % a comment
        :- embed(empl, 8).   :- event(message, 16). :- event(create).
        :- exogenous(release). :- key(forum, 4). :- include("teams.ndtt").
        :- table(teammate, "t.csv").  :- embed(_, 0).
        empl(eve).
        message(P,T,C) :- member(P,T),
            empl(P).
        forum(T) <- message(P,T,C).
        !forum(T) <- destroy(T).
        raining.
        """
    )
    kinds = [type(one) for one in found]
    assert kinds == [
        Embed,
        EventDeclaration,
        EventDeclaration,
        EventDeclaration,
        Key,
        Include,
        Table,
        Embed,
        *[Rule] * 5,
    ]
    assert [one.kind for one in found if isinstance(one, Rule)] == ["deduce", "deduce", "add", "remove", "deduce"]
    assert found[7] == found[7].__class__(None, 0, found[7].span)


@pytest.mark.parametrize(
    ("text", "functor", "dim", "arity", "exogenous"),
    [
        (":- event(watch, 8).", "watch", 8, None, False),
        (":- event(watch).", "watch", None, None, False),
        (":- event(watch(U,P)).", "watch", None, 2, False),
        (":- event(watch(U, P), 8).", "watch", 8, 2, False),
        (":-event(watch(U,_)).", "watch", None, 2, False),
        (":- exogenous(release(P), 4).", "release", 4, 1, True),
        (":- event('New'(X)).", "'New'", None, 1, False),
    ],
)
def test_both_spellings_of_an_event_declaration_are_read(text, functor, dim, arity, exogenous):
    (found,) = statements(text)
    assert isinstance(found, EventDeclaration)
    assert (found.functor, found.dim, found.arity, found.exogenous) == (functor, dim, arity, exogenous)


@pytest.mark.parametrize(
    ("text", "beta", "matrix"),
    [
        ("h :- g.", None, None),
        ("h : b :- g.", "b", None),
        ("h :- g :: w.", None, "w"),
        ("h : b :- g :: w.", "b", "w"),
        ("h:b:-g::w.", "b", "w"),
        ("h:-g::w.", None, "w"),
        ("h :- g :: mparams(w), betaparams(b).", "b", "w"),
        ("h :- g :: betaparams(b), mparams(w).", "b", "w"),
        ("h :- g :: mparams(w).", None, "w"),
        ("h :- g :: betaparams(b).", "b", None),
        ("h :- g :: allparams(p).", "p", "p"),
        ("h <- g :: allparams(p).", "p", "p"),
        ("h :- g(X) :: mparams(post(X)).", None, "post(X)"),
        ("h :- g(X) :: post(X, joke).", None, "post(X,joke)"),
        ("h :: person.", None, "person"),
        ("h :: mparams(person).", None, "person"),
        ("h :: allparams(person).", None, "person"),
        ("!h <- g :: w.", None, "w"),
        ("h :- g :: 'mparams'(w).", None, "mparams(w)"),
        ("h :- g :: mparams.", None, "mparams"),
    ],
)
def test_parameter_names_are_read_in_every_spelling(text: str, beta: str | None, matrix: str | None):
    found = rule(text)
    assert (found.beta and str(found.beta), found.matrix and str(found.matrix)) == (beta, matrix)


def test_layout_means_nothing():
    spread = rule("message ( P , T ) :-\r\n\templ(P),% who\n\n  forum( T )  .")
    assert spread == rule("message(P,T):-empl(P),forum(T).")


def test_a_byte_order_mark_and_tabs_are_space():
    assert statements("\ufeff\ta.\t") == statements("a.")


def test_names_that_are_words_of_declarations_or_of_python_are_functors():
    for name in (
        "pass",
        "class",
        "eventful",
        "event",
        "embed",
        "key",
        "table",
        "include",
        "exogenous",
        "not",
        "is",
        "none",
    ):
        assert rule(f"{name}(x).").head.functor == name
        assert rule(f"{name} <- {name}(x), ok.").head.functor == name if name != "not" else True


@pytest.mark.parametrize(
    ("written", "spelled"),
    [
        ("eve", "eve"),
        ("12", "12"),
        ("-3", "-3"),
        ("'eve'", "eve"),
        ('"eve"', "eve"),
        ("'3'", "'3'"),
        ("'New York'", "'New York'"),
        ("'it''s'", "'it\\'s'"),
        (r"'it\'s'", "'it\\'s'"),
        ('"a ""b"""', "'a \"b\"'"),
        ("'50 % off. ok :- not'", "'50 % off. ok :- not'"),
        ("émile", "émile"),
        ("東京", "東京"),
        ("''", "''"),
        ("'_x'", "'_x'"),
    ],
)
def test_constants_have_one_spelling(written: str, spelled: str):
    (found,) = rule(f"a({written}).").head.args
    assert str(found) == spelled


def test_variables_start_in_upper_case_of_any_alphabet_or_with_an_underscore():
    found = rule("a(X, Émile, _Name, Ω) :- b(X, Émile, _Name, Ω).")
    assert [one.name for one in found.head.variables()] == ["X", "Émile", "_Name", "Ω"]


def test_each_underscore_is_a_variable_of_its_own_that_no_other_is_called():
    found = rule("a(X) :- b(X, _, _1), not c(_), d(_).")
    names = [one.name for atom in found.body for one in (atom.atom if isinstance(atom, Not) else atom).args]  # type: ignore[union-attr]
    assert names == ["X", "_2", "_1", "_3", "_4"]
    assert all(isinstance(one, Variable) for one in found.head.args)


def test_negation_and_comparisons_are_conditions():
    found = rule("a(X) :- b(X), not c(X), X != 'New York', y = X.").body
    assert isinstance(found[1], Not) and isinstance(found[2], Compare) and isinstance(found[3], Compare)
    assert (found[2].equal, found[3].equal, str(found[3])) == (False, True, "y = X")


def test_not_is_a_functor_where_it_cannot_negate():
    assert rule("not(x).").head.functor == "not"
    assert isinstance(rule("a :- 'not'(x).").body[0], Atom)
    assert isinstance(rule("a :- not, b.").body[0], Atom)
    assert isinstance(rule("a :- not b.").body[0], Not)
    assert isinstance(rule("a :- not 'b c'(x).").body[0], Not)


def test_places_are_those_of_the_text():
    text = "a.\n  likes(U, P) : b <- watch(U, P), not seen(P), U != P :: w(P).  % end\n"
    found = statements(text)[1]
    assert isinstance(found, Rule)

    def of(node) -> str:
        return text[node.span.start : node.span.end]

    assert of(found) == "likes(U, P) : b <- watch(U, P), not seen(P), U != P :: w(P)"
    assert [of(one) for one in found.body] == ["watch(U, P)", "not seen(P)", "U != P"]
    assert (of(found.head), found.beta and of(found.beta), found.matrix and of(found.matrix)) == (
        "likes(U, P)",
        "b",
        "w(P)",
    )
    assert [of(one) for one in found.head.args] == ["U", "P"]
    assert found.span.place == "p.ndtt:2:3"


def test_trees_are_equal_if_they_say_the_same():
    assert statements("a(X) :- b(X).") == statements("\n\n  a( X ) :- % c\n b( X ) .")
    assert statements("a(X) :- b(X).") != statements("a(Y) :- b(Y).")


def test_a_bad_statement_does_not_hide_the_next():
    found = parsed("a(b(c)).\nd(e).\nf :- g h.\ni.\nX.\nk(")
    assert [one.code for one in found.errors] == [
        "nested-term",
        "missing-comma",
        "upper-case-functor",
        "unclosed-parenthesis",
    ]
    assert [pretty_statement(one) for one in found.file.statements] == ["d(e).", "i."]
    assert found.unread >= {"a", "b", "c", "f", "g", "h", "k"}


def test_after_a_missing_full_stop_the_next_statement_is_read():
    found = parsed("a(x)\nb(y)\nc :- d\n!e <- f\n:- event(g).\nh.")
    assert [one.code for one in found.errors] == ["missing-full-stop"] * 4
    assert [pretty_statement(one) for one in found.file.statements] == [":- event(g).", "h."]


def test_a_condition_called_like_a_declaration_is_not_mistaken_for_one():
    assert not parsed("a(X) :- event(X).\nb\n    :- event(x).").errors


@pytest.mark.parametrize(
    ("text", "code", "under"),
    [
        ("a :- b(X) c(X).", "missing-comma", " "),
        ("a(b(c)).", "nested-term", "b"),
        ("a :- Foo(x).", "upper-case-functor", "Foo"),
        ("a(x, 'y.", "unclosed-quote", "'"),
        ("a(x", "unclosed-parenthesis", "("),
        ("a() :- b.", "empty-arguments", "()"),
        ("a(1.5).", "fractional-number", "1.5"),
        ("a :- b; c.", "disjunction", ";"),
        ("a :- X \\= Y.", "comparison-sign", "\\="),
        ("a :- \\+ b.", "negation-sign", "\\+"),
        ("!a :- b.", "wrong-arrow", ":-"),
        ("a -> b.", "unknown-arrow", "->"),
        ("a := b.", "unknown-arrow", ":="),
    ],
)
def test_a_mistake_is_named_and_marked(text: str, code: str, under: str):
    (found,) = parsed(text).errors
    assert (found.code, marked(found)) == (code, under)


def test_a_comparison_in_a_body_is_no_arrow():
    for sign in ("=>", "=<"):
        assert [one.code for one in parsed(f"a(X) :- b(X), X {sign} 3.").errors] == ["comparison-sign"]
    for sign in ("<=", ">=", "<", ">"):
        assert not parsed(f"a(X) :- b(X), X {sign} 3.").errors


@pytest.mark.parametrize(
    ("text", "code", "under"),
    [
        (":- table(staff, staff.csv).", "bad-declaration", "staff.csv"),
        (":- include(../rules/teams.ndtt).", "bad-declaration", "../rules/teams.ndtt"),
        ("open(8:30).", "bad-word", ":"),
        ("open(8 : 30).", "bad-word", ":"),
        ("runs(v1.2.a).", "bad-word", "."),
        ("busy(P : b :- empl(P).", "unclosed-parenthesis", "("),
        ("a(X) :- b(X), NOT c(X).", "negation-sign", "NOT"),
        ("a(X) :- Not(b(X)).", "negation-sign", "Not"),
        ("a(X) :- b(X)\n  AND c(X).", "missing-comma", "AND"),
        ("a :- b or c.", "disjunction", "or"),
        ("a : - b.", "unknown-arrow", ": -"),
        ("a < - b.", "unknown-arrow", "< -"),
        (": - event(a).", "unknown-arrow", ": -"),
        ("not(P) :- patient(P).", "negation-sign", "not"),
    ],
)
def test_what_a_beginner_writes_is_one_mistake_under_its_own_name(text: str, code: str, under: str):
    (found,) = parsed(text).errors
    assert (found.code, marked(found)) == (code, under)


def test_words_that_only_look_like_those_of_logic_are_functors():
    assert not parsed("a :- and, or(x), b. and(x). 'not'(x) :- b.").errors


def test_all_signs_and_words_of_other_languages_in_one_statement_are_reported():
    found = parsed("a(X) :- Foo(X), Bar(X), X == 1.5; NOT c(3com).\nd.")
    assert [(one.code, marked(one)) for one in found.errors] == [
        ("upper-case-functor", "Foo"),
        ("upper-case-functor", "Bar"),
        ("comparison-sign", "=="),
        ("fractional-number", "1.5"),
        ("disjunction", ";"),
        ("negation-sign", "NOT"),
        ("bad-word", "3com"),
    ]
    assert {"foo", "bar"} <= found.unread and len(found.file.statements) == 1


def test_what_may_only_follow_from_a_repair_is_not_reported():
    assert [one.code for one in parsed("a :- F(X) == 3.").errors] == ["upper-case-functor", "comparison-sign"]
    assert [one.code for one in parsed("a :- f(X) >= 3.").errors] == ["syntax"]
    assert [one.code for one in parsed("A(x)\nb(y)\nc.").errors] == [
        "upper-case-functor",
        "missing-full-stop",
        "missing-full-stop",
    ]
