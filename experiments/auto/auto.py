"""Is `foretell auto` as good as the best single default model? Runs, for each data set, a search of ten minutes and each default model.

    taskset -c 0,1 python auto.py bar DATA OUT RESULTS          # all that follows, one data set after the other, and the table

    python auto.py prepare DATA OUT                             # DATA: a folder with the data sets; OUT: the four that are used here
    taskset -c 0,1 python auto.py run OUT sepsis RESULTS        # writes RESULTS/sepsis.json; one per pair of cores, side by side
    python auto.py singles OUT RESULTS --device cuda --jobs 8   # the single models of all sets, elsewhere
    python auto.py table RESULTS                                # the table of the README

The single default models are the model of `foretell train` without options (with the program if there is one), and every other kind that
the search tries, with settings by the same rules. They train for all their epochs, however long that takes. A stopped run is continued.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
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
CLOSE = 0.02  # nats per event on test, by the protocol
SHORTEST = 1.5  # minutes of a search that is only opened for its definition


def prepare(data: Path, out: Path) -> None:
    for name in SETS:
        if name in field.LOGS:
            field.convert(data / "processes" / name, out / name)
        else:
            shutil.copytree(data / name, out / name, dirs_exist_ok=True)


def search(folder: Path, name: str, out: Path, minutes: float) -> dict[str, Any]:
    """Run the command, as a user does."""
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


def single_units(folder: Path, name: str, out: Path) -> tuple[Any, list[Any]]:
    """Return the search of a data set, and the units of every default model that it would try; `out` is the folder of a search."""
    from foretell.reproduce.experiment import read_definition
    from foretell.search.halving import WHOLE, AutoSearch, Rung

    if not (out / "experiment.toml").exists():
        search(folder, name, out, SHORTEST)
    found = AutoSearch(read_definition(str(out.resolve())))
    decays = found._unit_folder("hawkes").record()
    if decays is None:  # the rules need its number of decays
        raise SystemExit(f"{out}: the search ended before its Hawkes process was fitted")
    units = [one for one in found.units({}) if one.name in ("poisson", "hawkes")]
    return found, units + [
        Rung(one, WHOLE).unit() for one in found.candidates(int(decays["decays"])) if not one.variant
    ]


def fit_single(job: dict[str, Any]) -> dict[str, Any]:
    """Fit one default model, and score it on dev and test as the search does."""
    import torch

    from foretell.reproduce.unit import Workspace

    out, place = Path(job["out"]), Path(job["place"])
    record = place / "record.json"
    if not record.exists():
        torch.set_num_threads(job["threads"])
        found, units = single_units(Path(job["folder"]), job["set"], out)
        unit = next(one for one in units if one.name == job["unit"])
        place.mkdir(parents=True, exist_ok=True)
        (out / "budget.json").unlink(missing_ok=True)  # no limit of time
        workspace = Workspace(place, None, job["device"], lambda: False)
        began = time.monotonic()
        made = dict(found.work(unit, workspace)) | {"wall_seconds": round(time.monotonic() - began, 1)}
        record.write_text(json.dumps(made | {"test": on_test(place / "run"), "device": job["device"]}) + "\n")
    keys = ("title", "dev", "test", "epochs", "best_epoch", "wall_seconds", "device")
    made = json.loads(record.read_text())
    return {"set": job["set"]} | {key: made.get(key) for key in keys}


def single_jobs(folder: Path, name: str, out: Path, device: str, threads: int) -> list[dict[str, Any]]:
    shared = {"set": name, "folder": str(folder), "out": str(out), "device": device, "threads": threads}
    place = out.with_name(f"{out.name}-single")
    return [{**shared, "unit": one.name, "place": str(place / one.name)} for one in single_units(folder, name, out)[1]]


def all_singles(args: argparse.Namespace) -> None:
    """Fit the single models of the data sets, several at a time; the file of a set is written when its models are done."""
    args.results.mkdir(parents=True, exist_ok=True)
    jobs = [
        job
        for name in args.sets
        for job in single_jobs(args.data, name, args.work / f"{name}-definition", args.device, threads=1)
        if not args.only or job["unit"].rsplit("-", 1)[0] in args.only
    ]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in args.sets}
    with multiprocessing.get_context("spawn").Pool(args.jobs, maxtasksperchild=1) as pool:
        for one in pool.imap(fit_single, jobs):
            name = one.pop("set")
            found[name].append(one)
            (args.results / f"{name}-singles.json").write_text(json.dumps(found[name], indent=1) + "\n")


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
    args.results.mkdir(parents=True, exist_ok=True)
    work, path = args.work / args.set, args.results / f"{args.set}.json"
    found = json.loads(path.read_text()) if path.exists() else {"set": args.set, "minutes": args.minutes}
    if "auto" not in found:
        found["auto"] = search(args.data, args.set, work, args.minutes)
        path.write_text(json.dumps(found, indent=1) + "\n")
    if not args.no_singles:
        found["singles"] = [fit_single(job) for job in single_jobs(args.data, args.set, work, "cpu", threads=2)]
        path.write_text(json.dumps(found, indent=1) + "\n")


def bar(args: argparse.Namespace) -> None:
    """Run all data sets one after another, on the cores of this process."""
    if not all((args.out / name).exists() for name in SETS):
        prepare(args.data, args.out)
    for name in SETS:
        run(argparse.Namespace(**{**vars(args), "data": args.out, "set": name}))
    table(args.results)


def table(folder: Path) -> None:
    """Return the table of the README: searches, the best single models, and the verdicts by the protocol."""
    head = [
        "set",
        "chosen",
        "minutes",
        "dev",
        "best single on dev",
        "less",
        "test",
        "best single on test",
        "less",
        "verdict",
    ]
    rows = [head, ["---"] * len(head), *(row_of(folder, name) for name in SETS if (folder / f"{name}.json").exists())]
    sys.stdout.write("".join(f"| {' | '.join(cells)} |\n" for cells in rows))


def row_of(folder: Path, name: str) -> list[str]:
    one, apart = json.loads((folder / f"{name}.json").read_text()), folder / f"{name}-singles.json"
    singles = json.loads(apart.read_text()) if apart.exists() else one.get("singles", ())
    mine, others = one["auto"], [other for other in singles if other["dev"] is not None]
    cells, less = [name, mine["title"], f"{mine['wall_seconds'] / 60:.1f}"], {}
    for split, digits in (("dev", 4), ("test", 3)):
        best = max(others, key=lambda other: other[split], default=None)
        less[split] = None if best is None else mine[split] - best[split]
        cells += [f"{mine[split]:.{digits}f}"]
        cells += (
            ["–"] * 2 if best is None else [f"{best[split]:.{digits}f} ({best['title']})", f"{less[split]:+.{digits}f}"]
        )
    return [*cells, verdict(less["dev"], less["test"])]


def verdict(dev: float | None, test: float | None) -> str:
    """Return the verdict by the protocol: on dev at least as good as the best single model, on test within 0.02 of it."""
    if dev is None or test is None:
        return "pending"
    if test < -CLOSE:
        return "fails on test"
    return "holds" if dev >= 0.0 else f"behind on dev by {-dev:.2g}"


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
    apart = commands.add_parser("singles")
    apart.add_argument("data", type=Path)
    apart.add_argument("results", type=Path)
    apart.add_argument("--sets", nargs="*", choices=SETS, default=list(SETS))
    apart.add_argument("--device", default="cpu")
    apart.add_argument("--jobs", type=int, default=1)
    apart.add_argument("--only", nargs="*", default=[], metavar="UNIT", help="these models alone, as anhp")
    apart.add_argument("--work", type=Path, default=Path("auto-work"), help="where fits are kept")
    shown = commands.add_parser("table")
    shown.add_argument("results", type=Path)
    args = parser.parse_args()
    if args.command == "prepare":
        prepare(args.data, args.out)
    elif args.command == "table":
        table(args.results)
    else:
        {"run": run, "bar": bar, "singles": all_singles}[args.command](args)


if __name__ == "__main__":
    main()
