"""JSON at the border: what is refused, what is cleaned, what can be written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from sidecar.errors import Fault
from sidecar.rpc import codec
from sidecar.rpc.framing import Oversized


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (rb'{"a":"x"}', {"a": "x"}),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'["half \ud83d","\udfff","\ud83d\ud83d"]', ["half \ufffd", "\ufffd", "\ufffd\ufffd"]),
        (rb'{"\ud800":{"\u0000k":"a\u0000b"}}', {"\ufffd": {"\ufffdk": "a\ufffdb"}}),
        (rb'"\\ud800 \\u0000"', r"\ud800 \u0000"),
        (b"1" * 400, int("1" * 400)),
        (b'{"id":18446744073709551617}', {"id": 18446744073709551617}),
        (b'{"id":9007199254740993}', {"id": 9007199254740993}),
        (b" [1.5]\r", [1.5]),
        ('{"a":"\u2028\x1b[31m"}'.replace("\x1b", "\\u001b").encode(), {"a": "\u2028\x1b[31m"}),
    ],
)
def test_accepted(raw: bytes, value: Any) -> None:
    assert codec.parse(raw) == value
    assert codec.parse(bytearray(raw)) == value


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"hello",
        b"\x00\x00\x01",
        b'{"jsonrpc": "2.0", "id": 1, "method"',
        b'{"a":"\xff\xfe"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        rb'{"a":NaN,"b":"\ud800"}',
        b'{"a":1e400}',
        b"9" * 5000,
        b'{"a":1}{"b":2}',
        b'"line\nbreak"',
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 50_000 + rb'"\ud800"' + b"}" * 50_000,
        b"[" * 201 + b"]" * 201,
        b'{"a":' * 201 + b"1" + b"}" * 201,
    ],
)
def test_refused(raw: bytes) -> None:
    with pytest.raises(Fault) as refused:
        codec.parse(raw)
    assert refused.value.code == -32700
    assert len(json.dumps(refused.value.as_error())) < 400


def test_nesting_up_to_the_limit_is_taken_and_can_be_written_again() -> None:
    value = codec.parse(b"[" * 200 + b"]" * 200)
    assert codec.encode({"jsonrpc": "2.0", "id": 1, "result": {"session": value}}).count(b"[") == 200
    assert len(codec.parse(b'{"a":[' + b",".join([b"{}"] * 10_000) + b"]}")["a"]) == 10_000


@pytest.mark.parametrize(
    ("frame", "own_id"),
    [
        (b'{"jsonrpc":"2.0","id":"s-12","result":NaN}', "s-12"),
        (b'{"id" : "s-1","result":{"a":[[[[', "s-1"),
        (b'{"jsonrpc":"2.0","id":"x-1","result":NaN}', None),
        (b'{"jsonrpc":"2.0","id":5,"result":NaN}', None),
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"id":"s-1","x":NaN}}', None),
        (Oversized(b'{"result":"zzz', b'zzz","id":"s-3"}'), "s-3"),
        (Oversized(b'{"id":"s-4","result":"zzz', b"zzz"), "s-4"),
        (Oversized(b'{"method":"m","params":"zzz', b'zzz","id":"s-3"}'), None),
    ],
)
def test_the_id_of_our_own_call_is_found_in_what_was_refused(frame: Any, own_id: str | None) -> None:
    assert codec.refused_own_id(frame) == own_id


class Point(msgspec.Struct, tag_field="type", tag="point", omit_defaults=True):
    x: int
    label: str = ""


@dataclass
class Pair:
    a: int
    b: list[str]


def test_structs_dataclasses_and_plain_values_are_written() -> None:
    value = {"point": Point(1), "pair": Pair(1, ["x"]), "points": (Point(2, "é"),), "none": None}
    wanted = {
        "point": {"type": "point", "x": 1},
        "pair": {"a": 1, "b": ["x"]},
        "points": [{"type": "point", "x": 2, "label": "é"}],
        "none": None,
    }
    assert json.loads(codec.encode(value)) == wanted


def test_what_json_cannot_hold_is_mended_when_written() -> None:
    value = {"half": "a\ud800", "point": Point(2**70, "b\udfff"), "nan": [float("nan"), float("inf")], "big": 2**80}
    wanted = {
        "half": "a\ufffd",
        "point": {"type": "point", "x": 2**70, "label": "b\ufffd"},
        "nan": [None, None],
        "big": 2**80,
    }
    assert json.loads(codec.encode(value)) == wanted
    assert json.loads(codec.success(2**70, None))["id"] == 2**70


@pytest.mark.parametrize("value", [object(), {"a": object()}, {"a": "\ud800", "b": object()}, [Point(object())]])  # type: ignore[arg-type]
def test_what_is_no_value_is_an_error(value: Any) -> None:
    with pytest.raises(TypeError):
        codec.encode(value)
