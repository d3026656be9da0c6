"""A small experiment on the first events of the embedded games, in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

START = """
title = "A game, in short"
kind = "models"
data = "robocup"
seeds = [0, 1]
predict = ["kick(-P)"]
columns = ["log_likelihood", "rmse", "error_rate", "participants"]
monte_carlo = true

[cut]
events = 30

[train]
epochs = 2
dev_points = 1
batch = 1

[grid]
seed = 0
dim = [2, 4]

[[model]]
name = "A-NHP"
model = { kind = "anhp", layers = 1 }
grid = ["dim"]

[[model]]
name = "A-NHP, LayerNorm"
like = "A-NHP"
model = { layer_norm = true }
seeds = [0]

[[model]]
name = "Poisson"
model = { kind = "poisson" }
seeds = [0]

[[finding]]
name = "Attention"
claim = "it is better than nothing"
check = "beats"
better = "A-NHP"
than = "Poisson"
metrics = ["log_likelihood"]

[[finding]]
name = "Sizes"
claim = "four is enough"
check = "best-size"
dim = [4]

[quick]
seeds = [0]
change = { train = { epochs = 1 } }
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    folder = tmp_path / "experiments" / "short-game"
    folder.mkdir(parents=True)
    (folder / "experiment.toml").write_text(START)
    return folder


@pytest.fixture(scope="session", autouse=True)
def no_data_folder():
    """A folder that the user has named must not change what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FORETELL_DATA", raising=False)
        yield
