"""What keeps a fit in bounds does what it says: weight decay, pseudo-counts, dropout."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from foretell.models.attention.layers import Dropout
from foretell.train.adam import Adam
from foretell.train.likelihood_task import LikelihoodTask
from tests.samples import event_data
from tests.train.small import exciting, options, small_model

LR, DECAY = 0.1, 0.5


def adam(*parameters: nn.Parameter, decay: float = DECAY) -> Adam:
    return Adam(parameters, LR, decay, 0.0, torch.device("cpu"))


@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_weight_decay_shrinks_matrices_and_leaves_levels_and_scales(decay: float):
    """Without a gradient a step does nothing but shrink: by lr·decay."""
    matrix, level, scale = (nn.Parameter(torch.full(shape, 2.0)) for shape in ((2, 3), (4,), ()))
    one = adam(matrix, level, scale, decay=decay)
    one.descend(0.0 * (matrix.sum() + level.sum() + scale))
    assert torch.equal(level, torch.full((4,), 2.0)) and float(scale.detach()) == 2.0
    assert matrix.detach() == pytest.approx(torch.full((2, 3), 2.0 * (1.0 - LR * decay)))


def test_train_decay_reaches_the_matrices_of_a_model_and_nothing_else():
    data = exciting(4, 0)
    found = LikelihoodTask(small_model(data), data, options(decay=DECAY)).adam
    groups = found.optimizer.param_groups
    assert {p.ndim > 1: group["weight_decay"] for group in groups for p in group["params"]} == {True: DECAY, False: 0.0}
    assert sum(len(group["params"]) for group in groups) == len(found.parameters)


def test_a_pseudo_count_is_spread_over_the_time_of_all_sequences():
    data = event_data([([1.0], [0]), ([2.0], [1]), ([0.5], [2])], t_end=[2.0, 3.0, 5.0])
    task = LikelihoodTask(small_model(data), data, options(pseudo_count=0.5))
    assert task.stepper.options.pseudo_rate == pytest.approx(0.5 / 10.0)
    assert LikelihoodTask(small_model(data), data, options()).stepper.options.pseudo_rate == 0.0


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_what_dropout_keeps_is_scaled_up_so_that_the_mean_stays(share: float):
    """40,000 draws: the share that is kept is off by no more than five standard errors, 0.0125."""
    found = Dropout(share, torch.Generator().manual_seed(0))(torch.ones(40_000))
    assert found.unique().tolist() == pytest.approx([0.0, 1.0 / (1.0 - share)])
    assert float((found > 0).double().mean()) == pytest.approx(1.0 - share, abs=0.0125)
    assert float(found.mean()) == pytest.approx(1.0, abs=0.025)
    kept = torch.ones(3)
    assert Dropout(0.0, None)(kept) is kept
