"""The two-sided encoder and its heads against their slow twin, in float64: values within 1e-10, gradients within 1e-8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foretell.batches.batch import make_batch
from foretell.data import EventData, Vocabulary
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.two_sided import embed_rows, event_rows, sight
from foretell.models.task_heads import Classifier, MaskedANHP
from foretell.objective.masked import Corruption, corrupt, masked_terms
from foretell.reference.two_sided import Row, SlowTwoSided, all_others, log_probability
from tests.models.twin import twin_of
from tests.samples import NAMES, PLAIN, random_data, randomise

VALUES, GRADIENTS = 1e-10, 1e-8
LENGTHS = (4, 0, 6, 1)
EDGES = [("a", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "b")]
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "one layer": {"layers": 1},
    "three layers, two heads": {"layers": 3, "heads": 2},
    "bos": {"bos": True},
    "edges": {"edges": EDGES},
    "edges, two heads each, bos": {"edges": EDGES, "heads": 2, "bos": True},
    "layer norm and feed-forward": {"layer_norm": True, "feed_forward": 5, "bos": True},
    "elapsed time, heads that decay": {"elapsed": 2, "head_decay": True, "heads": 2, "head_size": "split"},
    "the same with edges": {"edges": EDGES, "head_decay": True, "heads": 2, "head_size": "split", "bos": True},
    "odd time_dim, each type itself": {"time_dim": 5, "coarse": "none"},
}


@pytest.fixture(params=CASES, ids=str)
def encoder(request: pytest.FixtureRequest) -> ANHP:
    options = {**PLAIN, "dim": 4, "layers": 2, **CASES[request.param]}
    model = randomise(ANHP(Vocabulary(NAMES[:3]), **options, dtype=torch.float64), 1)
    model.time.set_range(0.13, 11.0)
    for scales in (model.elapsed, model.scales):
        scales.set_range(0.21, 5.3)
    model.time_scale = 1.7
    return model


@pytest.fixture(params=[False, True], ids=["", "ties"])
def data(request: pytest.FixtureRequest) -> EventData:
    return random_data(2, LENGTHS, ties=request.param)


def slow(encoder: ANHP, base: Tensor, rows: Sequence[Row], visible: Sequence[Sequence[bool]]) -> SlowTwoSided:
    twin = twin_of(encoder)
    extra = {"embed.mask": base, "question": base}
    object.__setattr__(twin, "arrays", {**twin.arrays, **extra})
    return SlowTwoSided(twin, rows, visible)


def rows_of(data: EventData, index: int, masked: Sequence[bool] | None = None) -> list[Row]:
    sequence = data[index]
    hidden = [False] * len(sequence) if masked is None else masked
    kinds = [
        "embed.mask" if lost else f"embed.{name}" for name, lost in zip(data.names_of(sequence), hidden, strict=True)
    ]
    return [Row(kind, time) for kind, time in zip(kinds, sequence.times.tolist(), strict=True)]


def assert_same(fast: Tensor, slow: Tensor, model: nn.Module) -> None:
    torch.testing.assert_close(fast, slow, rtol=VALUES, atol=VALUES)
    parameters = list(model.parameters())
    of_fast, of_slow = (torch.autograd.grad(value.sum(), parameters, allow_unused=True) for value in (fast, slow))
    for (name, parameter), one, other in zip(model.named_parameters(), of_fast, of_slow, strict=True):
        pair = [torch.zeros_like(parameter) if grad is None else grad for grad in (one, other)]
        torch.testing.assert_close(*pair, rtol=GRADIENTS, atol=GRADIENTS, msg=lambda text, name=name: f"{name}: {text}")


def masked_model(encoder: ANHP) -> MaskedANHP:
    return randomise_head(MaskedANHP(encoder))


def randomise_head(model: Any) -> Any:
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in (model.weight, model.level, model.base):
            parameter.copy_(0.6 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def slow_masked(
    model: MaskedANHP, data: EventData, corruption: Corruption, visible: np.ndarray | None = None
) -> Tensor:
    found = []
    for row in range(len(data)):
        count = len(data[row])
        removed, masked = (part[row, :count].tolist() for part in (corruption.removed, corruption.masked))
        if visible is None:
            seen = all_others(count, removed)
        else:
            seen = [[bool(visible[row, i, j]) and not removed[j] for j in range(count)] for i in range(count)]
        twin = slow(model.encoder, model.base, rows_of(data, row, masked), seen)
        for place in range(count):
            if masked[place]:
                top = twin.embedding(place, model.encoder.layers)
                found.append(log_probability(top, model.weight, model.level, int(data[row].types[place])))
    return torch.stack(found)


def corruption_of(data: EventData, seed: int, mask: float = 0.5, drop: float = 0.25) -> Corruption:
    return corrupt(data.lengths, int(data.lengths.max()), np.random.default_rng(seed), mask=mask, drop=drop)


@pytest.mark.parametrize("seed", [3, 4])
def test_the_masked_objective_and_its_gradients_agree_with_the_twin(encoder: ANHP, data: EventData, seed: int):
    model, corruption = masked_model(encoder), corruption_of(data, seed)
    assert corruption.removed.any() and corruption.masked.any()
    fast = masked_terms(model, make_batch(data, range(len(data))), corruption).log_probability
    assert_same(fast, slow_masked(model, data, corruption), model)


def test_a_visibility_of_the_callers_own_agrees_with_the_twin(encoder: ANHP, data: EventData):
    model, corruption = masked_model(encoder), corruption_of(data, 5)
    visible = np.random.default_rng(6).random((len(data), 6, 6)) < 0.5
    batch = make_batch(data, range(len(data)))
    fast = masked_terms(model, batch, corruption, visible).log_probability
    assert_same(fast, slow_masked(model, data, corruption, visible), model)
    assert not torch.equal(fast, masked_terms(model, batch, corruption).log_probability)


def test_with_the_past_alone_in_sight_embeddings_are_those_of_the_generative_model(encoder: ANHP, data: EventData):
    batch = make_batch(data, range(len(data)))
    ours = embed_rows(encoder, event_rows(encoder, batch, sight(batch, "causal")))
    for layer, (one, other) in enumerate(zip(ours, encoder.embeddings(batch), strict=True)):
        for row, count in enumerate(LENGTHS):
            torch.testing.assert_close(
                one[row, :count], other[row, :count], rtol=VALUES, atol=VALUES, msg=f"layer {layer}"
            )


@pytest.mark.parametrize("history", ["two-sided", "causal"])
@pytest.mark.parametrize("of", ["sequences", "events"])
def test_a_classifier_agrees_with_the_twin(encoder: ANHP, data: EventData, of: Any, history: Any):
    model = randomise_head(Classifier(encoder, ("x", "y"), of=of, history=history))
    fast = model.log_probabilities(make_batch(data, range(len(data))))
    found, expected = [], []
    for row in range(len(data)):
        count = len(data[row])
        seen = [
            [other < place if history == "causal" else other != place for other in range(count)]
            for place in range(count)
        ]
        rows = rows_of(data, row)
        if of == "sequences":
            rows = [*rows, Row("question", data[row].t_end)]
            seen = [*([*line, False] for line in seen), [True] * count + [False]]
        twin = slow(encoder, model.base, rows, seen)
        for place in [count] if of == "sequences" else range(count):
            top = twin.embedding(place, encoder.layers)
            expected += [log_probability(top, model.weight, model.level, label) for label in (0, 1)]
            found.append(fast[row] if of == "sequences" else fast[row, place])
    assert_same(torch.cat(found), torch.stack(expected), model)


def test_a_masked_type_is_nowhere_in_sight(encoder: ANHP):
    """Another true type behind the mask changes nothing that the model says about any event."""
    model, corruption = masked_model(encoder), None
    answers = []
    for kind in (0, 1, 2):
        data = random_data(2, LENGTHS)
        types = [np.array(sequence.types) for sequence in data]
        types[2][3] = kind
        changed = EventData(
            [type(s)(s.times, k, s.t_end, s.id) for s, k in zip(data, types, strict=True)], data.vocabulary
        )
        masked = torch.zeros(4, 6, dtype=torch.bool)
        masked[2, 3] = masked[0, 1] = True
        corruption = Corruption(torch.zeros_like(masked), masked, 2)
        batch = make_batch(changed, range(4))
        answers.append(model.log_probabilities(batch, corruption.removed, corruption.masked))
    assert torch.equal(answers[0], answers[1]) and torch.equal(answers[0], answers[2])


def test_what_was_removed_changes_nothing(encoder: ANHP):
    model = masked_model(encoder)
    masked = torch.zeros(1, 5, dtype=torch.bool)
    masked[0, 0] = True
    removed = torch.zeros_like(masked)
    removed[0, 2] = True
    whole = random_data(9, (5,))
    without = EventData(
        [type(s)(np.delete(s.times, 2), np.delete(s.types, 2), s.t_end, s.id) for s in whole], whole.vocabulary
    )
    one = model.log_probabilities(make_batch(whole, [0]), removed, masked)
    other = model.log_probabilities(make_batch(without, [0]), torch.zeros(1, 4, dtype=torch.bool), masked[:, :4])
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_padding_changes_nothing(encoder: ANHP, data: EventData):
    model = masked_model(encoder)
    corruption = corruption_of(data, 3)
    narrow, wide = make_batch(data, range(4)), make_batch(data, range(4), width=9)
    padded = [torch.nn.functional.pad(part, (0, 3)) for part in (corruption.removed, corruption.masked)]
    one = model.log_probabilities(narrow, corruption.removed, corruption.masked)
    torch.testing.assert_close(one, model.log_probabilities(wide, *padded), rtol=1e-12, atol=1e-12)


def test_a_visibility_of_another_shape_or_type_is_refused(encoder: ANHP):
    data = random_data(2, LENGTHS)
    batch, corruption = make_batch(data, range(4)), corruption_of(data, 3)
    for wrong in (np.ones((4, 6), dtype=bool), np.ones((4, 6, 6)), np.ones((4, 5, 5), dtype=bool)):
        with pytest.raises(ForetellError, match=r"visible: found .* expected bool \[sequences, events, events\]"):
            masked_terms(masked_model(encoder), batch, corruption, wrong)


def test_shares_of_masked_and_removed_events_are_those_asked_for():
    lengths = np.full(200, 100)
    found = corrupt(lengths, 100, np.random.default_rng(0), mask=0.3, drop=0.2)
    assert not (found.removed & found.masked).any()
    assert float(found.removed.double().mean()) == pytest.approx(0.2, abs=0.015)  # 5 standard errors
    assert float(found.masked.double().mean()) == pytest.approx(0.24, abs=0.016)
    assert found.count == int(found.masked.sum())


def test_how_wide_a_batch_is_padded_does_not_change_what_is_masked():
    lengths = np.array([3, 0, 5])
    narrow, wide = (corrupt(lengths, width, np.random.default_rng(1), mask=0.5, drop=0.3) for width in (5, 16))
    assert torch.equal(narrow.masked, wide.masked[:, :5]) and torch.equal(narrow.removed, wide.removed[:, :5])
    assert not wide.masked[:, 5:].any() and not wide.removed[:, 5:].any()


def test_at_least_one_event_is_masked_where_there_are_any():
    for seed in range(20):
        found = corrupt(np.array([0, 2]), 2, np.random.default_rng(seed), mask=0.01, drop=0.9)
        assert found.count >= 1 and not found.masked[0].any()
    assert corrupt(np.array([0]), 0, np.random.default_rng(0), mask=0.5, drop=0.0).count == 0
