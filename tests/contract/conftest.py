"""Each test of the contract is run for every model."""

from __future__ import annotations

import pytest

from foretell.models.base import IntensityModel
from tests.contract.members import MEMBERS, WITH_CALENDAR, Member


@pytest.fixture(params=[*MEMBERS, *WITH_CALENDAR], ids=lambda member: member.name)
def member(request: pytest.FixtureRequest) -> Member:
    return request.param


@pytest.fixture
def model(member: Member) -> IntensityModel:
    return member.build()
