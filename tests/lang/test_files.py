"""Includes and tables: at their place, once, and with every mistake where it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from foretell.lang.diagnostics import ProgramError
from foretell.lang.program import Program
from foretell.lang.syntax import pretty_rule
from tests.lang.reading import codes, diagnostics, errors, program, write


def test_an_included_file_counts_at_its_place_and_relative_to_the_file_that_names_it(tmp_path: Path):
    write(
        tmp_path,
        {
            "main.ndtt": 'a.\n:- include("sub/one.ndtt").\nd.\n',
            "sub/one.ndtt": 'b.\n:- include("two.ndtt").\n',
            "sub/two.ndtt": "c.",
        },
    )
    found = Program.from_file(tmp_path / "main.ndtt")
    assert [(one.name, pretty_rule(one.rule)) for one in found.rules] == [
        ("a", "a."),
        ("b", "b."),
        ("c", "c."),
        ("d", "d."),
    ]
    assert [Path(one.name).name for one in found.sources] == ["main.ndtt", "one.ndtt", "two.ndtt"]


def test_removals_are_numbered_and_facts_and_declarations_are_not():
    found = program(":- exogenous(e). :- embed(a, 3). a(x). b(X) <- e(X). !b(X) <- e(X). c(X) :- a(X).")
    assert [(one.number, one.rule.kind) for one in found.rules] == [
        (0, "deduce"),
        (1, "add"),
        (2, "remove"),
        (3, "deduce"),
    ]


def test_an_include_that_is_cyclic_twice_missing_a_folder_or_no_text_is_an_error(tmp_path: Path):
    write(tmp_path, {"self.ndtt": ':- include("self.ndtt").', "x.ndtt": "x.", "y.ndtt": ':- include("x.ndtt").'})
    (tmp_path / "bytes.ndtt").write_bytes(b"a(\xff).")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ProgramError) as caught:
        Program.from_file(tmp_path / "self.ndtt")
    assert [one.code for one in caught.value.diagnostics] == ["include-cycle"]
    assert errors(':- include("x.ndtt"). :- include("./x.ndtt").', folder=tmp_path) == ["include-twice"]
    assert errors(':- include("x.ndtt"). :- include("y.ndtt").', folder=tmp_path) == ["include-twice"]
    assert errors(':- include("gone.ndtt").', folder=tmp_path) == ["missing-file"]
    assert errors(':- include("folder").', folder=tmp_path) == ["unreadable-file"]
    assert errors(':- include("bytes.ndtt").', folder=tmp_path) == ["unreadable-file"]


def test_a_pipe_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.ndtt")
    os.mkfifo(tmp_path / "pipe.csv")
    assert errors(':- include("pipe.ndtt"). :- table(t, "pipe.csv").', folder=tmp_path) == ["unreadable-file"] * 2


def test_a_program_that_does_not_exist_is_an_error_with_a_suggestion(tmp_path: Path):
    write(tmp_path, {"robocup.ndtt": "a."})
    with pytest.raises(
        ProgramError,
        match=r"robocop\.ndtt: error\[missing-file\]: there is no such file\n  hint: did you mean `robocup",
    ):
        Program.from_file(tmp_path / "robocop.ndtt")


def test_mistakes_of_an_included_file_are_placed_in_it(tmp_path: Path):
    write(tmp_path, {"main.ndtt": ':- include("sub.ndtt").\na :- b(', "sub.ndtt": "c.\nd :- e."})
    with pytest.raises(ProgramError) as caught:
        Program.from_file(tmp_path / "main.ndtt")
    assert [one.span.place.split("/")[-1] for one in caught.value.diagnostics] == ["main.ndtt:2:7", "sub.ndtt:2:6"]


def test_dos_line_ends_and_a_byte_order_mark_are_fine(tmp_path: Path):
    (tmp_path / "dos.ndtt").write_bytes("\ufeffa(x).\r\nb(X) :-\r\n\ta(X).\r\n".encode())
    (tmp_path / "dos.csv").write_bytes("\ufeffp,q\r\nx,y\r\n".encode())
    assert len(Program.from_file(tmp_path / "dos.ndtt").rules) == 2
    assert program(':- table(t, "dos.csv").', folder=tmp_path).tables[0].rows == [("x", "y")]


# --- tables --------------------------------------------------------------------------------------------------------------


def test_cells_are_spelled_as_constants_of_programs_and_data_are(tmp_path: Path):
    write(tmp_path, {"t.csv": "who,where\n eve ,New York\nadam,12\n\"Smith, J.\",'x'\n\n"})
    (table,) = program(':- table(t, "t.csv").', folder=tmp_path).tables
    assert table.rows == [("eve", "'New York'"), ("adam", "12"), ("'Smith, J.'", "'\\'x\\''")]
    assert (table.functor, table.arity) == ("t", 2)


def test_the_constants_of_a_table_are_those_of_the_text(tmp_path: Path):
    write(tmp_path, {"t.csv": "who\nNew York\n"})
    found = program(":- table(t, \"t.csv\"). u('New York').", folder=tmp_path)
    assert str(found.rules[0].rule.head.args[0]) == found.tables[0].rows[0][0]


def test_parquet_gives_the_same_facts(tmp_path: Path):
    columns = {
        "who": pa.array(["eve", "New York", "eve"]).dictionary_encode(),
        "n": pa.array([1, -2, 1], pa.int16()),
        "s": pa.array(["a ", "b", "a"], pa.large_string()),
    }
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    found = program(':- table(t, "t.parquet").', folder=tmp_path)
    assert found.tables[0].rows == [("eve", "1", "a"), ("'New York'", "-2", "b")]
    assert [one.code for one in found.warnings] == ["duplicate-row"]


def test_nulls_fractions_and_other_types_of_a_parquet_file_are_errors_with_their_row(tmp_path: Path):
    parquet.write_table(pa.table({"a": ["x", None], "b": [1, 2]}), tmp_path / "null.parquet")
    parquet.write_table(pa.table({"a": [1.5, 2.0]}), tmp_path / "float.parquet")
    parquet.write_table(pa.table({"a": [[1], [2]]}), tmp_path / "list.parquet")
    (found,) = diagnostics(':- table(t, "null.parquet").', folder=tmp_path)
    assert found.code == "bad-table" and "row 2" in found.message and "column 1" in found.message
    for name in ("float", "list"):
        assert errors(f':- table(t, "{name}.parquet").', folder=tmp_path) == ["bad-table"]


def test_twenty_bad_rows_are_shown_and_the_others_counted(tmp_path: Path):
    write(tmp_path, {"t.csv": "a,b\n" + "x\n" * 50 + "x,y\n"})
    found = diagnostics(':- table(t, "t.csv").', folder=tmp_path)
    assert len(found) == 21
    rows = [one for one in found if one.span.source.name.endswith("t.csv")]
    assert [one.span.source.line_column(one.span.start)[0] for one in rows] == list(range(2, 22))
    assert any("30 more rows" in one.message for one in found)


def test_a_row_over_several_lines_keeps_the_count_of_lines(tmp_path: Path):
    write(tmp_path, {"t.csv": 'a,b\n"one\ntwo",y\nz\n'})
    (found,) = diagnostics(':- table(t, "t.csv").', folder=tmp_path)
    assert found.span.place.endswith("t.csv:4:1")


def test_a_table_that_cannot_be_read_blames_no_rule_that_uses_it(tmp_path: Path):
    assert codes(':- table(t, "gone.csv"). a(X) :- t(X, X).', folder=tmp_path) == ["missing-file"]


def test_the_arity_of_a_table_is_that_of_its_header(tmp_path: Path):
    write(tmp_path, {"t.csv": "a,b\nx,y\n"})
    assert errors(':- table(t, "t.csv"). a(X) :- t(X).', folder=tmp_path) == ["never-true"]


def test_a_field_that_is_too_long_for_the_reader_is_an_error(tmp_path: Path):
    write(tmp_path, {"t.csv": "a\n" + "x" * 200_000 + "\n"})
    assert errors(':- table(t, "t.csv").', folder=tmp_path) == ["unreadable-file"]


def test_a_hundred_thousand_rows_and_two_thousand_rules_load(tmp_path: Path):
    write(tmp_path, {"t.csv": "a,b\n" + "".join(f"u{n % 1000},{n}\n" for n in range(100_000))})
    rules = "".join(f"d{n}(X) :- t(X, {n}), not t(_, {n}0) :: w{n}(X).\n" for n in range(2_000))
    found = program(':- table(t, "t.csv").\n' + rules, folder=tmp_path)
    assert len(found.tables[0].rows) == 100_000 and len(found.rules) == 2_000


def test_reading_a_program_with_a_csv_table_imports_no_numpy_torch_or_pyarrow(tmp_path: Path):
    write(tmp_path, {"p.ndtt": ':- table(t, "t.csv").', "t.csv": "a\nx\n"})
    code = (
        "import sys, foretell; foretell.Program.from_file(sys.argv[1])\n"
        "heavy = {'torch', 'numpy', 'pyarrow'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "p.ndtt")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_row_of_two_tables_of_one_functor_is_one_fact(tmp_path: Path):
    write(tmp_path, {"one.csv": "a\nx\ny\n", "two.csv": "a\ny\nz\n"})
    found = program(':- table(t, "one.csv"). :- table(t, "two.csv").', folder=tmp_path)
    assert [one.rows for one in found.tables] == [[("x",), ("y",)], [("z",)]]
    assert [one.code for one in found.warnings] == ["duplicate-row"]


@pytest.mark.parametrize("name", ["ok.csv", "ok.CSV", "ok.jsonl", "ok.jsonl.gz", "ok.parquet"])
def test_data_in_the_place_of_the_program_are_told_apart_by_their_name(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(b"\x1f\x8b" if name[-2:] == "gz" else b"sequence,time,event\na,1,x\n")
    with pytest.raises(ProgramError) as caught:
        Program.from_file(tmp_path / name)
    assert (
        caught.value.diagnostics[0].hint
        == f"`{name}` looks like data by its name; the program comes first, then the data"
    )
    assert not any("looks like data" in (one.hint or "") for one in caught.value.diagnostics[1:])


def test_the_same_mistake_in_a_program_says_nothing_of_data(tmp_path: Path):
    (tmp_path / "ok.ndtt").write_text("sequence,time,event\n")
    with pytest.raises(ProgramError) as caught:
        Program.from_file(tmp_path / "ok.ndtt")
    assert "looks like data" not in str(caught.value)
    with pytest.raises(ProgramError, match="there is no such file") as caught:
        Program.from_file(tmp_path / "gone.csv")
    assert "looks like data" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("kim,w1\nlee,w1\n", "`w1` is the header of column 2"),
        ("Kim\nlee\nKim\n", "`Kim` is the header of column 1"),
        ("nurse;ward\nkim;w1\nlee;w2\n", "semicolon"),
        ("nurse,ward\nkim,w1\nw1,kim\n", None),
        ("a;b\nkim\n", None),
        ("nurse,ward\nkim,w1;w2\n", None),
    ],
)
def test_a_table_without_a_header_or_with_semicolons_is_doubted(tmp_path: Path, table: str, said: str | None):
    (tmp_path / "t.csv").write_text(table)
    found = diagnostics(':- table(t, "t.csv").', folder=tmp_path)
    assert [one.code for one in found] == (["doubtful-table"] if said else [])
    assert said is None or said in found[0].message


def test_a_table_remembers_its_file_and_its_header(tmp_path: Path):
    write(tmp_path, {"sub/t.csv": "nurse, ward\nkim,w1\n"})
    (table,) = program(':- table(t, "sub/t.csv").', folder=tmp_path).tables
    assert (table.path, table.header, table.rows) == ("sub/t.csv", ("nurse", "ward"), [("kim", "w1")])
