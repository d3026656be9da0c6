"""A data set's card, `dataset.toml` ↔ `Card`: what the numbers mean and where the data come from."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import tomli_w

from foretell.data.sequence import MOST_TYPES, NO_METADATA
from foretell.errors import DataError
from foretell.wording import did_you_mean

Origin = Literal["window", "first-event"]
ORIGINS: tuple[Origin, ...] = get_args(Origin)
FILE_NAME = "dataset.toml"


@dataclass(frozen=True)
class Card:
    """What is known about a data set as a whole; keys that the library does not use are kept in `about`."""

    name: str
    origin: Origin = "window"
    time_unit: str = ""
    types: int | None = None
    about: Mapping[str, object] = field(default_factory=lambda: NO_METADATA)

    @classmethod
    def read(cls, path: Path, default_name: str) -> Card:
        """The card in a TOML file; all mistakes in it at once."""
        try:
            table = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: this is not TOML: {error}") from None
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        problems: list[str] = []
        name = table.pop("name", default_name)
        origin = table.pop("origin", "window")
        time_unit = table.pop("time_unit", "")
        types = table.pop("types", None)
        for key, value in (("name", name), ("time_unit", time_unit)):
            if not isinstance(value, str):
                problems.append(f"{path}: {key} is {value!r}, expected text")
        if origin not in ORIGINS:
            hint = did_you_mean(str(origin), ORIGINS, before="; ")
            problems.append(f'{path}: origin is {origin!r}, expected "window" or "first-event"{hint}')
        if types is not None and (type(types) is not int or not 1 <= types <= MOST_TYPES):
            problems.append(f"{path}: types is {types!r}, expected the number of event types, 1 to {MOST_TYPES}")
        if problems:
            raise DataError(problems)
        return cls(name, origin, time_unit, types, table)

    def to_toml(self) -> str:
        """The card as the text of a TOML file."""
        table: dict[str, object] = {"name": self.name, "origin": self.origin, "time_unit": self.time_unit}
        if self.types is not None:
            table["types"] = self.types
        table |= dict(self.about)
        try:
            return tomli_w.dumps(table)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"a card cannot hold this: {error}; expected text, numbers, booleans, dates, lists or tables"
            ) from None
