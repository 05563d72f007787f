"""However a stream is cut into chunks, the events are those of a slow reading by the standard's own words."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sidecar.providers.sse import SseDecoder

LINES = st.sampled_from(
    [b"data: a", b"data:b", b"data", b"data: \xe4\xbd\xa0", b"event: e", b"event", b": c", b"id: 1", b"", b"x",
     b"data: a\xe2\x80\xa8b", b"retry: 3", b":", b"data:  two"]
)  # fmt: skip
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
STREAMS = st.lists(st.tuples(LINES, ENDS), max_size=20).map(lambda ls: b"".join(a + b for a, b in ls))


def slowly(stream: bytes) -> list[tuple[str, bytes]]:
    """The standard's algorithm over the whole stream at once."""
    stream = stream.removeprefix(b"\xef\xbb\xbf")
    text = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events, name, data = [], b"", None
    for line in text.split(b"\n")[:-1]:
        if not line:
            if data is not None:
                events.append((name.decode(), data[:-1]))
            name, data = b"", None
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data = (data or b"") + value + b"\n"
        elif field == b"event":
            name = value
    return events


@given(STREAMS, st.booleans(), st.lists(st.integers(0, 400), max_size=12))
def test_any_cut_gives_the_same_events(stream: bytes, mark: bool, cuts: list[int]) -> None:
    stream = b"\xef\xbb\xbf" * mark + stream
    places = sorted({min(c, len(stream)) for c in cuts} | {0, len(stream)})
    decoder = SseDecoder()
    events = [e for a, b in pairwise(places) for e in decoder.feed(stream[a:b])]
    assert [(e.name, e.data) for e in events] == slowly(stream)


@given(st.binary(max_size=300))
def test_no_bytes_break_it(stream: bytes) -> None:
    whole, single = SseDecoder(), SseDecoder()
    events = whole.feed(stream)
    assert [e for i in range(len(stream)) for e in single.feed(stream[i : i + 1])] == events
    assert single.finish() == whole.finish()
