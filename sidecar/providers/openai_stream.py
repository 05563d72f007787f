"""The chat completions dialect: answers. Pure: no I/O.

Finish reasons as they come, and what they mean here:

    stop, eos, end_turn, eos_token, complete...       stop (or tool_calls, when there are calls)
    tool_calls, function_call, tool_use               tool_calls (or stop, when there are none)
    length, max_tokens, model_length                  length
    content_filter, safety, sensitive...              content_filter
    error, abort, network_error,
    insufficient_system_resource                      the attempt failed: unavailable
"""

from __future__ import annotations

from typing import Any

from sidecar.providers import usage as token_usage
from sidecar.providers.failures import Judge
from sidecar.providers.jsontext import TextJoiner
from sidecar.providers.port import Finished, FinishReason, ReasoningChunk, StreamEvent, TextChunk, TokenUsage
from sidecar.providers.sse import SseEvent
from sidecar.providers.stream import CallAssembler, cut_short, read_json, texts_in

_LENGTH = frozenset({"length", "max_tokens", "model_length", "max_output_tokens", "max_length"})
_FILTER = frozenset(
    {"content_filter", "safety", "sensitive", "recitation", "blocklist", "prohibited_content", "refusal", "spii"}
)
_BROKEN = frozenset({"error", "abort", "aborted", "network_error", "insufficient_system_resource", "cancelled"})
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")


class ChatDecoder:
    """See `stream.StreamDecoder`."""

    __slots__ = (
        "_calls", "_judge", "_reason", "_reasoning", "_text", "_timings", "_usage", "complete", "settled", "taken",
    )  # fmt: skip

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._text = TextJoiner()
        self._reasoning = TextJoiner()
        self._calls = CallAssembler()
        self._reason: str | None = None
        self._usage: TokenUsage | None = None
        self._timings: TokenUsage | None = None
        self.settled = False
        self.complete = False
        self.taken = 0

    def feed(self, event: SseEvent) -> list[StreamEvent]:
        data = event.data.strip()
        if not data:
            return []
        self.taken += 1
        if data == b"[DONE]":
            self.complete = True
            return []
        value, damaged = read_json(data, self._judge)
        if not isinstance(value, dict):
            raise self._judge.unreadable("the stream holds something that is no event")
        if event.name == "error" or value.get("error") or value.get("object") == "error":
            raise self._judge.event(value)
        return self._chunk(value, "delta", damaged)

    def whole(self, body: bytes) -> list[StreamEvent]:
        value, damaged = read_json(body, self._judge)
        if not isinstance(value, dict) or not value.get("choices"):
            raise self._judge.event(value)
        out = self._chunk(value, "message", damaged)
        self.complete = True
        return out

    def result(self) -> list[StreamEvent]:
        if self._reason is None:
            raise cut_short(self._judge)
        out: list[StreamEvent] = []
        for kind, rest in ((ReasoningChunk, self._reasoning.flush()), (TextChunk, self._text.flush())):
            if rest:
                out.append(kind(rest))
        reason = _finish(self._reason, bool(self._calls))
        out.append(Finished(reason, self._calls.calls(), self.spent()))
        return out

    def spent(self) -> TokenUsage | None:
        return self._usage or self._timings

    def _chunk(self, value: dict[str, Any], field: str, damaged: bool) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        settled = self.settled
        usage = value.get("usage")
        choices = value.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(choice, dict) and not choice.get("index"):
            message = choice.get(field)
            if not isinstance(message, dict):
                message = choice.get("message")
            if isinstance(message, dict):
                self._message(message, damaged, out)
            self._finish(choice.get("finish_reason"))
            usage = usage or choice.get("usage")
        if usage or self.settled:
            self._figures(value, usage, last=settled)
        return out

    def _message(self, message: dict[str, Any], damaged: bool, out: list[StreamEvent]) -> None:
        for name in _REASONING_FIELDS:
            words = message.get(name)
            if isinstance(words, str) and words:
                _tell(ReasoningChunk, self._reasoning.feed(words), out)
                break
        content = message.get("content")
        if type(content) is str:
            if content:
                _tell(TextChunk, self._text.feed(content), out)
        elif content is not None:
            for kind, words in texts_in(content):
                if kind == "text":
                    _tell(TextChunk, self._text.feed(words), out)
                else:
                    _tell(ReasoningChunk, self._reasoning.feed(words), out)
        refusal = message.get("refusal")
        if isinstance(refusal, str) and refusal:
            _tell(TextChunk, self._text.feed(refusal), out)
        calls = message.get("tool_calls")
        if isinstance(calls, list) and calls:
            if damaged:
                raise self._judge.unreadable("a tool call arrived damaged")
            for call in calls:
                self._call(call)

    def _call(self, call: Any) -> None:
        if not isinstance(call, dict):
            return
        function = call.get("function")
        function = function if isinstance(function, dict) else call
        self._calls.feed(call.get("index"), call.get("id"), function.get("name"), function.get("arguments"))

    def _finish(self, reason: Any) -> None:
        if not isinstance(reason, str) or not reason:
            return
        word = reason.lower()
        if word in _BROKEN:
            raise self._judge.unreadable("the model broke off")
        self._reason = word
        self.settled = True

    def _figures(self, value: dict[str, Any], usage: Any, *, last: bool) -> None:
        """Usage may come with every chunk, the one with the finish reason too; only one behind it (`last`) ends the
        wait: what a server tells all along may lack what its last word has (cached tokens)."""
        groq = value.get("x_groq")
        if not usage and isinstance(groq, dict):
            usage = groq.get("usage")
        timings = value.get("timings")
        told = token_usage.from_chat(usage, timings) if usage else None
        if told is not None:
            self._usage = told
            self.complete = self.complete or last
        elif timings:
            self._timings = token_usage.from_chat(None, timings)


def _tell(kind: type[TextChunk] | type[ReasoningChunk], words: str, out: list[StreamEvent]) -> None:
    if words:
        out.append(kind(words))


def _finish(reason: str, calls: bool) -> FinishReason:
    if reason in _LENGTH:
        return "length"
    if reason in _FILTER:
        return "content_filter"
    return "tool_calls" if calls else "stop"
