"""What is wrong with a program that is well written, and what only looks wrong."""

from __future__ import annotations

import pytest

from foretell.errors import ForetellError
from foretell.lang.diagnostics import ProgramError
from foretell.lang.program import Program
from tests.lang.reading import codes, diagnostics, errors, marked, program, warnings


def test_the_example_of_the_house_style_is_word_for_word():
    text = (
        ":- event(watch, 8).\nlikes(U, P) <- wacth(U, P), released(P, Year).\n"
        "watch(U, P) :- user(U), released(P, _).\nuser(u1). released(p1, 1999).\n"
    )
    with pytest.raises(ProgramError) as caught:
        Program.from_text(text, "iptv.ndtt")
    assert str(caught.value).startswith(
        "iptv.ndtt:2:16: error[unknown-event]: `wacth/2` can never happen: nothing declares it an event\n"
        "  2 | likes(U, P) <- wacth(U, P), released(P, Year).\n"
        "    |                ^^^^^\n"
        "  hint: did you mean `watch`?\n"
    )


def test_all_errors_of_a_program_come_at_once_in_the_order_of_the_text():
    text = "a(b(c)).\nf(X) :- g(Y).\nh :- k.\n:- evnt(x).\ng(z).\n"
    found = [one for one in diagnostics(text) if one.severity == "error"]
    assert [(one.code, one.span.source.line_column(one.span.start)[0]) for one in found] == [
        ("nested-term", 1),
        ("unbound-head", 2),
        ("never-true", 3),
        ("unknown-declaration", 4),
    ]


def test_what_a_bad_statement_was_about_is_not_reported_again():
    assert errors("g(X) :- f(X, X), .\nh(X) :- g(X).\nk(X) :- f(X, X).") == ["syntax"]
    assert errors(":- exogenous(create) x.\nforum(T) <- create(T).") == ["missing-comma"]


def test_a_missing_include_hides_no_mistake_of_the_rules_and_blames_no_functor():
    assert errors(':- include("no.ndtt").\na(X) :- b(X), not c(Y).\nd <- e.') == ["missing-file", "unbound-negation"]


def test_an_empty_program_is_fine():
    for text in ("", "\n", "% nothing\n"):
        found = program(text)
        assert (found.rules, found.functors, found.warnings) == ((), {}, ())


# --- variables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "b(x). a(X) :- b(X).",
        "b(x). a(Y) :- Y = X, b(X).",
        "b(x). a(Z) :- Z = Y, Y = X, b(X).",
        "b(x). a(Y) :- eve = Y, b(_).",
        "b(x). a(X) :- X != y, b(X).",
        "b(x, y). a(X) :- not b(X, _), b(X, _).",
        "b(x). a(X) : n(X) :- b(X) :: m(X).",
        "b(x). a(_Y) :- b(_Y).",
    ],
)
def test_a_variable_is_bound_by_a_condition_or_by_equality_in_any_order(text: str):
    assert errors(text) == []


@pytest.mark.parametrize(
    ("text", "code", "under"),
    [
        ("b(x). a(Y) :- b(_).", "unbound-head", "Y"),
        ("b(x). a(Y) :- b(X), not b(Y), X = X.", "unbound-head", "Y"),
        ("b(x). a(Y) :- b(X), Y != X.", "unbound-head", "Y"),
        ("b(x). a :- b(X), not b(Y), X = X.", "unbound-negation", "Y"),
        ("b(x). a :- b(X), not b(_Y), X = X.", "unbound-negation", "_Y"),
        ("b(x). a :- b(X), X != Y.", "unbound-comparison", "Y"),
        ("b(x). a :- b(X), X != _.", "unbound-comparison", "_"),
        ("b(x). a :- b(X) :: w(Y), v.", "parameter-names", "w(Y)"),
        ("b(x). a :- b(X) :: w(Y).", "unbound-name", "Y"),
        ("b(x). a : n(_) :- b(x).", "unbound-name", "_"),
        ("b(X).", "unbound-head", "X"),
    ],
)
def test_an_unbound_variable_is_an_error_where_it_stands(text: str, code: str, under: str):
    first = next(one for one in diagnostics(text) if one.severity == "error")
    assert (first.code, marked(first)) == (code, under)


def test_a_variable_used_once_is_a_warning_unless_it_begins_with_an_underscore():
    assert warnings("b(x, y). a(X) :- b(X, Y).") == ["used-once"]
    assert warnings("b(x, y). a(X) :- b(X, _Y).") == []
    assert warnings("b(x, y). a(X) :- b(X, _).") == []
    assert warnings("b(x, y). a(X) :- b(X, Y) :: w(Y).") == []


@pytest.mark.parametrize(
    ("body", "fires"),
    [
        ("b(X), X = y, X = z", False),
        ("b(X), X = Y, Y = Z, X = a, Z = b", False),
        ("b(X), X = Y, X != Y", False),
        ("b(X), not b(X)", False),
        ("b(X), X = Y, not b(Y)", False),
        ("b(X), X != y", True),
        ("b(X), X = y, X != z", True),
        ("b(X), b(Y), not c(X, Y)", True),
        ("b(X), '3' != 3", True),
        ("b(X), '3' = 3", False),
    ],
)
def test_a_rule_that_contradicts_itself_is_a_warning(body: str, fires: bool):
    assert ("never-fires" not in warnings(f"b(x). c(x, x). a(X) :- {body}.")) is fires


def test_an_event_may_occur_though_it_is_not_true():
    assert "never-fires" not in warnings(":- exogenous(e). e(x). a(X) <- e(X), not e(X).")


# --- arities, declarations, reserved names -----------------------------------------------------------------------------


def test_two_arities_are_two_functors_and_a_warning_names_both_places():
    (found,) = [one for one in diagnostics("b(x).\nb(x, y).") if one.code == "two-arities"]
    assert found.severity == "warning" and marked(found) == "b" and "p.ndtt:1:1" in found.message
    made = program(":- event(b). :- embed(b/2, 8). :- key(b/0, 3). b. b(x). b(x, y). b <- b(X), b(X, Y).")
    assert {name: (one.arity, one.kind, one.dim, one.key) for name, one in made.functors.items()} == {
        "b/0": (0, "event", None, 3),
        "b/1": (1, "event", None, None),
        "b/2": (2, "event", 8, None),
    }


def test_a_functor_of_another_arity_that_nothing_makes_true_is_an_error_with_a_suggestion():
    (found,) = [one for one in diagnostics("b(x).\na :- b(x, y).") if one.severity == "error"]
    assert found.code == "never-true" and "`b/2`" in found.message and "`b/1`" in (found.hint or "")
    assert "event-never-possible" in codes(":- event(b(X, Y)). b(x).")


def test_a_declaration_may_name_the_number_of_arguments():
    assert program(":- event(b/1, 4). b(x).").functors["b"].dim == 4
    assert errors(":- embed(b / x, 4). b(x).") == ["arithmetic"]
    assert errors(":- embed(b/12345, 4). b(x).") == ["bad-declaration"]
    assert errors("a(x) :- b/1.") == ["arithmetic"]


def test_embed_may_give_the_dimension_of_an_event_declared_without_one():
    found = program(":- event(e). :- embed(e, 8). :- exogenous(f). :- embed(f, 4). e. a <- f.")
    assert (found.functors["e"].dim, found.functors["f"].dim) == (8, 4)
    assert program(":- embed(e, 8). :- event(e). e.").functors["e"].dim == 8


@pytest.mark.parametrize(
    "pair",
    [
        ":- embed(e, 8). :- embed(e, 9).",
        ":- event(e, 8). :- embed(e, 9).",
        ":- event(e, 8). :- event(e, 9).",
        ":- event(e, 8). :- event(e).",
        ":- event(e). :- exogenous(e).",
        ":- key(e, 1). :- key(e, 2).",
        ":- embed(_, 0). :- embed(_, 8).",
    ],
)
def test_declarations_that_contradict_each_other_are_an_error(pair: str):
    assert errors(f"{pair} e. e <- e.") == ["declared-twice"] or "declared-twice" in errors(f"{pair} e.")


@pytest.mark.parametrize(
    "pair", [":- embed(e, 8). :- embed(e, 8).", ":- event(e, 8). :- embed(e, 8).", ":- event(e). :- event(e)."]
)
def test_a_declaration_given_twice_with_one_value_is_fine(pair: str):
    assert errors(f"{pair} e.") == []


def test_the_default_dimension_is_that_of_every_functor_without_one():
    found = program(":- embed(_, 0). :- event(e, 3). :- event(f). a. e :- a. f :- a.").functors
    assert (found["a"].dim, found["e"].dim, found["f"].dim) == (
        0,
        3,
        None,
    )  # an event of dimension 0 has a constant rate
    assert program(":- embed(_, 4). :- event(e). :- exogenous(x). e.").functors["e"].dim == 4
    assert program(":- embed(_, 0). :- event(e). :- exogenous(x). e <- x. e.").functors["x"].dim == 0
    assert program("a.").functors["a"].dim is None


def test_bos_is_the_bare_first_condition_of_an_addition_or_removal_and_nothing_else():
    assert errors(":- exogenous(e). a <- bos. b(X) <- e(X). !b(X) <- bos, b(X).") == []
    for text in (
        "bos.",
        "a :- bos.",
        "a <- bos(x).",
        "b. a <- b, bos.",
        "a :- not bos.",
        ":- embed(bos, 3).",
        "eos.",
        "a <- eos.",
    ):
        assert "reserved-name" in errors(text), text
    assert errors("a(bos).") == []  # a constant is no functor
    for name in ("bos", "eos"):
        for place in range(4):
            names = ["a", "b", "c", "w"]
            names[place] = name
            for form in (
                "{0} :- {1}, not {2} :: {3}.",
                "{0} <- {1}, {2} :: {3}.",
                "!{0} <- {1}, not {2} :: {3}.",
                "{0}(x) :- {1}(x).",
            ):
                assert "reserved-name" in errors(form.format(*names)) or place >= 1


# --- what can be true ----------------------------------------------------------------------------------------------------


def test_only_the_cause_is_reported_not_what_follows_from_it():
    assert errors("b :- a. c :- b. d :- c, not b.") == ["never-true"]


def test_a_typo_is_reported_where_it_stands_with_what_was_meant():
    (found,) = diagnostics("empl(eve).\nbusy(P) :- emlp(P).")
    assert (found.code, marked(found), found.hint) == ("never-true", "emlp", "did you mean `empl`?")


def test_rules_that_wait_for_each_other_never_begin():
    assert errors("a :- b. b :- a.") == ["never-true", "never-true"]
    assert errors("a :- b. b :- a. b.") == []


def test_a_negated_condition_that_nothing_makes_true_is_an_error_that_says_so():
    (found,) = diagnostics("b. a :- b, not c.")
    assert found.code == "never-true" and "always holds" in found.message


def test_an_exogenous_event_counts_only_as_the_first_condition_of_an_addition():
    assert errors(":- exogenous(e). a <- e.") == []
    assert errors(":- exogenous(e). :- exogenous(f). a <- f, e.") == ["never-true"]
    assert errors(":- exogenous(e). a :- e.") == ["wrong-arrow"]
    assert errors(":- exogenous(e). e. a :- e.") == []  # a fact of that name is true


def test_an_event_must_be_able_to_become_true_to_be_waited_for():
    assert errors(":- event(e). a <- e.") == ["never-true"]
    assert errors(":- event(e). b. e :- b. a <- e.") == []
    assert errors(":- event(e). e <- bos. a <- e.") == []
    assert errors(":- event(e). e :- a. a <- e.") == ["never-true", "never-true"]


def test_an_event_that_nothing_declares_is_an_error_unless_undeclared_events_are_exogenous():
    assert errors("a <- e.") == ["unknown-event"]
    found = program("a <- e(X), b(X). b(x).", undeclared="exogenous")
    assert found.functors["e"].kind == "exogenous" and found.undeclared == "exogenous"
    assert program("b(x). a <- b(x).", undeclared="exogenous").functors["b"].kind == "exogenous"
    assert errors(":- event(e). a <- e.", undeclared="exogenous") == ["never-true"]


def test_a_header_without_rows_still_counts_as_able_to_hold(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n")
    assert codes(':- table(t, "t.csv"). a(X) :- t(X, _).', folder=tmp_path) == ["empty-table"]


def test_removing_what_nothing_adds_is_a_warning():
    assert warnings(":- exogenous(e). a(x). !a(X) <- e(X).") == ["removes-nothing"]
    assert warnings(":- exogenous(e). a(X) <- e(X). !a(X) <- e(X).") == []


def test_declarations_of_what_is_nowhere_are_warnings():
    assert warnings(":- embed(a, 3).") == ["unused-declaration"]
    assert warnings(":- exogenous(a).") == []  # the data may have such events
    assert warnings(":- event(a).") == ["event-never-possible"]
    assert program(":- exogenous(a).").functors["a"].arity is None  # it may still occur in the data


def test_an_event_as_a_condition_of_a_fact_is_possible_and_has_not_happened():
    events = ":- event(admit). :- event(visit). p(x). admit(X) :- p(X). visit(X) :- admit(X), p(X)."
    assert warnings(events) == []  # that one event is possible while another is, is often meant
    (found,) = diagnostics(f"{events} lies(X) :- admit(X).")
    assert (found.code, marked(found)) == ("event-as-condition", "admit")
    assert found.hint and "`lies(X) <- admit(X).`" in found.hint
    assert warnings(f"{events} free(X) :- p(X), not admit(X). lies(X) <- admit(X).") == []


def test_a_declaration_without_its_arrow_is_a_warning_unless_a_rule_knows_such_facts():
    (found,) = diagnostics("event(admit).")
    assert (found.code, found.hint) == ("declaration-as-fact", "did you mean `:- event(admit).`?")
    for text in (
        "event(admit). a(X) :- event(X).",
        "a(x). event(admit). event(X) :- a(X).",
        "'event'(admit).",
        "key(door).",
        "eventful(x).",
    ):
        assert warnings(text) == [], text


def test_a_fact_or_rule_that_is_there_twice_is_a_warning_unless_its_parameters_are_named_apart():
    assert warnings("a(x). a(x).") == ["repeated-rule"]
    assert warnings("a(x, y). b(X) :- a(X, _). b(X) :- a(X,_).") == ["repeated-rule"]
    assert warnings("a(x). a(y). b(X) :- a(X). b(X) :- a(X) :: w. a(x) :: v.") == []


def test_an_unbound_variable_is_reported_once_at_the_head_if_it_is_there():
    found = diagnostics("b(x). c(x, x). a(P, X) :- b(X), not c(P, _), P != X.")
    assert [(one.code, one.span.source.line_column(one.span.start)) for one in found] == [("unbound-head", (1, 18))]


def test_any_value_is_suggested_only_for_a_variable_that_stands_nowhere_else():
    once, twice = (
        next(iter(diagnostics(f"b(x). a :- b(X), X = X, {rest}."))) for rest in ("not b(Y)", "not b(Y), not b(Y)")
    )
    assert once.code == twice.code == "unbound-negation" and once.hint and twice.hint
    assert "`_`" in once.hint and "`_`" not in twice.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("b(x). a(X) :- b(X), X != Anna.", "`anna`"),
        ("patient(P001).", "`p001` or `'P001'`"),
        (":- event(Admitted).", "`admitted` or `'Admitted'`"),
        ("a(X) :- b(X).", ":- table("),
        (":- include(admit/2).", ":- include("),
        (":- event admit.", "`:- event(admit).`"),
        (":- embed ward 8.", "`:- embed(ward, 8).`"),
        (':- table(staff/2, "staff.csv").', '`:- table(staff, "staff.csv").`'),
        ("a(Y) :- b(X), Y = X + 1.", "results as facts, in a table"),
    ],
)
def test_a_hint_says_what_to_write(text: str, hint: str):
    first = next(one for one in diagnostics(text) if one.severity == "error")
    assert first.hint and hint in first.hint


def test_the_removal_by_what_is_no_event_is_not_told_to_deduce():
    found = [one for one in diagnostics("b(x). a(X) <- b(X). !a(X) <- b(X).") if one.code == "unknown-event"]
    assert [":-` if" in (one.hint or "") for one in found] == [True, False]


def test_a_program_shows_itself_in_a_line_and_a_diagnostic_as_its_message():
    found = program(":- event(e). :- exogenous(f). a(x). a(y). e :- a(_), b(Z). b(z).")
    assert repr(found) == "<Program p.ndtt: 1 rule, 3 facts, 2 events>"
    (one,) = found.warnings
    assert str(one) == one.render() and str(one).startswith("p.ndtt:1:56: warning[used-once]")


def test_an_unknown_choice_of_undeclared_names_the_choices(tmp_path):
    (tmp_path / "p.ndtt").write_text("a.")
    wrong = {"undeclared": "exo"}
    with pytest.raises(ForetellError, match="undeclared='exo': expected 'error' or 'exogenous'"):
        Program.from_text("a.", **wrong)
    with pytest.raises(ForetellError, match="undeclared='exo': expected 'error' or 'exogenous'"):
        Program.from_file(tmp_path / "p.ndtt", **wrong)


def test_the_digest_is_that_of_the_meaning(tmp_path):
    base = program(":- embed(a, 3).\na(x).\nb(X) :- a(X), not c(_). c(y).").digest
    same = ":- embed(a, 3).  % comment\n a( x ) .b(X):-a(X),not c(_).\nc(y)."
    assert Program.from_text(same, "other.ndtt").digest == base
    for other in (
        ":- embed(a, 4).\na(x).\nb(X) :- a(X), not c(_). c(y).",
        ":- embed(a, 3).\na(x).\nb(X) :- a(X), not c(X). c(y).",
        ":- embed(a, 3).\nc(y). a(x).\nb(X) :- a(X), not c(_).",
        ":- embed(a, 3).\na('x y').\nb(X) :- a(X), not c(_). c(y).",
    ):
        assert program(other).digest != base
    tables = set()
    for rows in ("x\n", "x\ny\n", "y\n"):
        (tmp_path / "t.csv").write_text(f"head\n{rows}")
        tables.add(program(':- table(t, "t.csv").', folder=tmp_path).digest)
    assert len(tables) == 3
