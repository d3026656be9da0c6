"""What a layer may not do: look at addresses, leave the device inside a model, or import against the direction."""

import ast
import re
import tomllib

from tests.lint.source import LIBRARY, ROOT, trees

MOST_LINES_OF_A_README = 40
KERNELS = ("nn/fused/",)
# Methods of models that give arrays to a caller, outside the forward pass.
GIVES_ARRAYS = {
    "models/base.py": "intensities and embeddings of one history",
    "models/rules/andtt_attention.py": "what an explanation shows",
    "models/rules/andtt_memory.py": "where samplers start",
    "models/rules/product_blocks.py": "which candidate a proposal is",
    "models/rules/product_proposals.py": "which candidate a proposal is",
    "models/rules/product_rows.py": "which facts of a part are alike",
}


def test_addresses_of_tensors_are_read_by_kernels_alone():
    found = [
        f"{file}:{node.lineno}"
        for file, tree in trees().items()
        if not file.startswith(KERNELS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "data_ptr"
    ]
    assert not found


def test_no_model_leaves_the_device_in_its_forward_pass():
    found = [
        f"{file}:{node.lineno}"
        for file, tree in trees().items()
        if file.startswith("models/") and file not in GIVES_ARRAYS
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "numpy" and ast.unparse(node).endswith(".cpu().numpy")
    ]
    assert not found


def test_import_contracts_have_no_exceptions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    assert contracts
    assert not [one["id"] for one in contracts if one.get("ignore_imports")]


def test_every_folder_of_the_library_has_a_short_page():
    folders = sorted({(LIBRARY / file).parent for file in trees()} - {LIBRARY})
    wrong = {}
    for folder in folders:
        page = folder / "README.md"
        lines = len(page.read_text(encoding="utf-8").splitlines()) if page.is_file() else 0
        name = folder.relative_to(LIBRARY).as_posix()
        if not 0 < lines <= MOST_LINES_OF_A_README:
            wrong[name] = lines
    assert not wrong


def test_pages_say_in_which_order_layers_import():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    plain = [re.sub(r"[()]|foretell\.", "", layer) for layer in layers]
    order = " → ".join(f"({layer})" if "|" in layer else layer for layer in plain)
    for page in ("docs/explanation/architecture.md", "CONTRIBUTING.md"):
        assert order in " ".join((ROOT / page).read_text(encoding="utf-8").split()), page
