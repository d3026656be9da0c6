"""Dev scores against the number of evaluated intensities: a table and a picture of runs, compared with the first run.

    python experiments/nce/curve.py runs/mle runs/nce [--within 0.02] [--json] [--picture dev.svg]
    python experiments/nce/curve.py experiments/nce/results.json [--only 'seed 0']

The table has for each run its best dev score, the number of evaluations up to then, and when it first came within `--within` nats of the
first run's best. A file of results has the curves of several runs under "runs". In a picture, runs whose names differ only in a final "seed
N" have the same colour.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from foretell.errors import ForetellError
from foretell.report.canvas import COLOURS, FAINT, INK, blank_figure, save_figure
from foretell.train.run import RunFolder

KEYS = ("epoch", "dev", "states", "intensities")

Curve = list[dict[str, Any]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--within", type=float, default=0.02, help="nats an event below the first run's best")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="a regular expression: runs whose names it is found in")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="best score so far over intensities (SVG, PNG, PDF)"
    )
    args = parser.parse_args()
    try:
        found = summaries(chosen(args.runs, args.only), args.within)
        if args.picture:
            draw(found, args.within, args.picture)
    except ForetellError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if args.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return 0
    for name, one in found.items():
        sys.stdout.write(f"{name}\n   best    {_line(one['best'])}\n")
        reached = _line(one["reached"]) if one["reached"] else "never"
        sys.stdout.write(f"   within {args.within:g} nats of the first run's best: {reached}\n")
        for record in one["curve"]:
            sys.stdout.write(f"      {_line(record)}\n")
    return 0


def chosen(paths: list[Path], only: str) -> dict[str, Curve]:
    """Return the curves of all runs whose names contain the pattern."""
    try:
        pattern = re.compile(only)
    except re.error as error:
        raise ForetellError(f"--only {only!r}: not a regular expression ({error})") from None
    every: dict[str, Curve] = {}
    for path in paths:
        for name, curve in _records(path).items():
            if name in every:
                raise ForetellError(f"{path}: there is another run called {name!r}")
            every[name] = curve
    found = {name: curve for name, curve in every.items() if pattern.search(name)}
    if not found:
        raise ForetellError(f"--only {only!r}: found in none of {len(every)} names, as {next(iter(every))!r}")
    return found


def _records(path: Path) -> dict[str, Curve]:
    if path.suffix != ".json":
        return {str(path): _checked(RunFolder.open(path).metrics(), str(path))}
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ForetellError(f"{path}: cannot be read ({error})") from None
    runs = stored.get("runs") if isinstance(stored, dict) else None
    if not isinstance(runs, dict) or not runs:
        raise ForetellError(f'{path}: no results, which have the curves of runs under "runs"')
    return {name: _checked(curve, f"{path}: {name}") for name, curve in runs.items()}


def _checked(curve: object, where: str) -> Curve:
    if not isinstance(curve, list) or not curve:
        raise ForetellError(f"{where}: there is no epoch in it")
    for one in curve:
        if not isinstance(one, dict) or not all(isinstance(one.get(name), int | float) for name in KEYS):
            raise ForetellError(f"{where}: expected numbers for {', '.join(KEYS)} of every epoch")
    return [{name: one[name] for name in KEYS} for one in curve]


def draw(found: dict[str, dict[str, Any]], within: float, path: Path) -> None:
    """Draw the best dev score so far over the number of evaluated intensities, with lines at the first run's best and `within` below."""
    if not within > 0.0:
        raise ForetellError(f"--within {within:g}: a picture needs a positive one")
    figure, axes = blank_figure(1, (7.6, 4.0))
    best = next(iter(found.values()))["best"]["dev"]
    for height, style in ((best, "-"), (best - within, "--")):
        axes[0].axhline(height, color=FAINT, linewidth=1.0, linestyle=style)
    lowest = best - 8.0 * within
    seen = [point["intensities"] / 1e6 for one in found.values() for point in one["curve"] if point["dev"] > lowest]
    kinds: dict[str, str] = {}
    for name, one in found.items():
        kind = re.sub(r",? seed \d+$", "", name)
        label = None if kind in kinds else kind
        colour = kinds.setdefault(kind, COLOURS[len(kinds) % len(COLOURS)])
        asked = [point["intensities"] / 1e6 for point in one["curve"]]
        axes[0].step(
            asked, [point["dev"] for point in one["curve"]], where="post", color=colour, label=label, linewidth=1.4
        )
        axes[0].plot(asked[-1], one["best"]["dev"], "o", color=colour, markersize=4)
    axes[0].set_xscale("log")
    axes[0].set_xlim(left=min(seen))
    axes[0].set_ylim(lowest, best + within)
    axes[0].set_xlabel("intensities evaluated (millions)", color=INK)
    axes[0].set_ylabel("best dev so far, nats an event", color=INK)
    axes[0].legend(frameon=False, fontsize=8, loc="lower right")
    save_figure(figure, path)


def summaries(curves: dict[str, Curve], within: float) -> dict[str, dict[str, Any]]:
    """Return for each run its best epoch, the first epoch that is good enough, and all epochs that were better than those before."""
    goal = max(one["dev"] for one in next(iter(curves.values()))) - within
    found = {}
    for name, curve in curves.items():
        better = [one for place, one in enumerate(curve) if all(one["dev"] > past["dev"] for past in curve[:place])]
        reached = next((one for one in better if one["dev"] >= goal), None)
        found[name] = {"best": better[-1], "reached": reached, "curve": better}
    return found


def _line(one: dict[str, Any]) -> str:
    return f"dev {one['dev']:8.4f}   epoch {one['epoch']:3d}   {one['states']:13,} states   {one['intensities']:15,} intensities"


if __name__ == "__main__":
    raise SystemExit(main())
