"""Frames over stdio against the real process: what is refused, how, and that the connection stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.raw_host import RawHost

DEEP = b'{"jsonrpc":"2.0","id":"k1","method":"test.echo","params":{"x":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}}"
LONG = b'{"jsonrpc":"2.0","id":"k2","method":"%b","params":{}}' % (b"m" * 100_000)

BAD: list[tuple[str, bytes, int, Any, str]] = [
    ("bad JSON", b'{"jsonrpc": "2.0", "id": 1, "method"', -32700, None, "parse_error"),
    ("garbage", b"hello", -32700, None, "parse_error"),
    ("invalid UTF-8", b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}', -32700, None, "parse_error"),
    ("NaN", b'{"jsonrpc":"2.0","id":"k0","method":"system.ping","params":{"x":NaN}}', -32700, None, "parse_error"),
    ("deep nesting", DEEP, -32700, None, "parse_error"),
    ("a number", b"5", -32600, None, "invalid_request"),
    ("an empty batch", b"[]", -32600, None, "invalid_request"),
    ("jsonrpc 1.0", b'{"jsonrpc":"1.0","id":"k","method":"system.ping"}', -32600, "k", "invalid_request"),
    ("id object", b'{"jsonrpc":"2.0","id":{"a":1},"method":"system.ping"}', -32600, None, "invalid_request"),
    ("params array", b'{"jsonrpc":"2.0","id":4,"method":"test.echo","params":[1]}', -32602, 4, "invalid_params"),
    ("unknown method", b'{"jsonrpc":"2.0","id":"k","method":"no.such","params":{}}', -32601, "k", "method_not_found"),
    ("dunder method", b'{"jsonrpc":"2.0","id":"k","method":"__class__"}', -32601, "k", "method_not_found"),
    ("a long method", LONG, -32601, "k2", "method_not_found"),
    ("a huge id", b'{"jsonrpc":"2.0","id":"%b","method":"m"}' % (b"i" * 9000), -32600, None, "invalid_request"),
    (
        "mode",
        b'{"jsonrpc":"2.0","id":1.5,"method":"system.shutdown","params":{"mode":5}}',
        -32602,
        1.5,
        "invalid_params",
    ),
]


@pytest.mark.parametrize("framing", ["lines", "headers"])
def test_every_bad_frame_gets_one_error_and_the_connection_stays(framing: str) -> None:
    with RawHost(framing=framing) as host:
        for name, raw, code, call_id, reason in BAD:
            (answer,) = host.exchange(host.encode(raw))
            assert (answer["jsonrpc"], answer["id"], "result" in answer) == ("2.0", call_id, False), name
            assert (answer["error"]["code"], answer["error"]["data"]["reason"]) == (code, reason), name
            assert len(json.dumps(answer)) < 500, name
        for quiet in (
            b'{"jsonrpc":"2.0","id":"s-999","result":1}',
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}',
            b'{"jsonrpc":"2.0","method":"no.such"}',
            b'{"jsonrpc":"2.0","method":"test.echo","params":5}',
            b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":[]}}',
        ):
            assert host.exchange(host.encode(quiet), 0) == []
        assert host.call("test.echo", {"text": "still here"}) == {"text": "still here"}


def test_text_from_hosts_is_cleaned_and_ids_of_any_number_come_back() -> None:
    with RawHost() as host:
        for call_id in (b"18446744073709551617", b"9007199254740991", b"-1", b'"\\u00fc"', b"1.5"):
            raw = (
                b'{"jsonrpc":"2.0","id":%b,"method":"test.echo","params":{"t":"a \\ud83d b \\u0000 \\u001b"}}\r\n'
                % call_id
            )
            (answer,) = host.exchange(b"\r\n\n" + raw)
            assert answer == {"jsonrpc": "2.0", "id": json.loads(call_id), "result": {"t": "a \ufffd b \ufffd \x1b"}}
        huge = b'{"jsonrpc":"2.0","id":1,"method":"test.echo","params":{"n":%b}}\n' % (b"1" * 400)
        assert host.exchange(huge)[0]["result"] == {"n": int("1" * 400)}
        assert host.call("test.dirty") == {"text": "half \ufffd", "number": 2**80, "nan": None}


@pytest.mark.parametrize("framing", ["lines", "headers"])
def test_a_33_mib_frame_is_refused_without_being_kept(framing: str) -> None:
    with RawHost(framing=framing) as host:
        assert host.call("test.echo", {}) == {}
        before = host.rss_mib()
        big = b'{"jsonrpc":"2.0","id":"big","method":"test.echo","params":{"x":"' + b"a" * (33 << 20) + b'"}}'
        for _ in range(3):
            (answer,) = host.exchange(host.encode(big))
            assert answer["id"] is None
            assert answer["error"]["data"]["reason"] == "frame_too_large"
        assert host.rss_mib() - before < 20
        fit = b'{"jsonrpc":"2.0","id":"fit","method":"test.nope","params":{"x":"' + b"a" * (20 << 20) + b'"}}'
        (answer,) = host.exchange(host.encode(fit))
        assert (answer["id"], answer["error"]["code"]) == ("fit", -32601)


def test_the_configured_frame_size_holds_once_the_application_is_there() -> None:
    with RawHost(application={"limits": {"max_frame_bytes": 4096}}) as host:
        host.call("test.echo", {})
        (answer,) = host.exchange(host.encode(json.dumps({"x": "y" * 5000}).encode()))
        assert "4096" in answer["error"]["message"]


def test_batches() -> None:
    def request(call_id: Any, method: str, **params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}

    def note(method: str) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "method": method}

    with RawHost() as host:
        batch = [request("a", "system.ping"), 5, note("test.echo"), request("b", "test.fail"), request("c", "no.such")]
        batch += [request("d", "test.echo", x=1), {"jsonrpc": "2.0", "id": "s-77", "result": 1}]
        (answers,) = host.exchange(host.encode(json.dumps(batch).encode()))
        by_id = {answer["id"]: answer for answer in answers}
        assert len(answers) == 5
        assert by_id["a"]["result"]["ok"] is True
        assert by_id[None]["error"]["code"] == -32600
        assert (by_id["b"]["error"]["code"], by_id["b"]["error"]["data"]["reason"]) == (-32020, "session_not_found")
        assert by_id["c"]["error"]["code"] == -32601
        assert by_id["d"]["result"] == {"x": 1}
        assert host.exchange(host.encode(json.dumps([note("system.ping"), note("no.such")]).encode()), 0) == []
        (answers,) = host.exchange(host.encode(json.dumps([request(n, "test.echo") for n in range(1000)]).encode()))
        assert {answer["id"] for answer in answers} == set(range(1000))
        assert all(answer["result"] == {} for answer in answers)
        (answer,) = host.exchange(host.encode(json.dumps([request(n, "test.echo") for n in range(1001)]).encode()))
        assert (answer["id"], answer["error"]["data"]["reason"]) == (None, "batch_too_large")


def test_a_member_of_a_batch_can_be_cancelled_and_the_rest_waits_for_nobody_else() -> None:
    with RawHost() as host:
        batch = [
            {"jsonrpc": "2.0", "id": "w", "method": "test.wait"},
            {"jsonrpc": "2.0", "id": "e", "method": "test.echo"},
        ]
        host.send(batch)
        host.call("test.echo")
        host.send({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": "w"}})
        assert host.reply("w")["error"]["code"] == -32800
        assert host.reply("e")["result"] == {}
        assert any(isinstance(frame, list) and len(frame) == 2 for frame in host.frames)
