"""Hosts that do not read: nobody else is held up, and memory is bounded."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.support.raw_host import RawHost, SocketHost

MIB = 1 << 20
SMALL = {"limits": {"outbox_soft_bytes": 64 << 10, "outbox_hard_bytes": 1 << 20}}


@pytest.fixture
def socket_path(tmp_path: Path) -> str:
    return str(tmp_path / "private" / "s")


def text_of(host: RawHost | SocketHost) -> str:
    """The streamed text; every offset must follow from what came before."""
    text = ""
    for params in host.notified("agent.chat.event"):
        event = params["event"]
        if event["type"] == "text_delta":
            assert event["offset"] == len(text)
            text += event["text"]
    return text


def ended(host: RawHost | SocketHost, times: int = 1) -> None:
    def count(_: object) -> bool:
        return sum(p["event"]["type"] == "turn_ended" for p in host.notified("agent.chat.event")) == times

    host.wait(count, "the last event")


def test_one_stalled_socket_under_20_000_deltas_holds_up_nobody(socket_path: str) -> None:
    with RawHost("--stdio", "--socket", socket_path) as host:
        host.call("test.echo")
        with SocketHost(socket_path) as stalled, SocketHost(socket_path) as reading:
            stalled.call("test.echo")
            reading.call("test.echo")
            stalled.stall()
            stalled.send({"jsonrpc": "2.0", "method": "test.echo"})
            before = host.rss_mib()
            for _ in range(2):
                reading.frames.clear()
                host.frames.clear()
                assert reading.call("test.stream", {"deltas": 10_000}) == {"characters": 100_000}
                ended(reading)
                ended(host)
                assert text_of(reading) == text_of(host) == "0123456789" * 10_000
            assert host.rss_mib() - before < 30
            stalled.go_on()
            ended(stalled, 2)
            deltas = [p["event"] for p in stalled.notified("agent.chat.event") if p["event"]["type"] == "text_delta"]
            assert sum(len(event["text"]) for event in deltas) == 200_000
            assert len(deltas) < 20_000, "nothing was merged"


def test_a_socket_past_the_hard_bound_is_dropped_and_can_come_back(socket_path: str) -> None:
    with RawHost("--stdio", "--socket", socket_path, application=SMALL) as host:
        host.call("test.echo")
        with SocketHost(socket_path) as stalled, SocketHost(socket_path) as other:
            stalled.call("test.echo")
            other.call("test.echo")
            stalled.stall()
            before = host.rss_mib()
            for _ in range(40):
                host.call("test.flood", {"bytes": 100_000, "count": 1})
                host.wait(lambda _: True, "a turn of the loop")
            assert host.rss_mib() - before < 20
            host.wait(lambda _: "gone socket-2" in host.call("test.hooks")["hooks"], "the drop")
            host.wait_stderr("does not read")
            stalled.go_on()
            stalled.wait_end()
            other.wait(lambda _: len(other.notified("agent.chat.event")) == 40, "all events")
            assert len(host.notified("agent.chat.event")) == 40
        with SocketHost(socket_path) as again:
            assert again.call("test.echo", {"a": 1}) == {"a": 1}


def test_a_stalled_stdio_host_is_waited_for_and_loses_nothing(socket_path: str) -> None:
    with RawHost("--stdio", "--socket", socket_path, application=SMALL) as host:
        host.call("test.echo")
        with SocketHost(socket_path) as other:
            other.call("test.echo")
            host.stall()
            before = host.rss_mib()
            text = "0123456789" * 1000
            call_id = other.start("test.stream", {"deltas": 600, "text": text})
            other.wait(lambda _: len(text_of(other)) > 1_000_000, "the other one's events")
            other.call("system.ping")
            assert host.rss_mib() - before < 20
            assert other.call("test.echo", {"n": 1}) == {"n": 1}, "the loop is held up"
            assert not [f for f in other.frames if f.get("id") == call_id], "the producer did not wait"
            host.go_on()
            assert other.reply(call_id)["result"] == {"characters": 6_000_000}
            ended(host)
            ended(other)
            assert text_of(host) == text_of(other) == text * 600


def test_a_stdio_host_that_producers_do_not_wait_for_is_given_up_in_the_end(socket_path: str) -> None:
    with RawHost("--stdio", "--socket", socket_path, application=SMALL) as host:
        host.call("test.echo")
        host.stall()
        with SocketHost(socket_path) as other:
            other.call("test.echo")
            for n in range(60):
                other.call("test.flood", {"bytes": 100_000, "count": 1})
                other.wait(lambda _, n=n: len(other.notified("agent.chat.event")) == n + 1, "its own event")
            other.wait(lambda _: "gone stdio-1" in other.call("test.hooks")["hooks"], "the drop")
            assert other.call("test.echo", {"a": 1}) == {"a": 1}


def test_answers_wait_for_a_host_that_asks_without_reading(socket_path: str) -> None:
    with RawHost("--stdio", "--socket", socket_path, application=SMALL) as host:
        host.call("test.echo")
        with SocketHost(socket_path) as greedy:
            greedy.call("test.echo")
            greedy.stall()
            before = host.rss_mib()
            for n in range(0, 400, 10):
                calls = [{"jsonrpc": "2.0", "id": f"big-{n + i}", "method": "test.big"} for i in range(10)]
                greedy.send_raw(
                    b"".join(json.dumps({**c, "params": {"bytes": 200_000}}).encode() + b"\n" for c in calls)
                )
                assert host.call("test.echo", {"n": n}) == {"n": n}
            assert host.rss_mib() - before < 40
            greedy.go_on()
            for n in range(400):
                assert len(greedy.reply(f"big-{n}")["result"]) == 200_000


def test_a_flood_of_small_calls_is_all_answered_and_holds_up_nobody(socket_path: str) -> None:
    with RawHost("--socket", socket_path) as host:
        host.wait_stderr("ready: socket")
        with SocketHost(socket_path) as flooding, SocketHost(socket_path) as other:
            ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "system.ping"}).encode() + b"\n"
            flooding.send_raw(ping * 20_000)
            assert other.call("system.ping")["ok"] is True
            flooding.wait(lambda frames: len(frames) == 20_000, "all answers")


def test_a_host_that_asks_without_reading_is_not_heard_for_ever(socket_path: str) -> None:
    with RawHost("--stdio", "--socket", socket_path, application=SMALL) as host:
        host.call("test.echo")
        with SocketHost(socket_path) as greedy:
            greedy.call("test.echo")
            greedy.stall()
            before = host.rss_mib()
            ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "system.ping"}).encode() + b"\n"
            sending = threading.Thread(target=greedy.send_raw, args=(ping * 30_000,), daemon=True)
            sending.start()
            for _ in range(50):
                assert host.call("system.ping")["ok"] is True
                sending.join(0.01)
            assert sending.is_alive(), "all of it was taken in"
            assert host.rss_mib() - before < 25
            greedy.go_on()
            sending.join(15)
            greedy.wait(lambda frames: len(frames) == 30_001, "all answers")


def test_the_end_of_input_is_noticed_though_nothing_is_read(socket_path: str) -> None:
    with RawHost("--stdio", "--socket", socket_path, application=SMALL) as host:
        host.call("test.echo")
        with SocketHost(socket_path) as other:
            host.stall()
            host.start("test.big", {"bytes": 2_000_000})
            other.wait(lambda _: other.call("test.congested") == ["stdio-1"], "a full outbox")
            host.start("system.ping")
            host.start("test.echo")
            host.close_stdin()
            other.wait(lambda _: "gone stdio-1" in other.call("test.hooks")["hooks"], "the end of the host")
