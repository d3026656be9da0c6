"""`foretell lsp` as an editor has it: a process that is talked to over its standard input and output."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("pygls")

from foretell.cli.language_server import PAUSE
from tests.cli.invoking import refused
from tests.cli.lsp_client import EditorSession, ServerRefusal, edited
from tests.lang.test_editing import LIBRARY

MOST = 0.2  # seconds from a change to its diagnostics on an idle machine: the pause and the work of the server
MOST_ON_A_CLOCK = 5.0  # the same where other processes may have the processor


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "readers.csv").write_text("reader\nada\nben\n")
    (tmp_path / "books.ndtt").write_text("book(dune).\nbook('El Niño').\n")
    return tmp_path / "library.ndtt"


def long_program(rules: int) -> str:
    lines = ["% A long program.", ":- event(e).", "e.", "f0(a)."]
    lines += [
        f"f{n}(X) :- f{n - 1}(X), not g{n}(X)." if n % 2 else f"f{n}(X) <- e, f{n - 1}(X)." for n in range(1, rules)
    ]
    lines += [f"g{n}(b) :- e." for n in range(1, rules, 2)]
    return "".join(f"{line}\n" for line in lines)


def test_a_session_open_type_a_mistake_rename_format(file: Path):
    text = long_program(198)
    assert text.count("\n") == 300
    with EditorSession() as editor:
        assert {one["severity"] for one in editor.open(file, text)} <= {2}
        waited, worked = [], []
        for version in range(0, 10, 2):
            start, used = time.perf_counter(), editor.processor_seconds()
            editor.type(file, version + 1, 2, 0, ":- ,")
            wrong = [one for one in editor.shown(file) if one["severity"] == 1]
            waited.append(time.perf_counter() - start)
            worked.append(editor.processor_seconds() - used)
            assert wrong[0]["code"] == "syntax" and wrong[0]["range"]["start"]["line"] == 2
            editor.type(file, version + 2, 2, 0, "", deleted=4)
            assert not [one for one in editor.shown(file) if one["severity"] == 1]
        assert PAUSE < PAUSE + min(worked) < MOST, worked
        assert min(waited) < MOST_ON_A_CLOCK, waited
        changes = editor.at("rename", file, 3, 0, newName="first")["changes"]
        assert edited(text, changes[file.as_uri()]) == text.replace("f0(", "first(")
        assert editor.of("formatting", file, options={"tabSize": 4, "insertSpaces": True}) == []
        editor.type(file, 20, 1, 0, "  ")
        (edit,) = editor.of("formatting", file, options={"tabSize": 4, "insertSpaces": True})
        assert edit["newText"] == text
    assert editor.errors == ""


def test_places_in_other_files_and_units_beyond_the_first_plane(file: Path):
    text = LIBRARY + "book('📕'). book('📕📕'). late('📕').\n"
    last = text.count("\n") - 1
    with EditorSession() as editor:
        editor.open(file, text)
        found = editor.at("references", file, last, 1, context={"includeDeclaration": True})
        own = [one["range"]["start"]["character"] for one in found if one["range"]["start"]["line"] == last]
        assert own == [0, 12]  # a book is two units of UTF-16
        assert {one["uri"] for one in found} == {file.as_uri(), (file.parent / "books.ndtt").as_uri()}
        (place,) = editor.at("definition", file, 0, 20)
        assert place["uri"] == (file.parent / "readers.csv").as_uri()
        assert [one["name"] for one in editor.of("documentSymbol", file)][-1] == "late('📕')"
    with EditorSession(encodings=("utf-8",)) as editor:
        assert editor.capabilities["positionEncoding"] == "utf-8"
        editor.open(file, text)
        found = editor.at("references", file, last, 1, context={"includeDeclaration": True})
        own = [one["range"]["start"]["character"] for one in found if one["range"]["start"]["line"] == last]
        assert own == [0, 14]


def test_hover_and_completion(file: Path):
    with EditorSession("--dim", 6) as editor:
        editor.open(file, LIBRARY)
        hover = editor.at("hover", file, 5, 2)
        assert hover["contents"]["kind"] == "markdown" and "`deduce.w(R).W`: 6 × 13" in hover["contents"]["value"]
        offered = editor.at("completion", file, 5, 23)
        assert {"ada", "ben"} <= {one["label"] for one in offered}


def test_mistakes_of_included_files_are_shown_there_and_go_away(file: Path):
    books = file.parent / "books.ndtt"
    with EditorSession() as editor:
        good = editor.open(file, LIBRARY)
        books.write_text("book(dune).\nbook(emma\n")
        editor.tell("textDocument/didSave", textDocument={"uri": books.as_uri()})
        (wrong,) = editor.shown(books)
        assert wrong["code"] == "unclosed-parenthesis" and wrong["range"]["start"]["line"] == 1
        books.write_text("book(dune).\nbook(emma).\n")
        editor.tell("textDocument/didSave", textDocument={"uri": books.as_uri()})
        assert editor.shown(books) == []
        editor.shown(file)
        assert editor.shown(file) == good
        editor.tell("textDocument/didClose", textDocument={"uri": file.as_uri()})
        assert editor.shown(file) == []


def test_renaming_is_refused_with_a_reason(file: Path):
    books = file.parent / "books.ndtt"
    with EditorSession() as editor:
        editor.open(file, LIBRARY)
        with pytest.raises(ServerRefusal, match="both would become one"):
            editor.at("rename", file, 5, 42, newName="book")
        editor.open(books, "book(typed).\n")
        with pytest.raises(ServerRefusal, match=r"save .*books\.ndtt first"):
            editor.at("rename", file, 5, 28, newName="title")


def test_a_text_that_cannot_be_read_is_not_laid_out_and_one_without_a_file_is_checked(tmp_path: Path):
    with EditorSession("--undeclared", "exogenous") as editor:
        wrong = tmp_path / "wrong.ndtt"
        assert editor.open(wrong, "a :- ,.\n")
        assert editor.of("formatting", wrong, options={"tabSize": 4, "insertSpaces": True}) is None
        document = {"uri": "untitled:Untitled-1", "languageId": "ndtt", "version": 0, "text": "a <- b.\n"}
        editor.tell("textDocument/didOpen", textDocument=document)
        assert not [one for one in editor.diagnostics["untitled:Untitled-1"].get(timeout=60) if one["severity"] == 1]


def test_without_pygls_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    import sys

    monkeypatch.setitem(sys.modules, "pygls", None)
    monkeypatch.delitem(sys.modules, "foretell.cli.language_server", raising=False)
    assert "pip install 'foretell[lsp]'" in refused("lsp")
