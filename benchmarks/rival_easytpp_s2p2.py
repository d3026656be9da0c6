"""Time and memory of one training step of EasyTPP's S2P2, run by an interpreter that has `easy_tpp`.

    OMP_WAIT_POLICY=passive python benchmarks/rival_easytpp_s2p2.py --data batch.npz --case 64,10

Model, batch and step are EasyTPP's own, as in `rival_easytpp.py`; the settings are its own for taxi (4 layers, 128 components, 16
states), without dropout. `SCAN=loop` uses its loop over events instead of its scan.
"""

from __future__ import annotations

import inspect
import os
import sys
from importlib import import_module
from typing import Any

from measuring import LEARNING_RATE, Case, Contestant, Run, main
from rival_easytpp import build_batch, package_version, training_step


def build_model(case: Case, device: str) -> Any:
    specs = {
        "P": 16,
        "act_func": "gelu",
        "dropout_rate": 0.0,
        "for_loop": os.environ.get("SCAN") == "loop",
        "pre_norm": False,
        "post_norm": True,
        "int_backward_variant": True,
        "relative_time": True,
    }
    config = import_module("easy_tpp.config_factory").ModelConfig(
        model_id="S2P2",
        hidden_size=case.dim,
        num_layers=case.layers,
        model_specs=specs,
        use_mc_samples=True,
        loss_integral_num_sample_per_step=case.points,
        num_event_types=case.types,
        num_event_types_pad=case.types + 1,
        event_pad_index=case.types,
        gpu=0 if device == "cuda" else -1,
        training=True,
    )
    try:
        base = import_module("easy_tpp.model").BaseModel
    except AttributeError:  # the version in its repository has several backends
        base = import_module("easy_tpp.model.torch_model.torch_basemodel").TorchBaseModel
    model = base.generate_model_from_config(config)
    return model.to(model.device).train()


def build(case: Case, run: Run) -> Contestant:
    import torch

    model = build_model(case, run.device)
    batch = build_batch(case, run.data).to(model.device)
    if "batch" in inspect.signature(model.loglike_loss).parameters:  # it takes its tensors in order, not by name
        batch = {"batch": tuple(batch.values())}
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    size = sum(parameter.numel() for parameter in model.parameters())
    name = f"EasyTPP {package_version('easy_tpp')} S2P2"
    return Contestant(name, lambda: training_step(model, optimizer, batch), size)


if __name__ == "__main__":
    sys.exit(main(build, "Time EasyTPP's S2P2", dim=128, layers=4))
