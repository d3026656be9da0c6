"""The picture of a program: everything is in it, nothing overlaps, and lines end at borders."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest

from foretell.lang.graph import graph_json, graph_lines, graph_of
from foretell.lang.svg import UNDERLINE, arrange, draw
from tests.lang.reading import program

FORUM = """
:- event(message, 16). :- event(join). :- exogenous(create). :- exogenous(destroy). :- embed(empl, 8).
empl(eve). empl(adam). content(joke).
message(P,T,C) :- member(P,T), empl(P), forum(T), content(C).
join(P,T) :- empl(P), forum(T), not member(P,T).
forum(T) <- create(T).
forum(T) <- message(_,T,C), content(C) :: post(C).
!forum(T) <- destroy(T).
member(P,T) <- join(P,T).
member(P,T) <- join(P,T), P != adam.
mood(P) <- bos, empl(P).
busy(P) :- member(P,_).
tired(P) :- busy(P), mood(P).
tired(P) :- tired(P), busy(P).
"""
SPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def picture() -> ElementTree.Element:
    return ElementTree.fromstring(draw(graph_of(program(FORUM)), "forum.ndtt"))


def boxes(picture: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    found = []
    for one in picture.findall(f"{SPACE}rect")[1:]:
        x, y, width, height = (float(one.attrib[name]) for name in ("x", "y", "width", "height"))
        found.append((x, y, x + width, y + height))
    for one in picture.findall(f"{SPACE}ellipse"):
        x, y, rx, ry = (float(one.attrib[name]) for name in ("cx", "cy", "rx", "ry"))
        found.append((x - rx, y - ry, x + rx, y + ry))
    return found


def test_alike_rules_are_one_arrow_and_facts_are_counted():
    graph = graph_of(program(FORUM))
    arrow = next(one for one in graph.arrows if one.head == "member")
    assert (arrow.kind, arrow.rules) == ("add", (6, 7))
    assert {one.name: one.facts for one in graph.predicates}["empl"] == 2
    lines = list(graph_lines(graph))
    assert "  :-   empl, forum, not member  [rule2]" in lines
    assert "  <- ! destroy  [rule5]" in lines
    assert graph_json(graph)["arrows"][0]["rules"] == ["rule1"]  # type: ignore[index]


def test_every_predicate_is_a_box_or_an_underlined_ellipse_and_every_arrow_a_dot(picture: ElementTree.Element):
    graph = graph_of(program(FORUM))
    facts = [one for one in graph.predicates if one.kind == "fact"]
    assert len(picture.findall(f"{SPACE}rect")) == 1 + len(facts)
    assert len(picture.findall(f"{SPACE}ellipse")) == len(graph.predicates) - len(facts)
    dots = [
        one
        for one in picture.iter(f"{SPACE}circle")
        if one.attrib.get("r") == "4.5" and one.attrib["fill"] != "#ffffff"
    ]
    assert len(dots) == len(graph.arrows)
    text = " ".join(picture.itertext())
    for words in ("message/3", "busy/1", "bos", "6, 7", "deduced", "added", "removed", "exogenous event", "2 facts"):
        assert words in text
    underlines = [one for one in picture.findall(f"{SPACE}path") if one.attrib.get("stroke") == "#222222"]
    assert len(underlines) == len(graph.predicates) - len(facts)
    bases = {float(one.attrib["y"]) for one in picture.findall(f"{SPACE}text") if one.text in ("message/3", "create/1")}
    lines = {float(one.attrib["d"].split()[1]) for one in underlines}
    assert all(min(abs(line - base - UNDERLINE) for line in lines) < 0.2 for base in bases)
    assert UNDERLINE > 5, "a `_` reaches down about 3 px, and its line must stay apart from it"


def test_kinds_of_arrows_differ_in_colour_and_dash(picture: ElementTree.Element):
    lines = [one.attrib for one in picture.findall(f"{SPACE}path") if "marker-end" in one.attrib]
    looks = {(one["marker-end"], one["stroke"], one.get("stroke-dasharray")) for one in lines}
    assert len(looks) == 3
    assert len({look[1] for look in looks}) == len({look[2] for look in looks}) == 3


def test_boxes_do_not_overlap_and_are_inside_the_picture(picture: ElementTree.Element):
    found = boxes(picture)
    for one, other in combinations(found, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    assert all(x0 >= 0 and y0 >= 0 and x1 <= width and y1 <= height for x0, y0, x1, y1 in found)


def test_lines_end_at_borders_and_cross_no_box(picture: ElementTree.Element):
    found = boxes(picture)
    for one in picture.findall(f"{SPACE}path"):
        if one.attrib.get("stroke") == "#222222":
            continue
        numbers = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", one.attrib["d"])]
        points = list(zip(numbers[::2], numbers[1::2], strict=True))
        corners = [points[0], *points[3::3]]
        if "marker-end" in one.attrib:
            x, y = corners[-1]
            assert any((x0 <= x <= x1) and (abs(y - y0) < 9 or abs(y - y1) < 9) for x0, y0, x1, y1 in found), (
                "an arrow ends at no border"
            )
        for (ax, ay), (bx, by) in pairwise(corners):
            for step in range(1, 20):
                share = step / 20
                # the curve of `C ax m bx m bx by`, with vertical ends
                x = ax * (1 - share) ** 2 * (1 + 2 * share) + bx * share**2 * (3 - 2 * share)
                y = ay + (by - ay) * (1.5 * share * (1 - share) + share**3)
                inside = [
                    b
                    for b in found
                    if b[0] + 1 < x < b[2] - 1 and b[1] + 1 < y < b[3] - 1 and not _ellipse_corner(b, x, y, picture)
                ]
                assert not inside, (x, y, inside)


def _ellipse_corner(box: tuple[float, float, float, float], x: float, y: float, picture: ElementTree.Element) -> bool:
    """Inside the box around an ellipse, outside the ellipse."""
    for one in picture.findall(f"{SPACE}ellipse"):
        cx, cy, rx, ry = (float(one.attrib[name]) for name in ("cx", "cy", "rx", "ry"))
        if abs(cx - (box[0] + box[2]) / 2) < 0.2 and abs(cy - (box[1] + box[3]) / 2) < 0.2:
            return ((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2 > 0.9
    return False


def test_names_that_are_markup_are_shown_as_they_are():
    text = draw(graph_of(program("'<b>&'(x). a :- '<b>&'(_).")), "<t>")
    found = ElementTree.fromstring(text)
    assert "'<b>&'/1" in [one.text for one in found.iter(f"{SPACE}text")]


def test_an_empty_program_and_one_of_facts_alone_have_pictures():
    for text in ("", "a."):
        assert ElementTree.fromstring(draw(graph_of(program(text)), "x")).tag == f"{SPACE}svg"


def test_a_row_keeps_its_gaps_where_all_want_the_same_place():
    layout = arrange([40.0] * 6, [0, 1, 1, 1, 1, 1], [(0, number) for number in range(1, 6)], 10.0)
    xs = sorted(layout.boxes[number].x for number in range(1, 6))
    assert all(b - a >= 50 - 1e-9 for a, b in pairwise(xs))
    assert abs(layout.boxes[0].x - xs[2]) < 1e-6
