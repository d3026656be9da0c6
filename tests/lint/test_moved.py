"""Modules of the last release: their old paths still give every name that `moved.toml` has, with a warning that says the new place."""

import importlib
import subprocess
import sys

import pytest

from foretell.moved import moved_modules
from tests.lint.moved_table import TABLE, moved_table

OLD = sorted(moved_modules())


@pytest.fixture(autouse=True)
def loaded_modules():
    """What a test imports from old places is forgotten after it."""
    yield
    for name in OLD:
        sys.modules.pop(name, None)
        package, _, last = name.rpartition(".")
        if package in sys.modules and last in vars(sys.modules[package]):
            delattr(sys.modules[package], last)


def test_every_old_path_warns_and_gives_the_names_of_the_new_place():
    for old, homes in moved_modules().items():
        with pytest.warns(DeprecationWarning) as caught:
            module = importlib.import_module(old)
        said = [str(one.message) for one in caught if str(one.message).startswith(f"{old} has moved")]
        assert len(said) == 1, old
        for home, names in homes.items():
            assert home in said[0]
            assert names
            for name in names:
                assert getattr(module, name) is getattr(importlib.import_module(home), name)


def test_the_table_is_what_the_tree_says():
    """After a move: `python -m tests.lint.moved_table --write`."""
    assert TABLE.read_text(encoding="utf-8") == moved_table()


def test_no_path_in_the_table_is_a_module_of_its_own():
    """Run apart: nothing but the files on disk counts."""
    program = (
        "import importlib.machinery, foretell.moved as moved\n"
        "for old in moved.moved_modules():\n"
        "    package, _, _ = old.rpartition('.')\n"
        "    path = importlib.import_module(package).__path__ if importlib.util.find_spec(package) else []\n"
        "    assert importlib.machinery.PathFinder.find_spec(old, path) is None, old\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", "import importlib.util\n" + program], check=True)


def test_a_name_that_was_never_there_is_an_attribute_error():
    with pytest.warns(DeprecationWarning):
        module = importlib.import_module(OLD[0])
    with pytest.raises(AttributeError, match="no attribute 'nothing_like_it'"):
        _ = module.nothing_like_it


def test_the_old_import_statement_works():
    program = "import warnings; warnings.simplefilter('error'); import foretell"
    subprocess.run([sys.executable, "-c", program], check=True)
    program = "from foretell.models.anhp import ANHP; import foretell; assert ANHP is foretell.ANHP"
    found = subprocess.run([sys.executable, "-W", "always", "-c", program], check=True, capture_output=True, text=True)
    assert "foretell.models.anhp has moved to foretell.models.attention.anhp" in found.stderr
