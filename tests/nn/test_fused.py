"""What the fused kernels are handed, without a GPU: matrices that make the same tables, and shares that add up."""

from __future__ import annotations

import pytest
import torch

from foretell.models.attention.anhp import ANHP
from foretell.models.attention.fused import matrices
from foretell.nn.fused.loss import LossLayout, _of_types, _shares, power_of_two

DIM, TYPES = 16, 5
CPU = torch.device("cpu")


def model(**options: object) -> ANHP:
    made = ANHP.preset("plain", TYPES, dim=DIM, dtype=torch.float64, **options)  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())))
    return made


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("time_dim", [16, 10])
def test_one_product_gives_folded_keys_levels_and_values_of_every_head(heads: int, time_dim: int):
    made = model(heads=heads, time_dim=time_dim, layers=2)
    layout, base = LossLayout(heads, DIM, time_dim), made.coarse_base[0]
    times = torch.linspace(0.0, 5.0, 7, dtype=torch.float64)[None]
    features = made.time.with_one(times, torch.float64)
    embedding = torch.randn(1, 7, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows = torch.cat([torch.zeros(1, 7, 3), features[..., : 1 + time_dim], embedding], dim=-1)
    parts = made._matrices()
    shares = made._time_shares(features, parts)
    for layer, matrix in enumerate(matrices(made, layout, base)):
        tables = made._tables(parts[layer], shares[layer], embedding, torch.zeros(1, 7).long(), None, fold=True)
        for table, found in zip(tables, (rows @ matrix).split(layout.width, dim=-1), strict=True):
            assert table.folded is not None
            wide = layout.time_width
            torch.testing.assert_close(found[..., :time_dim], table.folded.by_time[..., 1 : 1 + time_dim])
            assert not found[..., time_dim:wide].any()
            torch.testing.assert_close(found[..., wide : wide + DIM], table.folded.by_embedding)
            torch.testing.assert_close(found[..., wide + DIM], table.folded.by_time[..., 0])
            torch.testing.assert_close(found[..., wide + DIM + 1], table.folded.based_on(base)[..., 0])
            assert not found[..., wide + DIM + 2 : layout.key_width].any()
            torch.testing.assert_close(found[..., layout.key_width :], table.values)


def test_naming_the_type_of_an_event_gives_what_its_vector_gives():
    matrix, vectors = torch.randn(4 + 6 + DIM, 20), torch.randn(TYPES, DIM)
    known = _of_types(matrix, vectors, 10)
    assert known is not None and known.shape == (8 + 10, 20)  # five types and three zeros
    row = torch.randn(10)
    named = torch.cat([torch.eye(8)[2], row]) @ known
    torch.testing.assert_close(named, torch.cat([row, vectors[2]]) @ matrix, rtol=1e-4, atol=1e-4)
    assert _of_types(matrix, torch.randn(DIM + 1, DIM), 10) is None


@pytest.mark.parametrize(("batch", "tiles"), [(1, 1), (1, 300), (64, 48), (1000, 5)])
def test_there_are_never_more_shares_than_tiles(batch: int, tiles: int):
    assert 1 <= _shares(batch, tiles, CPU) <= tiles


def test_tiles_are_powers_of_two_of_at_least_sixteen():
    assert [power_of_two(size) for size in (1, 16, 17, 64, 65)] == [16, 16, 32, 64, 128]


def test_on_a_cpu_the_general_way_is_taken():
    assert not ANHP.preset("plain", TYPES, dim=32).is_fused()
