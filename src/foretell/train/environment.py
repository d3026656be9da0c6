"""The environment of a run for `environment.json`: versions, platform, threads and device."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Any

import numpy as np
import torch


def environment(device: str) -> dict[str, Any]:
    """Return the information that is needed to repeat the run."""
    found = {
        "foretell": _version("foretell"),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "device": device,
    }
    if device.startswith("cuda") and torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name(torch.device(device))
    return found


def _version(name: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
