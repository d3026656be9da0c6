"""What is published: a wheel and a source archive with all files, and a wheel that works in an environment with nothing else."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def command(*words: object, folder: Path) -> str:
    done = subprocess.run([str(word) for word in words], cwd=folder, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive."""
    folder = tmp_path_factory.mktemp("dist")
    command(sys.executable, "-m", "hatchling", "build", "-d", folder, folder=ROOT)
    return folder


def version() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info" not in name}


def test_the_wheel_has_every_tracked_file_of_the_library(built: Path):
    tracked = command("git", "ls-files", "src/foretell", folder=ROOT).split()
    packed = names_in(built / f"foretell-{version()}-py3-none-any.whl")
    assert {name.removeprefix("src/") for name in tracked} <= packed
    assert "foretell/py.typed" in packed and not [name for name in packed if "__pycache__" in name]


def test_the_source_archive_makes_the_same_wheel(built: Path, tmp_path: Path):
    with tarfile.open(built / f"foretell-{version()}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / f"foretell-{version()}"
    for name in ("LICENSE", "NOTICE", "README.md", "CHANGELOG.md", "pyproject.toml", "tests/conftest.py"):
        assert (source / name).is_file(), name
    command(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, folder=source)
    name = f"foretell-{version()}-py3-none-any.whl"
    assert names_in(tmp_path / name) == names_in(built / name)


def test_the_demo_runs_in_an_environment_with_the_wheel_alone(built: Path, tmp_path: Path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    wheel = built / f"foretell-{version()}-py3-none-any.whl"
    install = (python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel)
    done = subprocess.run([*map(str, install)], cwd=tmp_path, capture_output=True, text=True, timeout=1800)
    if done.returncode and ("No matching distribution" in done.stderr or "connection" in done.stderr.lower()):
        pytest.skip("the packages that foretell needs cannot be fetched here")
    assert done.returncode == 0, done.stderr
    installed = command(python, "-m", "pip", "list", "--format=freeze", folder=tmp_path)
    assert "pytest" not in installed and "matplotlib" not in installed
    foretell = environment / "bin" / "foretell"
    assert command(foretell, "--version", folder=tmp_path).strip() == version()
    text = command(foretell, "demo", "--epochs", 2, folder=tmp_path)
    assert "A-NDTT" in text and "no pictures: drawing needs matplotlib" in text
    assert (tmp_path / "demo-run" / "andtt" / "model.safetensors").is_file()
    scores = command(foretell, "evaluate", "demo-run/anhp", "--no-times", "--json", "--quiet", folder=tmp_path)
    assert '"log_likelihood"' in scores
