"""The report as a person meets it: in a real browser, wide and narrow, light and dark, with the keyboard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import look

SECTIONS = (
    "data",
    "learning",
    "scores",
    "intensities",
    "futures",
    "fit",
    "calibration",
    "confusion",
    "functors",
    "moments",
)
CHARTS = (
    "frequent", "gaps", "learning", "forest", "course", "raster", "waiting", "qq", "surplus", "calibration", "tenths", "reliability",
    "scatter", "moments", "futures",
)  # fmt: skip
RIGHT = "\ue014"  # the arrow key


def found(driver: Any, selector: str) -> list[Any]:
    return driver.find_elements("css selector", selector)


def text(driver: Any, selector: str) -> str:
    (one,) = found(driver, selector)
    return one.text


def complaints(driver: Any) -> list[str]:
    return [entry["message"] for entry in driver.get_log("browser")]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_everything_is_there_nothing_overflows_and_nothing_is_complained_of(
    width: int, scheme: str, driver: Any, page: Path
):
    look(driver, page, width=width, scheme=scheme)
    assert complaints(driver) == []
    for name in SECTIONS:
        assert len(found(driver, f"section#{name} h2")) == 1, name
    for name in CHARTS:
        (place,) = found(driver, f'[data-chart="{name}"]')
        assert place.size["height"] > 60 and place.size["width"] > 200, name
    widest = driver.execute_script("return document.documentElement.scrollWidth")
    assert widest <= width, f"the page is {widest} pixels wide on a screen of {width}"
    assert driver.execute_script("return getComputedStyle(document.body).backgroundColor") == (
        "rgb(246, 247, 249)" if scheme == "light" else "rgb(16, 20, 26)"
    )


def test_charts_are_drawn_from_the_numbers(driver: Any, page: Path):
    look(driver, page)
    assert len(found(driver, '[data-chart="qq"] circle')) >= 2 * 36
    assert len(found(driver, '[data-chart="tenths"] rect')) >= 20
    assert len(found(driver, '[data-chart="scatter"] circle')) >= 2
    assert len(found(driver, '[data-chart="raster"] line')) >= 12
    assert len(found(driver, '[data-chart="learning"] path')) == 4  # dev and train of two runs


def test_names_in_the_data_are_shown_and_never_run(driver: Any, page: Path):
    look(driver, page)
    assert driver.execute_script("return window.hacked") is None
    assert driver.execute_script("return document.scripts.length") == 2
    assert not found(driver, "img") and not found(driver, "main b b") and not found(driver, "main section i i")
    shown = driver.execute_script("return document.body.textContent")
    for name in ("<script>window.hacked=1</script>", "<img src=x onerror=window.hacked=2>", "</script><b>&amp;"):
        assert name in shown, name
    assert text(driver, "h1") == "<u>hostile" and "<em>hours" in text(driver, "#data")


def test_a_script_that_got_in_would_not_run(driver: Any, page: Path, tmp_path: Path):
    whole = page.read_text(encoding="utf-8")
    broken = tmp_path / "broken.html"
    broken.write_text(whole.replace("<main", "<script>window.hacked=3</script><main", 1), encoding="utf-8")
    look(driver, broken)
    assert driver.execute_script("return window.hacked") is None
    assert any("Content Security Policy" in line for line in complaints(driver))


def test_nothing_is_requested_but_the_page_itself(driver: Any, page: Path):
    driver.get_log("performance")  # of earlier pages
    look(driver, page)
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = {one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"}
    assert page.as_uri() in asked and {one for one in asked if not one.startswith("data:")} == {page.as_uri()}


def test_the_slider_moves_the_moment_by_mouse_and_keyboard(driver: Any, page: Path):
    look(driver, page)
    (slider,) = found(driver, "#moment")
    here = int(slider.get_property("value"))
    before, facts = text(driver, ".now"), text(driver, ".truth")
    slider.send_keys(RIGHT)
    assert int(slider.get_property("value")) == here + 1
    assert text(driver, ".now") != before
    assert slider.get_attribute("aria-valuetext").startswith("just before ")
    found(driver, '[aria-label="Previous moment"]')[0].click()
    assert text(driver, ".now") == before and text(driver, ".truth") == facts


def test_the_slider_goes_through_every_moment_without_a_complaint(driver: Any, page: Path):
    look(driver, page)
    (slider,) = found(driver, "#moment")
    seen = set()
    for place in range(int(slider.get_attribute("max")) + 1):
        driver.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", slider, place
        )
        seen.add(text(driver, ".now"))
    assert len(seen) == 12 and complaints(driver) == []
    assert found(driver, '[aria-label="Next moment"]')[0].get_property("disabled")


def test_choosing_a_possible_event_shows_the_attention_behind_it(driver: Any, page: Path):
    look(driver, page)
    before = text(driver, ".two > div:nth-child(2) h3")
    (other, *_) = found(driver, '.possible button[aria-pressed="false"]')
    name = other.find_element("css selector", "b").text.removesuffix("happened").strip()
    other.click()
    after = text(driver, ".two > div:nth-child(2) h3")
    assert after != before and name in after
    assert found(driver, ".heads svg circle") and "nothing" in text(driver, ".heads li:first-child")
    assert len(found(driver, '.possible button[aria-pressed="true"]')) == 1


def test_another_run_can_be_chosen_over_time(driver: Any, page: Path):
    look(driver, page)
    before = text(driver, '[data-chart="course"] .legend')
    (choice,) = found(driver, "#intensities select")
    choice.find_element("css selector", 'option[value="1"]').click()
    after = text(driver, '[data-chart="course"] .legend')
    assert "all events" in after and after != before
    assert text(driver, '[data-chart="waiting"] .legend') == "anhp"


def test_what_is_under_the_pointer_is_told_in_numbers(driver: Any, page: Path):
    look(driver, page)
    circles = found(driver, '[data-chart="calibration"] circle')
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", circles[5])
    driver.set_script_timeout(5)
    driver.execute_async_script("setTimeout(arguments[0], 300)")  # scrolling takes the words away
    driver.execute_script(
        "const dot = arguments[0], box = dot.getBoundingClientRect();"
        "dot.ownerSVGElement.dispatchEvent(new PointerEvent('pointermove', {clientX: box.x + 2, clientY: box.y + 2, bubbles: true}))",
        circles[5],
    )
    assert "30 % intervals" in text(driver, "#tip")


def test_charts_are_drawn_anew_when_the_window_becomes_narrow(driver: Any, page: Path):
    look(driver, page)
    wide = found(driver, '[data-chart="learning"] svg')[0].size["width"]
    metrics = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.set_script_timeout(5)
    driver.execute_async_script("setTimeout(arguments[0], 400)")
    assert found(driver, '[data-chart="learning"] svg')[0].size["width"] < 390 < wide
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 390


def test_every_figure_has_a_caption_and_every_chart_a_label(driver: Any, page: Path):
    look(driver, page)
    for figure in found(driver, "figure"):
        assert len(figure.find_element("css selector", "figcaption").text) > 60
    assert all(one.get_attribute("aria-label") for one in found(driver, 'svg[role="img"]'))
    unnamed = [one for one in found(driver, "input, select, button") if not one.accessible_name]
    assert unnamed == []


def contrast(driver: Any, selector: str) -> float:
    """Of a text against what is behind it, as WCAG reckons it."""
    return driver.execute_script(
        """
        const level = (colour) => { const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map((one) => {
            const part = one / 255; return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; });
          return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const node = document.querySelector(arguments[0]);
        let behind = node;
        while (behind && getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
        const [a, b] = [level(getComputedStyle(node).color), level(getComputedStyle(behind).backgroundColor)];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        """,
        selector,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(scheme: str, driver: Any, page: Path):
    look(driver, page, scheme=scheme)
    for selector in (".subtitle", "figcaption", ".remark", "header nav a", ".card small", ".legend", ".mark", ".told"):
        assert contrast(driver, selector) >= 4.5, selector


def test_on_paper_it_is_dark_on_white_and_without_controls(driver: Any, page: Path):
    look(driver, page, scheme="dark")
    feature = {"name": "prefers-color-scheme", "value": "dark"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [feature]})
    try:
        assert driver.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert driver.execute_script("return getComputedStyle(document.body).color") == "rgb(27, 34, 48)"
        assert not any(one.is_displayed() for one in found(driver, ".controls"))
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
