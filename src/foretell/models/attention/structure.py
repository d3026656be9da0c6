"""The options of A-NHP, and its groups of query embeddings and attention heads, derived from coarse types and edges.

A *group* is one query embedding, shared by its member types (paper, appendix A, "coarse event embeddings"). A *head* is one set of
`Q, K, V`. By default all events see all earlier ones through each of `heads` heads. With edges `e <- f` (paper, section 4), each edge
has its own head, through which `e` sees past `f` events alone. A coarse type that stands for other types has its own edges, `ē <- f`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from foretell.data import Vocabulary
from foretell.errors import ForetellError
from foretell.models.registry import HeadOptions
from foretell.options import option

Coarse = str | Mapping[str, str]
Activation = Literal["relu", "gelu"]
MOST_HEADS, TIME_SCALES, PERIODS = 4, 12, 6  # defaults
# The paper's attention, which knows no time but absolute time.
PAPER_LAYERS = {"head_size": "full", "head_decay": False, "elapsed": 0, "periods": 0, "intensity_scales": 0}
WAVES = {"time_dim": "dim"}
NO_SUBLAYERS = {"layer_norm": False, "feed_forward": 0, "activation": "relu"}
Edge = tuple[str, str]


@dataclass(frozen=True)
class AnhpOptions(HeadOptions):
    # 4 heads, or fewer if dim is not a multiple of 4
    heads: int | None = option(None, flag="Attention heads.")  # pyright: ignore[reportIncompatibleVariableOverride]
    head_size: Literal["split", "full"] = option(
        "split", doc="split: `dim / heads` components each, side by side. full: `dim` each, summed."
    )
    head_decay: bool = option(True, doc="Logits fall with an event's age, at a rate that each head learns.")
    elapsed: int | None = option(
        None, doc="Scales on which attention sees the time since the last event; None: 12, or 0 with edges."
    )
    periods: int | None = option(
        None, doc="Periods of the training gaps, at most, whose phase attention sees; None: 6, or 0 without `elapsed`."
    )
    intensity_scales: int | None = option(
        None, doc="Time scales of the mixture that multiplies intensities; None: 12, or 0 with edges."
    )
    layer_norm: bool = option(True, doc="Normalise before and after each sublayer.")
    feed_forward: int | None = option(
        None, doc="Width of the hidden layer of a feed-forward sublayer; 0: none; None: twice `dim`."
    )
    activation: Activation = option("gelu", doc="That of the feed-forward sublayer.")
    time_dim: int | Literal["dim"] = option(0, doc='Components of waves of absolute time; "dim": as many as `dim`.')
    coarse: Literal["one", "none"] | Mapping[str, str] | None = option(
        None,
        doc="Types that share query embeddings: one for all, none, or a coarse type per type; None: one, or none with edges.",
    )
    edges: tuple[str, ...] | None = option(
        None, doc='Pairs "e <- f": type e sees past events of type f; None: everything sees everything.'
    )
    bos: bool = option(False, doc="Every history begins with an event `bos` at 0.")
    fading: float = option(
        0.5, free=True, doc="Attention starts as a memory that fades like this power of the elapsed time."
    )
    echo: float = option(2.0, free=True, doc="How much an event raises its own type at the start; 0: not at all.")
    hawkes: int = option(0, doc="Decays of a Hawkes process, fitted first, that intensities start from; 0: none.")

    earlier: ClassVar[dict[str, Any]] = {
        **PAPER_LAYERS,
        **WAVES,
        "activation": "relu",
        "hawkes": 0,
        "calendar": False,
    }
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {
            **PAPER_LAYERS,
            **NO_SUBLAYERS,
            **WAVES,
            "heads": 1,
            "calendar": False,
            "shortest_wave": "min",
            "fading": 0.0,
            "echo": 0.0,
        },
        "plain": {**PAPER_LAYERS, **NO_SUBLAYERS, **WAVES, "heads": 1},  # the paper's equations, but not its start
    }

    def mistakes(self) -> list[str]:
        found = super().mistakes()
        if self.time_dim != "dim" and self.time_dim < 0:
            found.append(f"time_dim = {self.time_dim}: expected 0 (none) or more")
        for name in ("elapsed", "intensity_scales"):
            if (getattr(self, name) or 0) < 0:
                found.append(f"{name} = {getattr(self, name)}: expected 0 (none) or a number of time scales")
            elif getattr(self, name) and self.edges is not None:
                found.append(
                    f"{name} = {getattr(self, name)}: with edges, types see different last events: leave it out"
                )
        if (self.periods or 0) < 0:
            found.append(f"periods = {self.periods}: expected 0 (none) or a number of periods")
        elif self.periods and (self.elapsed == 0 or self.edges is not None):
            found.append(
                f"periods = {self.periods}: they are features of the time since the last event: without `elapsed`, leave it out"
            )
        if self.heads is not None and self.heads < 1:
            found.append(f"heads = {self.heads}: expected 1 or more")
        elif self.heads and self.head_size == "split" and self.dim % self.heads:
            found.append(
                f"heads = {self.heads}: dim = {self.dim} cannot be split; choose a divisor, or head_size = full"
            )
        if self.hawkes < 0:
            found.append(f"hawkes = {self.hawkes}: expected 0 (none) or a number of decays")
        elif self.hawkes and (self.edges is not None or self.coarse not in (None, "one")):
            found.append(f"hawkes = {self.hawkes}: it needs one coarse type and no edges: leave it out")
        if not 0.0 <= self.fading < math.inf:
            found.append(f"fading = {self.fading}: expected 0 or a positive power of the elapsed time")
        if not math.isfinite(self.echo):
            found.append(f"echo = {self.echo}: expected a number")
        return found

    def resolved(self) -> AnhpOptions:
        """Return options in which everything that depends on others is filled in: `edges` as pairs, `heads`, `time_dim` and others."""
        edges: Any = None
        if self.edges is not None:
            edges = tuple(parse_edge(edge) if isinstance(edge, str) else tuple(edge) for edge in self.edges)
        coarse: Any = self.coarse if self.coarse is None or isinstance(self.coarse, str) else dict(self.coarse)
        found: dict[str, Any] = {"edges": edges, "coarse": coarse}
        if self.time_dim == "dim":
            found["time_dim"] = self.dim
        if self.feed_forward is None:
            found["feed_forward"] = 2 * self.dim
        if self.heads is None:
            found["heads"] = max(heads for heads in range(1, MOST_HEADS + 1) if self.dim % heads == 0)
        for name in ("elapsed", "intensity_scales"):
            if getattr(self, name) is None:
                found[name] = TIME_SCALES if self.edges is None else 0
        if self.periods is None:
            found["periods"] = PERIODS if found.get("elapsed", self.elapsed) else 0
        return replace(self, **found)


@dataclass(frozen=True)
class CoarseGroup:
    name: str
    members: tuple[int, ...]
    base: int | None  # the type whose vector is the base vector of this group; None: it has its own


@dataclass(frozen=True)
class AttentionHead:
    name: str
    reader: (
        int | None
    )  # the event type that attends with this head in the history; None: every type, or none (see group)
    group: int | None  # the group that attends with it in a query; None: every group, or none (see reader)
    source: int | None  # the event type that this head sees; None: every type

    @property
    def serves_all(self) -> bool:
        return self.reader is None and self.group is None

    def serves_history(self) -> bool:
        return self.serves_all or self.reader is not None

    def serves_group(self, group: int) -> bool:
        return self.serves_all or self.group == group


@dataclass(frozen=True)
class Structure:
    groups: tuple[CoarseGroup, ...]
    heads: tuple[AttentionHead, ...]


def parse_edge(text: str) -> Edge:
    """Split `e <- f` into two names."""
    left, arrow, right = text.partition("<-")
    if not arrow or not left.strip() or not right.strip():
        raise ForetellError(f"edge {text!r}: expected `e <- f`, the type that sees and the type that is seen")
    return left.strip(), right.strip()


def make_structure(
    vocabulary: Vocabulary, *, heads: int, coarse: Coarse | None, edges: Sequence[Edge] | None
) -> Structure:
    if heads < 1:
        raise ForetellError(f"heads = {heads}: expected 1 or more")
    coarse = coarse if coarse is not None else ("one" if edges is None else "none")
    groups = _groups(vocabulary, coarse)
    if edges is None:
        return Structure(groups, tuple(AttentionHead(f"head{i + 1}", None, None, None) for i in range(heads)))
    pairs = _indexed(vocabulary, edges)
    sources = {reader: [f for e, f in pairs if e == reader] for reader in range(len(vocabulary))}
    names = vocabulary.names
    found: list[AttentionHead] = []

    def add(reader: int | None, group: int | None, source: int, name: str) -> None:
        for copy in range(heads):
            suffix = f"#{copy + 1}" if heads > 1 else ""
            found.append(AttentionHead(f"{name}<-{names[source]}{suffix}", reader, group, source))

    group_of_itself = {group.base: index for index, group in enumerate(groups) if group.base is not None}
    for reader, seen in sources.items():
        for source in seen:
            add(reader, group_of_itself.get(reader), source, names[reader])
    for index, group in enumerate(groups):
        if group.base is not None:
            continue
        if group.name in vocabulary:
            raise ForetellError(
                f"coarse type `{group.name}` has the name of an event type, and their edges could not be told apart; "
                "give it another name"
            )
        seen = _common_sources(group, sources, names)
        for source in seen:
            add(None, index, source, group.name)
    return Structure(groups, tuple(found))


def _groups(vocabulary: Vocabulary, coarse: Coarse) -> tuple[CoarseGroup, ...]:
    names = vocabulary.names
    if isinstance(coarse, str):
        if coarse == "one":
            return (CoarseGroup("coarse", tuple(range(len(names))), None),)
        if coarse == "none":
            return tuple(CoarseGroup(name, (index,), index) for index, name in enumerate(names))
        raise ForetellError(f'coarse = {coarse!r}: expected "one", "none", or a table from type to coarse type')
    problems = [f"coarse: `{name}` is not an event type" for name in coarse if name not in vocabulary]
    of_type = {vocabulary.index(name): group for name, group in coarse.items() if name in vocabulary}
    problems += [f"coarse: type `{name}` has no coarse type" for i, name in enumerate(names) if i not in of_type]
    if problems:
        raise ForetellError("\n".join(problems[:20]))
    members: dict[str, list[int]] = {}
    for index in range(len(names)):
        members.setdefault(of_type[index], []).append(index)
    return tuple(CoarseGroup(name, tuple(indices), None) for name, indices in members.items())


def _indexed(vocabulary: Vocabulary, edges: Sequence[Edge]) -> list[tuple[int, int]]:
    unknown = sorted({name for edge in edges for name in edge if name not in vocabulary})
    if unknown:
        raise ForetellError("\n".join(f"edges: `{name}` is not an event type of the data" for name in unknown[:20]))
    pairs = [(vocabulary.index(e), vocabulary.index(f)) for e, f in edges]
    names = vocabulary.names
    twice = sorted(f"{names[e]} <- {names[f]}" for (e, f), count in Counter(pairs).items() if count > 1)
    if twice:
        raise ForetellError(f"edges: given twice: {', '.join(twice)}")
    return pairs


def _common_sources(group: CoarseGroup, sources: Mapping[int, list[int]], names: Sequence[str]) -> list[int]:
    first = group.members[0]
    for member in group.members[1:]:
        if set(sources[member]) != set(sources[first]):
            odd = sorted(names[f] for f in set(sources[member]) ^ set(sources[first]))
            raise ForetellError(
                f"coarse type `{group.name}`: its members `{names[first]}` and `{names[member]}` see different histories "
                f"(they differ in: {', '.join(odd)}); give them the same incoming edges or different coarse types"
            )
    return sources[first]
