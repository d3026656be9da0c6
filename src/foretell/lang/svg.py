"""A program's graph → an SVG picture. Facts are boxes; events are ellipses with underlined names. Each rule is a dot, with a line
from every condition and an arrow to its head. Facts are above everything that is deduced from them, so deduction points down
and addition usually up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from foretell.lang.graph import Arrow, Graph, GraphLayout, Predicate, arrange
from foretell.lang.stratify import strong_components
from foretell.wording import printable

LETTER = 7.83  # the width of a character in the 13 px monospaced font
SMALL = 6.03  # the width of a character in the 10 px font
BOX_HEIGHT, DOT_HEIGHT, ROW_GAP = 44.0, 14.0, 40.0
PORT = 9.0  # the room for one line at a border
DOT = 4.5
UNDERLINE = 6.5  # distance below the base line of an event's name; `_` ends above it
MARGIN = 24.0
LONGEST = 32  # the largest number of characters of a name
STYLES = {
    "deduce": ("#1d5fa7", "", "deduced  :-"),
    "add": ("#23803a", "7 3", "added  <-"),
    "remove": ("#b3261e", "2 3", "removed  !… <-"),
}
EVENT_DASHES = {"fact": "", "event": "", "exogenous": "4 3"}
FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"


@dataclass(frozen=True)
class _Link:
    """A line between a predicate and the dot of a rule."""

    arrow: int
    start: int
    end: int
    to_head: bool
    negated: bool = False
    is_event: bool = False


def draw(graph: Graph, title: str) -> str:
    layers = _layers(graph)
    place = {one.name: number for number, one in enumerate(graph.predicates)}
    lines = Counter(one.functor for arrow in graph.arrows for one in arrow.conditions)
    lines.update(arrow.head for arrow in graph.arrows)
    widths = [max(_width(one), 24 + PORT * lines[one.name]) for one in graph.predicates]
    depth = [2 * layers[one.name] for one in graph.predicates]
    links: list[_Link] = []
    for number, arrow in enumerate(graph.arrows):
        dot = len(widths)
        widths.append(2 * (DOT + 5 + SMALL * len(_rules(arrow))))  # the label is on the right, the dot in the middle
        depth.append(_dot_layer(arrow, layers))
        links += [_Link(number, place[one.functor], dot, False, one.negated, one.is_event) for one in arrow.conditions]
        links.append(_Link(number, dot, place[arrow.head], True))
    least = min(depth, default=0)
    depth = [one - least for one in depth]
    layout = arrange(widths, depth, [(one.start, one.end) for one in links], 22.0)
    return _Picture(graph, layout, links, title).text()


# --- layers ----------------------------------------------------------------------------------------------------------


def _layers(graph: Graph) -> dict[str, int]:
    """Return each functor's layer: the length of the longest path of deductions to it. Events that deduce nothing are at the bottom."""
    below: dict[str, list[str]] = {one.name: [] for one in graph.predicates}
    for arrow in graph.arrows:
        if arrow.kind == "deduce":
            below[arrow.head] += [one.functor for one in arrow.conditions]
    level: dict[str, int] = {}
    for group in strong_components(below):
        inside = set(group)
        found = [level[other] + 1 for name in group for other in below[name] if other not in inside]
        for name in group:
            level[name] = max(found, default=0)
    used = {other for found in below.values() for other in found}
    bottom = max(level.values(), default=0)
    lone = [one.name for one in graph.predicates if one.kind != "fact" and one.name not in used]
    if lone and bottom == 0 and len(lone) < len(level):
        bottom = 1
    return {**level, **dict.fromkeys(lone, bottom)}


def _dot_layer(arrow: Arrow, layers: dict[str, int]) -> int:
    """Return an odd layer between the rows of predicates: above or below the head, depending on the layers of the conditions."""
    head = layers[arrow.head]
    inputs = [layers[one.functor] for one in arrow.conditions]
    return 2 * head - 1 if inputs and max(inputs) < head else 2 * head + 1


# --- drawing ---------------------------------------------------------------------------------------------------------


class _Picture:
    def __init__(self, graph: Graph, layout: GraphLayout, links: list[_Link], title: str) -> None:
        self.graph, self.layout, self.links, self.title = graph, layout, links, title
        self.top = self._rows()
        self.legend = list(_legend(graph))
        self.width = max(layout.width, sum(width for width, _ in self.legend), 160.0) + 2 * MARGIN
        self.shift = (self.width - layout.width) / 2
        self.ports = self._ports()

    def _rows(self) -> dict[int, float]:
        """Return the vertical centre of each layer."""
        y, rows = MARGIN, {}
        gaps: dict[int, float] = {}  # gaps are wider below a row with lines that run far to the side
        for way in self.layout.ways:
            for one, other in pairwise(self.layout.boxes[number] for number in way):
                layer, wide = min(one.layer, other.layer), ROW_GAP + min(60.0, abs(one.x - other.x) / 8)
                gaps[layer] = max(gaps.get(layer, ROW_GAP), wide)
        last = max((box.layer for box in self.layout.boxes), default=-1)
        boxes_at = {self.layout.boxes[number].layer for number in range(len(self.graph.predicates))}
        for layer in range(last + 1):
            height = BOX_HEIGHT if layer in boxes_at else DOT_HEIGHT
            rows[layer] = y + height / 2
            y += height + (gaps.get(layer, ROW_GAP) if layer < last else 0.0)
        self.bottom = y
        return rows

    def x(self, box: int) -> float:
        return self.layout.boxes[box].x + self.shift

    def y(self, box: int) -> float:
        return self.top[self.layout.boxes[box].layer]

    def _ports(self) -> dict[tuple[int, int], float]:
        """Return the point where each link leaves a predicate. Points are spread over its upper or lower side, sorted by target."""
        sides: dict[tuple[int, bool], list[tuple[float, int]]] = {}
        for number, (link, way) in enumerate(zip(self.links, self.layout.ways, strict=True)):
            box, other = (link.end, way[-2]) if link.to_head else (link.start, way[1])
            sides.setdefault((box, self.y(other) > self.y(box)), []).append((self.x(other), number))
        ports = {}
        for (box, _), found in sides.items():
            room = self.layout.boxes[box].width * (0.95 if self.graph.predicates[box].kind == "fact" else 0.8)
            for place, (_, number) in enumerate(sorted(found)):
                ports[box, number] = self.x(box) + room * ((place + 1) / (len(found) + 1) - 0.5)
        return ports

    def text(self) -> str:
        width, height = f"{self.width:.0f}", f"{self.bottom + 58:.0f}"
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'role="img" font-family="{FONT}" font-size="13">',
            f"<title>{_safe(self.title)}</title>",
            "<defs>",
            *(
                f'<marker id="{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
                f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 1 L10 5 L0 9 z" fill="{style[0]}"/></marker>'
                for kind, style in STYLES.items()
            ),
            "</defs>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
        ]
        parts += [self._link(number) for number in range(len(self.links))]
        first_dot = len(self.graph.predicates)
        parts += [self._dot(arrow, first_dot + number) for number, arrow in enumerate(self.graph.arrows)]
        parts += [self._predicate(one, number) for number, one in enumerate(self.graph.predicates)]
        x, y = (self.width - sum(width for width, _ in self.legend)) / 2, self.bottom + 34
        for width, part in self.legend:
            parts.append(f'<g transform="translate({x:.1f} {y:.1f})">{part}</g>')
            x += width
        return "\n".join([*parts, "</svg>"]) + "\n"

    def _link(self, number: int) -> str:
        link, way = self.links[number], self.layout.ways[number]
        color, dash, _ = STYLES[self.graph.arrows[link.arrow].kind]
        points = self._points(number, way, link)
        path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
        for (x0, y0), (x1, y1) in pairwise(points):
            middle = (y0 + y1) / 2
            path += f" C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
        marker = f' marker-end="url(#{self.graph.arrows[link.arrow].kind})"' if link.to_head else ""
        width = 2.0 if link.is_event or link.to_head else 1.3
        line = f'<path d="{path}" fill="none" stroke="{color}" stroke-width="{width}"{_dashes(dash)}{marker}/>'
        if link.negated:  # a ring at the condition's end of the line
            x, y = points[0]
            y += 7 if points[1][1] > y else -7
            line += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="#ffffff" stroke="{color}" stroke-width="1.6"/>'
        return line

    def _points(self, number: int, way: list[int], link: _Link) -> list[tuple[float, float]]:
        """Return the points of a link: its ends at the borders of box and dot, and straight pieces beside the boxes that it passes."""
        points = []
        for place, box in enumerate(way):
            before = self.y(way[place - 1]) if place else None
            after = self.y(way[place + 1]) if place + 1 < len(way) else None
            y = self.y(box)
            if box < len(self.graph.predicates):
                toward = after if after is not None else before
                assert toward is not None
                x = self.ports[box, number]
                points.append((x, y + (1 if toward > y else -1) * self._half_height(box, x)))
            elif place in (0, len(way) - 1):
                points.append((self.x(box), y))
            else:
                assert after is not None
                half = BOX_HEIGHT / 2 if after > y else -BOX_HEIGHT / 2
                points += [(self.x(box), y - half), (self.x(box), y + half)]
        return points

    def _half_height(self, box: int, x: float) -> float:
        """Return the distance from centre to border at `x`; ellipses are lower at their ends."""
        if self.graph.predicates[box].kind == "fact":
            return BOX_HEIGHT / 2
        share = (x - self.x(box)) / (self.layout.boxes[box].width / 2)
        return BOX_HEIGHT / 2 * max(0.0, 1 - share * share) ** 0.5

    def _dot(self, arrow: Arrow, box: int) -> str:
        x, y = self.x(box), self.y(box)
        color = STYLES[arrow.kind][0]
        label = f'x="{x + DOT + 4:.1f}" y="{y + 3.5:.1f}" font-size="10"'
        return (
            f'<g><title>{_safe(chr(10).join(arrow.texts[:20]))}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="{DOT}" fill="{color}"/>'
            f'<text {label} stroke="#ffffff" stroke-width="3">{_rules(arrow)}</text>'
            f'<text {label} fill="{color}">{_rules(arrow)}</text></g>'
        )

    def _predicate(self, one: Predicate, number: int) -> str:
        x, y, width = self.x(number), self.y(number), self.layout.boxes[number].width
        if one.kind == "fact":
            fill, shape = "#f3f3f0", "rect"
            corner = f'x="{x - width / 2:.1f}" y="{y - BOX_HEIGHT / 2:.1f}"'
            place = f'{corner} width="{width:.1f}" height="{BOX_HEIGHT}" rx="6"'
        else:
            fill, shape = "#fff4d6", "ellipse"
            place = f'cx="{x:.1f}" cy="{y:.1f}" rx="{width / 2:.1f}" ry="{BOX_HEIGHT / 2}"'
        note = _note(one)
        base, half = y + (-2.5 if note else 4.5), LETTER * len(_name(one)) / 2
        under = ""
        if one.kind != "fact":  # drawn as a line, because not every viewer supports text-decoration
            line = f"M{x - half:.1f} {base + UNDERLINE:.1f} H{x + half:.1f}"
            under = f'<path d="{line}" stroke="#222222" stroke-width="1.1"/>'
        if note:
            small = 'text-anchor="middle" font-size="10" fill="#666666"'
            under += f'<text x="{x:.1f}" y="{y + 14:.1f}" {small}>{note}</text>'
        return (
            f'<{shape} {place} fill="{fill}" stroke="#444444" stroke-width="1.3"{_dashes(EVENT_DASHES[one.kind])}/>'
            f'<text x="{x:.1f}" y="{base:.1f}" text-anchor="middle">{_safe(_name(one))}</text>{under}'
        )


def _legend(graph: Graph) -> Iterator[tuple[float, str]]:
    """Yield the entries of the legend with their widths, only for signs in the picture."""
    for kind, (color, dash, words) in STYLES.items():
        if any(arrow.kind == kind for arrow in graph.arrows):
            line = f'<path d="M0 0 H34" stroke="{color}" stroke-width="2"{_dashes(dash)} marker-end="url(#{kind})" fill="none"/>'
            yield _entry(line, words)
    if any(one.negated for arrow in graph.arrows for one in arrow.conditions):
        ring = '<path d="M0 0 H34" stroke="#444444"/><circle cx="8" cy="0" r="4.5" fill="#ffffff" stroke="#444444" stroke-width="1.6"/>'
        yield _entry(ring, "not")
    for kind, words in (("event", "event"), ("exogenous", "exogenous event")):
        if any(one.kind == kind for one in graph.predicates):
            dashes = _dashes(EVENT_DASHES[kind])
            yield _entry(f'<ellipse cx="17" cy="0" rx="16" ry="8" fill="#fff4d6" stroke="#444444"{dashes}/>', words)


def _entry(sign: str, words: str) -> tuple[float, str]:
    text = f'<text x="42" y="3.5" font-size="10" fill="#333333" xml:space="preserve">{escape(words)}</text>'
    return 42 + SMALL * len(words) + 18, sign + text


def _dashes(pattern: str) -> str:
    return f' stroke-dasharray="{pattern}"' if pattern else ""


def _rules(arrow: Arrow) -> str:
    return f"{len(arrow.rules)} rules" if len(arrow.rules) > 3 else ", ".join(map(str, arrow.rules))


def _name(one: Predicate) -> str:
    return one.label if len(one.label) <= LONGEST else f"{one.label[: LONGEST - 1]}…"


def _note(one: Predicate) -> str:
    notes = [f"dim {one.dim}"] if one.dim is not None and one.name != "bos" else []
    notes += [f"{one.facts:,} facts" if one.facts != 1 else "1 fact"] if one.facts else []
    return " · ".join(notes)


def _width(one: Predicate) -> float:
    text = max(LETTER * len(_name(one)), SMALL * len(_note(one)))
    return max(64.0, text + 24 if one.kind == "fact" else text * 1.12 + 34)


def _safe(text: str) -> str:
    return escape(printable(text.replace("\n", " · ")))
