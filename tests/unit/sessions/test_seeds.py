"""A host's transcript against ours."""

from __future__ import annotations

from protocol.chat import HostMessage
from protocol.messages import Message, Origin, TextPart
from record_store.fold import Entry
from sidecar.sessions.seeds import kept_until, match
from tests.support.conversation import assistant, result, user

NOTE = user("today is monday", origin=Origin("injection", variant="date"))


def host(*pairs: tuple[str, str]) -> list[HostMessage]:
    return [HostMessage(role, (TextPart(text),), id="theirs") for role, text in pairs]  # type: ignore[arg-type]


RAW: list[Message] = [user("one"), assistant("1"), user("two"), assistant("2")]


def test_equal() -> None:
    found = match(host(("user", "one"), ("assistant", "1"), ("user", "two"), ("assistant", "2")), RAW)
    assert (found.common, found.diverged) == (4, False)


def test_longer() -> None:
    found = match(host(*[(m.role, m.text) for m in RAW], ("user", "three")), RAW)
    assert (found.common, found.diverged) == (4, False)


def test_different_from_the_third_on() -> None:
    found = match(host(("user", "one"), ("assistant", "1"), ("user", "TWO")), RAW)
    assert (found.common, found.ours, found.diverged) == (2, 2, True)


def test_shorter_means_that_the_rest_is_gone() -> None:
    found = match(host(("user", "one"), ("assistant", "1")), RAW)
    assert (found.common, found.ours, found.diverged) == (2, 2, True)


def test_what_only_we_have_is_passed_over() -> None:
    raw = [NOTE, user("one"), assistant("", "c1"), result("c1"), assistant("1")]
    found = match(host(("system", "be nice"), ("user", "one"), ("assistant", "1")), raw)
    assert (found.common, found.diverged) == (2, False)


def test_a_host_that_keeps_tool_exchanges_is_matched_with_them() -> None:
    raw = [user("one"), assistant("look", "c1"), result("c1", "out"), assistant("1")]
    theirs = host(("user", "one"), ("assistant", "look"), ("tool", "OTHER"), ("assistant", "1"))
    assert match(theirs, raw).common == 2


def entries(*messages: Message) -> list[Entry]:
    return [Entry(m, line) for line, m in enumerate(messages, 1)]


SUMMARY = user("what was", origin=Origin("compaction_summary"))


def test_without_a_summary_the_context_is_cut_where_it_differs() -> None:
    assert kept_until(entries(NOTE, *RAW), RAW, 2) == (3, ())


def test_after_the_summary_only_the_end_goes() -> None:
    assert kept_until(entries(SUMMARY, RAW[2], RAW[3]), RAW, 3) == (2, ())


def test_what_a_summary_tells_of_comes_again_without_it() -> None:
    assert kept_until(entries(RAW[0], SUMMARY, RAW[3]), RAW, 1) == (0, (RAW[0],))
    # Kept user text stands before the summary: to cut there would leave out what the summary told.
    assert kept_until(entries(RAW[0], RAW[2], SUMMARY), RAW, 2) == (0, tuple(RAW[:2]))
