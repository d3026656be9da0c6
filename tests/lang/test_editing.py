"""What an editor asks about a program that is being typed: places of names, new names, meanings, words that fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.lang.editing import EditedProgram, RenameError
from foretell.lang.load import SHIPPED
from foretell.lang.source import Span

LIBRARY = """\
:- table(reader, "readers.csv").
:- include("books.ndtt").
:- event(borrow).
:- event(return, 8).
:- embed(out, 4).
borrow(R, B) :- reader(R), book(B), not out(B) :: w(R).
out(B) <- borrow(_, B).
!out(B) <- return(_, B).
return(R, B) :- reader(R), book(B), out(B) :: w(B).
late(ada).
late(R) :- reader(R), not late(R, week).
late(R, week) :- reader(R).
new(B) <- return(_, B) for 30m.
"""


@pytest.fixture
def library(tmp_path: Path) -> EditedProgram:
    (tmp_path / "readers.csv").write_text("reader\nada\nben\n")
    (tmp_path / "books.ndtt").write_text("book(dune).\nbook('El Niño').\n")
    return EditedProgram(LIBRARY, tmp_path / "library.ndtt")


def place(text: str, around: str, word: str) -> int:
    """Where a word begins in the line that has `around`."""
    return text.index(word, text.index(around))


def texts(spans: list[Span]) -> list[str]:
    return [one.source.text[one.start : one.end] for one in spans]


def lines(spans: list[Span]) -> list[str]:
    return [f"{Path(one.source.name).name}:{one.place.split(':')[-2] if one.source.is_read else 0}" for one in spans]


# --- places ---


@pytest.mark.parametrize(
    ("around", "word", "expected"),
    [
        ("not out(B) ::", "out", ["library.ndtt:5", "library.ndtt:7"]),
        ("reader(R), book(B), not", "reader", ["library.ndtt:1"]),
        ("reader(R), book(B), not", "book", ["books.ndtt:1", "books.ndtt:2"]),
        (":- include", '"books', ["books.ndtt:1"]),
        (":- table", '"readers', ["readers.csv:0"]),
        ("return(R, B) :-", "B", ["library.ndtt:9"]),
        ("out(B) :: w(B)", "w", ["library.ndtt:6"]),
        ("not late(R, week)", "late", ["library.ndtt:12"]),  # late/1 is another functor
        ("not late(R, week)", "week", ["library.ndtt:11"]),
    ],
)
def test_definitions(library: EditedProgram, around: str, word: str, expected: list[str]):
    assert lines(library.definitions(place(LIBRARY, around, word))) == expected


def test_a_variable_is_bound_by_a_condition(library: EditedProgram):
    (found,) = library.definitions(place(LIBRARY, "return(R, B) :-", "B"))
    assert LIBRARY[found.start - 5 : found.end] == "book(B"


def test_nothing_is_defined_where_there_is_no_name(library: EditedProgram):
    assert library.definitions(place(LIBRARY, "(_, B)", ", B")) == library.definitions(len(LIBRARY)) == []
    assert library.hover(len(LIBRARY)) is None


# --- renaming ---


def renamed(program: EditedProgram, around: str, word: str, new: str) -> dict[str, str]:
    """The texts of all files afterwards, by name."""
    found = {Path(one.name).name: one.text for one in program.gathered.sources}
    for span, text in sorted(program.rename(place(LIBRARY, around, word), new), key=lambda one: -one[0].start):
        file = Path(span.source.name).name
        found[file] = found[file][: span.start] + text + found[file][span.end :]
    return found


def test_functors_are_renamed_wherever_they_stand(library: EditedProgram):
    assert renamed(library, "not out", "out", "lent")["library.ndtt"] == LIBRARY.replace("out", "lent")
    after = renamed(library, "book(B)", "book", "'a book'")
    assert after["library.ndtt"] == LIBRARY.replace("book(", "'a book'(")
    assert after["books.ndtt"] == "'a book'(dune).\n'a book'('El Niño').\n"
    assert renamed(library, "not late", "late", "overdue")["library.ndtt"] == LIBRARY.replace(
        "late(R, w", "overdue(R, w"
    )


def test_variables_are_renamed_within_their_rule_and_parameters_everywhere(library: EditedProgram):
    before = "return(R, B) :- reader(R), book(B), out(B) :: w(B)."
    after = "return(R, Book) :- reader(R), book(Book), out(Book) :: w(Book)."
    assert renamed(library, "return(R, B) :-", "B", "Book")["library.ndtt"] == LIBRARY.replace(before, after)
    assert renamed(library, ":: w(B)", "w", "v")["library.ndtt"] == LIBRARY.replace(":: w(", ":: v(")


@pytest.mark.parametrize(
    ("around", "word", "new", "told"),
    [
        ("not out", "out", "Out", "is not a name"),
        ("not out", "out", "book", "both would become one"),
        ("not out", "out", "bos", "is reserved"),
        ("not out", "out", "a b", "write 'a b'"),
        ("return(R, B) :-", "B", "R", "has a variable `R` already"),
        ("return(R, B) :-", "B", "b", "upper-case"),
        ("late(ada)", "ada", "eve", "is a constant"),
        (":- event", "event", "fact", "no name here that can be renamed"),
        ("return(_, B)", "_", "X", "is not the name of a variable"),
    ],
)
def test_names_that_cannot_be(library: EditedProgram, around: str, word: str, new: str, told: str):
    with pytest.raises(RenameError, match=told):
        library.rename(place(LIBRARY, around, word), new)


# --- meaning ---


def test_hover_says_what_a_functor_and_its_rule_are(library: EditedProgram):
    found = library.hover(place(LIBRARY, "borrow(R, B) :-", "borrow"))
    assert found is not None
    for told in (
        "`borrow/2`: event, embedded in 32 dimensions",
        "`borrow(R, B)` is true whenever `reader(R)` and `book(B)` and `not out(B)` hold",
        "- `deduce.w(R).W`: 32 × 65, one set for each value of `R`",
    ):
        assert told in found[0]
    assert texts([found[1]]) == ["borrow"]


@pytest.mark.parametrize(
    ("around", "word", "told"),
    [
        ("reader(R), book", "reader", "2 facts from `readers.csv` (reader)"),
        ("out(B) <-", "<-", "when `borrow(_, B)` occurs, `out(B)` becomes true"),
        ("new(B) <-", "<-", "`new(B)` becomes true and attends to this event for 30m"),
        ("!out(B)", "<-", "what was added for `out(B)` is erased"),
        ("out(B) <-", "<-", "- `add.rule2.LAYER.V`: 4 × 65"),
        (":- embed", "embed", ":- embed(forum, 8)."),
        ("late(ada)", "late", "`late(ada)` is true, always"),
    ],
)
def test_hovers(library: EditedProgram, around: str, word: str, told: str):
    found = library.hover(place(LIBRARY, around, word))
    assert found is not None and told in found[0]


# --- completion ---


def proposed(tmp_path: Path, typed: str) -> dict[str, str]:
    """What fits behind a text that ends in a statement that is being typed."""
    (tmp_path / "readers.csv").write_text("reader\nada\nben\n")
    program = EditedProgram(f':- table(reader, "readers.csv").\nbook(dune).\n{typed}', tmp_path / "typed.ndtt")
    return {one.text: one.kind for one in program.completions(len(program.source.text))}


def test_functors_fit_where_a_head_or_condition_begins(tmp_path: Path):
    for typed in ("", "bo", "late(R) :- ", "late(R) :- reader(R), ", "late(R) :- not ", ":- event("):
        found = proposed(tmp_path, typed)
        assert {"book": "functor", "reader": "functor"}.items() <= found.items(), typed


def test_constants_of_tables_and_facts_and_own_variables_fit_as_arguments(tmp_path: Path):
    assert proposed(tmp_path, "late(Who) :- reader(") == {"Who": "variable", "ada": "constant", "ben": "constant"}
    assert (
        proposed(tmp_path, "late(Who) :- book(d")
        == proposed(tmp_path, "late(Who) :- book(D")
        == {"Who": "variable", "dune": "constant"}
    )


def test_declarations_fit_behind_their_sign(tmp_path: Path):
    assert proposed(tmp_path, ":- ")["event"] == proposed(tmp_path, ":- ev")["event"] == "declaration"


# --- texts that are not finished ---


def test_every_beginning_of_a_program_has_answers():
    text = (SHIPPED / "robocup.ndtt").read_text()[:1500]
    for end in range(0, len(text), 7):
        program = EditedProgram(text[:end], SHIPPED / "robocup.ndtt")
        assert all(one.span.end <= end for one in program.diagnostics if one.span.source is program.source)
        program.hover(end)
        program.definitions(end)
        program.completions(end)
        for one in program.names:
            assert program.at(one.span.start) is not None


def test_a_program_with_a_mistake_still_has_definitions(tmp_path: Path):
    program = EditedProgram("a(x).\nb :- a(X, .\nc :- a(X).\n", tmp_path / "p.ndtt")
    assert [one.code for one in program.diagnostics if one.severity == "error"]
    assert lines(program.definitions(program.source.text.rindex("a("))) == ["p.ndtt:1"]


def test_lenses_count_the_parameters_of_each_rule_of_the_text(library: EditedProgram):
    found = library.lenses()
    told = [text for _, text in found]
    assert told[0] == "rule1: 2,081 parameters for each R" and told[2] == "rule3: removes"
    assert lines([span for span, _ in found])[0] == "library.ndtt:6" and len(told) == 7


def test_a_name_with_two_numbers_of_arguments_is_two_things_to_an_editor(library: EditedProgram):
    one = place(LIBRARY, "late(ada)", "late")
    assert len(library.alike(library.at(one) or pytest.fail())) == 2
    assert (
        "`late/1`" in (library.hover(one) or [""])[0]
        and "late/2" not in (library.hover(one) or [""])[0].split("---")[0]
    )
    text = library.source.text.replace(":- embed(out, 4).", ":- embed(late, 4).\n:- embed(late/2, 4).")
    both = EditedProgram(text, Path(library.source.name))
    assert "late/1" in (both.hover(place(text, "embed(late,", "late")) or [""])[0]
    with pytest.raises(RenameError, match="is about `late/1` and `late/2`"):
        both.rename(place(text, "late(ada)", "late"), "overdue")
