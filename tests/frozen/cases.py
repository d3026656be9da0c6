"""What is frozen: for every kind of model, what three steps of training, scores, predictions and samples give from fixed seeds.

A case is a name and a function that gives plain numbers and words. Only public names of the library are used, in float64 on the CPU, so
that the cases stay as they are while what is behind those names changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

import foretell as ft

Found = dict[str, Any]
NAMES = ("a", "b", "c")
TRAINING: dict[str, Any] = {"epochs": 1, "batch": 2, "lr": 0.01, "dtype": "float64"}  # six sequences: three steps
SAMPLES, FLOAT32 = "samples", "float32"  # numbers below these keys are compared less closely

# Everything is always possible; events of every type are attended to, some proofs are pooled, and additions are removed.
CLUB = """
:- event(a). :- event(b). :- event(c).
mood. guest(x). guest(y).
a :- mood.
b :- mood, guest(X).
c :- guest(X).
mood <- a.
mood <- b.
guest(X) <- c, guest(X).
!mood <- c.
"""
# Facts without embeddings that come and go, dimensions of every size, one matrix for two rules.
BARE = """
:- event(a, 3). :- event(b, 1). :- event(c, 3). :- embed(on, 0). :- embed(off, 0). :- key(b, 2).
a. b. c.
on(x) <- a. on(y) <- a.
!on(X) <- b, on(X).
c :- on(X).
c :- on(X), not off.
off <- b.
a <- a :: w. c <- a :: w.
b <- b. b <- b, on(X).
a <- c. c <- c. c <- b.
"""
EDGES = [("a", "a"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "b")]
GROUPS = {"a": "x", "b": "x", "c": "y"}
FLOAT64: dict[str, Any] = {"dtype": torch.float64, "seed": 3}
PLAIN: dict[str, Any] = {"layer_norm": False, "feed_forward": 0, "heads": 2, "layers": 3}


# Data


def made(seed: int, sequences: int, name: str) -> ft.EventData:
    """Sequences of three to eight events of three types; each has a `kind`, and each event a `mood` or none."""
    rng = np.random.default_rng(seed)
    return ft.EventData([_sequence(rng, str(place)) for place in range(sequences)], ft.Vocabulary(NAMES), name=name)


def _sequence(rng: np.random.Generator, name: str) -> ft.EventSequence:
    count = int(rng.integers(3, 9))
    types = rng.integers(0, len(NAMES), count).astype(np.int32)
    busy = "busy" if int(name) % 2 else "calm"
    moods = [("up", "down", None)[kind] for kind in types]
    return ft.EventSequence(np.sort(rng.uniform(0.0, 9.5, count)), types, 10.0, name, {"kind": busy, "mood": moods})


def games(events: int) -> tuple[ft.EventData, ft.EventData]:
    """The beginnings of the embedded games: to learn from, and to score."""
    data = ft.load("robocup")
    assert data.train is not None and data.test is not None
    return _cut(data.train, events), _cut(data.test, events // 2)


def _cut(data: ft.EventData, events: int) -> ft.EventData:
    cut = [ft.EventSequence(s.times[:events], s.types[:events], float(s.times[events - 1]), s.id) for s in data]
    return ft.EventData(cut, data.vocabulary, name=data.name)


TRAIN, DEV, TEST = made(1, 6, "train"), made(2, 2, "dev"), made(3, 3, "test")


# What is written down


def tensors(named: Mapping[str, torch.Tensor]) -> Found:
    """Exactly, as a digest of all bytes; and for each its shape, its sum and the sum of its absolute values."""
    digest = hashlib.sha256()
    rows = {}
    for name in sorted(named):
        array = named[name].detach().cpu().contiguous().numpy()
        digest.update(name.encode() + array.tobytes())
        rows[name] = {"shape": list(array.shape), "sum": float(array.sum()), "size": float(np.abs(array).sum())}
    return {"digest": digest.hexdigest(), "tensors": rows}


def array(values: np.ndarray) -> Found:
    return tensors({"values": torch.from_numpy(np.array(values, dtype=np.float64))})


def records(found: list[dict[str, Any]]) -> list[Found]:
    """What was learned in each epoch, without how long it took."""
    return [{key: value for key, value in one.items() if not key.endswith("seconds")} for one in found]


def drawn(model: Any, histories: Any, horizon: float) -> Found:
    """Next events and whole futures of every history; enough of the last that they are drawn in shares."""
    following = ft.sample_next(model, histories, n=6, horizon=horizon, seed=5)
    futures = ft.sample_futures(model, histories, horizon=horizon, n=2, events=12, seed=6)
    many = ft.sample(model, histories[0], horizon=horizon / 4.0, n=16, start=histories[0].t_end / 2.0, seed=7)
    return {
        "next": [{"times": _numbers(one.times), "events": list(one.events)} for one in following],
        "futures": [[_future(future) for future in one.futures] for one in futures],
        "many": [_future(future) for future in many.futures],
    }


def _future(future: Any) -> Found:
    return {"times": future.times.tolist(), "events": list(future.events), "end": future.end}


def _numbers(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def told(model: Any, test: ft.EventData, horizon: float, **scoring: Any) -> Found:
    """Scores, predictions by quadrature and by draws, intensities and samples."""
    answers = ft.intensities_at(model, test, [], grid=4)
    few = test.select([0, 1] if len(test) > 1 else [0])
    both = ft.predict_each(model, few, by="both", n=20, seed=8)
    return {
        "scores": ft.evaluate(model, test, seed=4, **scoring).to_json(),
        "predictions": [_without_samples(one.to_json()) for one in both],
        "intensities": [one.to_json(test.vocabulary) for one in answers],
        SAMPLES: drawn(model, list(few), horizon) | {"predictions": [one.to_json()["samples"] for one in both]},
    }


def _without_samples(prediction: Found) -> Found:
    return {key: value for key, value in prediction.items() if key != "samples"}


# The cases


def trained(build: Callable[[], Any], **options: Any) -> Callable[[], Found]:
    """Three steps, and all that the model then says."""

    def case() -> Found:
        model = build()
        fit = ft.fit(model, TRAIN, DEV, **{**TRAINING, "seed": 9, **options})
        return {
            "parameters": tensors(model.state_dict()),
            "records": records(fit.records),
            "best": fit.best,
            **told(model, TEST, 4.0),
        }

    return case


def steps(build: Callable[[], Any], **options: Any) -> Callable[[], Found]:
    """Three steps alone, in another way."""

    def case() -> Found:
        model = build()
        fit = ft.fit(model, TRAIN, DEV, **{**TRAINING, "seed": 9, **options})
        return {"parameters": tensors(model.state_dict()), "records": records(fit.records), "best": fit.best}

    return case


def single_precision() -> Found:
    return {FLOAT32: steps(anhp(dtype=torch.float32), dtype="float32")()}


def embedded(build: Callable[[], Any]) -> Callable[[], Found]:
    def case() -> Found:
        model = build()
        ft.fit(model, TRAIN, DEV, **TRAINING)
        return {layers: [array(one) for one in ft.embeddings_of(model, TEST, layers)] for layers in ("all", "top")}

    return case


def played(cls: Any) -> Callable[[], Found]:
    """A model of the shipped rules on the beginnings of the embedded games."""

    def case() -> Found:
        train, test = games(30)
        model = cls(ft.Program.named("robocup"), train.vocabulary, dim=3, **FLOAT64)
        fit = ft.fit(model, train, None, **{**TRAINING, "batch": 1, "seed": 9})
        return {
            "parameters": tensors(model.state_dict()),
            "records": records(fit.records),
            **told(model, test, 20.0, times=False, predict=["pass(+P,-Q)", "kick(-P)"]),
        }

    return case


def explained() -> Found:
    model = andtt(CLUB)()
    ft.fit(model, TRAIN, DEV, **TRAINING)
    return {event: ft.explain(model, TEST[0], 7.0, event).to_json() for event in NAMES}


def replayed() -> Found:
    """The database of the shipped rules over a game: what is possible, by name, since a replay may number facts as it likes."""
    train, _ = games(30)
    timelines = ft.replay(ft.Program.named("robocup"), train).timelines
    text = timelines[0].grounding.text
    rows = [sorted((text(fact), start, stop) for fact, start, stop in one.possible.tolist()) for one in timelines]
    names = sorted({name for one in rows for name, _, _ in one})
    place = {name: number for number, name in enumerate(names)}
    return {
        "names": names,
        "possible": [array(np.asarray([(place[name], *when) for name, *when in one])) for one in rows],
        "states": [one.states for one in timelines],
    }


def pretrained() -> Found:
    model = anhp()()
    found = ft.pretrain(model, TRAIN, DEV, **TRAINING, mask=0.4, drop=0.1)
    scores = ft.score_masked(found.model, TEST, mask=0.4, drop=0.1, rounds=2, seed=1)
    going_on, taken = ft.start_from(anhp()(), found.model, TRAIN, "pretrained", seed=2, head=True)
    fit = ft.fit(going_on, TRAIN, DEV, **TRAINING)
    return {
        "parameters": tensors(found.model.state_dict()),
        "records": records(found.records),
        "scores": scores.to_json(),
        "embeddings": [array(one) for one in ft.embeddings_of(found.model, TEST)],
        "taken": taken.to_json(),
        "going on": {"parameters": tensors(going_on.state_dict()), "records": records(fit.records)},
    }


def classified(label: str, history: str, **options: Any) -> Callable[[], Found]:
    def case() -> Found:
        found = ft.classify(anhp(**options)(), TRAIN, DEV, label=label, history=history, **TRAINING)
        return {
            "parameters": tensors(found.model.state_dict()),
            "records": records(found.records),
            "scores": ft.score_labels(found.model, TEST, seed=1).to_json(),
            "labels": [one.to_json() for one in ft.predict_labels(found.model, TEST)],
        }

    return case


def anhp(**options: Any) -> Callable[[], Any]:
    return lambda: ft.ANHP.preset("plain", TRAIN.vocabulary, **{"dim": 4, **FLOAT64, **options})


def last_event(cls: Any, **options: Any) -> Callable[[], Any]:
    return lambda: cls(TRAIN.vocabulary, dim=4, **FLOAT64, **options)


def nhp() -> Any:
    return ft.NHP(TRAIN.vocabulary, dim=4, **FLOAT64)


def s2p2(**options: Any) -> Callable[[], Any]:
    return lambda: ft.S2P2(TRAIN.vocabulary, dim=4, layers=2, states=3, **FLOAT64, **options)


def andtt(text: str, **options: Any) -> Callable[[], Any]:
    sizes = {"dim": 4, **FLOAT64, **options}
    return lambda: ft.ANDTT.preset("plain", ft.Program.from_text(text, dim=4), TRAIN.vocabulary, **sizes)


def ndtt(text: str) -> Callable[[], Any]:
    return lambda: ft.NDTT(ft.Program.from_text(text, dim=4), TRAIN.vocabulary, dim=4, **FLOAT64)


def s2ndtt(text: str, **options: Any) -> Callable[[], Any]:
    sizes = {"dim": 4, "layers": 2, "states": 3, **FLOAT64, **options}
    return lambda: ft.S2NDTT(ft.Program.from_text(text, dim=4), TRAIN.vocabulary, **sizes)


def nce(noise: str) -> dict[str, Any]:
    return {"objective": "nce", "noise": noise, "noise_streams": 3}


CASES: dict[str, Callable[[], Found]] = {
    "poisson": trained(lambda: ft.Poisson(TRAIN.vocabulary)),
    "hawkes": trained(lambda: ft.Hawkes(TRAIN.vocabulary, decays=2)),
    "anhp": trained(anhp()),
    "anhp, one layer": trained(anhp(layers=1, time_dim=3)),
    "anhp, three layers and two heads": trained(anhp(layers=3, heads=2)),
    "anhp, each type itself": trained(anhp(coarse="none")),
    "anhp, coarse types and bos": trained(anhp(coarse=GROUPS, bos=True)),
    "anhp, edges": trained(anhp(edges=EDGES)),
    "anhp, edges, coarse types and bos": trained(anhp(edges=EDGES, coarse=GROUPS, bos=True)),
    "anhp, sublayers": trained(anhp(layer_norm=True, feed_forward=5, bos=True)),
    "nhp": trained(nhp),
    "s2p2": trained(s2p2()),
    "thp": trained(last_event(ft.THP)),
    "thp, heads": trained(last_event(ft.THP, **PLAIN)),
    "sahp": trained(last_event(ft.SAHP)),
    "sahp, heads": trained(last_event(ft.SAHP, **PLAIN)),
    "andtt": trained(andtt(CLUB)),
    "andtt, odd sizes": trained(andtt(BARE, layers=1, time_dim=3)),
    "andtt, sublayers": trained(andtt(CLUB, layer_norm=True, feed_forward=5)),
    "ndtt": trained(ndtt(CLUB)),
    "ndtt, odd sizes": trained(ndtt(BARE)),
    "s2ndtt": trained(s2ndtt(CLUB, intensity_shape=2)),
    "s2ndtt, odd sizes": trained(s2ndtt(BARE)),
    "andtt, robocup": played(partial(ft.ANDTT.preset, "plain")),
    "ndtt, robocup": played(ft.NDTT),
    "anhp, dropout": steps(anhp(dropout=0.3, heads=2)),
    "s2p2, dropout": steps(s2p2(dropout=0.3)),
    "anhp, float32": single_precision,
    "anhp, shrinking weights and pseudo-events": steps(anhp(), decay=0.5, pseudo_count=0.5, clip=0.1),
    "anhp, other waves": steps(anhp(shortest_wave=0.5, fading=2.0, echo=0.0)),
    "anhp, quadrature": steps(anhp(), integral="quadrature", points=3),
    "anhp, uniform, events 2 to I": steps(anhp(), integral="uniform", points=2, window="events-2-to-I"),
    "nhp, uniform": steps(nhp, integral="uniform", points=2),
    "andtt, quadrature": steps(andtt(CLUB), integral="quadrature", points=2),
    "andtt, down-sampled": steps(andtt(CLUB), downsample=2),
    "ndtt, down-sampled": steps(ndtt(CLUB), downsample=2),
    "anhp, nce": steps(anhp(), **nce("poisson")),
    "anhp, nce, hawkes": steps(anhp(), **nce("hawkes")),
    "anhp, nce, timed": steps(anhp(), **nce("timed")),
    "nhp, nce": steps(nhp, **nce("poisson")),
    "thp, nce": steps(last_event(ft.THP), **nce("poisson")),
    "sahp, nce": steps(last_event(ft.SAHP), **nce("poisson")),
    "andtt, nce": steps(andtt(CLUB), **nce("poisson")),
    "andtt, nce, timed": steps(andtt(CLUB), **nce("timed")),
    "ndtt, nce": steps(ndtt(CLUB), **nce("hawkes")),
    "embeddings of anhp": embedded(anhp(heads=2)),
    "embeddings of thp": embedded(last_event(ft.THP)),
    "embeddings of s2p2": embedded(s2p2()),
    "explanation": explained,
    "replay": replayed,
    "pretraining": pretrained,
    "classes of sequences": classified("kind", "two-sided"),
    "classes of events": classified("mood", "two-sided", heads=2),
    "classes of events, causal": classified("mood", "causal", layer_norm=True, feed_forward=5),
}
