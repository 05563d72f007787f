"""The inspector's page in a real browser: a session of thirty landings, light and dark, wide and on a phone."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.inspect import build, render
from tests.support import browser
from tests.unit.inspect.sample import reviewer, thirty_compactions

pytestmark = pytest.mark.skipif(browser.missing() is not None, reason=f"NOT TESTED: {browser.missing()}")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = render(build([("main", thirty_compactions().log()), ("reviewer", reviewer().log())]))
    path = tmp_path_factory.mktemp("page") / "session.html"
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(file: Path) -> Iterator[browser.Page]:
    with browser.chromium() as page:
        page.open(file.as_uri())
        yield page


def size(png: Path) -> tuple[int, int]:
    width, height = struct.unpack(">II", png.read_bytes()[16:24])
    return width, height


def test_every_bracket_is_drawn_and_leads_to_its_card(page: browser.Page, tmp_path: Path) -> None:
    page.view(1240, 1000)
    assert page.run("return document.querySelectorAll('#a0 a.bracket').length") == 32
    assert page.run("return document.querySelectorAll('#a0 a.bracket[data-outcome=landed]').length") == 30
    rules = page.run("return [...document.querySelectorAll('#a0 path.rule')].map(r => r.dataset.rule)")
    assert rules == ["soft", "snip", "trigger", "block"]
    assert page.run("return document.querySelectorAll('#a0 path.loss.odd').length") == 1
    assert page.run("return document.querySelectorAll('#a0 path.rewrite').length") > 5

    assert not page.run("return document.getElementById('c0-7').open")
    page.click("#a0 a.bracket[data-outcome=cancelled]")
    assert page.run("return document.getElementById('c0-7').open")
    assert page.run("return location.hash") == "#c0-7"
    page.screenshot(tmp_path / "page.png")
    assert size(tmp_path / "page.png") == (1240, 1000)


def test_the_span_is_behind_a_click(page: browser.Page) -> None:
    page.view(1240, 1000)
    page.click("#c0-2 > summary")
    hidden = "return document.querySelector('#c0-2 .msgs').checkVisibility()"
    assert not page.run(hidden)
    page.click("#c0-2 details.sub:last-of-type > summary")
    assert page.run(hidden)
    assert "read_file" in page.run("return document.querySelector('#c0-2 .msgs').innerText")


def test_the_pointer_tells_what_is_under_it(page: browser.Page) -> None:
    page.view(1240, 1000)
    found = page.run(
        """
        const plot = document.querySelector('#a0 [data-chart=context] .scroll svg');
        plot.scrollIntoView({block: 'center'});
        const box = plot.getBoundingClientRect(), x = box.left + box.width / 2, y = box.top + box.height / 2;
        const move = new PointerEvent('pointermove', {clientX: x, clientY: y, bubbles: true});
        document.elementFromPoint(x, y).dispatchEvent(move);
        const tip = document.getElementById('tip');
        return [tip.hidden, tip.textContent];
        """
    )
    assert found[0] is False
    assert "tokens" in found[1]
    assert "% of 128k" in found[1]


def test_the_axis_can_be_time_and_the_chart_wider(page: browser.Page) -> None:
    page.view(1240, 1000)
    width = "return document.querySelector('#a0 [data-chart=context] .scroll svg').clientWidth"
    curve = "return document.querySelector('#a0 path.used').getAttribute('d')"
    before, steps = page.run(width), page.run(curve)
    page.click("#a0 [data-axis=time]")
    assert page.run(curve) != steps
    page.click("#a0 [data-axis=steps]")
    assert page.run(curve) == steps
    page.click("#a0 [data-zoom='2']")
    assert page.run(width) == pytest.approx(2 * before, rel=0.02)
    page.click("#a0 [data-zoom='0.5']")
    assert page.run(width) == before


def test_it_follows_light_and_dark_and_can_be_told(page: browser.Page) -> None:
    colour = "return getComputedStyle(document.body).backgroundColor"
    page.view(1240, 1000)
    light = page.run(colour)
    page.view(1240, 1000, dark=True)
    dark = page.run(colour)
    assert light != dark
    page.click("#theme")
    assert page.run(colour) == light
    page.click("#theme")
    page.view(1240, 1000)
    assert page.run(colour) == dark
    page.click("#theme")


def test_a_phone_shows_all_of_it_without_scrolling_sideways(page: browser.Page, tmp_path: Path) -> None:
    page.view(390, 844, scale=2)
    page.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.run("return document.documentElement.scrollWidth") == 390
    assert page.run("return document.querySelector('#a0 [data-chart=context]').getBoundingClientRect().right") <= 390
    smallest = page.run(
        "return Math.min(...[...document.querySelectorAll('main *')].filter(e => e.innerText?.trim())"
        ".map(e => parseFloat(getComputedStyle(e).fontSize)))"
    )
    assert smallest >= 11
    page.screenshot(tmp_path / "phone.png")
    assert size(tmp_path / "phone.png") == (780, 1688)


def test_the_browser_had_nothing_to_complain_about(page: browser.Page) -> None:
    assert page.complaints() == []
    asked = page.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert asked == [], "the page asked for something"
