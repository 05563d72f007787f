"""Calls in both directions: handshake, errors, cancels, the daemon's own requests, overload."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.raw_host import RawHost

CLIENT = {"name": "tests", "version": "1"}


def test_the_handshake_is_optional_and_can_be_repeated() -> None:
    with RawHost() as host:
        assert host.call("test.hooks")["client"] is None
        refused = host.call("system.initialize", {"protocol_version": 99, "client": CLIENT})
        assert (refused["code"], refused["data"]["supported"]) == (-32010, [1])
        wrong = host.call("system.initialize", {"protocol_version": 1, "client": CLIENT, "capabilities": {"tools": 5}})
        assert (wrong["code"], wrong["data"]["path"]) == (-32602, "capabilities.tools")
        good = host.call(
            "system.initialize", {"protocol_version": 1, "client": CLIENT, "capabilities": {"tools": True}}
        )
        assert good["server"]["pid"] == host.process.pid
        assert good["capabilities"] == {"tools": True, "approvals": False, "questions": False}
        seen = host.call("test.hooks")
        assert (seen["client"], seen["tools"]) == (["tests", "1"], True)
        assert seen["hooks"] == ["lifespan", "connected stdio-1", "initialized stdio-1"]


def test_system_ready_comes_first_in_the_framing_of_what_was_received() -> None:
    with RawHost() as host:
        host.call("system.ping")
        assert host.frames[0]["method"] == "system.ready"
        ready = {"pid": host.process.pid, "protocol_version": 1, "listen": [{"transport": "stdio"}]}
        assert host.frames[0]["params"] == ready
    with RawHost(framing="headers") as host:
        assert host.call("system.ping")["ok"] is True
        assert host.wait_notified("system.ready") == {**ready, "pid": host.process.pid}


def test_calls_wait_in_order_while_the_application_is_imported_and_the_rest_is_answered() -> None:
    with RawHost(application={"load_s": 1.0}) as host:
        held = [host.start("test.echo", {"n": n}) for n in range(5)]
        host.start("test.wait", call_id="gone")
        host.send({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"id": "gone"}})
        assert host.reply("gone")["error"]["code"] == -32800
        assert host.call("system.initialize", {"protocol_version": 1, "client": CLIENT})["protocol_version"] == 1
        ping = host.call("system.ping")
        assert (ping["ok"], ping["sessions"], ping["turns_running"]) == (True, 0, 0)
        assert not [frame for frame in host.frames if frame.get("id") in held], "the application was there already"
        for call_id in held:
            host.reply(call_id)
        assert [frame["id"] for frame in host.frames if frame.get("id") in held] == held
        assert host.call("test.hooks")["hooks"] == ["lifespan", "connected stdio-1", "initialized stdio-1"]
        assert host.call("system.ping")["sessions"] == 1


def test_what_a_handler_raises() -> None:
    with RawHost() as host:
        fault = {"reason": "session_not_found", "session_id": "x", "hint": "list them"}
        for method in ("test.fail", "test.fail_in_group"):
            assert host.call(method) == {"code": -32020, "message": "No such session", "data": fault}
        for method in ("test.crash", "test.exit", "test.unserialisable"):
            error = host.call(method)
            assert (error["code"], error["data"]["reason"]) == (-32000, "internal")
            reference = error["data"]["reference"]
            assert "Error" not in json.dumps(error)
            line = host.wait_stderr(reference)
            assert json.loads(line)["method"] == method
        assert "abcdef123456" not in host.stderr
        assert "Authorization: ***" in host.stderr
        assert host.call("test.echo", {"context": 1, "call": 2, "self": 3}) == {"context": 1, "call": 2, "self": 3}


@pytest.mark.parametrize("method", ["$/cancel_request", "$/cancelRequest"])
def test_a_cancel_answers_at_once_and_ends_the_work(method: str) -> None:
    with RawHost() as host:
        for call_id, other in ((7, "7"), ("seven", 7)):
            host.start("test.wait", call_id=call_id)
            host.call("test.echo")
            host.send({"jsonrpc": "2.0", "method": method, "params": {"id": other}})
            host.send({"jsonrpc": "2.0", "method": method, "params": {"id": 999}})
            host.call("test.echo")
            assert not [f for f in host.frames if f.get("id") == call_id], "a cancel of another id was taken for this"
            host.send({"jsonrpc": "2.0", "method": method, "params": {"id": call_id}})
            error = host.reply(call_id)["error"]
            assert (error["code"], error["data"]["reason"]) == (-32800, "request_cancelled")
        host.wait_notified("test.cleaned_up", 2)
        host.start("test.stubborn", call_id="deaf")
        host.call("test.echo")
        host.send({"jsonrpc": "2.0", "method": method, "params": {"id": "deaf"}})
        assert host.reply("deaf")["error"]["code"] == -32800
        host.close_stdin()
        assert host.exit_code() == 0
        host.wait_end()
        assert len([f for f in host.frames if f.get("id") == "deaf"]) == 1


def test_more_calls_than_a_connection_may_have_open_are_overloaded() -> None:
    with RawHost() as host:
        for n in range(1001):
            host.start("test.wait", call_id=n)
        error = host.reply(1000)["error"]
        assert (error["code"], error["data"]["reason"]) == (-32090, "overloaded")
        assert host.call("system.ping")["ok"] is True
        assert host.call("test.echo")["code"] == -32090
        host.send({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"id": 5}})
        assert host.reply(5)["error"]["code"] == -32800
        assert host.call("test.echo", {"a": 1}) == {"a": 1}
        host.close_stdin()
        assert host.exit_code() == 0
        host.wait_end()
        assert all(any(f.get("id") == n for f in host.frames) for n in range(1001))


def answer_next(host: RawHost, raw: bytes) -> None:
    """Answers the newest request of the daemon with raw bytes, `ID` replaced."""
    host.send_raw(raw.replace(b"ID", requests(host)[-1]["id"].encode()) + b"\n")


def requests(host: RawHost) -> list[Any]:
    return [f for f in list(host.frames) if isinstance(f, dict) and "method" in f and "id" in f]


@pytest.mark.parametrize(
    ("raw", "outcome"),
    [
        (b'{"jsonrpc":"2.0","id":"ID","result":{"t":"\\ud800 \\u0000"}}', {"result": {"t": "\ufffd \ufffd"}}),
        (b'{"jsonrpc":"2.0","id":"ID","result":null}', {"result": None}),
        (b'[{"jsonrpc":"2.0","id":"ID","result":1}]', {"result": 1}),
        (b'{"jsonrpc":"2.0","id":"ID","error":{"code":5,"message":"no","data":[1]}}', {"code": 5, "data": [1]}),
        (b'{"jsonrpc":"2.0","id":"ID","error":"what"}', {"code": 0}),
        (b'{"jsonrpc":"2.0","id":"ID","result":{"score":NaN}}', {"code": -32700}),
        (b'{"jsonrpc":"2.0","id":"ID","result":"\xff"}', {"code": -32700}),
        (b'{"jsonrpc":"2.0","id":"ID","result":' + b"[" * 300 + b"]" * 300 + b"}", {"code": -32700}),
        (b'{"jsonrpc":"2.0","id":"ID","result":"' + b"x" * 70_000 + b'"}', {"code": -32600}),
        (b'{"jsonrpc":"2.0","result":"' + b"x" * 70_000 + b'","id":"ID"}', {"code": -32600}),
        (b'{"id":"ID","result":1}', {"code": -32600}),
        (b'{"jsonrpc":"2.0","id":"ID"}', {"code": -32600}),
    ],
)
def test_every_answer_of_the_host_settles_the_call(raw: bytes, outcome: dict[str, Any]) -> None:
    with RawHost(application={"limits": {"max_frame_bytes": 65536}}) as host:
        call_id = host.start("test.call", {"method": "tool.call", "params": {"name": "t"}})
        host.wait(lambda _: requests(host), "the daemon's request")
        request = requests(host)[0]
        assert re.fullmatch(r"s-\d+", request["id"])
        assert (request["method"], request["params"]) == ("tool.call", {"name": "t"})
        answer_next(host, raw)
        result = host.reply(call_id)["result"]
        assert {key: result[key] for key in outcome} == outcome
        answer_next(host, b'{"jsonrpc":"2.0","id":"ID","result":"late"}')
        assert host.call("system.ping")["ok"] is True


def test_a_request_given_up_is_forgotten_and_a_late_answer_ignored() -> None:
    with RawHost() as host:
        assert host.call("test.call", {"method": "tool.call", "timeout_s": 0.05}) == {"timeout": True}
        before = len(host.frames)
        answer_next(host, b'{"jsonrpc":"2.0","id":"ID","result":"late"}')
        assert host.exchange(b"", 0) == []
        assert len(host.frames) == before + 1


def test_a_host_that_ends_its_input_answers_nothing_more() -> None:
    with RawHost() as host:
        call_id = host.start("test.call", {"method": "tool.call"})
        host.wait(lambda _: requests(host), "the daemon's request")
        host.close_stdin()
        assert host.reply(call_id)["result"] == {"gone": True}
        assert host.exit_code() == 0
