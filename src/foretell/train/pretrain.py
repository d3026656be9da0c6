"""`pretrain`: an A-NHP and data in, the same A-NHP out, with an encoder that predicts hidden types from what is around them.

The paper's end of section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foretell.batches.batch import Batch, make_batch
from foretell.data import EventData
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.start import start_intensities
from foretell.models.task_heads import MaskedANHP
from foretell.objective.masked import LabelTerms, corrupt, masked_terms
from foretell.train.callbacks import Callback, CallbackList, FunctionCallback
from foretell.train.config import TrainOptions
from foretell.train.label_task import LabelTask, checked_encoder
from foretell.train.run import RunFolder
from foretell.train.task import PretrainOptions
from foretell.train.trainer import Trainer, TrainingResult, changed_options, check_data, choose_device

Visibility = Callable[[Batch], Tensor]  # bool [B, N, N]: True where the row sees the column
Pretraining = TrainingResult[MaskedANHP]


def pretrain(
    model: ANHP,
    train: EventData,
    dev: EventData | None = None,
    options: TrainOptions | None = None,
    *,
    mask: float = PretrainOptions.mask,
    drop: float = PretrainOptions.drop,
    dev_rounds: int = PretrainOptions.dev_rounds,
    visible: Visibility | None = None,
    run: RunFolder | None = None,
    resume: bool = False,
    callbacks: Iterable[Callback] = (),
    on_step: Callable[[int, int, int], None] | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **changes: Any,
) -> Pretraining:
    """Train the encoder in place; `fit` and `classify` then go on from it. `visible` is a history of one's own instead of all other events.

    `mask` of the events that stay lose their type, which is predicted; `drop` of all are removed. Every step and epoch masks and removes
    others. `changes` are single options, and `callbacks` as in `fit`.
    """
    wrong = [one.removeprefix("task.") for one in PretrainOptions(mask, drop, dev_rounds).mistakes()]
    if wrong:
        raise ForetellError("\n".join(wrong))
    options = changed_options(options, changes, "pretrain")
    check_data(checked_encoder(model, "pretrain"), train, dev)
    if not model.fitted:
        model.prepare(train)
    masked = MaskedANHP(model, options.seed)
    masked.start_levels(train.type_counts())
    masked.to(choose_device(options.device))

    def terms(data: EventData, indices: np.ndarray, rng: np.random.Generator, width: int | None) -> LabelTerms:
        batch = make_batch(data, indices, device=masked.device, width=width)
        drawn = corrupt(data.lengths[indices], batch.times.shape[1], rng, mask=mask, drop=drop, device=masked.device)
        return masked_terms(masked, batch, drawn, None if visible is None else visible(batch))

    rounds = [[number, 2] for number in range(dev_rounds)]
    task = LabelTask(masked, train, options, terms, mask * (1.0 - drop) * train.event_count, rounds)
    callback = CallbackList([FunctionCallback(on_step, on_epoch, stop), *callbacks])
    result = Trainer(task, train, dev, options, callback, run, resume).run()
    start_intensities(model, torch.Generator().manual_seed(options.seed))  # for the vectors that were learned
    model.start_rates(train)
    return result
