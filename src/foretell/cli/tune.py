"""`foretell tune CONFIG | --data DATA`: search for settings on dev; writes the best configuration, a table of trials, and a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretell.cli import flags
from foretell.errors import ForetellError
from foretell.options import from_table, names_of
from foretell.train.config import DataOptions, TrainOptions
from foretell.train.space import SearchOptions, Space

if TYPE_CHECKING:
    from foretell.train.study import TrialRecord
    from foretell.train.tune import TuningResult

Option = typer.Option
PICTURE = "settings.png"
SHOWN = 5  # number of best settings


@flags.with_flags(
    {"search": SearchOptions, "data": DataOptions, "train": TrainOptions},
    only=[*(f"search.{name}" for name in names_of(SearchOptions)), "data.path", "train.epochs", "train.device"],
)
def tune(
    config: Annotated[
        Path | None,
        typer.Argument(
            help="A TOML file with lists of choices and ranges in [model] and [train]; default: the paper's grid of sizes."
        ),
    ] = None,
    model: Annotated[str | None, Option(help="anhp, nhp, s2p2, …; default: that of the file, or anhp.")] = None,
    undeclared: flags.ModelUndeclaredOption = None,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="The folder to write, and to go on with; default: tune/CONFIG, or tune/DATA-MODEL."),
    ] = None,
    as_json: flags.SummaryOption = False,
    quiet: flags.QuietOption = False,
    *,
    given: flags.Given,
) -> None:
    """Choose settings by their log-likelihood on dev; test is never opened. After Ctrl-C, the same command continues the search."""
    from foretell.cli.show import print_json
    from foretell.cli.train import check_source
    from foretell.train.config import read_config
    from foretell.train.interrupting import stopping
    from foretell.train.progress_bar import bar
    from foretell.train.tune import tune as search

    check_source(config, given, "tune")
    source = "the command line" if config is None else str(config)
    table = {} if config is None else read_config(config)
    options = _options(table.pop("search", {}), given["search"], source)
    asked = {"kind": model, "undeclared": None if undeclared is None else undeclared.value}
    added = {**given, "model": {key: value for key, value in asked.items() if value is not None}}
    del added["search"]
    for section, values in added.items():
        if values:
            table[section] = {**table.get(section, {}), **values}
    space = Space.read(table, source)
    folder = out or Path("tune") / _name(config, space)
    told = _Telling(space, options)
    with bar(quiet) as progress, stopping() as asked:
        if space.from_paper:
            progress.keep(f"{source} has no lists: the paper's grid is searched, {_listed(space)}")

        def tell(news: Any) -> None:
            told.hear(news)
            progress.move(told.line(), told.ended, told.of)
            if news.record is not None:
                progress.keep(told.ending(news.record))

        found = search(space, folder, options, told=tell, stop=lambda: asked["stop"])
    picture = _picture(found, folder, quiet)
    if as_json:
        print_json(_summary(found, picture))
    else:
        _say(found, picture)
    if found.stopped == "interrupted":
        typer.echo("interrupted; the same command goes on", err=True)
        raise typer.Exit(130)
    if found.best is None:
        first = next((one.error for one in found.tried if one.error), None)
        raise ForetellError(
            f"{folder}: none of {len(found.tried)} settings finished"
            + (f"; the first failed with {first}" if first else "; give it more minutes or trials")
        )


def _name(config: Path | None, space: Space) -> str:
    """Return the name of a search's folder: that of its file, or of its data and model."""
    if config is not None:
        return config.stem
    from foretell.cli.train import data_name

    return f"{data_name(space.fixed['data']['path'])}-{space.kinds[0]}"


def _options(table: Any, given: Mapping[str, Any], source: str) -> SearchOptions:
    """Return the options of the table [search] in the file, overridden by flags."""
    if not isinstance(table, Mapping):
        raise ForetellError(f"{source}: [search] is {table!r}: expected a table")
    problems: list[str] = []
    options = from_table(SearchOptions, table, source, "search", problems)
    if problems:
        raise ForetellError("\n".join(problems))
    return replace(options, **given).check()


class _Telling:
    """Prints messages during a search."""

    def __init__(self, space: Space, options: SearchOptions) -> None:
        size = space.size()
        self.of = options.trials or (size if size is not None and size <= 50 else 50)
        self.best: float | None = None
        self.ended, self.running = 0, {}

    def hear(self, news: Any) -> None:
        if news.record is None:
            self.running[news.number] = (news.epoch, news.setting)
            return
        self.running.pop(news.number, None)
        self.ended = max(self.ended + 1, news.number + 1 - len(self.running))
        if news.record.state == "complete" and (self.best is None or news.record.score > self.best):
            self.best = news.record.score

    def line(self) -> str:
        best = "" if self.best is None else f"best {self.best:.4f}; "
        now = ", ".join(f"{number}: epoch {epoch}" for number, (epoch, _) in sorted(self.running.items())[:3])
        return f"{best}trial {now}" if now else f"{best}trials"

    def ending(self, tried: TrialRecord) -> str:
        said = {"complete": "", "pruned": f"given up after {tried.epochs} epochs", "failed": f"failed: {tried.error}"}
        told = said[tried.state] if tried.same_as is None else f"as trial {tried.same_as}"
        score = "        –" if tried.score is None else f"{tried.score:9.4f}"
        star = " *" if tried.state == "complete" and tried.score == self.best else ""
        return f"trial {tried.number:4d}   dev {score}   {_words(tried.setting)}   {tried.seconds:6.1f} s{star}  {told}".rstrip()


def _words(setting: Mapping[str, Any]) -> str:
    return " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in setting.items()
    )


def _listed(space: Space) -> str:
    return ", ".join(f"{name} = {one.to_json()}" for name, one in space.open.items())


def _picture(found: TuningResult, folder: Path, quiet: bool) -> Path | None:
    """Draw the score against each setting and return the path; without matplotlib, print a message and return None."""
    if not any(one.score is not None for one in found.tried):
        return None
    try:
        from foretell.report.canvas import save_figure
        from foretell.report.run_plots import settings_plot

        figure = settings_plot(found)
    except ForetellError as error:
        if not quiet:
            typer.echo(f"no picture: {error}", err=True)
        return None
    save_figure(figure, folder / PICTURE)
    return folder / PICTURE


def _summary(found: TuningResult, picture: Path | None) -> dict[str, Any]:
    from foretell.train.study import BEST, TABLE

    best = found.best
    return {
        "best": None if best is None else asdict(best),
        "judged_on": "dev",
        "trials": len(found.tried),
        **{state: found.count(state) for state in ("complete", "pruned", "failed")},
        "left": found.left,
        "stopped": found.stopped,
        "folder": str(found.folder),
        "config": None if best is None else str(found.folder / BEST),
        "table": str(found.folder / TABLE),
        "picture": None if picture is None else str(picture),
    }


def _say(found: TuningResult, picture: Path | None) -> None:
    from foretell.cli.show import make_table, out
    from foretell.train.study import BEST
    from foretell.wording import escape

    whole = sorted((one for one in found.tried if one.state == "complete"), key=lambda one: -(one.score or 0.0))
    given_up, failed = (found.count(state) for state in ("pruned", "failed"))
    counts = f"{found.count('complete')} complete, {given_up} given up early, {failed} failed"
    if whole:
        names = list(found.space.open)
        columns = ["trial", "dev", *names, "epochs", "seconds"]
        table = make_table(f"the best of {len(found.tried)} settings ({counts})", columns, ())
        for one in whole[:SHOWN]:
            cells = ["–" if name not in one.setting else _cell(one.setting[name]) for name in names]
            shown = [str(one.number), f"{one.score:.4f}", *cells, str(one.epochs), f"{one.seconds:.1f}"]
            table.add_row(*(escape(cell) for cell in shown))
        out().print(table)
        typer.echo(
            f"judged on dev, nats per event; test was not opened\n"
            f"best: {found.folder / BEST}    next: foretell train {found.folder / BEST}"
            + (f"\npicture: {picture}" if picture is not None else "")
        )
    for one in [one for one in found.tried if one.state == "failed"][:SHOWN]:
        typer.echo(f"trial {one.number} failed: {_words(one.setting)}: {one.error}", err=True)
    if found.stopped == "minutes":
        typer.echo("the time is up; the same command goes on", err=True)


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
