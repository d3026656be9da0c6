"""Public names say what they are, name every parameter, and have examples that run."""

from __future__ import annotations

import doctest
import inspect
import operator
import re
from pathlib import Path

import pytest

import foretell as ft

NAMES = sorted(set(ft.__all__) - {"plot"})  # `plot` is a module
PICTURES = [
    "calibration",
    "confusion",
    "intensity",
    "intensity_plot",
    "learning_curve",
    "learning_curves",
    "qq",
    "save_figure",
]
LONG = {"auto"}  # its example takes minutes; what it promises is tested in tests/search
METHODS = [
    (name, method)
    for name in ("Callback", "Forecaster", "Program")
    for method, member in inspect.getmembers(getattr(ft, name), callable)
    if not method.startswith("_")
]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
NAMED = re.compile(r"^\s{4}(\*{0,2}\w+(?:, \*{0,2}\w+)*):", re.MULTILINE)


def section(text: str, title: str) -> str:
    """The lines below `Args:` and its like."""
    found = re.search(rf"^{title}:\n((?: {{4}}.*\n?|\n)+)", text, re.MULTILINE)
    return found.group(1) if found else ""


def undocumented(member: object) -> list[str]:
    """Parameters that the docstring does not name."""
    text = section(inspect.getdoc(member) or "", "Args")
    named = {name.strip().lstrip("*") for group in NAMED.findall(text) for name in group.split(",")}
    if isinstance(member, type) and member.__init__ is Exception.__init__:
        return []  # it takes a message
    parameters = inspect.signature(member).parameters  # pyright: ignore[reportArgumentType]
    return [name for name in parameters if name not in named and name != "self"]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_a_docstring_of_its_own_that_names_every_parameter(name: str):
    member = getattr(ft, name)
    own = member.__doc__ if inspect.isclass(member) else inspect.getdoc(member)
    assert own, f"{name} has no docstring"
    first = own.strip().splitlines()[0]
    assert first.endswith((".", ":")) and not first.startswith(("Of ", "The same ")), first
    assert undocumented(member) == []


@pytest.mark.parametrize("name, method", METHODS)
def test_a_public_method_has_a_docstring_that_names_every_parameter(name: str, method: str):
    member = getattr(getattr(ft, name), method)
    assert inspect.getdoc(member), f"{name}.{method} has no docstring"
    assert undocumented(member) == []


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_a_docstring_that_names_every_parameter(name: str):
    assert undocumented(getattr(ft.plot, name)) == []


@pytest.mark.parametrize("name", [*NAMES, *(f"plot.{one}" for one in PICTURES)])
def test_the_example_of_a_public_name_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    if name.startswith("plot."):
        pytest.importorskip("matplotlib")
    member = operator.attrgetter(name)(ft)
    text = inspect.getdoc(member) or ""
    found = doctest.DocTestParser().get_doctest(text, {"ft": ft}, name, name, 0)
    assert found.examples, f"{name} has no example"
    said: list[str] = []
    assert name in LONG or not any(doctest.SKIP in one.options for one in found.examples)
    result = doctest.DocTestRunner(optionflags=FLAGS).run(found, out=said.append)
    assert result.failed == 0, "".join(said)


def test_what_is_not_documented_would_be_found():
    def half(first: int, second: int) -> None:
        """Does something.

        Args:
            first: one of two.
        """

    assert undocumented(half) == ["second"]


def test_the_names_of_the_package_are_the_public_ones():
    assert dir(ft) == sorted(ft.__all__)
