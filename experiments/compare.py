"""Compare one model with the others, seed by seed: paired permutation tests on the test events that `run.py --keep` has scored.

    python experiments/compare.py FOLDER --first A-NDTT --together 'kick(-P)' 'pass(-P,-Q)' --out experiments/robocup/compare.json

Seed s of the first model meets seed s of another, or the other's only fit where no chance was in it. `--together` takes the errors of some
patterns of participants as one. Log-likelihoods are compared over sequences too, where there are enough of them to find anything.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kept import Kept, read_scores

from foretell.errors import ForetellError
from foretell.evaluate.permutation import PairedTest, compare_errors, compare_log_likelihoods, compare_participants

FEWEST_SEQUENCES = 6  # of fewer, no pattern of signs is rare enough for p < 0.05


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--first", required=True)
    parser.add_argument("--together", nargs="+", default=[])
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    everything = [read_scores(path) for path in sorted(args.folder.glob("*.npz"))]
    mine = [one for one in everything if one.model == args.first]
    if not mine:
        raise ForetellError(f"{args.folder}: no scores of {args.first}; there are {[one.model for one in everything]}")
    pairs = [(one, other) for one in mine for other in everything if meets(one, other)]
    rows = [compared(one, other, args.together) for one, other in pairs]
    args.out.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n", encoding="utf-8")
    for row in rows:
        sys.stdout.write(f"{json.dumps(row)}\n")
    return 0


def meets(one: Kept, other: Kept) -> bool:
    return one.model != other.model and other.seed in (None, one.seed)


def compared(one: Kept, other: Kept, together: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"first": one.model, "seed": one.seed, "second": other.model}
    found["log_likelihood"] = plain(compare_log_likelihoods(one.events, other.events))
    if len(one.events.scored) >= FEWEST_SEQUENCES:
        found["log_likelihood_over_sequences"] = plain(compare_log_likelihoods(one.events, other.events, "sequences"))
    found["type_error"] = plain(compare_errors(one.events, other.events))

    def participants(chosen: Callable[[str], bool]) -> dict[str, Any]:
        mine, yours = ([g for g in kept.guesses if chosen(g.pattern)] for kept in (one, other))
        return plain(compare_participants(mine, yours))

    if one.guesses:
        found["participant_error"] = {g.pattern: participants(lambda p, q=g.pattern: p == q) for g in one.guesses}
    if together:
        found["participant_error"]["together"] = participants(lambda pattern: pattern in together)
    return found


def plain(test: PairedTest) -> dict[str, Any]:
    return {"difference": round(test.difference, 5), "p": test.p_value, "units": test.units}


if __name__ == "__main__":
    sys.exit(main())
