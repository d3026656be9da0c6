"""Files, functions and parameter lists stay short; what is longer is named here, with its reason."""

import pytest

from tests.lint.source import LIBRARY, functions, is_command, parameters, trees

MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60
MOST_PARAMETERS = 8

KERNELS = "nn/fused/"  # Triton kernels take every pointer and stride as a parameter, and cannot be cut up

LONG_FILES = {
    "nn/fused/kernels.py": "one fused pass of A-NHP, forwards and back",
}
LONG_FUNCTIONS: dict[str, str] = {}
# The public API and constructors of models: every option is a parameter, with its default.
MANY_PARAMETERS: dict[str, str] = {}


@pytest.mark.xfail(strict=False, reason="files are being moved")
def test_no_file_is_long_unless_it_is_one_algorithm():
    lengths = {file: len((LIBRARY / file).read_text(encoding="utf-8").splitlines()) for file in trees()}
    assert {file for file, length in lengths.items() if length > MOST_LINES} == set(LONG_FILES)


@pytest.mark.xfail(strict=False, reason="functions are being cut")
def test_no_function_is_long_unless_it_is_a_kernel():
    found = {
        f"{file}:{name}"
        for file, name, node in functions()
        if (node.end_lineno or 0) - node.lineno + 1 > MOST_LINES_OF_A_FUNCTION and not file.startswith(KERNELS)
    }
    assert found == set(LONG_FUNCTIONS)


@pytest.mark.xfail(strict=False, reason="parameters are being gathered into records")
def test_no_function_has_many_parameters_unless_it_is_a_kernel_a_command_or_public():
    found = {
        f"{file}:{name}"
        for file, name, node in functions()
        if parameters(node) > MOST_PARAMETERS and not is_command(node) and not file.startswith((KERNELS, "reference/"))
    }
    assert found == set(MANY_PARAMETERS)
