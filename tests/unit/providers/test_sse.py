"""Bytes to events by the letter of the standard."""

from __future__ import annotations

import pytest

from sidecar.providers.sse import EventTooLarge, SseDecoder, SseEvent

CASES: list[tuple[str, bytes, list[tuple[str, bytes]]]] = [
    ("one", b"data: a\n\n", [("", b"a")]),
    ("no space after the colon", b"data:a\n\n", [("", b"a")]),
    ("only the first space goes", b"data:  a \n\n", [("", b" a ")]),
    ("several lines are joined", b"data: a\ndata: b\ndata\n\n", [("", b"a\nb\n")]),
    ("named", b"event: e\ndata: a\n\n", [("e", b"a")]),
    ("the name does not stay", b"event: e\ndata: a\n\ndata: b\n\n", [("e", b"a"), ("", b"b")]),
    ("without data there is none", b"event: e\n\nid: 4\n\ndata: a\n\n", [("", b"a")]),
    ("empty data is data", b"data\n\ndata:\n\n", [("", b""), ("", b"")]),
    ("comments", b": hello\n\n:\ndata: a\n: in between\ndata: b\n\n", [("", b"a\nb")]),
    ("unknown fields", b"foo: bar\nretry: 10\ndata: a\n\n", [("", b"a")]),
    ("carriage returns", b"data: a\r\rdata: b\r\r", [("", b"a"), ("", b"b")]),
    ("both", b"data: a\r\n\r\ndata: b\r\ndata: c\r\n\r\n", [("", b"a"), ("", b"b\nc")]),
    ("mixed", b"data: a\r\ndata: b\n\rdata: c\n\n", [("", b"a\nb"), ("", b"c")]),
    ("byte order mark", b"\xef\xbb\xbfdata: a\n\n", [("", b"a")]),
    ("only the first one", b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", [("", b"b")]),
    ("no break at these", "data: a\u2028b\u2029c\u0085d\x0be\x0cf\n\n".encode(),
     [("", "a\u2028b\u2029c\u0085d\x0be\x0cf".encode())]),
    ("a second event right behind", b"data: a\n\n\n\ndata: b\n\n", [("", b"a"), ("", b"b")]),
    ("bad utf-8 stays as it is", b"data: \xff\n\n", [("", b"\xff")]),
]  # fmt: skip


def read(stream: bytes, size: int) -> list[tuple[str, bytes]]:
    decoder = SseDecoder()
    events: list[SseEvent] = []
    for i in range(0, len(stream), size):
        events += decoder.feed(stream[i : i + size])
    assert decoder.finish() is None
    return [(e.name, e.data) for e in events]


@pytest.mark.parametrize(("stream", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1 << 20])
def test_the_letter(stream: bytes, wanted: list[tuple[str, bytes]], size: int) -> None:
    assert read(stream, size) == wanted


@pytest.mark.parametrize(
    ("stream", "wanted"),
    [(b"data: a", b"a"), (b"data: a\n", b"a"), (b"data: a\ndata: b", b"a\nb"), (b"data: a\r", b"a")],
)
def test_an_event_that_the_stream_ends_in_is_handed_over_last(stream: bytes, wanted: bytes) -> None:
    decoder = SseDecoder()
    assert decoder.feed(stream) == []
    assert decoder.finish() == SseEvent("", wanted)
    assert decoder.finish() is None


def test_the_end_of_a_whole_stream_is_no_event() -> None:
    decoder = SseDecoder()
    decoder.feed(b"data: a\n\n: bye")
    assert decoder.finish() is None


def test_an_event_is_told_as_soon_as_its_line_ends() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\r\n\r") == [SseEvent("", b"a")]
    assert decoder.feed(b"\ndata: b\n\n") == [SseEvent("", b"b")]


def test_the_last_id_is_kept() -> None:
    decoder = SseDecoder()
    decoder.feed(b"id: 7\ndata: a\n\nid: bad\x00\n\n")
    assert decoder.last_event_id == "7"


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 100, b": " + b"x" * 100, (b"data: " + b"x" * 30 + b"\n") * 4])
def test_too_large(stream: bytes) -> None:
    with pytest.raises(EventTooLarge):
        SseDecoder(max_event_bytes=90).feed(stream)


def test_many_small_events_are_never_too_large() -> None:
    decoder = SseDecoder(max_event_bytes=90)
    assert len(decoder.feed(b"data: " + b"x" * 50 + b"\n\n" + b"data: y\n\n" * 50)) == 51


def test_a_huge_event_in_small_pieces() -> None:
    """Were the search to begin at the start again for every piece, this would take minutes."""
    decoder = SseDecoder()
    decoder.feed(b"data: ")
    for _ in range(1 << 16):
        decoder.feed(b"x" * 256)
    assert decoder.feed(b"\n\n") == [SseEvent("", b"x" * (1 << 24))]
