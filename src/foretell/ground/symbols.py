"""Names as integers: functors, constants and facts are interned once, and everything inside the database is a number."""

from __future__ import annotations

from foretell.terms import split

FactKey = tuple[int, ...]  # functor, then the arguments


class Symbols:
    """Ids count up from 0 in the order of first use; what was interned once keeps its id."""

    def __init__(self) -> None:
        self.functors: list[str] = []
        self.constants: list[str] = []
        self.keys: list[FactKey] = []  # of every fact
        self._functor_ids: dict[str, int] = {}
        self._constant_ids: dict[str, int] = {}
        self.fact_ids: dict[FactKey, int] = {}

    def functor(self, name: str) -> int:
        found = self._functor_ids.get(name)
        if found is None:
            found = self._functor_ids[name] = len(self.functors)
            self.functors.append(name)
        return found

    def constant(self, text: str) -> int:
        found = self._constant_ids.get(text)
        if found is None:
            found = self._constant_ids[text] = len(self.constants)
            self.constants.append(text)
        return found

    def fact(self, key: FactKey) -> int:
        found = self.fact_ids.get(key)
        if found is None:
            found = self.fact_ids[key] = len(self.keys)
            self.keys.append(key)
        return found

    def named(self, name: str) -> int:
        """The fact that an event of the data is, by its normalised name."""
        functor, args = split(name)
        return self.fact((self.functor(functor), *(self.constant(arg) for arg in args)))

    def text(self, fact: int) -> str:
        functor, *args = self.keys[fact]
        if not args:
            return self.functors[functor]
        return f"{self.functors[functor]}({','.join([self.constants[arg] for arg in args])})"
