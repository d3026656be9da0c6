"""Time and memory of one training step of EasyTPP's AttNHP, run by an interpreter that has `easy_tpp`.

    OMP_WAIT_POLICY=passive python benchmarks/rival_easytpp.py --data batch.npz --case 16,1 --case 16,20
    PYTHONPATH=carry/easytpp python3 benchmarks/rival_easytpp.py --data batch.npz --device cuda --case 64,20

The model is built from EasyTPP's own configuration objects, and the batch by its own tokenizer and collator. The
step is that of its own trainer, except that the batch is copied to the device only once, before the first step.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from measuring import LEARNING_RATE, Case, Contestant, Run, main, read_batch


def transformer(case: Case) -> dict[str, Any]:
    """Return the additional configuration of models with layers."""
    return {
        "time_emb_size": case.dim,
        "num_layers": case.layers,
        "num_heads": 1,
        "dropout_rate": 0.0,
        "use_ln": False,
    }


def build_model(case: Case, device: str, model_id: str = "AttNHP") -> Any:
    """Build the model by its own configuration; with one integration point, the mean is used, since a trapezoid needs two points."""
    config = import_module("easy_tpp.config_factory").ModelConfig(
        model_id=model_id,
        hidden_size=case.dim,
        **({} if model_id == "NHP" else transformer(case)),
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


def build_batch(case: Case, path: str) -> Any:
    """Return a batch made by its collator from the first `batch` sequences; if there are fewer, they are repeated."""
    import numpy as np

    times, types = read_batch(case, path)
    gaps = np.diff(times, axis=1, prepend=times[:, :1])
    columns = {"time_seqs": times, "time_delta_seqs": gaps, "type_seqs": types}
    features = [{name: column[row].tolist() for name, column in columns.items()} for row in range(case.batch)]
    spec = import_module("easy_tpp.config_factory").DataSpecConfig(
        num_event_types=case.types, pad_token_id=case.types, padding_side="right", truncation_side="right"
    )
    tokenizer = import_module("easy_tpp.preprocess.event_tokenizer").EventTokenizer(spec)
    return import_module("easy_tpp.preprocess.data_collator").TPPDataCollator(tokenizer=tokenizer)(features)


def training_step(model: Any, optimizer: Any, batch: Any) -> Any:
    """Do the step of its trainer: mean negative log-likelihood per event, backward, update."""
    loss, events = model.loglike_loss(**batch)
    optimizer.zero_grad()
    mean = loss / events
    mean.backward()
    optimizer.step()
    return mean.detach()


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return str(import_module(name).__version__)


def build(case: Case, run: Run, model_id: str = "AttNHP") -> Contestant:
    import torch

    model = build_model(case, run.device, model_id)
    batch = build_batch(case, run.data).to(model.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    size = sum(parameter.numel() for parameter in model.parameters())
    name = f"EasyTPP {package_version('easy_tpp')} {model_id}"
    return Contestant(name, lambda: training_step(model, optimizer, batch), size)


if __name__ == "__main__":
    sys.exit(main(build, "Time EasyTPP's AttNHP"))
