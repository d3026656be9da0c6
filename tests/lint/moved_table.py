"""Where the names of the last release are now: `python -m tests.lint.moved_table --write` writes `moved.toml` anew.

`names_0_1_0.json` has the public classes and functions of every module of 0.1.0. A module that is gone gets a table: each new module, with
the names that it has now. Where several have a name, the one that shares most names with the old module is taken.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import defaultdict
from pathlib import Path

from tests.lint.source import LIBRARY, ROOT, trees

OLD_NAMES = Path(__file__).with_name("names_0_1_0.json")
TABLE = LIBRARY / "moved.toml"


def public_names(tree: ast.Module) -> set[str]:
    """Classes, functions and aliases of types that a module defines."""
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assigned = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
    found |= {one.id for one in assigned if isinstance(one, ast.Name) and not one.id.isupper()}
    return {name for name in found if not name.startswith("_")}


def module_of(file: str) -> str:
    return "foretell." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def moved_table() -> str:
    """The text of `moved.toml`."""
    old = {module: set(names) for module, names in json.loads(OLD_NAMES.read_text(encoding="utf-8")).items()}
    new = {module_of(file): public_names(tree) for file, tree in trees().items() if not file.startswith("reference/")}
    for path in ROOT.glob("experiments/*/*.py"):  # kinds of experiments, see `reproduce/kinds.py`
        if f"foretell.reproduce.{path.stem}" in old:
            new[f"foretell.reproduce.kinds.{path.stem}"] = public_names(ast.parse(path.read_text(encoding="utf-8")))
    lines = ["# Old module → new modules, with the names that each has now. Goes with the next release."]
    for module, names in sorted(old.items()):
        if module in new:
            continue
        homes = defaultdict(list)
        for name in sorted(names):
            found = [one for one in new if name in new[one] and _plausible(name, one, module, new[one] & names)]
            if found:
                homes[max(found, key=lambda one: _likeness(one, module, new[one] & names))].append(name)
        if homes:
            lines += [
                "",
                f'["{module}"]',
                *(f'"{home}" = {json.dumps(moved)}' for home, moved in sorted(homes.items())),
            ]
    return "\n".join(lines) + "\n"


def _plausible(name: str, home: str, module: str, shared: set[str]) -> bool:
    """In another folder a plain word such as `draw` may be another thing, unless more names came along."""
    near = home.split(".")[1] == module.split(".")[1]
    return "kernels" not in home and (near or len(shared) > 1 or "_" in name or name[0].isupper())


def _likeness(home: str, module: str, shared: set[str]) -> tuple[bool, int, int]:
    same = sum(one == other for one, other in zip(home.split("."), module.split("."), strict=False))
    return same >= 2, len(shared), same


if __name__ == "__main__":
    if "--write" in sys.argv:
        TABLE.write_text(moved_table(), encoding="utf-8")
    else:
        sys.stdout.write(moved_table())
