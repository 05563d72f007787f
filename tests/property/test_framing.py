"""Framing: however the bytes are cut, the same frames come out, and nothing between them hurts."""

from __future__ import annotations

import itertools
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.rpc.framing import Decoded, Decoder, Framing, Malformed, Oversized, encode

LIMIT = 64
FRAMINGS: list[Framing] = ["lines", "headers"]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
payloads = values.map(lambda value: json.dumps({"v": value}, ensure_ascii=False).encode())
TOKENS = (
    b"Content-Length: 5\r\n\r\n",
    b"content-length:3\n\n",
    b"Content-Length: x\r\n",
    b"Content-Length: 900\r\n\r\n",
    b"Content-Type: a\r\n",
    b"\r\n",
    b"\n",
    b" ",
    b"{}",
    b"hello",
    b'{"a":1}\n',
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"x" * 70,
)
tokens = st.sampled_from(TOKENS)
streams = st.lists(tokens | st.binary(max_size=6), max_size=25).map(b"".join)


def decode(pieces: list[bytes], limit: int = LIMIT) -> list[Decoded]:
    decoder = Decoder(limit)
    out = [frame for piece in pieces for frame in decoder.feed(piece)]
    return [bytes(f) if isinstance(f, bytearray) else f for f in out + decoder.finish()]


def cut(data: bytes, at: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(i % (len(data) + 1) for i in at)})
    return [data[a:b] for a, b in itertools.pairwise(marks)]


@given(streams, st.lists(st.integers(0, 2000), max_size=12))
def test_any_bytes_decode_the_same_however_they_are_cut(data: bytes, at: list[int]) -> None:
    assert decode(cut(data, at)) == decode([data])


@given(st.lists(payloads, min_size=1, max_size=6), st.sampled_from(FRAMINGS))
def test_every_cut_of_two_pieces_gives_all_frames(frames: list[bytes], framing: Framing) -> None:
    data = b"\r\n \n" + b"".join(encode(framing, frame) for frame in frames)
    for position in range(len(data) + 1):
        assert decode([data[:position], data[position:]], limit=4096) == frames


@pytest.mark.parametrize("framing", FRAMINGS)
def test_byte_by_byte(framing: Framing) -> None:
    frames = [b'{"a":"\xe2\x80\xa8 \xc2\x85 \\n"}', b"[]", b'"' + b"y" * 50 + b'"']
    data = b"".join(encode(framing, frame) for frame in frames)
    assert decode([data[i : i + 1] for i in range(len(data))]) == frames


@given(st.lists(st.tuples(st.binary(max_size=40), payloads), min_size=1, max_size=6))
def test_garbage_between_lines_leaves_the_frames_whole(parts: list[tuple[bytes, bytes]]) -> None:
    garbage = [junk.replace(b"\n", b"") for junk, _ in parts]
    data = b"{}\n" + b"".join(junk + b"\n" + frame + b"\n" for junk, (_, frame) in zip(garbage, parts, strict=True))
    wanted = [line for junk, (_, frame) in zip(garbage, parts, strict=True) for line in (junk, frame) if line.strip()]
    assert decode([data], limit=4096) == [b"{}", *wanted]


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=40), payloads), min_size=1, max_size=6),
    st.lists(st.integers(0, 999)),
)
def test_garbage_between_header_frames_is_reported_and_passed(parts: list[tuple[bytes, bytes]], at: list[int]) -> None:
    data = encode("headers", b"{}")
    for junk, frame in parts:
        data += b"!" + junk.replace(b":", b"") + b"\r\n" + encode("headers", frame)
    out = decode(cut(data, at), limit=4096)
    assert [frame for frame in out if not isinstance(frame, Malformed)] == [b"{}", *(frame for _, frame in parts)]
    assert sum(isinstance(frame, Malformed) for frame in out) == len(parts)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_the_frame_after_a_large_one_is_served(framing: Framing) -> None:
    big = b'{"jsonrpc":"2.0","id":"s-7","result":"' + b"z" * 9000 + b'","last":1}'
    data = encode(framing, big) + encode(framing, b"{}")
    out = decode([data], limit=5000)
    assert out == [Oversized(big[:4096], big[-4096:]), b"{}"]
    assert decode([data], limit=len(big)) == [big, b"{}"]
    assert decode([data], limit=len(big) - 1)[0] == out[0]


@pytest.mark.parametrize("framing", FRAMINGS)
def test_what_is_too_large_is_not_kept(framing: Framing) -> None:
    decoder = Decoder(1 << 20)
    piece = b"a" * 65536
    decoder.feed(b'{"a":' if framing == "lines" else b"Content-Length: %d\r\n\r\n" % (33 << 20))
    tracemalloc.start()
    for _ in range((33 << 20) // len(piece)):
        decoder.feed(piece)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
    assert isinstance(decoder.feed(b"a" * 65536 + b"\n")[0] if framing == "lines" else Oversized(b"", b""), Oversized)
    assert decoder.framing == framing


def test_one_byte_at_a_time_costs_no_more_than_the_frame() -> None:
    decoder = Decoder(1 << 20)
    tracemalloc.start()
    for _ in range(1 << 18):
        decoder.feed(b"a")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20


@pytest.mark.parametrize(
    ("data", "framing"),
    [
        (b'{"a":1}\n', "lines"),
        (b"\r\n\ncOnTeNt-LeNgTh: 2\r\n\r\n{}", "headers"),
        (b"content\n", "lines"),
        (b"Content-Len", None),
    ],
)
def test_the_first_bytes_tell_the_framing(data: bytes, framing: Framing | None) -> None:
    decoder = Decoder(LIMIT)
    for i in range(len(data)):
        decoder.feed(data[i : i + 1])
    assert decoder.framing == framing


def test_other_headers_and_bare_newlines_are_taken() -> None:
    data = b"Content-Length: 2\nContent-Type: application/vscode-jsonrpc; charset=utf-8\n\n{}"
    assert decode([data]) == [b"{}"]
    assert decode([b"Content-Length: 2\r\n\r\n{}\r\nX-Other: 1\r\nContent-Length: 2\r\n\r\n[]"]) == [b"{}", b"[]"]


@pytest.mark.parametrize(
    "block",
    [
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: abc\r\n\r\n",
        b"X: 1\r\n\r\n",
        b"Content-Length: 5 5\r\n\r\n",
        b"Content-Length: 99999999999999999999\r\n\r\n",
        b"X: " + b"y" * 9000 + b"\r\n\r\n",
        b"\x00\r\n",
        b"Content-Length: 5\r\nno header\r\n\r\n",
    ],
)
def test_a_bad_header_block_is_one_report(block: bytes) -> None:
    first, last = encode("headers", b"{}"), encode("headers", b"[]")
    assert decode([first + block + last]) == [b"{}", Malformed(), b"[]"]


def test_an_unterminated_last_line_is_a_frame_and_an_announced_body_is_none() -> None:
    assert decode([b'{"a":1}\n{"b":2}']) == [b'{"a":1}', b'{"b":2}']
    assert decode([b"Content-Length: 20\r\n\r\n{}"]) == []


def test_before_anything_came_a_line_ends_so_that_a_header_reader_skips_it() -> None:
    ready = encode(None, b'{"jsonrpc":"2.0","method":"system.ready"}')
    assert ready.endswith(b"}\r\n")
    headers = (ready + encode("headers", b"{}")).partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert dict(line.split(b": ", 1) for line in headers if b": " in line) == {b"Content-Length": b"2"}
    assert decode([ready]) == [ready.rstrip(b"\n")]
