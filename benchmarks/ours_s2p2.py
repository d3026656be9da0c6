"""Time and memory of one training step of our S2P2, on the same batches as the rival's.

    OMP_WAIT_POLICY=passive python benchmarks/ours_s2p2.py --data batch.npz --case 64,10

The sizes are the authors' (4 layers, 128 components, 16 states), without dropout. A step is the training loop's own: fresh integration
times, forward, backward, clipping, Adam. All 72 events and all 73 gaps count, the first and the tail included.
"""

from __future__ import annotations

import itertools
import sys

from measuring import LEARNING_RATE, Case, Contestant, Run, main, read_batch

STATES = 16


def build(case: Case, run: Run) -> Contestant:
    from foretell.batches.batch import make_batch
    from foretell.data import EventData, EventSequence, Vocabulary
    from foretell.models.state_space.s2p2 import S2P2
    from foretell.train.step import StepOptions, Stepper

    times, types = read_batch(case, run.data)
    sequences = [
        EventSequence(t, k, float(t[-1]), str(row)) for row, (t, k) in enumerate(zip(times, types, strict=True))
    ]
    data = EventData(sequences, Vocabulary.of_size(case.types), "window", "batch")
    model = S2P2(data.vocabulary, dim=case.dim, layers=case.layers, states=STATES, seed=run.seed)
    model.prepare(data)
    model.to(run.device)
    stepper = Stepper(model, LEARNING_RATE, StepOptions(points=case.points, seed=run.seed))
    batch = make_batch(data, range(len(data)), device=run.device)
    scored = data.event_count
    numbers = itertools.count()
    size = sum(parameter.numel() for parameter in model.parameters())
    return Contestant("foretell S2P2", lambda: stepper(batch, next(numbers)) / scored, size)


if __name__ == "__main__":
    sys.exit(main(build, "Time our S2P2", dim=128, layers=4))
