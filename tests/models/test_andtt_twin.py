"""The fast A-NDTT against its slow twin, on random programs and on small ones that each show one thing: values and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from foretell.data import EventData, EventSequence
from foretell.errors import ForetellError
from foretell.lang.program import Program
from foretell.models.andtt import ANDTT
from foretell.models.base import Queries
from foretell.models.batch import Batch, make_batch
from foretell.models.build import load_model, save_model
from foretell.objective.integral import Points, quadrature, stratified, uniform
from foretell.objective.loglik import log_likelihood, training_loss
from foretell.reference import andtt as twin
from foretell.reference.andtt import Settings, wanted
from tests.ground.timelines import event_data
from tests.plan.rich_programs import RichCase, rich_case
from tests.samples import randomise

VALUES, GRADIENTS = 1e-9, 1e-7
QUICK, ALL, BLOCK = 60, 500, 10


def attached_arrays(model: ANDTT) -> dict[str, Tensor]:
    """What `named_arrays` gives, but still attached to the model's parameters, so that gradients reach them."""
    found = model.network.named_arrays()
    for number, name in enumerate(model.functors):
        found[f"intensity.{name}.w"] = model.w[number] / model.time_scale
        found[f"intensity.{name}.tau"] = model.log_tau[number].exp() / model.time_scale
    return found


def settings_of(model: ANDTT) -> Settings:
    sizes = model.dim, model.layers, model.time_dim
    return Settings(*sizes, model.time.m, model.time.M, model.layer_norm, model.feed_forward)


def assert_close(fast: Tensor, slow: Tensor, what: object) -> None:
    torch.testing.assert_close(fast, slow, rtol=VALUES, atol=VALUES, msg=lambda text: f"{what}: {text}")


def assert_same_gradients(fast: Tensor, slow: Tensor, model: ANDTT, what: object) -> None:
    parameters = list(model.parameters())
    found = [torch.autograd.grad(value, parameters, allow_unused=True) for value in (fast, slow)]
    for (name, parameter), one, two in zip(model.named_parameters(), *found, strict=True):
        one, two = (torch.zeros_like(parameter) if grad is None else grad for grad in (one, two))
        torch.testing.assert_close(
            one, two, rtol=GRADIENTS, atol=GRADIENTS, msg=lambda text, name=name: f"{what}: {name}: {text}"
        )


def slow_loss(model: ANDTT, data: EventData, batch: Batch, points: Points) -> Tensor:
    """Minus the twin's log-likelihood of all sequences of the batch, which holds `data` in its order."""
    parameters, settings = attached_arrays(model), settings_of(model)
    gap = points.gap.expand_as(points.weights)
    total = torch.zeros((), dtype=torch.float64)
    for row, sequence in enumerate(data):
        of_gaps: list[list[tuple[float, float]]] = [[] for _ in range(len(sequence) + 1)]
        for time, weight, place in zip(
            points.queries.times[row].tolist(), points.weights[row].tolist(), gap[row].tolist(), strict=True
        ):
            if place <= len(sequence) and weight:
                of_gaps[place].append((time, weight))
        total = total - twin.log_likelihood(
            model.program,
            settings,
            parameters,
            list(data.names_of(sequence)),
            sequence.times.tolist(),
            sequence.t_end,
            of_gaps,
        )
    return total


def slow_intensities(model: ANDTT, data: EventData, row: int, time: float) -> dict[str, Tensor]:
    sequence = data[row]
    found = twin.intensities(
        model.program,
        settings_of(model),
        attached_arrays(model),
        list(data.names_of(sequence)),
        sequence.times.tolist(),
        time,
    )
    return {f"{fact[0]}({','.join(fact[1:])})" if fact[1:] else fact[0]: value for fact, value in found.items()}


def asked_times(data: EventData, seed: int) -> Tensor:
    """In no order, a time asked twice, the first event's own time, which does not see it, and some beyond the end."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for sequence in data:
        free = 1.3 * sequence.t_end * torch.rand(4, generator=generator, dtype=torch.float64)
        own = sequence.times[: len(sequence) // 2 + 1][-1:].tolist() or [0.0]
        rows.append(
            torch.cat([free, free[1:2], torch.tensor(own, dtype=torch.float64)])[torch.randperm(6, generator=generator)]
        )
    return torch.stack(rows)


def check_intensities(model: ANDTT, data: EventData, seed: int) -> None:
    """Of every event at every time: from a batch, and of each sequence alone."""
    batch, times = make_batch(data, range(len(data))), asked_times(data, seed)
    state = model.state(model.encode(batch), Queries.at_times(batch, times))
    intensities, total = model.intensities(state), model.total(state)
    weight = torch.linspace(0.5, 2.0, model.types, dtype=torch.float64)
    fast_sum, slow_sum = (torch.zeros((), dtype=torch.float64) for _ in range(2))
    for row in range(len(data)):
        alone = model.intensity(data[row], times[row].numpy())
        for column, time in enumerate(times[row].tolist()):
            slow = slow_intensities(model, data, row, time)
            nothing = torch.zeros((), dtype=torch.float64)
            expected = torch.stack([slow.get(name, nothing) for name in model.vocabulary.names] or [nothing])[
                : model.types
            ]
            assert_close(intensities[row, column], expected, (seed, row, time))
            assert_close(torch.from_numpy(alone[column]), expected.detach(), (seed, row, time))
            assert_close(total[row, column], sum(slow.values(), start=nothing), (seed, row, time))
            fast_sum = fast_sum + intensities[row, column] @ weight + total[row, column]
            slow_sum = slow_sum + expected @ weight + sum(slow.values(), start=nothing)
    if slow_sum.requires_grad:
        assert_same_gradients(fast_sum, slow_sum, model, seed)


def check_loss(model: ANDTT, data: EventData, seed: int, width: int | None = None) -> None:
    batch = make_batch(data, range(len(data)), width=width, unscored=model.unscored)
    points = stratified(batch, 2, torch.Generator().manual_seed(seed))
    fast = training_loss(model, batch, points).objective
    slow = slow_loss(model, data, batch, points)
    assert_close(fast, slow, seed)
    if slow.requires_grad:
        assert_same_gradients(fast, slow, model, seed)


def agrees(case: RichCase, seed: int) -> bool:
    """False where the twin refuses the program, because some embedding needs itself; the model only minds if it is asked for."""
    model, data = case.model(seed), case.data
    try:
        slow_intensities(model, data, 0, case.sequences[0][2] + 1.0)
    except ForetellError as error:
        assert "needs itself" in str(error), seed
        return False
    shapes = {name: tuple(array.shape) for name, array in model.named_arrays().items()}
    assert wanted(case.program, case.settings, case.sequences[0][0]).items() <= shapes.items(), seed
    check_intensities(model, data, seed)
    check_loss(model, data, seed, width=len(data[0]) + seed % 3)
    return True


def all_agree(seeds: Sequence[int]) -> None:
    compared = sum(agrees(rich_case(seed), seed) for seed in seeds)
    assert compared >= len(seeds) // 2  # the others have proofs that need themselves


@pytest.mark.parametrize("block", range(QUICK // BLOCK))
def test_intensities_loss_and_gradients_of_random_programs_are_those_of_the_twin(block: int):
    all_agree(range(block * BLOCK, (block + 1) * BLOCK))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(QUICK // BLOCK, ALL // BLOCK))
def test_intensities_loss_and_gradients_of_all_random_programs_are_those_of_the_twin(block: int):
    all_agree(range(block * BLOCK, (block + 1) * BLOCK))


def test_rich_programs_use_all_that_matters_to_a_network():
    cases = [rich_case(seed) for seed in range(QUICK)]
    for feature in (":- key(", ", 0).", ":: s(a)", ":: w", " : b(a)", " : b(X)"):
        assert sum(feature in case.text for case in cases) > 5, feature
    assert sum(len(set(times)) < len(times) for case in cases for _, times, _ in case.sequences) > 30
    assert sum(any(name.startswith("x") for name in case.sequences[0][0]) for case in cases) > 30
    assert any(case.time_scale == 1.0 for case in cases) and any(case.time_scale != 1.0 for case in cases)


# --- small programs, each for one thing --------------------------------------------------------------------------------


def small(text: str, *sequences: list[str], **options: Any) -> tuple[ANDTT, EventData]:
    """A model with random parameters, and sequences whose events are not quite a unit apart."""
    rough = event_data(*sequences)
    rows = [EventSequence(one.times * 0.7, one.types, 0.7 * len(one) + 0.4, one.id) for one in rough]
    data = EventData(rows, rough.vocabulary, "window", "small")
    model = ANDTT(
        Program.from_text(text, dim=2), data.vocabulary, **{"dim": 2, "layers": 2, "dtype": torch.float64, **options}
    )
    model.ground(data)
    randomise(model, 8)
    with torch.no_grad():
        for name, stack in model.network.stacks.items():
            if name.endswith("_beta"):
                stack.abs_().add_(0.05)
    model.time.set_range(0.4, 5.0)
    model.time_scale = 0.8
    return model, data


SMALL = {
    "rules that share a matrix cut it up in different ways": (
        ":- event(g). :- event(h). :- embed(p, 1). :- embed(q, 2).\np(a). p(b). q.\nq <- g.\ng :- p(a), q :: w.\nh :- q, p(X) :: w.\n",
        ["g", "h", "g", "h"],
    ),
    "an exponent's name on `<-` makes no heads": (
        ":- event(g). :- exogenous(e, 1).\ng.\ng : b(X) <- e(X,Y) :: w(Y).\n!g <- e(c,a).\n",
        ["e(a,a)", "e(b,a)", "e(a,b)", "g", "e(c,a)", "e(a,a)", "e(b,a)"],
    ),
    "names that differ in a constant are different matrices": (
        ":- event(g). :- embed(p, 3).\np(a). p(b).\ng :- p(a) :: w(a).\ng :- p(b) :: w(b).\ng <- g, p(X) :: v(1).\ng <- g, p(a) :: v(2).\n",
        ["g", "g"],
    ),
    "a fact and a rule without embedded conditions share a vector": (
        ":- event(g). :- embed(p, 0). :- embed(h, 2).\np(a). p(b).\nh :: w.\nh :- p(a) :: w.\nh :- p(X) :: u(X).\nh :: u(b).\ng :- h.\n",
        ["g"],
    ),
    "an exogenous event whose dimension no fact has": (
        ":- event(g). :- exogenous(e, 5).\ng.\ng <- e.\n",
        ["e", "g", "e"],
    ),
    "an exogenous event that is a fact at times": (
        ":- event(g, 3). :- exogenous(e, 5). :- exogenous(x, 1).\ng.\ne <- x.\n!e <- g.\ng <- e.\n",
        ["e", "x", "e", "g", "e", "x", "x", "e"],
    ),
    "one event removes and adds": (
        ":- event(g). :- event(on).\non.\ng <- on.\n!g <- on, g.\ng <- bos.\n",
        ["g", "on", "on", "g", "on"],
    ),
    "one name for two rules that add different facts": (
        ":- event(g). :- event(h).\ng. h.\ng <- g :: w. h <- g :: w. g <- h :: w.\n",
        ["g", "h", "g"],
    ),
    "an event that happens in two ways at once": (
        ":- event(g). :- embed(p, 1).\np(a). p(b).\ng :- p(X).\ng <- g, p(X).\n",
        ["g", "g"],
    ),
    "negation turns proofs on and off": (
        ":- event(g). :- exogenous(e). :- embed(on, 1).\nq.\non <- e. !on <- g.\ng :- q, not on.\ng :- q.\n",
        ["e", "g", "e", "e", "g"],
    ),
    "nothing has an embedding": (
        ":- embed(_, 0). :- event(g). :- event(h).\ng. h :- g. on <- g. h <- h, on.\n",
        ["g", "h", "g"],
    ),
    "a fact that is written twice": (":- event(g).\ng. g. g :: w.\n", ["g"]),
}


@pytest.mark.parametrize("what", SMALL)
def test_small_programs_agree_with_the_twin(what: str):
    text, *sequences = SMALL[what]
    model, data = small(text, *sequences, [], sequences[0][:1])
    check_intensities(model, data, 1)
    check_loss(model, data, 2)


@pytest.mark.parametrize("what", SMALL)
def test_every_name_stands_for_one_parameter(what: str):
    model, _ = small(SMALL[what][0], *SMALL[what][1:])
    names = [
        name for family in model.book.families.values() for name in family.names if family.stem in ("own", "deduce")
    ]
    assert len(names) == len(set(names))
    numbers = sum(array.numel() for array in model.named_arrays().values())
    assert numbers == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("rule", ["uniform", "quadrature"])
def test_every_integral_agrees_with_the_twin(rule: str):
    model, data = small(SMALL["one event removes and adds"][0], ["g", "on", "on"], ["on"], [])
    batch = make_batch(data, range(3), width=5)
    drawn = uniform(batch, torch.tensor([4, 2, 3]), torch.Generator().manual_seed(5))
    points = drawn if rule == "uniform" else quadrature(batch, 3)
    fast, slow = training_loss(model, batch, points).objective, slow_loss(model, data, batch, points)
    assert_close(fast, slow, rule)
    assert_same_gradients(fast, slow, model, rule)


@pytest.mark.parametrize("seed", range(12))
def test_a_batch_in_which_sequences_repeat_is_each_of_them_alone(seed: int):
    model, data = (case := rich_case(seed)).model(), case.data
    order = [2, 0, 1, 0]
    try:
        batch = make_batch(data, order, width=len(data[0]) + 4)
        together = log_likelihood(model, batch, quadrature(batch, 2)).log_likelihood()
    except ForetellError as error:
        assert "needs itself" in str(error)
        return
    for row, index in enumerate(order):
        one = make_batch(data, [index])
        alone = log_likelihood(model, one, quadrature(one, 2)).log_likelihood()
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-12, atol=1e-12)


# --- cycles ------------------------------------------------------------------------------------------------------------

ROUND = """
:- event(e).
:- exogenous(link).
edge(a,b).
edge(X,Y) <- link(X,Y).
near(X,Y) :- edge(X,Y).
near(X,Y) :- edge(X,Z), near(Z,Y).
e :- near(X,Y).
"""


def refusals(text: str, events: list[str]) -> tuple[str, str]:
    model, data = small(text, events)
    asked = 0.7 * len(events) + 0.3
    with pytest.raises(ForetellError) as fast:
        model.intensity(data[0], [asked])
    with pytest.raises(ForetellError) as slow:
        slow_intensities(model, data, 0, asked)
    return str(fast.value), str(slow.value)


def test_an_embedding_that_needs_itself_is_refused_in_the_words_of_the_twin():
    fast, slow = refusals(ROUND, ["e", "link(b,b)", "e"])
    assert fast == slow
    assert fast.startswith("<program>:7:1: the embedding of `near(b,b)` needs itself after event 2 (`link(b,b)`): ")
    assert "near(b,b) is deduced from near(b,b) (rule4, <program>:7:1)" in fast


def test_a_longer_cycle_is_told_fact_by_fact():
    fast, _ = refusals(ROUND, ["link(b,c)", "link(c,a)"])
    first, *steps, hint = fast.splitlines()
    assert "needs itself after event 2 (`link(c,a)`)" in first
    assert len(steps) == 3 and all("(rule4, <program>:7:1)" in step for step in steps)
    for one, two in zip(steps, [*steps[1:], steps[0]], strict=True):
        assert one.split(" is deduced from ")[1].split(" (")[0] == two.strip().split(" is ")[0]
    assert ":- embed(near, 0)." in hint


def test_proofs_that_never_change_are_refused_before_the_first_event():
    fast, slow = refusals(":- event(e).\nq(a). p(X) :- q(X), r(X).\nr(X) :- p(X). p(X) :- q(X).\ne :- r(X).\n", [])
    assert "needs itself before the first event" in fast and "needs itself before the first event" in slow
    assert {line.split(" (")[0] for line in fast.splitlines()[1:3]} == {
        "  p(a) is deduced from r(a)",
        "  r(a) is deduced from p(a)",
    }


def test_a_cycle_that_nothing_asks_about_is_no_error():
    model, data = small(ROUND.replace("e :- near(X,Y).", "e."), ["link(b,a)", "e"])
    assert model.intensity(data[0], [2.0]).shape == (1, 2)


def test_a_cycle_through_facts_without_embeddings_is_no_error():
    model, data = small(f":- embed(near, 0).\n{ROUND}", ["link(b,a)", "e", "link(a,a)"])
    check_intensities(model, data, 1)
    check_loss(model, data, 2)


# --- in and out --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(0, 30, 3))
def test_named_arrays_written_back_change_nothing(seed: int):
    model = rich_case(seed).model()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    arrays = {name: array.clone() for name, array in model.named_arrays().items()}
    attached = attached_arrays(model)
    assert arrays.keys() == attached.keys()
    assert all(torch.equal(array, attached[name]) for name, array in arrays.items())
    model.load_named_arrays(arrays)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name], rtol=1e-14, atol=1e-14)


def test_an_exponent_below_one_is_refused_and_nothing_is_changed():
    model, _ = small(SMALL["an event that happens in two ways at once"][0], ["g"])
    arrays = {name: array.clone() for name, array in model.named_arrays().items()}
    wrong = {name: array + 1.0 for name, array in arrays.items()} | {"deduce.rule3.beta": torch.tensor(0.5)}
    with pytest.raises(ForetellError, match=r"deduce\.rule3\.beta: found 0\.5, expected a pool exponent of 1 or more"):
        model.load_named_arrays(wrong)
    assert all(torch.equal(array, arrays[name]) for name, array in model.named_arrays().items())


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_a_saved_model_answers_the_same(seed: int, tmp_path: Path):
    model, data = (case := rich_case(seed)).model(), case.data
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert isinstance(again, ANDTT)
    assert {name: tuple(one.shape) for name, one in again.named_arrays().items()} == {
        name: tuple(one.shape) for name, one in model.named_arrays().items()
    }
    batch = make_batch(data, range(len(data)))
    try:
        expected = log_likelihood(model, batch, quadrature(batch, 2)).log_likelihood()
    except ForetellError:
        return
    assert torch.equal(log_likelihood(again, batch, quadrature(batch, 2)).log_likelihood(), expected)


def test_a_saved_model_keeps_the_rows_of_its_tables(tmp_path: Path):
    (tmp_path / "t.csv").write_text("who,where\na,New York\nb,c\n", encoding="utf-8")
    program = Program.from_text(
        ':- event(p). :- table(p, "t.csv").\n:- embed(q, 1).\nq(X) <- p(X,_) :: w(X).\np(X,c) <- p(X,c), q(X).\n',
        folder=tmp_path,
        dim=2,
    )
    rough = event_data(["p(b,c)", "p(a,'New York')", "p(b,c)"])
    model = ANDTT(program, rough.vocabulary, dim=2, layers=1, dtype=torch.float64)
    model.ground(rough)
    randomise(model, 3)
    assert "deduce.p(a,'New York').W" in model.named_arrays()
    check_loss(model, rough, 1)
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    batch = make_batch(rough, [0])
    values = [log_likelihood(one, batch, quadrature(batch, 2)).log_likelihood() for one in (model, again)]
    assert torch.equal(*values)


def test_it_does_not_matter_when_a_name_is_met():
    text = ":- event(g). :- exogenous(e).\ng.\ng <- e(X) :: w(X).\n"
    data = event_data(["e(a)", "g", "e(b)"], ["e(c)", "g"])
    first, second = (
        ANDTT(Program.from_text(text, dim=2), data.vocabulary, dim=2, seed=5, dtype=torch.float64) for _ in range(2)
    )
    for index in (1, 0):
        first.intensity(data[index], [5.0])
    second.ground(data)
    one, two = first.named_arrays(), second.named_arrays()
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
