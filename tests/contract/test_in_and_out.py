"""A model can be written down and made again, and leaves the process it runs in as it found it."""

from __future__ import annotations

import json

import torch

from foretell.batches.batch import Queries
from foretell.models.base import IntensityModel
from foretell.models.build import describe, rebuild
from foretell.objective.loglik import log_likelihood, quadrature, stratified
from tests.asking import state_at
from tests.calendar_samples import dated
from tests.contract.members import VOCABULARY, Member
from tests.samples import random_data

DATA = dated(random_data(51, [5, 0, 9]))


def likelihood(model: IntensityModel) -> torch.Tensor:
    batch = model.collator.batch(DATA, range(3))
    return log_likelihood(model, batch, quadrature(batch, 3)).log_likelihood()


def made_again(model: IntensityModel) -> IntensityModel:
    again = rebuild(json.loads(json.dumps(describe(model))))
    assert isinstance(again, IntensityModel) and again.vocabulary == VOCABULARY
    return again


def test_spec_and_state_make_the_same_model_again(model: IntensityModel):
    again = made_again(model)
    again.load_state_dict(model.state_dict())
    assert again.spec() == model.spec()
    assert torch.equal(likelihood(again), likelihood(model))


def test_precision_and_whether_it_is_fitted_come_back(model: IntensityModel):
    model.float().fitted = True
    again = made_again(model)
    assert again.dtype == torch.float32 and again.fitted


def test_named_arrays_make_the_same_model_again(model: IntensityModel):
    arrays = {name: array.clone() for name, array in model.named_arrays().items()}
    again = made_again(model)
    assert not torch.allclose(likelihood(again), likelihood(model))
    again.load_named_arrays(arrays)
    torch.testing.assert_close(likelihood(again), likelihood(model), rtol=1e-12, atol=1e-12)
    for name, array in again.named_arrays().items():
        torch.testing.assert_close(array, arrays[name], rtol=1e-14, atol=0.0)


def test_named_arrays_hold_every_parameter_once(model: IntensityModel):
    numbers = sum(array.numel() for array in model.named_arrays().values())
    assert numbers == sum(tensor.numel() for tensor in model.state_dict().values())


def test_every_parameter_gets_a_gradient(model: IntensityModel):
    likelihood(model).sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.numel():
            assert parameter.grad is not None and bool(parameter.grad.isfinite().all()), name


def test_fresh_models_of_one_kind_are_equal(member: Member):
    first, second = member.build(), member.build()
    for (name, one), (_, two) in zip(first.state_dict().items(), second.state_dict().items(), strict=True):
        assert torch.equal(one, two), name


def test_random_state_dtype_and_threads_of_the_process_stay_as_they_were(member: Member):
    state, dtype, threads = torch.get_rng_state(), torch.get_default_dtype(), torch.get_num_threads()
    model = made_again(member.build())
    batch = model.collator.batch(DATA, range(3))
    points = stratified(batch, 2, torch.Generator().manual_seed(1))
    log_likelihood(model, batch, points).log_likelihood().sum().backward()
    model.intensities(state_at(model, batch, Queries.of_events(batch)))
    model.named_arrays()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_default_dtype() == dtype
    assert torch.get_num_threads() == threads


def test_preparing_from_data_leaves_the_random_state_as_it_was(model: IntensityModel):
    state = torch.get_rng_state()
    model.prepare(DATA)
    assert model.fitted
    assert torch.equal(torch.get_rng_state(), state)
    assert bool(likelihood(model).isfinite().all())
