"""A model that starts from another: what is taken, what starts fresh, and what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.attention.anhp import ANHP
from foretell.models.classical.hawkes import Hawkes
from foretell.models.last_event.thp import THP
from foretell.models.recurrent.nhp import NHP
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT
from foretell.models.start_from import start_from, take_encoder
from foretell.models.task_heads import Classifier, MaskedANHP
from tests.samples import NAMES, random_data, randomise

DATA = random_data(0, (5, 7, 3))


def anhp(seed: int = 1, **options: object) -> ANHP:
    made = {"dim": 4, "layers": 2, **options}
    return ANHP.preset("plain", DATA.vocabulary, **made, seed=seed, dtype=torch.float64)  # pyright: ignore[reportArgumentType]


def learned(**options: object) -> ANHP:
    model = randomise(anhp(5, **options), 6)
    model.time.set_range(0.2, 33.0)
    model.time_scale, model.fitted = 2.5, True
    return model


def test_from_a_model_of_the_same_kind_everything_is_taken_with_its_units():
    source = learned()
    model, taken = start_from(anhp(dropout=0.3), source, DATA, "run")
    assert taken.fresh == () and "fine" in taken.taken
    assert isinstance(model, ANHP) and model.dropout == 0.3  # what shapes no tensor is the new run's choice
    model.dropout = 0.0
    asked = [1.0, 4.5]
    np.testing.assert_array_equal(model.intensity(DATA[0], asked), source.intensity(DATA[0], asked))


@pytest.mark.parametrize(
    "make", [MaskedANHP, lambda encoder: Classifier(encoder, ("x", "y"))], ids=["masked", "classifier"]
)
def test_from_a_headed_encoder_the_encoder_is_taken(make):
    source = make(learned(bos=True))
    model, taken = start_from(anhp(bos=True), source, DATA, "run")
    assert taken.taken == ("fine", "bos_base", "attention")
    assert taken.fresh == ("coarse_base", "w", "w_constant", "log_tau")
    assert isinstance(model, ANHP)
    encoder = source.encoder
    assert torch.equal(model.fine, encoder.fine) and torch.equal(model.layer_list()[1].Q, encoder.layer_list()[1].Q)
    assert (model.time.m, model.time.M) == (0.2, 33.0) and model.fitted
    np.testing.assert_allclose(model.embed(DATA[0]), encoder.embed(DATA[0]), rtol=1e-12)


def test_intensities_of_a_model_with_a_taken_encoder_look_for_the_vectors_that_were_taken():
    """Echo: an event raises its own type from the start, and so it does for vectors that came from elsewhere."""
    source = MaskedANHP(learned())
    model = anhp(echo=8.0)
    take_encoder(model, source, DATA, "run", seed=3)
    noise = model.w - model.fine * (8.0 / model.dim)
    assert float(noise.detach().abs().max()) < 0.5 < float(model.w.detach().abs().max())


def test_with_its_head_a_pretrained_run_tells_types_as_it_did_and_how_often_as_the_data_do():
    source = MaskedANHP(learned(), seed=4)
    model, taken = start_from(anhp(), source, DATA, "run", head=True)
    assert taken.fresh == ("w_constant", "log_tau") and isinstance(model, ANHP)
    assert torch.equal(model.w, source.weight) and torch.equal(model.coarse_base[0], source.base)
    silent = EventSequence(np.zeros(0), np.zeros(0, dtype=np.int32), 5.0)
    rates = (DATA.type_counts() + 0.5) / sum(one.t_end for one in DATA)
    np.testing.assert_allclose(model.intensity(silent, [1.0])[0], rates, rtol=1e-6)
    for wrong, message in ((anhp(coarse="none"), "expected one coarse type"), (anhp(), "expected a run of masked")):
        with pytest.raises(ForetellError, match=message):
            start_from(wrong, source if wrong.options.coarse else learned(), DATA, "run", head=True)


def test_from_a_model_with_other_coarse_types_the_encoder_is_taken():
    model, taken = start_from(anhp(coarse="none"), learned(), DATA, "run")
    assert taken.taken == ("fine", "attention") and isinstance(model, ANHP)
    assert torch.equal(model.fine, learned().fine)
    silent = EventSequence(np.zeros(0), np.zeros(0, dtype=np.int32), 5.0)
    rates = (DATA.type_counts() + 0.5) / sum(one.t_end for one in DATA)
    np.testing.assert_allclose(model.intensity(silent, [1.0])[0], rates, rtol=1e-6)


def test_another_recurrent_model_of_the_same_kind_is_taken_whole():
    source = randomise(NHP(DATA.vocabulary, dim=3), 4)
    model, taken = start_from(NHP(DATA.vocabulary, dim=3, seed=9), source, DATA, "run")
    assert taken.fresh == () and isinstance(model, NHP)
    np.testing.assert_array_equal(model.intensity(DATA[0], [2.0]), source.intensity(DATA[0], [2.0]))


def test_what_a_thp_has_learned_about_elapsed_times_is_no_choice_of_the_new_run():
    source = THP(DATA.vocabulary, dim=4, layers=1)
    source.prepare(DATA)
    assert source.elapsed_scale > 1.0
    model, taken = start_from(THP(DATA.vocabulary, dim=4, layers=1, seed=9), source, DATA, "run")
    assert taken.fresh == () and isinstance(model, THP)
    np.testing.assert_array_equal(model.intensity(DATA[0], [2.0]), source.intensity(DATA[0], [2.0]))


@pytest.mark.parametrize("kind", [NDTT, ANDTT])
def test_names_that_a_model_of_rules_met_in_training_are_taken_with_it(kind: type[NDTT] | type[ANDTT]):
    program = Program.from_text(":- event(go). :- embed(go, 2).\ngo(a). go(b).\ngo(X) <- go(X) :: habit(X).\n", dim=2)
    data = EventData([EventSequence(np.array([0.5, 1.0]), np.array([0, 1]), 2.0)], Vocabulary(("go(a)", "go(b)")))
    source = kind(program, data.vocabulary, dim=2)
    source.prepare(data)
    fresh = kind(program, data.vocabulary, dim=2, seed=9)
    assert source.spec()["names"] != fresh.spec()["names"]
    model, taken = start_from(fresh, randomise(source, 3), data, "run")
    assert taken.fresh == ()
    np.testing.assert_array_equal(model.intensity(data[0], [1.5]), source.intensity(data[0], [1.5]))


def test_what_does_not_fit_is_said_all_at_once():
    with pytest.raises(ForetellError) as caught:
        start_from(anhp(dim=8, heads=2), MaskedANHP(learned()), DATA, "run")
    lines = str(caught.value).splitlines()
    assert any("model.dim = 4 there and 8 here" in line for line in lines)
    assert any("model.heads = 1 there and 2 here" in line for line in lines)
    with pytest.raises(ForetellError, match="has an encoder of A-NHP, and the model is NHP; choose `model=anhp`"):
        start_from(NHP(DATA.vocabulary), MaskedANHP(learned()), DATA, "run")
    with pytest.raises(ForetellError, match="fitted directly"):
        start_from(Hawkes(DATA.vocabulary), learned(), DATA, "run")
    with pytest.raises(ForetellError, match="no encoder of A-NHP"):
        take_encoder(anhp(), NHP(DATA.vocabulary), DATA, "run")


def test_other_event_types_are_refused_and_named():
    other = ANHP.preset("plain", Vocabulary(("a", "b", "x")), dim=4, layers=2)
    with pytest.raises(ForetellError, match=r"only there: x \(1\); only in the data: c \(1\)"):
        start_from(anhp(), other, DATA, "run")
    turned = ANHP.preset("plain", Vocabulary(NAMES[2::-1]), dim=4, layers=2)
    with pytest.raises(ForetellError, match="the same types, in another order"):
        start_from(anhp(), turned, DATA, "run")
