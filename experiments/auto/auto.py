"""Is `foretell auto` as good as the best single default model? One data set at a time: a search of ten minutes, and each default by itself.

    taskset -c 0,1 python auto.py bar DATA OUT RESULTS          # all that follows, one data set after the other, and the table

    python auto.py prepare DATA OUT                             # DATA: a folder with the data sets; OUT: the four that are used here
    taskset -c 0,1 python auto.py run OUT sepsis RESULTS        # writes RESULTS/sepsis.json; one per pair of cores, side by side
    python auto.py table RESULTS                                # the table of the README

The single default models are what `foretell train` gives without other options (with the program where there is one), and every other kind
that the search tries, by the same rules: all of their epochs, however long they take. A run goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "field"))
import field  # pyright: ignore[reportMissingImports]

SETS = ("sepsis", "helpdesk", "mimic2", "robocup")
PROGRAMS = {"robocup": "robocup"}
MINUTES = 10.0


def prepare(data: Path, out: Path) -> None:
    for name in SETS:
        if name in field.LOGS:
            field.convert(data / "processes" / name, out / name)
        else:
            shutil.copytree(data / name, out / name, dirs_exist_ok=True)


def search(folder: Path, name: str, out: Path, minutes: float) -> dict[str, Any]:
    """The command, as a user gives it."""
    command = [sys.executable, "-m", "foretell.cli.main", "auto", str(folder / name), "--minutes", str(minutes)]
    command += ["--out", str(out), "--device", "cpu", "--json"]
    command += ["--program", PROGRAMS[name]] if name in PROGRAMS else []
    began = time.monotonic()
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    wall = time.monotonic() - began
    kept = {key: found[key] for key in ("chosen", "reason", "verdict", "stopped", "failed", "untried")}
    best = next(one for one in found["entries"] if one["candidate"] == found["chosen"])
    board = [{key: one[key] for key in ("title", "dev", "state", "epochs", "seconds")} for one in found["entries"]]
    scores = {"dev": best["dev"]["value"], "test": found["test"]["log_likelihood"]["value"]}
    return {**scores, "title": best["title"], "wall_seconds": round(wall, 1), **kept, "board": board}


def singles(folder: Path, name: str, out: Path) -> list[dict[str, Any]]:
    """Every default model by itself, scored on dev and test as the search scores."""
    from foretell.reproduce.experiment import read_definition
    from foretell.reproduce.unit import Workspace
    from foretell.search.halving import WHOLE, AutoSearch, Rung

    search = AutoSearch(read_definition(str(out.resolve())))
    decays = search._unit_folder("hawkes").record() or {}
    units = [one for one in search.units({}) if one.name in ("poisson", "hawkes")]
    units += [Rung(one, WHOLE).unit() for one in search.candidates(int(decays.get("decays", 0))) if not one.variant]
    found = []
    for unit in units:
        place = out.with_name(f"{out.name}-single") / unit.name
        record = place / "record.json"
        if not record.exists():
            place.mkdir(parents=True, exist_ok=True)
            (out / "budget.json").unlink(missing_ok=True)  # no limit of time
            workspace = Workspace(place, None, "cpu", lambda: False)
            began = time.monotonic()
            made = dict(search.work(unit, workspace)) | {"wall_seconds": round(time.monotonic() - began, 1)}
            record.write_text(json.dumps(made | {"test": on_test(place / "run")}) + "\n")
        found.append(json.loads(record.read_text()))
    keys = ("title", "dev", "test", "epochs", "best_epoch", "wall_seconds")
    return [{key: one.get(key) for key in keys} for one in found]


def on_test(run: Path) -> float:
    from foretell.evaluate.scores import score
    from foretell.search.halving import DEV_SCORES
    from foretell.train.run import RunFolder
    from foretell.train.splits import load_run

    folder = RunFolder.open(run)
    test = load_run(folder.config()).test
    assert test is not None
    return score(folder.model(), test, DEV_SCORES).evaluation.scores["log_likelihood"].value  # pyright: ignore[reportOptionalMemberAccess]


def run(args: argparse.Namespace) -> None:
    import torch

    args.results.mkdir(parents=True, exist_ok=True)
    work, path = args.work / args.set, args.results / f"{args.set}.json"
    found = json.loads(path.read_text()) if path.exists() else {"set": args.set, "minutes": args.minutes}
    if "auto" not in found:
        found["auto"] = search(args.data, args.set, work, args.minutes)
        path.write_text(json.dumps(found, indent=1) + "\n")
    torch.set_num_threads(2)
    if not args.no_singles:
        found["singles"] = singles(args.data, args.set, work)
        path.write_text(json.dumps(found, indent=1) + "\n")


def bar(args: argparse.Namespace) -> None:
    """Every data set in turn, on the cores that this process has."""
    if not all((args.out / name).exists() for name in SETS):
        prepare(args.data, args.out)
    for name in SETS:
        run(argparse.Namespace(**{**vars(args), "data": args.out, "set": name}))
    table(args.results)


def table(folder: Path) -> None:
    say = sys.stdout.write
    say(
        "| set | chosen | dev | best default on dev | test | best default on test | test less best | minutes |\n"
        + "|---" * 8
        + "|\n"
    )
    for name in SETS:
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        one = json.loads(path.read_text())
        mine, others = one["auto"], [other for other in one.get("singles", ()) if other["dev"] is not None]
        cells = [name, mine["title"], f"{mine['dev']:.3f}"]
        for split in ("dev", "test"):
            best = max(others, key=lambda other: other[split], default=None)
            cells.append("–" if best is None else f"{best[split]:.3f} ({best['title']})")
            cells += [f"{mine['test']:.3f}"] if split == "dev" else []
        most = max((other["test"] for other in others), default=mine["test"])
        cells += [f"{mine['test'] - most:+.3f}", f"{mine['wall_seconds'] / 60:.1f}"]
        say("| " + " | ".join(cells) + " |\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    made = commands.add_parser("prepare")
    made.add_argument("data", type=Path)
    made.add_argument("out", type=Path)
    tried = commands.add_parser("run")
    tried.add_argument("data", type=Path)
    tried.add_argument("set", choices=SETS)
    whole = commands.add_parser("bar")
    whole.add_argument("data", type=Path)
    whole.add_argument("out", type=Path)
    for one in (tried, whole):
        one.add_argument("results", type=Path)
        one.add_argument("--minutes", type=float, default=MINUTES)
        one.add_argument("--work", type=Path, default=Path("auto-work"), help="where searches and fits are kept")
        one.add_argument("--no-singles", action="store_true", help="the search alone")
    shown = commands.add_parser("table")
    shown.add_argument("results", type=Path)
    args = parser.parse_args()
    if args.command == "prepare":
        prepare(args.data, args.out)
    elif args.command == "table":
        table(args.results)
    else:
        {"run": run, "bar": bar}[args.command](args)


if __name__ == "__main__":
    main()
