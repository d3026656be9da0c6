"""Kinds of experiments whose code is beside their definition: `experiments/speed/speed.py` is `foretell.reproduce.kinds.speed`."""

from __future__ import annotations

from foretell.reproduce.experiment import FILE, experiments

__path__ = sorted(str(path.parent) for path in experiments().glob(f"*/{FILE}"))
