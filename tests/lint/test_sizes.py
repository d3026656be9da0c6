"""Files, functions and parameter lists stay short; what is longer is named here, with its reason."""

from tests.lint.source import LIBRARY, functions, is_command, lines, parameters, trees

MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60
MOST_PARAMETERS = 8

KERNELS = "nn/fused/"  # Triton kernels take every pointer and stride as a parameter, and cannot be cut up

LONG_FILES = {
    "models/attention/anhp.py": "A-NHP's encoder and intensities, with its options",
    "nn/fused/kernels.py": "one fused pass of A-NHP, forwards and back",
    "sampling/bounds/chebyshev.py": "arithmetic of bounded Chebyshev polynomials",
    "sampling/core/thinning.py": "thinning of many samplers at a time",
}
LONG_FUNCTIONS: dict[str, str] = {}
MANY_PARAMETERS = {
    "evaluate/predict.py:predict_each": "public: every question is a parameter, with its default",
    "evaluate/scores.py:evaluate": "public",
    "sampling/core/futures.py:sample_futures": "public",
    "train/label_tasks.py:classify": "public",
    "train/fit.py:fit": "public",
    "train/label_tasks.py:pretrain": "public",
}


def test_no_file_is_long_unless_it_is_one_algorithm():
    lengths = {file: len((LIBRARY / file).read_text(encoding="utf-8").splitlines()) for file in trees()}
    assert {file for file, length in lengths.items() if length > MOST_LINES} <= set(LONG_FILES)


def test_no_function_is_long_unless_it_is_a_kernel():
    found = {
        f"{file}:{name}"
        for file, name, node in functions()
        if lines(file, node) > MOST_LINES_OF_A_FUNCTION and not file.startswith(KERNELS)
    }
    assert found <= set(LONG_FUNCTIONS)


def test_no_function_has_many_parameters_unless_it_is_a_kernel_a_command_or_public():
    found = {
        f"{file}:{name}"
        for file, name, node in functions()
        if parameters(node) > MOST_PARAMETERS
        and not is_command(file, node)
        and not file.startswith((KERNELS, "reference/"))
    }
    assert found <= set(MANY_PARAMETERS)


def test_what_is_excused_is_there():
    assert all((LIBRARY / file).is_file() for file in LONG_FILES)
