"""`record_store.seen`: what was noted is found, what was not is hardly ever."""

from __future__ import annotations

from record_store import seen


def test_what_was_noted_is_found_and_an_empty_filter_costs_nothing() -> None:
    names = bytearray()
    assert not seen.holds(names, "call_1")
    for n in range(1000):
        seen.note(names, f"call_{n}")
    assert all(seen.holds(names, f"call_{n}") for n in range(1000))
    assert len(names) == seen.SIZE
    mistaken = sum(seen.holds(names, f"functions.read:{n}") for n in range(100_000))
    assert mistaken < 100


def test_two_become_one() -> None:
    one, two = bytearray(), bytearray()
    seen.merge(one, two)
    assert one == b""
    seen.note(two, "b")
    seen.merge(one, two)
    seen.note(one, "a\ud800")
    assert seen.holds(one, "b")
    assert seen.holds(one, "a\ud800")
    assert not seen.holds(two, "a\ud800")
