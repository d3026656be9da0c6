"""Train EasyTPP's AttNHP on the files of this experiment, and score it and our runs with its evaluator and with ours.

    PYTHONPATH=src:SITE_OF_EASYTPP python experiments/stackoverflow/rival.py --data DATA_FOLDER/stackoverflow --dim 32 --out rival.json
    PYTHONPATH=src:SITE_OF_EASYTPP python experiments/stackoverflow/rival.py --data DATA_FOLDER/stackoverflow --ours MODEL.safetensors

The model, its loss and its settings are those of EasyTPP's example configuration of AttNHP: 2 layers, 2 heads, a time embedding of 16, Adam
at 1e-3, batches of 256 sequences, a grid of 20 points per gap, at most 200 epochs, of which it keeps the best on dev. Training also ends
after `--patience` epochs without improvement. Two things are changed in its favour: batches have sequences of similar length, and a batch
of long sequences is smaller, since 256 of them do not fit into a GPU's memory.

Both evaluators score events 2 to I, as EasyTPP does. `theirs` is EasyTPP's log-likelihood: the trapezoidal rule on a grid of 20 points per
gap. `ours` is the mean of two sets of stratified draws of the same intensities, 20 per gap each, which are unbiased even if quadrature is
inaccurate; `ours_error` is its standard error.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Queries, make_batch
from foretell.data import EventData, load
from foretell.models.base import IntensityModel
from foretell.models.build import load_model

LEARNING_RATE, BATCH, GRID, DRAWS = 1e-3, 256, 20, 20
MOST_PAIRS = 4_000_000  # pairs of events in a batch that fit into a GPU's memory with 20 points per gap

# Intensities of all types at times [B, N - 1, P] inside the gaps that follow events 1 to N - 1: [B, N - 1, P, K].
Asked = Callable[[dict[str, Tensor], Tensor], Tensor]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--ours", type=Path, help="score this model of ours instead of training EasyTPP's")
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--seed", type=int, default=2019)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--patience", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--state", type=Path, help="training goes on from this file, where it is, and is kept in it")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # that t_end is the last event's time
    data = load(given.data)
    assert data.train is not None and data.dev is not None and data.test is not None
    kinds = len(data.vocabulary)
    if given.ours is not None:
        model = load_model(given.ours, given.device)
        scorer = attnhp(kinds, 8, given.device)  # only its loss is used
        found: dict[str, Any] = {"model": model.title, "file": given.ours.name}
        asked = ours(model)
    else:
        torch.manual_seed(given.seed)
        scorer = attnhp(kinds, given.dim, given.device)
        found = {"model": "EasyTPP AttNHP", "dim": given.dim, "batch": given.batch, "seed": given.seed}
        found |= train(scorer, data.train, data.dev, given)
        asked = theirs(scorer)
    found |= {f"dev_{name}": value for name, value in scores(asked, scorer, data.dev).items()}
    found |= {f"test_{name}": value for name, value in scores(asked, scorer, data.test).items()}
    text = json.dumps(found)
    sys.stdout.write(text + "\n")
    if given.out is not None:
        given.out.write_text(text + "\n", encoding="utf-8")
    return 0


def attnhp(kinds: int, dim: int, device: str) -> Any:
    config = import_module("easy_tpp.config_factory").ModelConfig(
        model_id="AttNHP",
        hidden_size=dim,
        time_emb_size=16,
        num_layers=2,
        num_heads=2,
        dropout_rate=0.0,
        use_ln=False,
        use_mc_samples=False,
        loss_integral_num_sample_per_step=GRID,
        num_event_types=kinds,
        num_event_types_pad=kinds + 1,
        event_pad_index=kinds,
        gpu=0 if device == "cuda" else -1,
        training=True,
    )
    model = import_module("easy_tpp.model").BaseModel.generate_model_from_config(config)
    return model.to(model.device)


def batches(
    data: EventData, most: int, device: Any, rng: np.random.Generator | None, largest: int = BATCH
) -> Iterator[dict[str, Tensor]]:
    """Make batches of sequences of similar length, in EasyTPP's form; in random order if `rng` is given."""
    order = np.argsort(data.lengths, kind="stable")
    if rng is not None:
        order = order[np.argsort(data.lengths[order] + rng.uniform(0.0, 2.0, len(order)), kind="stable")]
    cut: list[np.ndarray] = []
    end = len(order)
    while end:
        size = max(1, min(largest, most // int(data.lengths[order[end - 1]]) ** 2))
        cut.append(order[max(0, end - size) : end])
        end = max(0, end - size)
    for chosen in cut if rng is None else [cut[i] for i in rng.permutation(len(cut))]:
        yield as_theirs(data, chosen, device)


def as_theirs(data: EventData, chosen: np.ndarray, device: Any) -> dict[str, Tensor]:
    kinds, width = len(data.vocabulary), int(data.lengths[chosen].max())
    times, types = np.zeros((len(chosen), width)), np.full((len(chosen), width), kinds)
    real = np.zeros((len(chosen), width), dtype=bool)
    for row, place in enumerate(chosen):
        one = data[int(place)]
        times[row, : len(one)], types[row, : len(one)], real[row, : len(one)] = one.times, one.types, True
    gaps = np.where(real, np.diff(times, axis=1, prepend=times[:, :1]), 0.0)
    later = np.triu(np.ones((width, width), dtype=bool), 1)
    mask = later[None] | ~real[:, None, :]
    arrays = {
        "time_seqs": times.astype(np.float32),
        "time_delta_seqs": gaps.astype(np.float32),
        "type_seqs": types,
        "seq_non_pad_mask": real,
        "attention_mask": mask,
        "places": chosen,
    }
    return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}


def train(model: Any, data: EventData, dev: EventData, given: argparse.Namespace) -> dict[str, Any]:
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    best, best_epoch, kept, began, epoch, before = -math.inf, 0, {}, time.monotonic(), 0, 0.0
    if given.state is not None and given.state.exists():
        found = torch.load(given.state, map_location=model.device, weights_only=True)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        best, best_epoch, kept, epoch, before = (
            found[name] for name in ("best", "best_epoch", "kept", "epoch", "seconds")
        )
    while epoch < given.epochs and epoch - best_epoch < given.patience:
        epoch += 1
        model.train()
        for batch in batches(data, MOST_PAIRS, model.device, np.random.default_rng([given.seed, epoch]), given.batch):
            del batch["places"]
            loss, events = model.loglike_loss(**batch)
            optimizer.zero_grad()
            (loss / events).backward()
            optimizer.step()
        score = own_score(model, dev)
        if score > best:
            best, best_epoch = score, epoch
            kept = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        sys.stderr.write(f"epoch {epoch}: dev {score:.4f}, best {best:.4f} in {best_epoch}\n")
        if time.monotonic() - began > 60.0 * given.minutes:
            break
    seconds = before + time.monotonic() - began
    ended = epoch >= given.epochs or epoch - best_epoch >= given.patience
    if given.state is not None:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "kept": kept}
        torch.save(state | {"best": best, "best_epoch": best_epoch, "epoch": epoch, "seconds": seconds}, given.state)
    model.load_state_dict(kept)
    about = {"epochs": epoch, "best_epoch": best_epoch, "ended": ended, "dev_own": best}
    return about | {"fit_seconds": round(seconds, 1)}


@torch.no_grad()
def own_score(model: Any, data: EventData) -> float:
    """Return the score that EasyTPP's trainer would print."""
    model.eval()
    loss, events = 0.0, 0
    for batch in batches(data, MOST_PAIRS, model.device, None):
        del batch["places"]
        one, count = model.loglike_loss(**batch)
        loss, events = loss + float(one), events + int(count)
    return -loss / events


def theirs(model: Any) -> Asked:
    def ask(batch: dict[str, Tensor], times: Tensor) -> Tensor:
        found = [
            model.compute_intensities_at_sample_times(
                batch["time_seqs"][:, :-1],
                None,
                batch["type_seqs"][:, :-1],
                times[:, :, point : point + 1].float(),
                attention_mask=batch["attention_mask"][:, :-1, :-1],
            )
            for point in range(times.shape[2])
        ]
        return torch.cat(found, dim=2)

    return ask


def ours(model: IntensityModel) -> Asked:
    """Evaluate our model at their times: our gap `g` sees `g` events; their gaps begin after the first event."""
    model = model.double().eval()

    def ask(batch: dict[str, Tensor], times: Tensor) -> Tensor:
        rows, gaps, points = times.shape
        encoded = model.encode(make_batch(batch_data(batch, model), range(rows), device=model.device))
        inside = torch.cat([times[:, :1] * 0.0, times], dim=1)
        state = model.state(encoded, Queries.by_gap(torch.cat([inside, inside[:, -1:]], dim=1)))
        return model.intensities(state).view(rows, gaps + 2, points, -1)[:, 1:-1]

    return ask


def batch_data(batch: dict[str, Tensor], model: IntensityModel) -> EventData:
    from foretell.data import EventSequence

    rows = []
    for times, types, real in zip(batch["times"], batch["type_seqs"], batch["seq_non_pad_mask"], strict=True):
        count = int(real.sum())
        seen = times[:count].cpu().numpy()
        rows.append(EventSequence(seen, types[:count].cpu().numpy(), float(seen[-1])))
    return EventData(rows, model.vocabulary)


@torch.no_grad()
def scores(asked: Asked, scorer: Any, data: EventData) -> dict[str, float]:
    """Return the log-likelihood of events 2 to I in nats per event: by EasyTPP's grid, and by draws with their standard error."""
    scorer.eval()
    sums, variance, events = {"theirs": 0.0, "ours": 0.0}, 0.0, 0
    generator = torch.Generator(scorer.device).manual_seed(0)
    for batch in batches(data, MOST_PAIRS // 4, scorer.device, None):
        width = batch["time_seqs"].shape[1]
        exact = np.zeros((len(batch["places"]), width))
        for row, place in enumerate(batch["places"].tolist()):
            one = data[int(place)].times
            exact[row, : len(one)], exact[row, len(one) :] = one, one[-1]
        batch["times"] = times = torch.from_numpy(exact).to(scorer.device)
        real = batch["seq_non_pad_mask"][:, 1:]
        gaps = times.diff(dim=1)
        at_event = asked(batch, times[:, 1:, None])[:, :, 0].double()
        grid = torch.linspace(0.0, 1.0, GRID, dtype=torch.float64, device=times.device)
        on_grid = asked(batch, times[:, :-1, None] + gaps[..., None] * grid).double()
        event_part, integral, _ = scorer.compute_loglikelihood(
            time_delta_seq=gaps,
            lambda_at_event=at_event,
            lambdas_loss_samples=on_grid,
            seq_mask=real,
            type_seq=batch["type_seqs"][:, 1:],
        )
        sums["theirs"] += float(((event_part - integral) * real).sum())
        types = batch["type_seqs"][:, 1:].clamp(max=at_event.shape[-1] - 1)
        logs = float((at_event.gather(-1, types.unsqueeze(-1)).squeeze(-1).log() * real).sum())
        part = torch.arange(DRAWS, dtype=torch.float64, device=times.device)
        halves = []
        for _ in range(2):
            uniform = torch.rand(*gaps.shape, DRAWS, generator=generator, dtype=torch.float64, device=times.device)
            places = times[:, :-1, None] + gaps[..., None] * (part + uniform) / DRAWS
            halves.append(asked(batch, places).double().sum(-1).mean(-1) * gaps * real)
        sums["ours"] += logs - float((halves[0] + halves[1]).sum()) / 2.0
        variance += float((halves[0] - halves[1]).square().sum()) / 4.0
        events += int(real.sum())
    return {name: value / events for name, value in sums.items()} | {
        "ours_error": variance**0.5 / events,
        "events": events,
    }


if __name__ == "__main__":
    sys.exit(main())
