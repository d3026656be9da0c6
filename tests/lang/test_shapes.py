"""Shapes and counts of parameters, by the table of the language."""

from __future__ import annotations

from foretell.lang.counts import Counts, count_parameters
from foretell.lang.program import Program, shapes_of
from foretell.lang.shared_names import unify
from foretell.lang.syntax import Rule
from tests.lang.reading import diagnostics, errors, program, statements

FORUM = """
:- embed(empl, 8). :- event(message, 16). :- embed(forum, 4). :- key(forum, 2). :- embed(content, 0). :- exogenous(create, 5).
empl(eve). content(joke).
forum(T) <- create(T).
message(P,T,C) :- empl(P), forum(T), content(C), P != T, not empl(T).
forum(T) <- message(P,T,_), empl(P).
!forum(T) <- create(T).
forum(T) <- bos, empl(T).
"""


def counted(found: Program, **options: int) -> Counts:
    return count_parameters(
        found.rules, found.tables, found.functors, found.features, **{"dim": 32, "layers": 2, **options}
    )


def test_shapes_are_those_of_the_table():
    found = program(FORUM)
    shapes = [dict(shapes_of(one, found.functors, 32, 10).matrices) for one in found.rules]
    assert shapes == [
        {"W": (8, 1)},
        {"W": (0, 1)},
        {"V": (4, 1 + 10 + 5), "K": (2, 1 + 10 + 5), "Q": (2, 1 + 10 + 4)},
        {"W": (16, 1 + 8 + 4)},
        {"V": (4, 1 + 10 + 16 + 8), "K": (2, 35), "Q": (2, 15)},
        {},
        {"V": (4, 1 + 10 + 8), "K": (2, 19), "Q": (2, 15)},  # bos has no embedding
    ]


def test_counts_are_products_of_shapes_over_layers_and_every_exponent_and_intensity():
    found = counted(program(FORUM), layers=3, time_dim=10)
    by_rule = [one.parameters for one in found.rules]
    assert by_rule == [8, 0, 3 * (6 * 16 + 2 * 15), 16 * 13 + 1, 3 * (6 * 35 + 30), 0, 3 * (6 * 19 + 30)]
    assert found.intensities == 1 + 16 + 1
    assert found.total == sum(by_rule) + found.intensities


def test_a_matrix_that_rules_share_counts_once():
    found = counted(program("a(x). b(X) :- a(X) :: w. c(X) :- a(X) :: w. d(X) :- a(X)."), dim=4)
    assert [one.shared_with for one in found.rules] == [None, None, "rule1", None]
    assert found.total == 4 + (4 * 5) + (4 * 5) + 3  # the fact, w, that of rule3, and three exponents


def test_shared_exponents_count_once_and_groups_are_marked():
    found = counted(program("a(x). b(X) : e :- a(X) :: w(X). c(Y) : e :- a(Y) :: w(Y)."), dim=4)
    assert found.total == 4 + 20 + 1
    assert found.per_value and found.rules[1].shapes.groups == ("X",)
    assert found.rules[2].shared_with == "rule1"


def test_tables_have_a_vector_for_every_row(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\nx,y\nx,z\n")
    assert counted(program(':- table(t, "t.csv"). :- embed(t, 3).', folder=tmp_path)).tables == 6


def test_names_that_can_be_the_same_term_must_have_one_shape():
    base = ":- embed(b, 2). a(x). b(x). c(x, y). "
    assert errors(base + "d(X) :- a(X) :: w. e(X) :- b(X) :: w.") == ["shape-clash"]
    assert errors(base + "d(X) :- a(X) :: w(X). e(X) :- b(X) :: w(x).") == ["shape-clash"]
    assert errors(base + "d(X) :- a(X) :: w(x). e(X) :- b(X) :: w(y).") == []
    assert errors(base + "d(X) :- a(X) :: w(X). e(X) :- b(X) :: w(X, X).") == []
    assert errors(base + "d(X) :- c(X, Y) :: w(X, Y). e(X) :- b(X), X = Z :: w(Z, Z).") == ["shape-clash"]
    assert errors(base + "d(X) :- c(X, _) :: w(X, X). e(X) :- b(X) :: w(p, q).") == []
    assert errors(base + "d(X) :- a(X) :: w. e(X) :- a(X) :: w.") == []


def test_deductions_and_additions_have_names_of_their_own():
    assert errors(":- exogenous(e, 3). a(x). b(X) :- a(X) :: w. c(X) <- e(X) :: w.") == []


def test_the_default_dimension_decides_whether_shapes_agree():
    text = ":- embed(b, 8). a(x). b(x). d(X) :- a(X) :: w. e(X) :- b(X) :: w."
    assert errors(text, dim=8) == []
    assert errors(text, dim=9) == ["shape-clash"]


def test_the_own_name_of_a_rule_is_no_name_to_give():
    assert errors("a(x). d(X) :- a(X). e(X) :- a(X) :: rule1.") == ["automatic-name"]
    assert errors("a(x). d(X) : rule2 :- a(X). e(X) :- a(X).") == ["automatic-name"]
    assert errors("a(x). d(X) :- a(X) :: rule3. e(X) :- a(X) :: rule.") == []


def test_a_fact_is_named_after_itself_and_may_share_that_vector():
    assert errors("a(x). a(y). d(z) :: a(x).") == []
    (found,) = [one for one in diagnostics(":- embed(d, 2). a(x). a(y). d(z) :: a(y).") if one.severity == "error"]
    assert found.code == "shape-clash" and "the facts from" in found.message
    assert errors(":- embed(d, 2). a(x). a(y). d(z) :: a(z).") == []


def test_adding_a_fact_renames_nothing():
    before = Program.from_text("a(x). d(X) :- a(X). e <- bos. !e <- bos. f :- e.")
    after = Program.from_text("a(y). a(x). d(X) :- a(X). a(z). e <- bos. !e <- bos. f :- e. a(u).")
    names = [one.name for one in before.rules]
    assert names == ["a(x)", "rule1", "rule2", "rule3", "rule4"]
    assert [one.name for one in after.rules if one.name in names] == names


def test_a_name_may_clash_with_the_vectors_of_a_table(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\nx,y\n")
    text = ':- table(t, "t.csv"). a(x). d(X) :- a(X) :: t(X, {}).'
    assert errors(text.format("y"), folder=tmp_path) == ["shape-clash"]
    assert errors(text.format("z"), folder=tmp_path) == []


def test_flat_terms_unify_if_some_binding_makes_them_equal():
    def args(text: str):
        (found,) = statements(f"a :- f({text}).")
        assert isinstance(found, Rule)
        return found.body[0].args  # type: ignore[union-attr]

    for left, right, expected in [
        ("X, X", "Y, Z", True),
        ("X, X", "a, b", False),
        ("X, X", "a, Y", True),
        ("X, X, b", "a, Y, Y", False),
        ("X, Y", "Y, X", True),
        ("'3'", "3", False),
    ]:
        assert unify(args(left), args(right)) is expected
        assert unify(args(right), args(left)) is expected
