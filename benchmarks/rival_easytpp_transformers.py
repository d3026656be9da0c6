"""Time and memory of one training step of EasyTPP's THP or SAHP (`MODEL` in the environment says which).

    MODEL=THP OMP_WAIT_POLICY=passive python benchmarks/rival_easytpp_transformers.py --data batch.npz --case 16,1 --case 16,20

Model, batch and step are EasyTPP's own, as in `rival_easytpp.py`. Its layers have neither residual connections nor LayerNorm.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from measuring import LEARNING_RATE, Case, Contestant, Run, main
from rival_easytpp import build_batch, package_version, training_step


def build_model(case: Case, device: str) -> Any:
    """By its own configuration; at one point the mean, as a trapezoid needs two."""
    config = import_module("easy_tpp.config_factory").ModelConfig(
        model_id=os.environ["MODEL"],
        hidden_size=case.dim,
        time_emb_size=case.dim,
        num_layers=case.layers,
        num_heads=1,
        dropout_rate=0.0,
        use_ln=False,
        use_mc_samples=case.points == 1,
        loss_integral_num_sample_per_step=case.points,
        num_event_types=case.types,
        num_event_types_pad=case.types + 1,
        event_pad_index=case.types,
        gpu=0 if device == "cuda" else -1,
        training=True,
    )
    model = import_module("easy_tpp.model").BaseModel.generate_model_from_config(config)
    return model.to(model.device).train()


def build(case: Case, run: Run) -> Contestant:
    import torch

    model = build_model(case, run.device)
    batch = build_batch(case, run.data).to(model.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    size = sum(parameter.numel() for parameter in model.parameters())
    name = f"EasyTPP {package_version('easy_tpp')} {os.environ['MODEL']}"
    return Contestant(name, lambda: training_step(model, optimizer, batch), size)


if __name__ == "__main__":
    sys.exit(main(build, "Time EasyTPP's THP or SAHP"))
