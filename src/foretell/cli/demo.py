"""`foretell demo`: training and scoring on the embedded RoboCup finals, with and without rules, in about a minute on two cores."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretell.cli import flags

if TYPE_CHECKING:
    from foretell.data import Dataset, EventData
    from foretell.evaluate.scores import Evaluation
    from foretell.models.base import IntensityModel
    from foretell.train.config import RunConfig
    from foretell.train.fit import Fit
    from foretell.train.progress_bar import Bar
    from foretell.train.run import RunFolder

Option = typer.Option

# Chosen on the dev game only (for A-NHP, experiments/README describes how).
# Two long games are little data for 528 types, hence the pseudo-counts and the weight decay.
WITHOUT_RULES: dict[str, dict[str, Any]] = {
    "model": {
        "kind": "anhp",
        "preset": "plain",
        "dim": 32,
        "layers": 1,
        "dropout": 0.1,
        "fading": 4.0,
        "shortest_wave": 3.0,
    },
    "train": {"epochs": 120, "batch": 1, "lr": 5e-3, "patience": 15, "cool": 5, "decay": 1.0, "pseudo_count": 0.5},
}
WITH_RULES: dict[str, dict[str, Any]] = {
    "model": {
        "kind": "andtt",
        "preset": "plain",
        "program": "robocup",
        "dim": 16,
        "layers": 1,
        "shortest_wave": 3.0,
    },
    "train": {"epochs": 40, "batch": 1, "lr": 2e-2, "patience": 5, "cool": 3, "decay": 1.0, "pseudo_count": 0.5},
}
# The participants that are predicted, given the time and type: all of them.
WHO = ("kickoff(-P)", "kick(-P)", "goal(-P)", "pass(-P,-Q)", "steal(-Q,-P)")


def demo(
    into: Annotated[Path, Option("--out", "-o", help="The folder to write; an earlier demo there is replaced.")] = Path(
        "demo-run"
    ),
    epochs: Annotated[int | None, Option(help="Epochs at the most, of either model; default: 120 and 40.")] = None,
    quiet: flags.QuietOption = False,
) -> None:
    """Train on two football finals of robots, without rules (A-NHP) and with (A-NDTT), and score on another, next to simple floors."""
    from foretell.cli.show import out, remarks, score_table
    from foretell.data import load
    from foretell.evaluate.record import write_scores
    from foretell.evaluate.scores import ScoringOptions, score
    from foretell.train.fit import fit, floors_for
    from foretell.train.likelihood_task import mean_log_likelihood
    from foretell.train.progress_bar import bar

    dataset = load("robocup")
    train, dev, test = dataset.train, dataset.dev, dataset.test
    assert train is not None and dev is not None and test is not None
    runs = _folders(into, dataset, epochs)
    console = out()
    console.print(
        f"RoboCup finals 2001-2004: {len(dataset.vocabulary)} event types; {train.event_count} events to train on, "
        f"{dev.event_count} to stop on, {test.event_count} to score"
    )
    with bar(quiet) as progress:
        floors = floors_for(dataset.vocabulary, train)
        for place, floor in enumerate(floors):
            progress.move(f"fitting {floor.title}", place, len(floors))
            fit(floor, train, dev, progress=False)
        fits = [_trained(folder, config, dataset, progress) for folder, config in runs]
        models: list[IntensityModel] = [*reversed(floors), *(one.model for one in fits)]
        scored = []
        for one in models:
            scored.append(
                score(
                    one,
                    test,
                    # Next times are left to `foretell evaluate`: with rules they take longer than the rest of the demo.
                    ScoringOptions(times=False, predict=WHO),
                    progress=lambda what, done, of, who=one.title: progress.move(f"{who}: {what}", done, of),
                )
            )
    evaluations = [one.evaluation for one in scored]
    console.print(score_table(evaluations, participants=True))
    for line in remarks(evaluations):
        console.print(line)
    console.print(bought(evaluations[-2], evaluations[-1], test))
    for (folder, _), result in zip(runs, scored[-len(runs) :], strict=True):
        write_scores(result, test, folder.path)
    on_dev = {floor.title: mean_log_likelihood(floor, dev, 1) for floor in reversed(floors)}
    curves = {one.model.title: one.records for one in fits}
    console.print("runs: " + ", ".join(f"{folder.path}/" for folder, _ in runs))
    console.print(_pictures(into, curves, on_dev, models[-1], test, dataset.card.time_unit), markup=False)


def _pictures(
    into: Path,
    curves: dict[str, list[dict[str, Any]]],
    on_dev: dict[str, float],
    model: IntensityModel,
    test: EventData,
    unit: str,
) -> str:
    """Draw both pictures and return a line with their paths; without matplotlib, a line that says how to install it."""
    from foretell.report.plots import intensity_plot, learning_curves, save_figure

    if find_spec("matplotlib") is None:
        return "no pictures: drawing needs matplotlib: pip install 'foretell[report]'"
    save_figure(learning_curves(curves, on_dev), into / "learning-curves.png")
    save_figure(intensity_plot(model, test, 0, start=100.0, end=400.0, time_unit=unit), into / "intensities.png")
    return f"pictures: {into}/learning-curves.png, {into}/intensities.png"


def _folders(run: Path, dataset: Dataset, epochs: int | None) -> list[tuple[RunFolder, RunConfig]]:
    """Check all configurations and folders before the first one is written."""
    from foretell.train.config import make_config
    from foretell.train.data_facts import data_facts
    from foretell.train.run import RunFolder

    limit = {} if epochs is None else {"epochs": epochs}
    configs = [
        make_config(
            {"data": {"path": "robocup"}, "model": one["model"], "train": {**one["train"], **limit}},
            "demo",
        )
        for one in (WITHOUT_RULES, WITH_RULES)
    ]
    facts = data_facts(dataset)
    for config in configs:
        RunFolder.check_replaceable(run / config.model.kind)
    return [(RunFolder.replace(run / config.model.kind, config, facts), config) for config in configs]


def _trained(folder: RunFolder, config: RunConfig, dataset: Dataset, progress: Bar) -> Fit:
    import torch

    from foretell.cli.show import epoch_line
    from foretell.train.fit import fit
    from foretell.train.progress import TrainingProgress

    options = config.train
    model = config.model.make(dataset.vocabulary, seed=options.seed, dtype=getattr(torch, options.dtype))
    folder.keep_program(model)
    assert dataset.train is not None
    progress.keep(f"{model.title}:")
    return fit(
        model,
        dataset.train,
        dataset.dev,
        options,
        run=folder,
        callbacks=[TrainingProgress(progress, options.epochs, options.patience, model.title)],
        progress=False,
        on_epoch=lambda record: progress.keep(epoch_line(record)),
    )


def bought(without: Evaluation, with_rules: Evaluation, data: EventData) -> str:
    """Return two sentences on the gain from the rules on these data."""

    def gained(part: str) -> float:
        return round(getattr(with_rules, part).value - getattr(without, part).value, 2) + 0.0  # avoids -0.00

    whole, what, when = (gained(part) for part in ("log_likelihood", "type_log_likelihood", "time_log_likelihood"))
    who = [100.0 * one.participants[-1].error_rate.value for one in (with_rules, without)]
    left = _possible_on_average(data)
    return (
        f"What the rules bought: they leave {left:.0f} of {len(data.vocabulary)} events possible at a time, and {with_rules.model} scores "
        f"{whole:+.2f} nats per event against {without.model} ({what:+.2f} on what happens, {when:+.2f} on when).\n"
        f"Told when and what happens, it names somebody wrong in {who[0]:.0f} % of the events, {without.model} in {who[1]:.0f} %."
    )


def _possible_on_average(data: EventData) -> float:
    from foretell.ground.replay import replay
    from foretell.lang.program import Program

    timelines = replay(Program.named("robocup"), data).timelines
    rows = [timeline.possible for timeline in timelines]
    states = sum(timeline.states for timeline in timelines)
    return float(sum((one[:, 2] - one[:, 1]).sum() for one in rows)) / states
