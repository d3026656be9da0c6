"""Who sees what: coarse types and edges, the mistakes in them, and what a selective model is blind to."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foretell.batches.batch import Queries, make_batch
from foretell.data import Vocabulary
from foretell.errors import ForetellError
from foretell.models.attention.anhp import ANHP
from foretell.models.attention.structure import make_structure, parse_edge
from tests.samples import event_data, randomise

ABC = Vocabulary(("a", "b", "c"))
TERMS = Vocabulary(("join(eve,sales)", "leave(eve,sales)"))


def structure(vocabulary: Vocabulary = ABC, **options: Any):
    return make_structure(vocabulary, **{"heads": 1, "coarse": None, "edges": None, **options})


def test_without_edges_there_is_one_coarse_type_for_all():
    (group,) = structure().groups
    assert group.members == (0, 1, 2) and group.base is None


def test_with_edges_each_type_embeds_itself():
    groups = structure(edges=[("a", "b")]).groups
    assert [group.base for group in groups] == [0, 1, 2]


def test_heads_are_numbered_and_those_of_edges_named_after_them():
    assert [head.name for head in structure(heads=2).heads] == ["head1", "head2"]
    assert [head.name for head in structure(edges=[("a", "b"), ("c", "c")]).heads] == ["a<-b", "c<-c"]
    assert [head.name for head in structure(heads=2, edges=[("a", "b")]).heads] == ["a<-b#1", "a<-b#2"]


def test_a_coarse_type_has_edges_of_its_own():
    groups = {"a": "x", "b": "x", "c": "y"}
    names = [head.name for head in structure(coarse=groups, edges=[("a", "c"), ("b", "c")]).heads]
    assert names == ["a<-c", "b<-c", "x<-c"]


def test_all_heads_of_a_structure_have_different_names():
    groups = {"a": "x", "b": "x", "c": "y"}
    edges = [(e, f) for e in "abc" for f in "abc"]
    names = [head.name for head in structure(heads=2, coarse=groups, edges=edges).heads]
    assert len(set(names)) == len(names) == 2 * (9 + 6)


def test_names_may_be_spelled_with_spaces():
    groups = {"join(eve, sales)": "x", "leave( eve,sales )": "y"}
    found = structure(TERMS, coarse=groups, edges=[("join(eve, sales)", "leave(eve,sales)")])
    assert [group.members for group in found.groups] == [(0,), (1,)]
    assert found.heads[0].name == "join(eve,sales)<-leave(eve,sales)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 0}, r"heads = 0: expected 1 or more"),
        ({"coarse": "some"}, r"coarse = 'some': expected \"one\", \"none\""),
        ({"coarse": {"a": "x", "b": "x"}}, r"type `c` has no coarse type"),
        ({"coarse": {"a": "x", "b": "x", "c": "x", "d": "x"}}, r"`d` is not an event type"),
        ({"edges": [("a", "d")]}, r"edges: `d` is not an event type"),
        ({"edges": [("d", "a"), ("e", "a")]}, r"`d` is not an event type.*\n.*`e` is not an event type"),
        ({"edges": [("a", "b"), ("c", "a"), ("a", "b")]}, r"given twice: a <- b"),
        ({"coarse": {"a": "a", "b": "x", "c": "x"}, "edges": [("a", "b")]}, r"`a` has the name of an event type"),
        ({"coarse": "one", "edges": [("a", "b")]}, r"members `a` and `b` see different histories .*differ in: b"),
    ],
)
def test_a_mistake_is_named(options: dict[str, Any], message: str):
    with pytest.raises(ForetellError, match=message):
        structure(**options)


def test_an_edge_given_twice_in_two_spellings_is_given_twice():
    edges = [("join(eve,sales)", "leave(eve,sales)"), ("join(eve, sales)", "leave(eve, sales)")]
    with pytest.raises(ForetellError, match="given twice"):
        structure(TERMS, edges=edges)


def test_a_coarse_type_whose_members_see_different_histories_is_an_error_that_names_them():
    groups = {"a": "x", "b": "y", "c": "y"}
    edges = [("b", "a"), ("b", "b"), ("c", "b")]
    message = r"coarse type `y`: its members `b` and `c` see different histories \(they differ in: a\)"
    with pytest.raises(ForetellError, match=message):
        ANHP(ABC, coarse=groups, edges=edges)
    ANHP(ABC, coarse=groups, edges=[*edges, ("c", "a")])


def test_an_event_type_called_bos_cannot_be_told_from_the_bos_option():
    vocabulary = Vocabulary(("a", "bos"))
    ANHP(vocabulary)
    with pytest.raises(ForetellError, match="bos"):
        ANHP(vocabulary, bos=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 0}, "dim = 0"),
        ({"layers": 0}, "layers = 0"),
        ({"time_dim": -1}, "time_dim = -1"),
        ({"elapsed": -1}, "elapsed = -1"),
        ({"dim": 8, "heads": 3}, "heads = 3: dim = 8 cannot be split"),
        ({"intensity_scales": 3, "edges": ("a <- b",)}, "intensity_scales = 3: with edges"),
        ({"feed_forward": -1}, "feed_forward = -1"),
        ({"dropout": 1.0}, "dropout = 1.0"),
        ({"dim": -1, "dropout": -0.1}, r"dim = -1.*\n.*dropout = -0.1"),
    ],
)
def test_impossible_sizes_are_refused_all_at_once(options: dict[str, Any], message: str):
    with pytest.raises(ForetellError, match=message):
        ANHP(ABC, **options)


def test_edges_are_read_from_text():
    assert parse_edge("join(eve,sales) <- leave(eve,sales)") == ("join(eve,sales)", "leave(eve,sales)")
    assert parse_edge("a<-b") == ("a", "b")


@pytest.mark.parametrize("text", ["a b", "a <-", "<- b", "", "a -> b"])
def test_text_that_is_no_edge_is_refused(text: str):
    with pytest.raises(ForetellError, match="expected `e <- f`"):
        parse_edge(text)


def intensities(model: ANHP, types: list[int], times: list[float] | None = None) -> torch.Tensor:
    times = [1.0, 2.5, 3.0, 4.0] if times is None else times
    batch = make_batch(event_data([(times, types)]), [0])
    asked = torch.tensor([[3.5, 6.0, 8.0]], dtype=torch.float64)
    return model.intensities(model.state(model.encode(batch), Queries.at_times(batch, asked)))[0]


def selective(edges: list[tuple[str, str]], **options: Any) -> ANHP:
    return randomise(ANHP(ABC, dim=4, layers=3, edges=edges, dtype=torch.float64, **options), seed=61)


def test_a_type_ignores_events_that_it_has_no_edge_to():
    """Frank (b) cannot see what Eve writes to Adam (a); Eve sees both."""
    model = selective([("b", "b"), ("a", "a"), ("a", "b"), ("c", "c")])
    with_a, without_a = intensities(model, [1, 0, 1, 0]), intensities(model, [1, 1], [1.0, 3.0])
    torch.testing.assert_close(with_a[:, 1:], without_a[:, 1:], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(with_a[:, 0], without_a[:, 0], rtol=1e-6)


def test_influence_passes_along_a_chain_of_edges():
    """c <- b and b <- a: c is moved by an a that a b saw, and by no other."""
    model = selective([("c", "b"), ("b", "a")])
    seen = intensities(model, [0, 1], [1.0, 2.0])
    moved = intensities(model, [0, 1], [1.5, 2.0])
    too_late = intensities(model, [1, 0], [2.0, 2.5])
    alone = intensities(model, [1], [2.0])
    assert not torch.allclose(seen[:, 2], moved[:, 2], rtol=1e-6)
    torch.testing.assert_close(too_late[:, 2], alone[:, 2], rtol=1e-12, atol=1e-12)


def test_a_type_without_edges_has_a_constant_intensity():
    model = selective([("a", "b")])
    found = intensities(model, [0, 1, 2, 0])
    torch.testing.assert_close(found[:, 2], found[:1, 2].expand(3), rtol=1e-12, atol=1e-12)


def test_bos_is_seen_through_every_edge():
    model = selective([("a", "b")], bos=True)
    assert bool(intensities(model, [], [])[:, 0].diff().abs().min() > 1e-6)
    found = intensities(model, [], [])[:, 2]
    torch.testing.assert_close(found, found[:1].expand(3), rtol=1e-12, atol=1e-12)


def test_members_of_a_coarse_type_keep_intensities_of_their_own():
    model = randomise(ANHP(ABC, dim=4, coarse={"a": "x", "b": "x", "c": "x"}, dtype=torch.float64), seed=62)
    found = intensities(model, [0, 1, 2, 0])
    assert not torch.allclose(found[:, 0], found[:, 1], rtol=1e-3)
