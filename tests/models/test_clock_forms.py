"""Unix seconds, milliseconds, ISO text and numbers from zero give the same model, of every kind."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foretell.data import Clock, EventData, ReadOptions, load_file
from foretell.errors import ForetellError
from foretell.evaluate.queries import intensities_at
from foretell.models.base import IntensityModel
from foretell.models.classical.hawkes import Hawkes
from foretell.models.registry import model_kinds, model_options
from foretell.train.fit import fit

RULES = ":- event(a). :- event(b). mood.\na :- mood. b :- mood.\nmood <- a. mood <- b.\n"
START = np.datetime64("2012-03-01T12:00:00", "us")
FORMS = ("numbers", "iso", "unix-s", "unix-ms")
SECONDS = 60.0  # of a minute
# Parameters that are rates, which are 1/60 of those per minute where times are seconds; all others have no unit
RATES = re.compile(
    r"(beta|mu\..*|alpha\..*|rate\..*|cell\.gap|time\.w|attend\..*\.decay|intensity\.\w+\.(w|tau|mu|eta|gamma|nu|calendar))$"
)


def written(folder: Path, days_apart: int) -> dict[str, EventData]:
    """The same events as minutes from zero and as dates, as seconds from zero, and as dates told in seconds."""
    rng = np.random.default_rng(5)
    rows: dict[str, list[str]] = {form: ["sequence,time,event"] for form in (*FORMS, "seconds")}
    for name in range(3):
        # from a few seconds to some minutes; a sequence's first event is at its start
        micro = np.concatenate([[0], np.cumsum(rng.integers(10**6, 400 * 10**6, 11))])
        kinds = rng.choice(["a", "b"], len(micro))
        for elapsed, kind in zip(micro.tolist(), kinds, strict=True):
            when = START + np.timedelta64(name * days_apart * 86400 * 10**6 + elapsed, "us")
            since = int(when.astype(np.int64))
            told = {
                "numbers": repr(elapsed / 60e6),
                "seconds": repr(elapsed / 1e6),
                "iso": f"{when}Z",
                "unix-s": f"{since // 10**6}.{since % 10**6:06d}",
                "unix-ms": f"{since // 1000}.{since % 1000:03d}",
            }
            for form, lines in rows.items():
                lines.append(f"s{name},{told[form]},{kind}")
    found = {}
    for form, lines in rows.items():
        path = Path(folder / f"{form}.csv")
        path.write_text("\n".join(lines))
        found[form] = load_file(path, options=ReadOptions(start="first-event"))
    seconds = Clock.of_unit("seconds", absolute=True)
    found["dates-in-seconds"] = load_file(folder / "iso.csv", options=ReadOptions(start="first-event", clock=seconds))
    return found


@pytest.fixture(scope="module")
def read(tmp_path_factory) -> dict[str, EventData]:
    """Three days: too few for a calendar, so that dates and numbers from zero train the same model."""
    return written(tmp_path_factory.mktemp("clocks"), 1)


@pytest.fixture(scope="module")
def weeks(tmp_path_factory) -> dict[str, EventData]:
    """Three weeks, whose dates have a calendar."""
    return written(tmp_path_factory.mktemp("weeks"), 10)


def trained(kind: str, data: EventData, program: Path, dev: EventData | None = None) -> IntensityModel:
    options = model_options(kind)
    names = {field for field in options.__dataclass_fields__}
    small: dict[str, Any] = {"dim": 4, "layers": 1, "program": str(program), "states": 2, "time_dim": 4}
    model = options(**{name: value for name, value in small.items() if name in names}).make(
        data.vocabulary, seed=3, dtype=torch.float64
    )
    changes = {} if kind in ("poisson", "hawkes", "weekly") else {"epochs": 2, "batch": 2, "dtype": "float64"}
    fit(model, data, dev=dev, **changes)
    return model


def per_minute(name: str, fitted_to_seconds: torch.Tensor) -> torch.Tensor:
    """A parameter of a model whose unit is seconds, in minutes."""
    if name == "time.b":  # RMTPP: the logarithm of a rate
        return fitted_to_seconds + math.log(SECONDS)
    return fitted_to_seconds * SECONDS if RATES.match(name) else fitted_to_seconds


def check_parameters(one: IntensityModel, other: IntensityModel, converted: bool) -> None:
    wanted = one.named_arrays()
    assert wanted.keys() == other.named_arrays().keys()
    for name, array in other.named_arrays().items():
        found = per_minute(name, array) if converted else array
        torch.testing.assert_close(
            found, wanted[name], rtol=1e-9, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}"
        )


def check_intensities(expected: list[np.ndarray], model: IntensityModel, data: EventData, converted: bool) -> None:
    unit = SECONDS if converted else 1.0
    for one, wanted in zip(intensities_at(model, data, [unit * time for time in TIMES]), expected, strict=True):
        np.testing.assert_allclose(unit * one.intensities, wanted, rtol=1e-9)


TIMES = [0.1, 1.5, 7.0, 30.0]
OF_THE_CALENDAR = "weekly"  # which refuses plain numbers: they have no days of the week


def test_a_model_of_the_calendar_refuses_numbers_from_zero(weeks: dict[str, EventData], tmp_path: Path) -> None:
    with pytest.raises(ForetellError, match="needs absolute times"):
        trained(OF_THE_CALENDAR, weeks["numbers"], tmp_path / "p.ndtt")


def check_forms(kind: str, data: dict[str, EventData], forms: Sequence[str], in_seconds: str, folder: Path) -> None:
    program = folder / "p.ndtt"
    program.write_text(RULES)
    first, *others = forms
    model = trained(kind, data[first], program)
    expected = [one.intensities for one in intensities_at(model, data[first], TIMES)]
    for form in others:
        assert data[form].clock.unit == "minutes" and data[form].clock.absolute
        other = trained(kind, data[form], program)
        check_parameters(model, other, converted=False)
        check_intensities(expected, other, data[form], converted=False)
    other = trained(kind, data[in_seconds], program)
    check_parameters(model, other, converted=True)
    check_intensities(expected, other, data[in_seconds], converted=True)


@pytest.mark.parametrize("kind", [kind for kind in model_kinds() if kind != OF_THE_CALENDAR])
def test_every_form_of_time_gives_the_same_model(kind: str, read: dict[str, EventData], tmp_path: Path) -> None:
    check_forms(kind, read, FORMS, "seconds", tmp_path)


@pytest.mark.parametrize("kind", model_kinds())
def test_every_form_of_dates_gives_the_same_model_of_the_calendar(
    kind: str, weeks: dict[str, EventData], tmp_path: Path
) -> None:
    check_forms(kind, weeks, FORMS[1:], "dates-in-seconds", tmp_path)


def test_dates_told_in_seconds_give_the_model_of_minutes(read: dict[str, EventData], tmp_path: Path) -> None:
    """The unit of a clock is only a way to write times: Hawkes, whose parameters are all rates."""
    assert read["dates-in-seconds"].clock.unit == "seconds" and read["dates-in-seconds"].clock.absolute
    one, other = (trained("hawkes", read[form], tmp_path) for form in ("iso", "dates-in-seconds"))
    check_parameters(one, other, converted=True)


def test_decays_and_shrinkage_chosen_on_dev_are_those_of_every_unit(read: dict[str, EventData], tmp_path: Path) -> None:
    rows = range(2)
    one, other = (trained("hawkes", read[form].select(rows), tmp_path, read[form]) for form in ("numbers", "seconds"))
    assert isinstance(one, Hawkes) and isinstance(other, Hawkes) and one.options == other.options
    check_parameters(one, other, converted=True)
