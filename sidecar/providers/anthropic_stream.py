"""The Messages dialect: answers. Pure: no I/O.

Events are told apart by their data's `type`; the event's name says the same and is not needed. Block types that are
not known (server tools, citations) are passed over.
"""

from __future__ import annotations

from typing import Any

from protocol.messages import ReasoningBlock
from sidecar.providers.failures import Judge
from sidecar.providers.jsontext import TextJoiner, clean
from sidecar.providers.port import Finished, FinishReason, ReasoningChunk, StreamEvent, TextChunk, TokenUsage
from sidecar.providers.sse import SseEvent
from sidecar.providers.stream import CallAssembler, cut_short, read_json
from sidecar.providers.usage import MessagesUsage

_REASONS: dict[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class _Thinking:
    """One block of reasoning while it comes in."""

    __slots__ = ("at", "chars", "redacted", "signature")

    def __init__(self, at: int, redacted: str | None = None) -> None:
        self.at = at
        self.chars = 0
        self.signature = ""
        self.redacted = redacted


class MessagesDecoder:
    """See `stream.StreamDecoder`."""

    __slots__ = (
        "_blocks", "_calls", "_inputs", "_judge", "_reason", "_reasoning", "_text", "_thinking", "_told", "_usage",
        "complete", "settled", "taken",
    )  # fmt: skip

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._text = TextJoiner()
        self._reasoning = TextJoiner()
        self._calls = CallAssembler()
        self._told = 0  # code points of text
        self._blocks: dict[int, _Thinking] = {}
        self._inputs: dict[int, Any] = {}
        self._thinking: list[_Thinking] = []
        self._usage = MessagesUsage()
        self._reason: str | None = None
        self.settled = False
        self.complete = False
        self.taken = 0

    def feed(self, event: SseEvent) -> list[StreamEvent]:
        if not event.data.strip():
            return []
        value, damaged = read_json(event.data, self._judge)
        if not isinstance(value, dict):
            raise self._judge.unreadable("the stream holds something that is no event")
        kind = value.get("type")
        if kind == "ping":
            return []
        self.taken += 1
        if kind == "error" or event.name == "error" or value.get("error"):
            raise self._judge.event(value)
        out: list[StreamEvent] = []
        match kind:
            case "content_block_delta":
                self._delta(_index(value), value.get("delta"), damaged, out)
            case "content_block_start":
                self._start(_index(value), value.get("content_block"), out)
            case "content_block_stop":
                self._stop(_index(value))
            case "message_start":
                message = value.get("message")
                self._usage.take(message.get("usage") if isinstance(message, dict) else None)
            case "message_delta":
                self._usage.take(value.get("usage"))
                delta = value.get("delta")
                self._finish(delta.get("stop_reason") if isinstance(delta, dict) else None)
            case "message_stop":
                self.complete = True
        return out

    def whole(self, body: bytes) -> list[StreamEvent]:
        value, damaged = read_json(body, self._judge)
        if not isinstance(value, dict) or not isinstance(value.get("content"), list):
            raise self._judge.event(value)
        if damaged:
            raise self._judge.unreadable("the answer arrived damaged")
        out: list[StreamEvent] = []
        for index, block in enumerate(value["content"]):
            self._start(index, block, out)
            self._stop(index)
        self._usage.take(value.get("usage"))
        self._finish(value.get("stop_reason"))
        self.complete = True
        return out

    def result(self) -> list[StreamEvent]:
        if self._reason is None:
            raise cut_short(self._judge)
        for index in list(self._inputs):
            self._stop(index)
        out: list[StreamEvent] = []
        rest = self._reasoning.flush()
        if rest:
            self._thought(self._thinking[-1], rest, out)
        rest = self._text.flush()
        if rest:
            out.append(TextChunk(rest))
        reason = _REASONS.get(self._reason) or ("tool_calls" if self._calls else "stop")
        blocks = tuple(ReasoningBlock(b.chars, b.signature or None, b.redacted, b.at) for b in self._thinking)
        out.append(Finished(reason, self._calls.calls(), self.spent(), blocks))
        return out

    def spent(self) -> TokenUsage | None:
        return self._usage.total()

    def _start(self, index: int, block: Any, out: list[StreamEvent]) -> None:
        if not isinstance(block, dict):
            return
        match block.get("type"):
            case "text":
                self._tell(block.get("text"), out)
            case "thinking":
                thinking = self._begin_thinking(index)
                self._think(thinking, block.get("thinking"), out)
                self._sign(thinking, block.get("signature"))
            case "redacted_thinking":
                data = block.get("data")
                self._thinking.append(_Thinking(self._told, data if isinstance(data, str) else ""))
            case "tool_use":
                self._calls.feed(index, block.get("id"), block.get("name"), None)
                self._inputs[index] = block.get("input")

    def _delta(self, index: int, delta: Any, damaged: bool, out: list[StreamEvent]) -> None:
        if not isinstance(delta, dict):
            return
        match delta.get("type"):
            case "text_delta":
                self._tell(delta.get("text"), out)
            case "input_json_delta":
                piece = delta.get("partial_json")
                if damaged:
                    raise self._judge.unreadable("a tool call arrived damaged")
                if piece and index in self._inputs:
                    self._inputs[index] = None
                    self._calls.feed(index, None, None, piece)
            case "thinking_delta":
                self._think(self._begin_thinking(index), delta.get("thinking"), out)
            case "signature_delta":
                self._sign(self._begin_thinking(index), delta.get("signature"))

    def _stop(self, index: int) -> None:
        """A call whose arguments came whole with its start, and in no piece."""
        given = self._inputs.pop(index, None)
        if given:
            self._calls.feed(index, None, None, given)

    def _finish(self, reason: Any) -> None:
        if isinstance(reason, str) and reason:
            self._reason = reason
            self.settled = True

    def _tell(self, words: Any, out: list[StreamEvent]) -> None:
        if isinstance(words, str) and words:
            text = self._text.feed(words)
            if text:
                self._told += len(text)
                out.append(TextChunk(text))

    def _begin_thinking(self, index: int) -> _Thinking:
        thinking = self._blocks.get(index)
        if thinking is None:
            thinking = self._blocks[index] = _Thinking(self._told)
            self._thinking.append(thinking)
        return thinking

    def _think(self, thinking: _Thinking, words: Any, out: list[StreamEvent]) -> None:
        if isinstance(words, str) and words:
            text = self._reasoning.feed(words)
            if text:
                self._thought(thinking, text, out)

    def _thought(self, thinking: _Thinking, text: str, out: list[StreamEvent]) -> None:
        thinking.chars += len(text)
        out.append(ReasoningChunk(text))

    def _sign(self, thinking: _Thinking, signature: Any) -> None:
        if isinstance(signature, str):
            thinking.signature += clean(signature)


def _index(value: dict[str, Any]) -> int:
    index = value.get("index")
    return index if isinstance(index, int) else 0
