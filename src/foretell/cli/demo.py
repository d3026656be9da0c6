"""`foretell demo`: the whole path on the embedded RoboCup finals, in about a minute on two cores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Option = typer.Option

# How these were chosen: experiments/README. Two long games are few data for 528 types: hence the pseudo-count and dropout.
MODEL = {"kind": "anhp", "dim": 32, "layers": 1, "dropout": 0.1, "fading": 4.0, "shortest_wave": 3.0}
TRAIN = {"epochs": 120, "batch": 1, "lr": 5e-3, "patience": 15, "cool": 5, "decay": 1.0, "pseudo_count": 0.5}


def demo(
    run: Annotated[Path, Option(help="The folder to write; an earlier demo there is replaced.")] = Path("demo-run"),
    epochs: Annotated[int, Option(help="Epochs at the most.")] = int(TRAIN["epochs"]),
    quiet: Annotated[bool, Option(help="No progress.")] = False,
) -> None:
    """Train A-NHP on two football finals of robots, stop on a third, score on a fourth beside its floors, draw pictures."""
    from foretell.cli.show import bar, epoch_line, out, remarks, score_table
    from foretell.data import load
    from foretell.evaluate.record import write_scores
    from foretell.evaluate.scores import score
    from foretell.report.plots import intensity_plot, learning_curve, save_figure
    from foretell.train.config import make_config
    from foretell.train.fit import fit
    from foretell.train.floors import floors_for
    from foretell.train.run import RunFolder, data_facts
    from foretell.train.score import mean_log_likelihood

    config = make_config({"data": {"path": "robocup"}, "model": MODEL, "train": {**TRAIN, "epochs": epochs}}, "demo")
    dataset = load("robocup")
    train, dev, test = dataset.train, dataset.dev, dataset.test
    assert train is not None and dev is not None and test is not None
    folder = RunFolder.replace(run, config, data_facts(dataset))
    console = out()
    console.print(
        f"RoboCup finals 2001-2004: {len(dataset.vocabulary)} event types; {train.event_count} events to train on, "
        f"{dev.event_count} to stop on, {test.event_count} to score"
    )
    with bar(quiet) as progress:
        floors = floors_for(dataset.vocabulary)
        for place, floor in enumerate(floors):
            progress.move(f"fitting {floor.title}", place, len(floors))
            fit(floor, train, dev)
        model = config.model.make(dataset.vocabulary, seed=config.train.seed, dtype=_dtype(config.train.dtype))
        result = fit(
            model,
            train,
            dev,
            config.train,
            run=folder,
            on_step=lambda epoch, done, of: progress.move(
                f"epoch {epoch}/{epochs}", (epoch - 1) * of + done, epochs * of
            ),
            on_epoch=lambda record: progress.keep(epoch_line(record)),
        )
        scored = []
        for one in (*reversed(floors), model):
            scored.append(
                score(
                    one, test, progress=lambda what, done, of, who=one.title: progress.move(f"{who}: {what}", done, of)
                )
            )
    console.print(score_table([one.evaluation for one in scored], "cycles"))
    for line in remarks([one.evaluation for one in scored]):
        console.print(line)
    write_scores(scored[-1], test, folder.path)
    on_dev = {floor.title: mean_log_likelihood(floor, dev, 1) for floor in reversed(floors)}
    save_figure(learning_curve(result.records, on_dev), folder.path / "learning-curve.png")
    unit = dataset.card.time_unit
    save_figure(intensity_plot(model, test, 0, start=100.0, end=400.0, time_unit=unit), folder.path / "intensities.png")
    console.print(f"run and pictures: {folder.path}/  (learning-curve.png, intensities.png)")


def _dtype(name: str):  # noqa: ANN202 (torch is imported late)
    import torch

    return getattr(torch, name)
