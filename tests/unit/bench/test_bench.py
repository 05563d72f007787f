"""The frame of the benchmarks: rows, tables, exit codes, and the model that answers at once."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

from scripts import bench
from scripts.benchmarks.daemon import running_model
from scripts.benchmarks.rows import interleaved, quantile, row

MET = row("fast", 1.5, "ms", 3.0, goal="at most 2 ms", ok=True)
MISSED = row("slow", 12_345.678, "ms", goal="at most 2 ms", ok=False)
PLAIN = row("seen", 0.12345, "ms")


def test_a_row_has_the_documented_fields() -> None:
    assert MET == {
        "name": "fast", "value": 1.5, "unit": "ms", "baseline": 3.0, "ratio": 0.5, "goal": "at most 2 ms", "ok": True,
    }  # fmt: skip
    assert (PLAIN["baseline"], PLAIN["ratio"], PLAIN["goal"], PLAIN["ok"]) == (None, None, None, None)
    assert row("none", 1, "ms", 0.0)["ratio"] is None


def test_the_table_shows_each_row() -> None:
    assert bench.table([MET, MISSED, PLAIN]).splitlines()[2:] == [
        "| fast | 1.5 ms | 3 ms | 0.50 | at most 2 ms | yes |",
        "| slow | 12,346 ms |  |  | at most 2 ms | **no** |",
        "| seen | 0.123 ms |  |  |  |  |",
    ]
    assert "1 of 2 goals met" in bench.page([MET, MISSED, PLAIN], 60)


def test_an_unknown_part_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(["--only", "start,nonsense"])
    assert ended.value.code == 2
    assert "nonsense" in capsys.readouterr().err


def test_a_part_that_fails_is_named_and_the_rest_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    rows, failed = bench.measure(["no_such_part"])
    assert (rows, failed) == ([], ["no_such_part"])
    assert "no_such_part" in capsys.readouterr().err


def test_takes_take_turns() -> None:
    order: list[str] = []

    def take(name: str) -> float:
        order.append(name)
        return float(len(order))

    figures = interleaved(4, lambda: take("a"), lambda: take("b"))
    assert order == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert [len(f) for f in figures] == [4, 4]
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([3, 1, 2], 1) == 3


def ask(connection: socket.socket, model: str) -> list[Any]:
    """The events of one answer; the connection stays open."""
    body = json.dumps({"model": model, "messages": []}).encode()
    connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    held = b""
    while not held.endswith(b"\r\n0\r\n\r\n"):
        held += connection.recv(65536)
    head, _, chunks = held.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    data = [line[6:] for line in chunks.split(b"\n") if line.startswith(b"data: ")]
    assert data[-1].strip() == b"[DONE]"
    return [json.loads(d) for d in data[:-1]]


def test_the_model_answers_and_keeps_its_connection() -> None:
    with running_model() as port, socket.create_connection(("127.0.0.1", port)) as connection:
        first, finish, usage = ask(connection, "instant")
        assert first["choices"][0]["delta"]["content"]
        assert finish["choices"][0]["finish_reason"] == "stop"
        assert usage["usage"]["prompt_tokens"] > 0
        before = time.monotonic_ns()
        stamp = int(ask(connection, "stamped")[0]["choices"][0]["delta"]["content"])
        assert before < stamp < time.monotonic_ns()
        summary = ask(connection, "summary")[0]["choices"][0]["delta"]["content"]
        arrived, _, sent = summary.split()[-3:]
        assert stamp < int(arrived) <= int(sent)
