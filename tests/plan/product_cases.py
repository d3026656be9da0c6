"""Random programs with products, as models that differ in nothing but how their possible events are kept."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import torch

from foretell.data import EventData, EventSequence, Vocabulary
from foretell.lang.program import Program
from foretell.models.rules.andtt import ANDTT
from foretell.models.rules.ndtt import NDTT
from foretell.models.rules.s2ndtt import S2NDTT
from tests.ground.random_products import random_products
from tests.samples import Rules, randomise_rules

MODELS: dict[str, type[Rules]] = {"andtt": ANDTT, "ndtt": NDTT, "s2ndtt": S2NDTT}


def product_data(seed: int) -> tuple[Program, EventData]:
    draw = random.Random(f"data {seed}")
    program, events = random_products(seed)
    times = np.cumsum([draw.choice([0.0, 0.3, 1.1]) * draw.random() for _ in events]).round(6)
    half = len(events) // 2
    vocabulary = Vocabulary(tuple(dict.fromkeys(events)))
    types = np.asarray([vocabulary.find(one) for one in events], dtype=np.int32)
    rows = [
        EventSequence(times, types, float(times[-1]) + 0.7, "long"),
        EventSequence(times[:half], types[:half], float(times[-1]) + 0.1, "short"),
        EventSequence(times[:0], types[:0], 1.0, "empty"),
    ]
    return program, EventData(rows, vocabulary, "window", "sample")


def model_pair(kind: str, seed: int) -> tuple[Rules, Rules, EventData]:
    """With products and with rows, of the same parameters."""
    program, data = product_data(seed)
    made = [
        MODELS[kind](replace(program, products=way), data.vocabulary, dim=2, layers=2, dtype=torch.float64)
        if kind != "ndtt"
        else NDTT(replace(program, products=way), data.vocabulary, dim=2, dtype=torch.float64)
        for way in ("always", "never")
    ]
    for one in made:
        one.meet(data)
        one.prepare(data)
    randomise_rules(made[0], 3)
    found = made[0].named_arrays()
    made[1].ground_possible([data])
    made[1].load_named_arrays({name: found.get(name, one) for name, one in made[1].named_arrays().items()})
    return made[0], made[1], data
