"""Time of EasyTPP's thinning for next events of one history, run by an interpreter that has `easy_tpp`; called by `sampling.py`.

The model is AttNHP of the same size, with the sampler's settings of EasyTPP's example configurations (500 proposals, 5 points for the
bound, over-sampling by 5). Its weights are random: the cost does not depend on them, since it always evaluates all proposals. `shared`
draws are EasyTPP's way to take several draws at once: all use the same 500 proposals, so they are not independent. `independent` draws have
their own proposals: the batch has copies of the history.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from importlib import import_module

import numpy as np
import torch
from measuring import Case
from rival_easytpp import build_model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", required=True, help="npz with times and types")
    parser.add_argument("--types", type=int, required=True)
    parser.add_argument("--dim", type=int, required=True)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--shared", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3, help="of shared draws, behind one that is not timed")
    parser.add_argument("--independent", type=int, default=0)
    parser.add_argument("--copies", type=int, default=4, help="independent draws made together")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    stored = np.load(given.history)
    times, types = torch.from_numpy(stored["times"]).float(), torch.from_numpy(stored["types"]).long()
    case = Case(1, 20, len(times), given.types, given.dim, given.layers)
    model = build_model(case, "cpu").eval()
    sampler = import_module("easy_tpp.model.thinning").EventSampler

    def seconds(copies: int, draws: int) -> float:
        made = sampler(draws, 500, 5.0, 5, 5.0, 5, torch.device("cpu"))
        batch = times.expand(copies, -1), times.diff(prepend=times[:1]).expand(copies, -1), types.expand(copies, -1)
        began = time.perf_counter()
        with torch.no_grad():
            made.draw_next_time_one_step(
                *batch, batch[1] + 5.0, model.compute_intensities_at_sample_times, compute_last_step_only=True
            )
        return time.perf_counter() - began

    seconds(1, 1)
    if given.shared:
        _, *times_taken = (seconds(1, given.shared) for _ in range(1 + given.repeats))  # the first is not timed
        took, draws = statistics.median(times_taken), given.shared
    else:
        rounds = max(1, given.independent // given.copies)
        took, draws = sum(seconds(given.copies, 1) for _ in range(rounds)), rounds * given.copies
    sys.stdout.write(json.dumps({"seconds": took, "draws": draws}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
