"""Every message has a stable code, an example whose full text is kept, and an entry in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from foretell.lang.diagnostics import ERRORS, WARNINGS, ProgramError
from foretell.lang.program import Program
from tests.lang.reading import codes

HERE = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
CODES = [*ERRORS, *WARNINGS]
DOCS = ROOT / "docs/reference/program-errors.md"


def messages(name: str) -> str:
    try:
        return "\n".join(one.render() for one in Program.from_file(name).warnings) + "\n"
    except ProgramError as error:
        return f"{error}\n"


@pytest.mark.parametrize("code", CODES)
def test_the_messages_of_the_golden_program_are_those_that_are_kept(code: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(HERE)
    kept = (HERE / f"{code}.err").read_text(encoding="utf-8")
    assert messages(f"{code}.ndtt") == kept
    assert f"[{code}]" in kept


def test_every_golden_file_belongs_to_a_code():
    assert {path.stem for path in HERE.glob("*.ndtt")} == set(CODES) == {path.stem for path in HERE.glob("*.err")}


def test_every_message_has_a_place_and_a_hint():
    for path in HERE.glob("*.err"):
        text = path.read_text(encoding="utf-8")
        found = re.findall(
            r"^(\S+):(\d+):(\d+): (?:error|warning)\[[a-z-]+\]: .+\n  \2 \|.*\n +\| *\^+\n  hint: .+$", text, re.M
        )
        assert len(found) == len(re.findall(r"^\S+: (?:error|warning)\[", text, re.M)), path


def test_no_code_is_written_in_the_sources_that_is_not_listed():
    pattern = re.compile(
        r"""(?:Diagnostic|say|StatementError|refuse|_warn)\(\s*"([a-z-]+)"|yield variable, "([a-z-]+)\""""
    )
    used = set()
    for path in (ROOT / "src/foretell/lang").glob("*.py"):
        used |= {one or other for one, other in pattern.findall(path.read_text(encoding="utf-8"))}
    assert used <= set(CODES), used - set(CODES)
    assert len(used) > 40, "the pattern no longer finds codes"


def test_no_code_is_both_an_error_and_a_warning():
    assert not ERRORS.keys() & WARNINGS.keys()


# --- the page ----------------------------------------------------------------------------------------------------------


def sections() -> dict[str, str]:
    text = DOCS.read_text(encoding="utf-8")
    parts = re.split(r"^### `([a-z-]+)`\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_of_program_errors_has_every_code_once_and_no_other():
    text = DOCS.read_text(encoding="utf-8")
    assert sorted(re.findall(r"^### `([a-z-]+)`$", text, re.M)) == sorted(CODES)


@pytest.mark.parametrize("code", CODES)
def test_an_entry_says_the_cause_and_the_fix_and_its_example_gives_the_code(code: str):
    section = sections()[code]
    assert "**Fix.**" in section
    examples = re.findall(r"^```ndtt\n(.*?)^```", section, re.M | re.S)
    assert examples
    needs_files = code in (
        "missing-file",
        "unreadable-file",
        "include-cycle",
        "include-twice",
        "bad-table",
        "duplicate-row",
        "empty-table",
        "doubtful-table",
    )
    if not needs_files and code != "too-many-errors":
        assert code in codes(examples[0]), examples[0]


def test_every_program_on_the_page_of_the_language_is_fine(tmp_path: Path):
    page = (ROOT / "docs/reference/rule-language.md").read_text(encoding="utf-8")
    (tmp_path / "teams.ndtt").write_text("team(sales).\n")
    (tmp_path / "teammate.csv").write_text("player,other\npurple1,purple2\n")
    (tmp_path / "price.csv").write_text("item,amount,weight\nmilk,1.5,\nbread,2,0.4\n")
    blocks = re.findall(r"^```ndtt\n(.*?)^```", page, re.M | re.S)
    assert len(blocks) >= 5
    for block in blocks:
        Program.from_text(block, folder=tmp_path)
