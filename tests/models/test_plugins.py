"""A package outside foretell adds a model by an entry point: it is trained, saved, loaded, sampled from and scored like any other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "plugin" / "tiny_renewal.py"


def install(site: Path, name: str, kind: str, value: str) -> None:
    """What pip leaves behind for a package with one entry point."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[foretell.models]\n{kind} = {value}\n", encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One package that works, one that cannot be imported, one that registers nothing, and two that quarrel."""
    site = tmp_path_factory.mktemp("site")
    shutil.copy(SOURCE, site / "tiny_renewal.py")
    install(site, "tiny-models", "tiny", "tiny_renewal:Tiny")
    (site / "broken_models.py").write_text("raise RuntimeError('no such weather')\n", encoding="utf-8")
    install(site, "broken-models", "broken", "broken_models:Model")
    (site / "empty_models.py").write_text("Model = None\n", encoding="utf-8")
    install(site, "empty-models", "empty", "empty_models:Model")
    for name in ("first-models", "second-models"):
        install(site, name, "double", f"{name.replace('-', '_')}:Model")
    return site


def python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), *(one for one in sys.path if one)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)


def foretell(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return python(site, "-m", "foretell.cli.main", *map(str, arguments))


@pytest.fixture(scope="module")
def run(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    options = ("--epochs", 2, "--train-fraction", 0.2, "--set", "model.burst=2.0", "--quiet")
    done = foretell(site, "train", "--model", "tiny", "--data", "robocup", "--out", folder, *options)
    assert done.returncode == 0, done.stderr
    return folder


def test_it_is_configured_trained_and_evaluated_on_the_command_line(site: Path, run: Path):
    assert 'kind = "tiny"\nburst = 2.0' in (run / "config.toml").read_text(encoding="utf-8")
    done = foretell(site, "evaluate", run, "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"] == "Tiny"


def test_it_is_sampled_and_its_parameters_are_shown(site: Path, run: Path):
    done = foretell(site, "sample", run, "--n", 2, "--horizon", 5, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    done = foretell(site, "params", run)
    assert done.returncode == 0 and json.loads(done.stdout)["model"] == "tiny", done.stderr


PROGRAM = """
import sys
import foretell as ft
from foretell.models.registry import find_model, model_kinds
assert {"tiny", "broken", "empty", "double"} <= set(model_kinds()) and "tiny_renewal" not in sys.modules
Tiny, data = find_model("tiny"), ft.load("robocup")
assert Tiny(3, burst=0.5).options.burst == 0.5
model = Tiny(data.vocabulary)
ft.fit(model, data.dev, epochs=2)
ft.save_model(model, sys.argv[1])
again = ft.load_model(sys.argv[1])
assert type(again) is Tiny and again.options == model.options
history = data.dev[0]
assert (again.intensity(history, [3.0]) == model.intensity(history, [3.0])).all()
assert again.sample(history, horizon=history.t_end + 2.0, n=2, seed=1)
assert again.predict(history)
assert ft.evaluate(again, data.dev)
for kind, said in (("broken", "no such weather"), ("empty", "registers no model"), ("double", "first-models and second-models")):
    try:
        find_model(kind)
    except ft.ForetellError as error:
        assert said in str(error) and f"model.kind = '{kind}'" in str(error), str(error)
        assert kind == "double" or f"{kind}-models" in str(error)
    else:
        raise AssertionError(kind)
"""


def test_it_does_in_python_what_every_model_does_and_a_broken_one_is_named_when_asked_for(site: Path, tmp_path: Path):
    done = python(site, "-c", PROGRAM, str(tmp_path / "model.safetensors"))
    assert done.returncode == 0, done.stderr


def test_a_model_whose_package_is_missing_is_named(run: Path, tmp_path: Path):
    done = foretell(tmp_path, "evaluate", run)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "model.kind = 'tiny': expected one of anhp" in done.stderr


def test_a_broken_package_is_an_error_and_no_traceback(site: Path, tmp_path: Path):
    done = foretell(site, "train", "--model", "broken", "--data", "robocup", "--out", tmp_path / "run")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "broken-models" in done.stderr and "RuntimeError: no such weather" in done.stderr


def test_a_kind_of_foretell_cannot_be_taken():
    from foretell.errors import ForetellError
    from foretell.models.registry import ModelOptions, ModelSpec, register

    with pytest.raises(ForetellError, match="one of foretell's own"):
        register(ModelSpec("anhp", "Mine", ModelOptions, "", ""))(type("Mine", (), {}))
