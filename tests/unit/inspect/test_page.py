"""The page is one file that needs nothing else and lets nothing of the log become markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from record_store import records as r
from sidecar.inspect import build, render
from sidecar.inspect.charts import MAX_POINTS, thinned
from sidecar.inspect.report import Point
from sidecar.inspect.words import duration, escaped, moment, short
from tests.unit.inspect.sample import Session, reviewer, thirty_compactions

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u2028\u202e \x00\x1b[31m"
VOID = {"meta", "br", "img", "input", "link", "hr", "base"}


class Checker(HTMLParser):
    """Tags in order, that every one is closed, and every attribute that names a place elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.places: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "action", "data", "poster"):
                self.places.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} closes nothing"


def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids))
    return checker


def page_of(session: Session, *others: tuple[str, Session]) -> str:
    return render(build([("main", session.log()), *((name, s.log()) for name, s in others)]))


def hostile() -> Session:
    """A log in which everything that may be a text is an attack."""
    session = Session(session_id="demo")
    session._add(r.ConfigUpdate, title=HOSTILE, cwd=HOSTILE, model=HOSTILE, window=50_000)
    session.begin_turn(HOSTILE)
    session.a_step()
    session.say("tool", HOSTILE, 10, name=HOSTILE)
    compaction = session.start_compaction(instruction=HOSTILE)
    session.land(compaction, "excerpt")
    session.cancel(session.start_compaction(), HOSTILE)
    session.reasons = [HOSTILE]
    session.cached = 0
    session.a_step()
    session.end_turn()
    session._add(r.AgentSpawn, agent_id="sub", turn_id="t", tool_call_id="c", purpose=HOSTILE)
    return session


def test_the_page_is_whole_html_and_needs_no_network() -> None:
    page = page_of(thirty_compactions(), ("reviewer", reviewer()))
    checker = checked(page)
    assert all(place.startswith("#") for place in checker.places)
    assert checker.tags.count("script") == 2
    assert checker.handlers == []
    assert not re.search(r"https?://(?!www\.w3\.org/)|@import|url\(", page)
    script = re.findall(r"<script>(.*?)</script>", page, re.S)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page


def test_nothing_of_the_log_becomes_markup() -> None:
    plain, page = checked(page_of(thirty_compactions())), page_of(hostile(), ("sub", hostile()))
    checker = checked(page)
    assert set(checker.tags) <= set(plain.tags) | {"ul", "li", "a", "header"}
    assert checker.tags.count("script") == 2
    assert "img" not in checker.tags
    assert checker.handlers == []
    assert "\x00" not in page
    assert "\x1b" not in page
    data = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[0]
    assert "<" not in data
    assert "\u2028" not in data
    assert json.loads(data)[0]["turns"][0][8].startswith("</script>")


def test_every_bracket_has_its_card_with_price_size_and_outcome() -> None:
    page = page_of(thirty_compactions())
    ids = checked(page).ids
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page, re.S)[0])[0]
    assert len(data["compactions"]) == 32
    assert all(c["anchor"] in ids for c in data["compactions"])
    assert page.count('class="cmp"') == 32
    assert page.count('data-outcome="landed"') == 30
    assert "What it replaced:" in page
    assert "did not land (provider_unavailable)" in page
    assert "landed as an excerpt" in page
    assert '<span class="chip bad">unexplained</span>' in page


def test_an_empty_session_has_a_page() -> None:
    checked(render(build([])))
    checked(page_of(Session()))


def test_a_curve_is_thinned_without_losing_its_peaks() -> None:
    points = tuple(Point(i, i, 1_000 + i % 97) for i in range(50_000))
    points = (*points[:30_001], Point(30_001, 30_001, 99_999), Point(30_002, 30_002, 1), *points[30_003:])
    thin = thinned(points)
    assert len(thin) <= MAX_POINTS + 4
    assert {99_999, 1} <= {p.used for p in thin}
    assert (thin[0], thin[-1]) == (points[0], points[-1])
    assert thin == sorted(thin, key=lambda p: p.x)
    assert thinned(points[:10]) == list(points[:10])


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (999, "999"), (1_000, "1k"), (1_234, "1.2k"), (47_375_265, "47.4M"), (3e9, "3G")]
)
def test_figures_are_short(value: int, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (9_570, "9.6 s"), (61_000, "1 min 1 s"), (7_260_000, "2 h 1 min"), (10**9, "11 days 13 h")],
)
def test_durations_are_in_words(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_times_that_are_none_are_dashes() -> None:
    assert moment(1_767_600_000_000) == "2026-01-05 08:00"
    assert [moment(0), moment(-1), moment(10**18)] == ["–", "–", "–"]
    assert escaped("<\x07\ud83d>\n") == "&lt;\ufffd\ufffd&gt;\n"
