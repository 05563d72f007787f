"""Lines: what is written, and what is read of whatever is there."""

from __future__ import annotations

import json
from zlib import crc32

import msgspec
import pytest

from protocol.messages import Message, TextPart, ToolSpec
from record_store import records as r
from record_store.conformance import message, metadata
from record_store.decoder import Unknown, as_object, decode, decode_line
from record_store.encoder import encode
from record_store.errors import RecordRejected
from tests.support.store import full_conversation, lines_of


def whole(text: bytes) -> bytes:
    """A line without newline whose checksum is right, whatever it says."""
    return text + b',"crc":"%08x"}' % crc32(text)


ONE, TWO = (encode(message(n), n)[:-1] for n in (7, 8))


def test_a_line_is_what_the_format_says() -> None:
    line = encode(r.Undo(5, 1, 2), 12)
    head = b'{"seq":12,"type":"context.undo","time":5,"turns":1,"keep":2'
    assert line == head + b',"crc":"%08x"}\n' % crc32(head)
    assert list(json.loads(line)) == ["seq", "type", "time", "turns", "keep", "crc"]


def test_every_record_type_comes_back_as_it_was() -> None:
    records = [metadata("one"), *full_conversation()]
    assert {type(record) for record in records} == set(r.RECORDS)
    for number, (record, line) in enumerate(zip(records, lines_of(records), strict=True), 1):
        assert line.endswith(b"\n")
        assert b"\n" not in line[:-1]
        assert decode(line[:-1]) == record
        decoded = decode_line(line[:-1], number)
        assert [(w.seq, w.record) for w in decoded.records] == [(number, record)]
        assert decoded.damage is None
        assert as_object(line[:-1]) == json.loads(line)


@pytest.mark.parametrize("kind", ["context.undo", "of.a.newer.version"])
@pytest.mark.parametrize("separators", [(", ", ": "), (",", ": "), (" , ", " : ")])
def test_blanks_of_another_writer_change_nothing(kind: str, separators: tuple[str, str]) -> None:
    fields = {"seq": 7, "type": kind, "time": 5, "turns": 1, "keep": 2}
    line = whole(json.dumps(fields, separators=separators)[:-1].encode())
    record = r.Undo(5, 1, 2) if kind == "context.undo" else Unknown(kind)
    for raw, damage, found in ((line, None, 1), (line + ONE, "glued", 2), (line + b"{torn", "json", 1)):
        decoded = decode_line(raw, 7)
        assert len(decoded.records) == found
        assert (decoded.records[0].seq, decoded.records[0].record) == (7, record)
        assert (decoded.damage and decoded.damage.kind) == damage
    assert decode(line) == (None if isinstance(record, Unknown) else record)


@pytest.mark.parametrize(
    "record",
    [
        message(1, "lone \ud800 surrogate"),
        r.ConfigUpdate(1, config={"n": object()}),
        r.ToolsSnapshot(1, (ToolSpec(name="t", parameters={"x": {1, 2}, "y": b"\xff", "z": 1j}),)),
    ],
    ids=["surrogate", "object", "complex"],
)
def test_what_has_no_encoding_is_refused(record: r.Record) -> None:
    with pytest.raises(RecordRejected):
        encode(record, 1)


def test_endless_nesting_is_refused() -> None:
    loop: dict[str, object] = {}
    loop["loop"] = loop
    with pytest.raises(RecordRejected):
        encode(r.ConfigUpdate(1, config=loop), 1)


@pytest.mark.parametrize(
    "text",
    [
        b'{"seq":3,"type":"context.future","time":1,"x":[1,{"y":null}]',
        b'{"seq":3,"type":"context.undo","time":1,"turns":"many","keep":0',
        b'{"seq":3,"type":"turn.end","time":1,"turn_id":"t","stop_reason":"new_reason","usage":{}',
        b'{"seq":3,"time":1',
        b'{"seq":3,"type":7,"time":1',
    ],
    ids=["type", "shape", "word", "none", "number"],
)
def test_whole_records_of_a_newer_version_are_unknown_not_damaged(text: bytes) -> None:
    decoded = decode_line(whole(text), 3)
    assert decode(whole(text)) is None
    assert decoded.damage is None
    assert [type(w.record) for w in decoded.records] == [Unknown]


def test_unknown_fields_are_skipped() -> None:
    text = b'{"seq":3,"type":"context.undo","time":1,"turns":1,"keep":0,"new":{"a":[1]}'
    assert decode(whole(text)) == r.Undo(1, 1, 0)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", "empty"),
        (b"   ", "json"),
        (b"\0" * 300, "nul"),
        (ONE[:40] + b"\0" * 20 + ONE[60:], "nul"),
        (ONE[:40] + b"\xff\xfe" + ONE[42:], "utf8"),
        (ONE[:-30], "json"),
        (b"null", "json"),
        (b"[1]", "json"),
        (b"\xef\xbb\xbf" + ONE[:-1], "json"),
        (ONE.replace(b"message 7", b"massage 7"), "crc"),
        (ONE.replace(b'"seq":7', b'"seq":8'), "crc"),
        (json.dumps(json.loads(ONE)).encode(), "crc"),
        (b'{"seq":7,"type":"context.clear","time":1}', "crc"),
        (whole(b'{"seq":7,"type":"context.clear","time":'), "json"),
        (b"[" * 100_000, "json"),
        (whole(b'{"seq":7,"x":' + b"[" * 5_000 + b"]" * 5_000), "json"),
    ],
)
def test_damage_has_a_kind(raw: bytes, kind: str) -> None:
    decoded = decode_line(raw, 7)
    assert decoded.damage is not None
    assert (decoded.damage.kind, decoded.records, decode(raw)) == (kind, (), None)
    assert decoded.damage.lost


@pytest.mark.parametrize("between", [b"", b"\x0b", b"\0\0", b" "])
def test_glued_records_are_both_read(between: bytes) -> None:
    decoded = decode_line(ONE + between + TWO, 7)
    assert [w.record for w in decoded.records] == [message(7), message(8)]
    assert [w.seq for w in decoded.records] == [7, 8]
    assert decoded.damage is not None
    assert decoded.damage.lost == bool(between)
    assert decoded.damage.kind == ("glued" if not between else decoded.damage.kind)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (ONE[:-9] + TWO, [8]),
        (ONE[: len(ONE) // 2] + TWO, [8]),
        (b"\0" * 512 + TWO, [8]),
        (b"\xff garbage " + ONE + TWO, [7, 8]),
        (ONE + TWO[:-1], [7]),
        (ONE + b"\0" * 100, [7]),
        (ONE + b"garbage" + TWO, [7, 8]),
        (ONE + TWO[:50] + TWO, [7, 8]),
    ],
)
def test_whole_records_are_saved_from_broken_lines(raw: bytes, found: list[int]) -> None:
    decoded = decode_line(raw, 7)
    assert [w.seq for w in decoded.records] == found
    assert decoded.damage is not None
    assert decoded.damage.lost
    assert all(raw[w.start : w.end] in (ONE, TWO) for w in decoded.records)


def test_a_record_quoted_inside_a_damaged_one_never_happened() -> None:
    outer = b'{"seq":9,"type":"config.update","time":1,"config":{"example":%b,"more":1}' % ONE
    assert len(decode_line(whole(outer), 9).records) == 1
    assert decode_line(whole(outer).replace(b"config.update", b"config.upDate"), 9).records == ()


def test_text_that_looks_like_a_line_is_no_line() -> None:
    quoted = encode(message(1, ONE.decode() + "\n" + TWO.decode()), 1)[:-1]
    assert len(decode_line(quoted, 1).records) == 1
    assert decode_line(quoted[:-1], 1).records == ()


def test_many_starts_and_ends_cost_no_more_than_they_should() -> None:
    raw = (b'{"seq":1,' + b',"crc":"00000000"}') * 20_000
    assert decode_line(raw, 1).records == ()


def test_line_separators_of_other_alphabets_do_not_end_a_line() -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\rh"
    line = encode(r.AppendMessage(1, Message(id="m", role="user", content=(TextPart(text),), time=1)), 1)
    assert line.count(b"\n") == 1
    record = decode(line[:-1])
    assert isinstance(record, r.AppendMessage)
    assert record.message.text == text


def test_numbers_keep_their_values() -> None:
    config = {"big": 2**63 - 1, "small": -(2**63), "float": 0.1, "exp": 1e300, "zero": 0, "no": None, "yes": True}
    record = decode(encode(r.ConfigUpdate(1, config=config), 1)[:-1])
    assert isinstance(record, r.ConfigUpdate)
    assert record.config == config
    assert msgspec.json.encode(record.config) == msgspec.json.encode(config)
