"""Time and memory of one training step of our A-NHP, on the same batches as the rival's.

    OMP_WAIT_POLICY=passive python benchmarks/ours_anhp.py --data batch.npz --case 16,1 --case 16,20

A step is the training loop's own: fresh integration times, forward, backward, clipping, Adam. All 72 events and all 73 gaps count, the
first and the tail included.
"""

from __future__ import annotations

import itertools
import sys

from measuring import LEARNING_RATE, Case, Contestant, Run, main, read_batch


def build(case: Case, run: Run) -> Contestant:
    from foretell.batches.batch import make_batch
    from foretell.data import EventData, EventSequence, Vocabulary
    from foretell.models.attention.anhp import ANHP
    from foretell.train.step import StepOptions, Stepper

    times, types = read_batch(case, run.data)
    sequences = [
        EventSequence(t, k, float(t[-1]), str(row)) for row, (t, k) in enumerate(zip(times, types, strict=True))
    ]
    data = EventData(sequences, Vocabulary.of_size(case.types), "window", "batch")
    model = ANHP.preset("plain", data.vocabulary, dim=case.dim, layers=case.layers, seed=run.seed)
    model.prepare(data)
    model.to(run.device)
    stepper = Stepper(model, LEARNING_RATE, StepOptions(points=case.points, seed=run.seed))
    batch = make_batch(data, range(len(data)), device=run.device)
    scored = data.event_count
    numbers = itertools.count()
    size = sum(parameter.numel() for parameter in model.parameters())
    return Contestant("foretell A-NHP", lambda: stepper(batch, next(numbers)) / scored, size)


if __name__ == "__main__":
    sys.exit(main(build, "Time our A-NHP"))
