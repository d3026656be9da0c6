"""A data set's card, `dataset.toml` ↔ `Card`: what the numbers mean and where the data come from."""

from __future__ import annotations

import datetime
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from foretell.data.sequence import MOST_TYPES, NO_METADATA, did_you_mean
from foretell.errors import DataError

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
            hint = did_you_mean(str(origin), ORIGINS)
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
        return "".join(_entries(table, ()))


def _entries(table: Mapping[str, object], prefix: tuple[str, ...]) -> list[str]:
    lines = [f"{_key(key)} = {_value(value)}\n" for key, value in table.items() if not isinstance(value, Mapping)]
    for key, value in table.items():
        if isinstance(value, Mapping):
            path = (*prefix, key)
            lines += [f"\n[{'.'.join(map(_key, path))}]\n", *_entries(value, path)]
    return lines


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else _text(key)


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but for DEL, which TOML wants escaped too
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int() | float():
            return repr(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case Mapping():
            return "{" + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + "}"
    raise DataError(f"a card cannot hold {value!r}: expected text, numbers, booleans, dates, lists or tables")
