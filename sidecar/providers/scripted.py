"""The scripted provider: plays a file of replies, or echoes. For tests, the demo and trying things without a key.

A script is JSON Lines, one reply a line:

    {"text": "...", "reasoning": "...", "tool_calls": [{"name": "t", "arguments": {...} or "exact text"}],
     "usage": {"prompt_tokens": n, "cached_tokens": n, "completion_tokens": n}, "delay_ms": n,
     "finish_reason": "stop", "error": {"status": 429, "body": ...}}

Every field may be absent. Requests take the lines in order, whoever sends them; the last line is played again and
again. Without `usage` the figures follow from sizes alone: a quarter of the request's and the reply's bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from protocol.messages import Message, ToolCall
from sidecar.providers.errors import ProviderError
from sidecar.providers.failures import Judge
from sidecar.providers.jsontext import clean, dumps, loads
from sidecar.providers.openai import ChatEncoder
from sidecar.providers.port import (
    BlobReader,
    EncodedRequest,
    Encoder,
    Finished,
    FinishReason,
    HasMessage,
    Prefix,
    PrefixHashes,
    ReasoningChunk,
    RetryPolicy,
    StreamEvent,
    TextChunk,
    TokenUsage,
)
from sidecar.providers.quirks import ChatQuirks
from sidecar.providers.usage import count, from_chat

ECHO = "echo"
MAX_CHUNKS = 16

_FINISH: dict[str, FinishReason] = {
    "stop": "stop", "tool_calls": "tool_calls", "length": "length", "content_filter": "content_filter",
}  # fmt: skip


class ScriptedRequest(EncodedRequest):
    """A request that still knows what the user said last, so that echoing needs no parsing."""

    __slots__ = ("last_user",)

    def __init__(self, request: EncodedRequest, last_user: str) -> None:
        super().__init__(request.chunks, request.message_count, request.messages_bytes, request.messages_hash)
        object.__setattr__(self, "last_user", last_user)

    last_user: str


class ScriptedEncoder:
    """The chat dialect's encoder, and the last user text beside it."""

    def __init__(self, inner: ChatEncoder) -> None:
        self._inner = inner
        self._entries: Sequence[HasMessage] = ()

    def sync(self, prefix: Prefix, entries: Sequence[HasMessage], rewrites: int) -> PrefixHashes:
        self._entries = entries
        return self._inner.sync(prefix, entries, rewrites)

    def request(self, *, max_output_tokens: int | None, suffix: Message | None = None) -> EncodedRequest:
        request = self._inner.request(max_output_tokens=max_output_tokens, suffix=suffix)
        recent = (e.message for e in reversed(self._entries))
        last = suffix or next((m for m in recent if m.role == "user"), None)
        return ScriptedRequest(request, last.text if last is not None else "")


class Script:
    """The lines of a file and how far they were played. Read again when the file changes; the place is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int] | None = None
        self._lines: list[bytes] = []
        self._played = 0

    async def next(self, judge: Judge) -> dict[str, Any]:
        """The next reply. Raises `rejected` when there is none or it cannot be read."""
        await self._refresh(judge)
        if not self._lines:
            raise ProviderError("rejected", f"the script {self.path.name} has no replies")
        number = min(self._played, len(self._lines) - 1)
        self._played += 1
        try:
            value, _ = loads(self._lines[number])
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ProviderError("rejected", f"reply {number + 1} of the script {self.path.name} is no JSON object")
        return value

    async def _refresh(self, judge: Judge) -> None:
        try:
            stat = await anyio.Path(self.path).stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            if stamp != self._stamp:
                raw = await anyio.Path(self.path).read_bytes()
                self._lines = [line for line in raw.split(b"\n") if line.strip()]
                self._stamp = stamp
        except OSError:
            raise ProviderError("rejected", f"the script {self.path.name} cannot be read") from None


class ScriptedProvider:
    """See `port.Provider`. The model's name is `echo` or the path of a script, from the daemon's own directory."""

    def __init__(self, name: str, retry: RetryPolicy) -> None:
        self._name = name
        self._retry = retry
        self._judge = Judge(name)
        self._scripts: dict[str, Script] = {}
        self._served = 0

    @property
    def name(self) -> str:
        return self._name

    @property
    def retry(self) -> RetryPolicy:
        return self._retry

    def encoder(self, model: str, blobs: BlobReader) -> Encoder:
        return ScriptedEncoder(ChatEncoder(f"{self._name}/{model}", model, ChatQuirks(), blobs))

    @asynccontextmanager
    async def stream(self, model: str, request: EncodedRequest) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
        self._served += 1
        reply: dict[str, Any]
        if model == ECHO:
            reply = {"text": getattr(request, "last_user", "") or "(nothing was said)"}
        else:
            script = self._scripts.setdefault(model, Script(script_path(model)))
            reply = await script.next(self._judge)
        await anyio.sleep(count(reply.get("delay_ms")) / 1000)
        error = reply.get("error")
        if isinstance(error, dict):
            raise self._refusal(error)
        async with aclosing(self._play(reply, request, self._served)) as events:
            yield events

    def _refusal(self, error: dict[str, Any]) -> ProviderError:
        body = error.get("body")
        raw = body.encode() if isinstance(body, str) else dumps(body)
        headers = {"retry-after": str(error["retry_after"])} if "retry_after" in error else {}
        return self._judge.answer(count(error.get("status")) or 500, headers, raw, time.time())

    async def _play(self, reply: dict[str, Any], request: EncodedRequest, served: int) -> AsyncGenerator[StreamEvent]:
        text, reasoning = _text(reply.get("text")), _text(reply.get("reasoning"))
        for piece in _pieces(reasoning):
            yield ReasoningChunk(piece)
        for piece in _pieces(text):
            yield TextChunk(piece)
            await anyio.lowlevel.checkpoint()
        calls = _calls(reply.get("tool_calls"), served)
        reason = _FINISH.get(_text(reply.get("finish_reason"))) or ("tool_calls" if calls else "stop")
        said = len(text) + len(reasoning) + sum(len(c.name) + len(c.arguments) for c in calls)
        usage = from_chat(reply.get("usage")) or TokenUsage(max(1, request.size // 4), 0, max(1, said // 4))
        yield Finished(reason, calls, usage)


def script_path(model: str) -> Path:
    return Path(os.path.expanduser(model))


def _text(value: Any) -> str:
    return clean(value) if isinstance(value, str) else ""


def _pieces(text: str) -> list[str]:
    size = max(8, -(-len(text) // MAX_CHUNKS))
    return [text[i : i + size] for i in range(0, len(text), size)]


def _calls(value: Any, served: int) -> tuple[ToolCall, ...]:
    calls = []
    for i, call in enumerate(value if isinstance(value, list) else ()):
        if isinstance(call, dict):
            given = call.get("arguments", {})
            arguments = clean(given) if isinstance(given, str) else dumps(given).decode()
            calls.append(ToolCall(_text(call.get("id")) or f"call_{served}_{i}", _text(call.get("name")), arguments))
    return tuple(calls)
