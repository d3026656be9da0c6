"""Whether the kernels can run here: Triton must be installed, and must be able to build them."""

from __future__ import annotations

import logging
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

log = logging.getLogger("foretell")
OLDEST = (8, 0)  # lowest compute capability whose matrix units accept float32
SHARED = 96 << 10  # bytes of shared memory that the largest kernels need, rounded up


@lru_cache
def kernels_run_on(device: torch.device) -> bool:
    """Build and try a kernel once per device; if that fails, return False, and separate operations are used."""
    if device.type != "cuda" or find_spec("triton") is None or torch.cuda.get_device_capability(device) < OLDEST:
        return False
    properties = torch.cuda.get_device_properties(device)
    if getattr(properties, "shared_memory_per_block_optin", SHARED) < SHARED:
        return False
    try:
        kernels: Any = import_module("foretell.nn.fused.kernels")
        with torch.cuda.device(device):
            kernels.try_kernel[(1,)](torch.empty(1, device=device))
    except (
        Exception
    ) as error:  # for instance no compiler, or another version of Triton: in any case there is a fallback
        log.info("fused kernels are off on %s: %s", device, error)
        return False
    log.info(
        "fused kernels are on for %s; the first step of a model of a new size builds them, which takes seconds", device
    )
    return True
