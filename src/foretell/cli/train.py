"""`foretell train CONFIG.toml | --model --data`: fit a model and write a run folder."""

from __future__ import annotations

import os
import re
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretell.cli import flags
from foretell.cli.old_spellings import in_new_words
from foretell.cli.processes import end_with_launcher, run_processes, without_processes
from foretell.errors import ForetellError
from foretell.models.registry import HeadOptions
from foretell.reading import parse_toml
from foretell.train.config import ClassifyOptions, DataOptions, PretrainOptions, TrainOptions, make_config, read_config

if TYPE_CHECKING:
    from foretell.data import Dataset, EventData
    from foretell.models.base import IntensityModel
    from foretell.models.start_from import TransferReport
    from foretell.train.auto_config import AutoConfig
    from foretell.train.config import RunConfig
    from foretell.train.fit import AnyTraining
    from foretell.train.run import RunFolder


Option = typer.Option


@dataclass(frozen=True)
class TrainRequest:
    """Options of a training that are not part of its configuration."""

    as_json: bool = False
    quiet: bool = False
    floors: bool = False
    logs: tuple[str, ...] = ()  # names of loggers


@flags.with_flags(
    {"data": DataOptions, "model": HeadOptions, "train": TrainOptions, "task": ClassifyOptions}, by_rule=flags.BY_RULE
)
def train(
    config: Annotated[Path | None, typer.Argument(help="A TOML file with tables [data], [model], [train].")] = None,
    model: Annotated[
        str | None, Option(help="anhp, andtt, ndtt, hawkes, poisson, …; default: auto, what suits the data, by rule.")
    ] = None,
    program: Annotated[Path | None, Option(help="Rules that become the network: P.ndtt, or robocup.")] = None,
    undeclared: flags.ModelUndeclaredOption = None,
    preset: Annotated[str | None, Option(help="paper: the model and its training as the paper has them.")] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="The folder to write; default: runs/DATA-MODEL.")] = None,
    resume: flags.ResumeOption = None,
    columns: flags.ColumnsOption = "",
    participants: flags.ParticipantsOption = "",
    sql: flags.SqlOption = "",
    database: flags.DatabaseOption = "",
    task: Annotated[str | None, Option(help="classify: learn a property of sequences or events; see --label.")] = None,
    floors: Annotated[bool, Option(help="Also fit Poisson and Hawkes, and say whether the model beats them.")] = True,
    processes: Annotated[int, Option(help="Processes of this machine that share every step.", min=1)] = 1,
    log: flags.LogOption = None,
    set_: flags.SetOption = None,
    as_json: flags.SummaryOption = False,
    quiet: flags.QuietOption = False,
    *,
    given: flags.Given,
) -> None:
    """Train a model on event data. After Ctrl-C, --resume continues from a checkpoint."""
    if processes > 1 and "WORLD_SIZE" not in os.environ:
        run_processes(processes, without_processes(in_new_words("train", sys.argv[1:])))
    end_with_launcher()
    request = TrainRequest(as_json, quiet, floors, flags.log_names(log))
    if model or (program is not None and preset is not None):
        given["model"]["kind"] = model or "andtt"
    if program is not None:
        given["model"]["program"] = str(program)
    if undeclared is not None:
        given["model"]["undeclared"] = undeclared.value
    if preset is not None:
        given["preset"] = preset  # pyright: ignore[reportArgumentType]
    if task or given["task"]:
        given["task"]["kind"] = task or "classify"
    source = flags.data_source(given["data"].get("path"), sql, database)
    if source is not None:
        given["data"]["path"] = source
    add(given, flags.with_participants(columns, participants), set_)
    if resume is not None:
        epochs = given["train"].pop("epochs", None)
        more = config is not None or out is not None or any(given.values())
        return resume_run(resume, more, request, epochs)
    check_source(config, given, "train")
    _check_rules(given["model"], alone=config is None)
    train_run((config, given), out, request)


def add(given: flags.Given, columns: str, set_: list[str] | None) -> None:
    """Add the settings of `--columns` and `--set` to those of the other flags."""
    if columns:
        given["data"]["columns"] = dict(flags.pair(part, "--columns") for part in columns.split(","))
    for text in set_ or []:
        key, value = flags.pair(text, "--set")
        section, dot, name = key.partition(".")
        if not dot or section not in given:
            raise ForetellError(f"--set {text!r}: the key must begin with {', '.join(f'{s}.' for s in given)}")
        try:
            given[section][name] = parse_toml(f"value = {value}")["value"]
        except ValueError:
            given[section][name] = value  # a bare word is a string


def resume_run(folder: Path, anything_else: bool, request: TrainRequest, epochs: int | None = None) -> None:
    if anything_else:
        raise ForetellError(
            "--resume continues a run exactly as it was begun: give nothing else with it, but for more --epochs and --log"
        )
    if epochs is not None:
        from foretell.train.processes import is_launched
        from foretell.train.run import RunFolder

        if is_launched():
            raise ForetellError("--resume with more --epochs: give --epochs to one process first, without torchrun")
        RunFolder.open(folder).raise_epochs(epochs)
    train_run(None, folder, request)


def check_source(config: Path | None, given: flags.Given, verb: str) -> None:
    if config is None and not given["data"].get("path"):
        raise ForetellError(
            f"nothing to {verb} on: give a CONFIG.toml, or --data with a folder, a file, an embedded name or hf:NAME, or --sql"
        )


def _check_rules(given: dict[str, Any], *, alone: bool) -> None:
    """`alone`: there is no file that may have a program."""
    flag = next((name for name in ("program", "undeclared") if given.get(name)), None)
    if flag == "undeclared" and alone and given.get("kind", "auto") == "auto":
        raise ForetellError("--undeclared is about events of rules, and there are none: give --program, too")
    if flag is not None and given.get("kind", "auto") != "auto":
        from foretell.models.registry import find_model, model_specs

        if not find_model(given["kind"]).about.has_rules:
            kinds = " and ".join(one.kind for one in model_specs() if one.has_rules)
            raise ForetellError(
                f"--{flag} is for {kinds}, which are made of rules, and --model {given['kind']} has none: "
                "leave out one of the two"
            )


def train_run(
    what: tuple[Path | None, dict[str, Any]] | None,
    folder: Path | None,
    request: TrainRequest,
) -> None:
    """Train a new run from a file and flags, or continue the run in a folder."""
    from foretell.cli.show import print_json
    from foretell.train.auto_config import AutoConfig
    from foretell.train.processes import joined_processes, launched_rank
    from foretell.train.run import RunFolder, held

    first = launched_rank() == 0  # the first process writes and prints
    request = replace(request, quiet=request.quiet or not first, floors=request.floors and first)
    if what is None:
        assert folder is not None
        run = RunFolder.open(folder)
        auto = AutoConfig(run.config())
    else:
        run, auto = None, _read_config(*what, quiet=request.quiet or request.as_json)
        folder = default_folder(auto.config) if folder is None else folder
    with held(run if first else None), joined_processes():
        summary, config = _train(auto, run, folder if first else None, request)
    if not first:
        return
    if request.as_json:
        print_json(summary)
    else:
        typer.echo(said(summary, config))


def _train(
    auto: AutoConfig, run: RunFolder | None, folder: Path | None, request: TrainRequest
) -> tuple[dict[str, Any], RunConfig]:
    """Train, and return the summary of the finished run and its configuration with absolute paths; `run` is the run to continue.

    In a process that does not write, `folder` is None.
    """
    import torch

    from foretell.cli.floors_beside import told_of
    from foretell.cli.open_run import own_data, own_program, settled_splits
    from foretell.models.capabilities import meet_log
    from foretell.train.data_facts import data_facts
    from foretell.train.fit import choose_device
    from foretell.train.run import RunFolder, held
    from foretell.train.splits import load_run, with_whole_paths

    config = auto.config
    dataset = load_run(config, loaded=auto.loaded) if run is None else own_data(run)
    config = with_whole_paths(config)
    assert dataset.train is not None
    choose_device(config.train.device)
    dtype = getattr(torch, config.train.dtype)
    with nullcontext() if run is None else own_program(run):
        network = config.model.make(dataset.vocabulary, seed=config.train.seed, dtype=dtype)
    meet_log(network, dataset.train)
    dataset, counts = settled_splits(network, dataset, flags.Impossible(config.data.impossible), request.quiet)
    assert dataset.train is not None
    # a run that was stopped before its first checkpoint starts again
    fresh, resuming = run is None, run is not None and run.checkpoint.exists()
    network, taken = started_from(config, network, dataset.train, run, request.quiet or request.as_json)
    if run is None and folder is not None:
        run = RunFolder.create(folder, config, data_facts(dataset) | {"impossible": counts}, auto.lines())
    with held(run if folder is not None else None):
        if run is not None and folder is not None:
            if fresh:
                run.keep_program(network)
                if taken is not None:
                    run.keep_start(RunFolder.open(config.train.init))
            run.tidy()
        auto = replace(auto, config=config, loaded=None)
        result, beside = _fitted(auto, network, dataset, run, (resuming, fresh), request)
        return summary_of(result, config, run, dataset, taken) | told_of(auto, beside, result), config


def _fitted(
    auto: AutoConfig,
    network: IntensityModel,
    dataset: Dataset,
    run: RunFolder | None,
    begun: tuple[bool, bool],
    request: TrainRequest,
) -> tuple[AnyTraining, dict[str, float]]:
    """Return the trained model and the scores of its floors; `begun` says whether the run is resumed, and whether it is new."""
    from foretell.cli.floors_beside import floors_beside
    from foretell.cli.show import epoch_line
    from foretell.cli.step_progress import step_progress
    from foretell.train.fit import TrainingInterrupt, train_from_config
    from foretell.train.interrupting import stopping
    from foretell.train.loggers import loggers
    from foretell.train.processes import process_group
    from foretell.train.progress import TrainingProgress
    from foretell.train.progress_bar import bar

    config, (resume, fresh) = auto.config, begun
    patient = process_group().size > 1
    with bar(request.quiet) as progress, stopping(patient=patient) as asked:
        try:
            logs = loggers(request.logs, run.path) if run is not None else []
            beside = (
                floors_beside(network, dataset, config, run, auto.floors, progress) if request.floors and run else {}
            )
            with step_progress(progress.keep) as watch:
                result = train_from_config(
                    config,
                    network,
                    dataset,
                    run=run,
                    resume=resume,
                    callbacks=[TrainingProgress(progress, config.train.epochs, config.train.patience), *logs],
                    on_step=watch.passed,
                    on_epoch=lambda record: progress.keep(epoch_line(record)),
                    stop=lambda: asked["stop"],
                )
            return result, beside
        except ForetellError:
            if fresh and run is not None and not run.has_model:
                run.discard()  # nothing was learned: the folder can be used again
            raise
        except TrainingInterrupt:
            if run is not None:
                typer.echo(f"interrupted; continue with: foretell train --resume {run.path}", err=True)
            raise typer.Exit(130) from None


def _read_config(path: Path | None, given: dict[str, Any], *, quiet: bool) -> AutoConfig:
    """Return the configuration of a file, overridden by flags and completed by the automatic choice if requested."""
    from foretell.train.auto_config import AutoConfig, is_auto, resolve
    from foretell.train.progress_bar import bar

    table = read_config(path) if path is not None else {}
    for section, values in given.items():
        if section == "preset":
            table[section] = values
        elif values or section in table:
            old = table.get(section, {})
            table[section] = {**old, **values} if isinstance(old, dict) else values
    source = str(path) if path is not None else "options"
    if not is_auto(table, path is not None):
        if path is None and given["model"].get("program"):
            table["model"] = {"kind": "andtt", **table["model"]}
        return AutoConfig(make_config(with_start(table), source))
    with bar(quiet) as progress:
        auto = resolve(table, source, progress=progress.move)
        progress.keep(auto.sentence())
    return auto


def with_start(table: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with the model options of the run in `train.init`, except for options that it sets itself."""
    init = table.get("train", {}).get("init") if isinstance(table.get("train"), dict) else None
    model = table.get("model", {})
    if not init or not isinstance(init, str) or not isinstance(model, dict):
        return table
    if Path(init).is_file():
        raise ForetellError(f"--init {init}: this is a file, expected the folder of a run")
    from foretell.train.run import CONFIG, RunFolder

    theirs = read_config(RunFolder.open(init).path / CONFIG).get("model", {})
    if not isinstance(theirs, dict) or model.get("kind", theirs.get("kind")) != theirs.get("kind"):
        return table  # the mismatch is reported when the models are combined
    return {**table, "model": {**theirs, **model}}


def started_from(
    config: RunConfig, model: IntensityModel, data: EventData, run: RunFolder | None, quiet: bool
) -> tuple[IntensityModel, TransferReport | None]:
    """Return the model started from another run, and a report; a resumed `run` has its own copy of that run's model."""
    if not config.train.init:
        return model, None
    from foretell.train.fit import initialised
    from foretell.train.run import RunFolder

    source = RunFolder.open(config.train.init).network() if run is None else run.start()
    model, taken = initialised(config, model, source, data)
    if not quiet:
        typer.echo(f"started {taken.sentence()}", err=True)
    return model, taken


def default_folder(config: RunConfig) -> Path:
    name = f"{data_name(config.data.path)}-{config.model.kind}"
    if isinstance(config.task, PretrainOptions):
        name += "-pretrained"
    elif isinstance(config.task, ClassifyOptions):
        name += "-" + re.sub(r"[^\w.-]+", "-", config.task.label)
    return Path("runs") / name


def data_name(path: str) -> str:
    """Return the name of data: that of the file, of the data set on the hub, or of the database."""
    if path.startswith("sql:"):
        from foretell.data.sources.sql import short_name

        return short_name(path)
    return Path(path.removeprefix("hf:").partition(":")[0] if path.startswith("hf:") else path).name.split(".")[0]


def summary_of(
    result: AnyTraining, config: RunConfig, run: RunFolder | None, dataset: Dataset, taken: TransferReport | None
) -> dict[str, Any]:
    """Return the summary of a finished run, as for --json."""
    summary: dict[str, Any] = {
        "run": None if run is None else str(run.path),
        "best_epoch": result.best_epoch,
        "best": result.best,
        "epochs": len(result.records),
        "judged_on": "dev" if dataset.dev is not None else "train",
    }
    if config.task is None:
        summary["window"] = config.train.window
        last = result.records[-1] if result.records else {}
        if "states" in last:  # direct fits have no counts
            counts = {name: last[name] for name in ("states", "intensities")}
            summary |= {"objective": config.train.objective, **counts}
    else:
        summary["task"] = config.task.kind
        summary["accuracy"] = result.records[result.best_epoch - 1].get("dev_accuracy")
    if isinstance(config.task, ClassifyOptions):
        summary |= {name: getattr(result.model, name) for name in ("label", "of", "labels")}
    if taken is not None:
        summary["init"] = taken.to_json()
    return summary


def said(summary: dict[str, Any], config: RunConfig) -> str:
    best, epoch, where = summary["best"], summary["best_epoch"], summary["judged_on"]
    after = f"foretell evaluate {summary['run']}"
    if config.task is None:
        floors = f"\n{summary['verdict']}" if summary.get("verdict") else ""
        window = "" if config.train.window == "all" else f", window {config.train.window}"
        words = f"best log-likelihood on {where}: {best:.4f} nats per event (epoch {epoch}{window}){floors}"
        if config.train.objective == "nce":
            words += f"\nlooked at {summary['states']:,} states and {summary['intensities']:,} intensities"
    else:
        what = "masked events" if isinstance(config.task, PretrainOptions) else f"labels of {summary['of']}"
        share = "" if summary["accuracy"] is None else f", {100 * summary['accuracy']:.1f} % right"
        words = f"best cross-entropy on {where}: {-best:.4f} nats for {what}{share} (epoch {epoch})"
        if isinstance(config.task, PretrainOptions):
            after = f"foretell train --init {summary['run']} --data …"
    return f"{words}\nrun: {summary['run']}    next: {after}"
