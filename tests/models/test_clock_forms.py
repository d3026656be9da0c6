"""Unix seconds, milliseconds, ISO text and numbers from zero give the same model, of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foretell.data import EventData, ReadOptions, load_file
from foretell.errors import ForetellError
from foretell.evaluate.queries import intensities_at
from foretell.models.base import IntensityModel
from foretell.models.registry import model_kinds, model_options
from foretell.train.fit import fit

RULES = ":- event(a). :- event(b). mood.\na :- mood. b :- mood.\nmood <- a. mood <- b.\n"
START = np.datetime64("2012-03-01T12:00:00", "us")
FORMS = ("numbers", "iso", "unix-s", "unix-ms")


@pytest.fixture(scope="module")
def read(tmp_path_factory) -> dict[str, EventData]:
    """The same events as minutes from zero and as dates, and as seconds from zero."""
    rng, folder = np.random.default_rng(5), tmp_path_factory.mktemp("clocks")
    rows: dict[str, list[str]] = {form: ["sequence,time,event"] for form in (*FORMS, "seconds")}
    for name in range(3):
        # from a few seconds to some minutes; a sequence's first event is at its start
        micro = np.concatenate([[0], np.cumsum(rng.integers(10**6, 400 * 10**6, 11))])
        kinds = rng.choice(["a", "b"], len(micro))
        for elapsed, kind in zip(micro.tolist(), kinds, strict=True):
            when = START + np.timedelta64(name * 86400 * 10**6 + elapsed, "us")
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
    return found


def trained(kind: str, data: EventData, program: Path) -> IntensityModel:
    options = model_options(kind)
    names = {field for field in options.__dataclass_fields__}
    small: dict[str, Any] = {"dim": 4, "layers": 1, "program": str(program), "states": 2, "time_dim": 4}
    model = options(**{name: value for name, value in small.items() if name in names}).make(
        data.vocabulary, seed=3, dtype=torch.float64
    )
    changes = {} if kind in ("poisson", "hawkes") else {"epochs": 2, "batch": 2, "dtype": "float64"}
    fit(model, data, **changes)
    return model


OF_THE_CALENDAR = "weekly"  # which refuses plain numbers: they have no days of the week


def test_a_model_of_the_calendar_refuses_numbers_from_zero(read: dict[str, EventData], tmp_path: Path) -> None:
    with pytest.raises(ForetellError, match="needs absolute times"):
        trained(OF_THE_CALENDAR, read["numbers"], tmp_path / "p.ndtt")


@pytest.mark.parametrize("kind", [kind for kind in model_kinds() if kind != OF_THE_CALENDAR])
def test_every_form_of_time_gives_the_same_model(kind: str, read: dict[str, EventData], tmp_path: Path) -> None:
    program = tmp_path / "p.ndtt"
    program.write_text(RULES)
    models = {form: trained(kind, read[form], program) for form in (*FORMS, "seconds")}
    first = models["numbers"]
    times = [0.1, 1.5, 7.0, 30.0]
    expected = [one.intensities for one in intensities_at(first, read["numbers"], times)]
    for form in FORMS[1:]:
        assert read[form].clock.unit == "minutes" and read[form].clock.absolute
        for (name, one), other in zip(first.named_arrays().items(), models[form].named_arrays().values(), strict=True):
            torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")
        for one, wanted in zip(intensities_at(models[form], read[form], times), expected, strict=True):
            np.testing.assert_allclose(one.intensities, wanted, rtol=1e-9)
    in_seconds = intensities_at(models["seconds"], read["seconds"], [60.0 * time for time in times])
    for one, wanted in zip(in_seconds, expected, strict=True):
        # the decays of Hawkes come from a search that settles to about 1e-8
        np.testing.assert_allclose(60.0 * one.intensities, wanted, rtol=1e-8 if kind == "hawkes" else 1e-9)
