"""A model that misbehaves by the seed: cut, stalled, split and garbled streams, refusals, dropped connections.

    chaos = Chaos(seed=7, kinds=("cut", "garbage"))
    with FakeLLM(chaos) as llm: ...
    chaos.faults[n]      what was done to request n

What the model would have said is the same for every request (`REPLY`), so a client that reports anything else as a
whole answer is wrong.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.support import fake_dialects as dialects
from tests.support.fake_llm import Reply, call

REPLY = Reply(
    text="Grüße 🙂 中文\u2028line two\r\n" + "steady " * 12,
    reasoning="thinking 思考 about it",
    tool_calls=[call("look", '{"q": "größe", "n": 3}', id="call_a"), call("look", '{"q": "🙂"}', id="call_b")],
    prompt_tokens=120,
    cached_tokens=100,
    completion_tokens=17,
)

KINDS = ("whole", "split", "cut", "truncate", "stall", "garbage", "status", "drop", "page", "flip")


@dataclass(frozen=True, slots=True)
class Fault:
    """`at` is the byte of the stream where it happened; `settled` whether the finish reason was out by then."""

    kind: str
    at: int = 0
    settled: bool = False
    status: int = 200


class Chaos:
    """A script for `FakeLLM`. `faults` lists what was done, request by request."""

    def __init__(self, seed: int, kinds: Sequence[str] = KINDS) -> None:
        self._random = random.Random(seed)
        self._kinds = tuple(kinds)
        self.faults: list[Fault] = []

    def __call__(self, request: dict[str, Any], n: int) -> Reply:
        stream = stream_of(request)
        kind = self._random.choice(self._kinds)
        at = self._random.randrange(len(stream))
        settled = at >= settled_at(stream)
        fault, reply = self._reply(kind, stream, at, settled)
        self.faults.append(fault)
        return reply

    def _reply(self, kind: str, stream: bytes, at: int, settled: bool) -> tuple[Fault, Reply]:
        fault = Fault(kind, at, settled)
        match kind:
            case "split":
                return fault, Reply(events=[stream], slice_bytes=self._random.randint(1, 9))
            case "cut":
                return fault, Reply(events=[stream[:at], b"never sent"], cut_after=1)
            case "truncate":
                return fault, Reply(events=[stream[:at]])
            case "stall":
                return fault, Reply(events=[stream[:at], b"never sent"], stall_after=1)
            case "garbage":
                border = stream.find(b"\n\n", at) + 2
                junk = b"data: " + self._random.randbytes(12).replace(b"\n", b"").replace(b"\r", b"") + b"{\n\n"
                return replace(fault, at=border, settled=border >= settled_at(stream)), Reply(
                    events=[stream[:border] + junk + stream[border:]]
                )
            case "status":
                status = self._random.choice((408, 409, 429, 500, 502, 503, 529))
                return replace(fault, status=status), Reply(status=status, error={"message": "no", "type": "busy"})
            case "drop":
                return fault, Reply(refuse=True)
            case "page":
                page = [b"<!doctype html><title>Sign in</title>"]
                return fault, Reply(events=page, headers={"content-type": "text/html"})
            case "flip":
                flipped = bytes([stream[at] ^ (1 << self._random.randrange(8))])
                return fault, Reply(events=[stream[:at] + flipped + stream[at + 1 :]])
        return fault, Reply(events=[stream])


def stream_of(request: dict[str, Any]) -> bytes:
    """All bytes of the answer's stream, in the dialect of the request."""
    counts = dialects.Counts(REPLY.prompt_tokens or 0, REPLY.cached_tokens, REPLY.completion_tokens or 0)
    is_messages = "max_tokens" in request and "stream_options" not in request
    make = dialects.anthropic_stream if is_messages else dialects.openai_stream
    return b"".join(make(request, REPLY, counts))


def settled_at(stream: bytes) -> int:
    """The offset behind the event that carries the finish reason, its blank line not needed."""
    for marker in (b'"finish_reason":"tool_calls"', b'"stop_reason":"tool_use"'):
        at = stream.rfind(marker)
        if at >= 0:
            return stream.index(b"\n", at)
    raise AssertionError("the stream has no finish reason")
