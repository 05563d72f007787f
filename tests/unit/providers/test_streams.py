"""Answers of both dialects, as servers really send them."""

# ruff: noqa: E501

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.messages import ReasoningBlock, ToolCall
from sidecar.providers.anthropic_stream import MessagesDecoder
from sidecar.providers.errors import ProviderError
from sidecar.providers.failures import Judge
from sidecar.providers.openai_stream import ChatDecoder
from sidecar.providers.port import Finished, ReasoningChunk, StreamEvent, TextChunk, TokenUsage
from sidecar.providers.sse import SseEvent
from sidecar.providers.stream import StreamDecoder

JUDGE = Judge("here")


def run(decoder: StreamDecoder, *values: Any) -> list[StreamEvent]:
    """Every value is an event: bytes as they are, the rest as JSON."""
    out: list[StreamEvent] = []
    for value in values:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        out += decoder.feed(SseEvent("", data))
    return out + decoder.result()


def chat(*values: Any) -> list[StreamEvent]:
    return run(ChatDecoder(JUDGE), *values)


def messages(*values: Any) -> list[StreamEvent]:
    return run(MessagesDecoder(JUDGE), *values)


def delta(finish: str | None = None, *, usage: Any = None, **fields: Any) -> dict[str, Any]:
    chunk: dict[str, Any] = {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}
    return {**chunk, "usage": usage} if usage else chunk


def piece(index: int | None, arguments: Any = None, name: Any = None, id: Any = None) -> dict[str, Any]:
    call = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return delta(tool_calls=[{k: v for k, v in call.items() if v is not None or k == "id"}])


def finished(events: list[StreamEvent]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    assert not any(isinstance(e, Finished) for e in events[:-1])
    return last


def texts(events: list[StreamEvent], kind: type[TextChunk] | type[ReasoningChunk] = TextChunk) -> str:
    return "".join(e.text for e in events if isinstance(e, kind))


USAGE = {"prompt_tokens": 10, "completion_tokens": 3}


# ---------------------------------------------------------------- chat completions


def test_chat_text() -> None:
    decoder = ChatDecoder(JUDGE)
    events = run(
        decoder, delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"), delta("stop"),
        {"choices": [], "usage": USAGE}, b"[DONE]",
    )  # fmt: skip
    assert events == [TextChunk("Hel"), TextChunk("lo"), Finished("stop", (), TokenUsage(10, 0, 3))]
    assert decoder.complete


@pytest.mark.parametrize(
    ("told", "calls", "wanted"),
    [
        ("stop", False, "stop"), ("stop", True, "tool_calls"), ("tool_calls", True, "tool_calls"),
        ("tool_calls", False, "stop"), ("function_call", True, "tool_calls"), ("length", True, "length"),
        ("max_tokens", False, "length"), ("model_length", False, "length"), ("content_filter", False, "content_filter"),
        ("SAFETY", False, "content_filter"), ("STOP", False, "stop"), ("eos", False, "stop"), ("odd", False, "stop"),
    ],
)  # fmt: skip
def test_chat_finish_reasons(told: str, calls: bool, wanted: str) -> None:
    events = chat(*([piece(0, "{}", "t", "c")] if calls else []), delta(told))
    assert finished(events).reason == wanted


@pytest.mark.parametrize("told", ["error", "abort", "network_error", "insufficient_system_resource"])
def test_chat_reasons_that_mean_the_model_broke_off(told: str) -> None:
    with pytest.raises(ProviderError) as caught:
        chat(delta(content="half"), delta(told))
    assert caught.value.kind == "unavailable"


@pytest.mark.parametrize(
    ("deltas", "wanted"),
    [
        ([{"reasoning_content": "r"}, {"content": "t"}], "r"), ([{"reasoning": "r"}], "r"), ([{"thinking": "r"}], "r"),
        ([{"reasoning_content": "r", "reasoning": "r"}], "r"), ([{"reasoning": {"odd": 1}}], ""),
        ([{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "r"}]}, {"type": "text", "text": "t"}]}], "r"),
    ],
)  # fmt: skip
def test_chat_reasoning_in_every_spelling(deltas: list[dict[str, Any]], wanted: str) -> None:
    events = chat(*(delta(**d) for d in deltas), delta("stop"))
    assert texts(events, ReasoningChunk) == wanted


CALLS: list[tuple[str, list[dict[str, Any]], list[tuple[str, str, str]]]] = [
    ("by index", [piece(0, "", "a", "1"), piece(1, "", "b", "2"), piece(0, '{"x"'), piece(1, "{}"), piece(0, ":1}")],
     [("1", "a", '{"x":1}'), ("2", "b", "{}")]),
    ("no index, one call", [piece(None, '{"x"', "a", "1"), piece(None, ":1}")], [("1", "a", '{"x":1}')]),
    ("no index, by id", [piece(None, "{", "a", "1"), piece(None, "[", "b", "2"), piece(None, "}", None, "1")],
     [("1", "a", "{}"), ("2", "b", "[")]),
    ("no index, whole calls", [piece(None, "{}", "a"), piece(None, "{}", "a")], [("", "a", "{}"), ("", "a", "{}")]),
    ("all under index 0, by id", [piece(0, "{}", "a", "1"), piece(0, "{}", "b", "2")], [("1", "a", "{}"), ("2", "b", "{}")]),
    ("all under index 0, no ids", [piece(0, "{}", "a"), piece(0, '{"y":2}', "a")], [("", "a", "{}"), ("", "a", '{"y":2}')]),
    ("the id comes late", [piece(0, "{", "a"), piece(0, "}", None, "1")], [("1", "a", "{}")]),
    ("the id changes with every piece", [piece(0, "{", "a", "1"), piece(0, "}", None, "2")], [("1", "a", "{}")]),
    ("name and id again and again", [piece(0, "{", "a", "1"), piece(0, "}", "a", "1")], [("1", "a", "{}")]),
    ("the name again, no ids", [piece(0, "{", "a"), piece(0, "}", "a")], [("", "a", "{}")]),
    ("the name in pieces", [piece(0, "", "lo", "1"), piece(0, None, "ok"), piece(0, "{}")], [("1", "look", "{}")]),
    ("the whole name before the arguments again", [piece(0, "", "a", "1"), piece(0, "{}", "a", "1")], [("1", "a", "{}")]),
    ("arguments as an object", [piece(0, {"x": "ü"}, "a", "1")], [("1", "a", '{"x":"ü"}')]),
    ("an index that begins at one", [piece(1, "{}", "a", "1")], [("1", "a", "{}")]),
    ("the model's own text", [piece(0, ' { "x" :1.0}\n', "a", "1")], [("1", "a", ' { "x" :1.0}\n')]),
    ("a piece that says nothing", [piece(0, "{}", "a", "1"), piece(1, "", "", ""), {"tool_calls": [{"index": 2}]}],
     [("1", "a", "{}")]),
    ("no arguments at all", [piece(0, None, "a", "1")], [("1", "a", "")]),
]  # fmt: skip


@pytest.mark.parametrize(("deltas", "wanted"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_chat_calls_are_put_together(deltas: list[dict[str, Any]], wanted: list[tuple[str, str, str]]) -> None:
    assert finished(chat(*deltas, delta("tool_calls"))).tool_calls == tuple(ToolCall(*w) for w in wanted)


def test_chat_usage_wherever_it_comes() -> None:
    kimi = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": {**USAGE, "cached_tokens": 4}}]}
    assert finished(chat(kimi)).usage == TokenUsage(10, 4, 3)
    groq = {**delta("stop"), "x_groq": {"usage": USAGE}}
    assert finished(chat(groq)).usage == TokenUsage(10, 0, 3)
    llama = {**delta("stop"), "timings": {"prompt_n": 2, "cache_n": 8, "predicted_n": 3}}
    assert finished(chat(llama)).usage == TokenUsage(10, 8, 3)
    assert finished(chat(llama, {"choices": [], "usage": USAGE})).usage == TokenUsage(10, 0, 3)
    early = delta(content="x", usage={"prompt_tokens": 10, "completion_tokens": 1})
    assert finished(chat(early, delta("stop"), {"choices": [], "usage": USAGE})).usage == TokenUsage(10, 0, 3)
    assert finished(chat(delta("stop"), {"choices": None, "usage": None})).usage is None


def test_chat_usage_ends_the_wait_only_behind_the_finish_reason() -> None:
    """Servers that tell usage with every chunk tell the cached tokens with the last one only."""
    decoder = ChatDecoder(JUDGE)
    last = {**USAGE, "prompt_tokens_details": {"cached_tokens": 6}}
    for value, settled, complete in (
        (delta(content="x", usage=USAGE), False, False), ({**delta("stop"), "usage": USAGE}, True, False),
        ({"choices": [], "usage": last}, True, True),
    ):  # fmt: skip
        decoder.feed(SseEvent("", json.dumps(value).encode()))
        assert (decoder.settled, decoder.complete) == (settled, complete)
    assert decoder.spent() == TokenUsage(10, 6, 3)


@pytest.mark.parametrize("blank", [b"", b" ", b"\n"])
def test_blank_data_is_a_heartbeat(blank: bytes) -> None:
    for decoder in (ChatDecoder(JUDGE), MessagesDecoder(JUDGE)):
        assert decoder.feed(SseEvent("", blank)) == []
        assert decoder.taken == 0


def test_chat_halves_of_a_character_in_two_deltas() -> None:
    events = chat(b'{"choices":[{"delta":{"content":"a\\ud83d"}}]}', b'{"choices":[{"delta":{"content":"\\ude42b"}}]}',
                  b'{"choices":[{"delta":{"content":"\\ud83d"}}]}', delta("stop"))  # fmt: skip
    assert events[:-1] == [TextChunk("a"), TextChunk("🙂b"), TextChunk("\ufffd")]


def test_chat_bad_bytes_are_replaced_in_text_and_never_in_a_call() -> None:
    assert texts(chat(b'{"choices":[{"delta":{"content":"caf\xe9"}}]}', delta("stop"))) == "caf\ufffd"
    with pytest.raises(ProviderError) as caught:
        chat(
            b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"t","arguments":"\xe9"}}]}}]}',
            delta("stop"),
        )
    assert caught.value.retryable


@pytest.mark.parametrize("junk", [b"{broken", b"5", b"[]", b"null", b"\xff\xfe", b'"text"'])
def test_what_is_no_event_fails_the_attempt(junk: bytes) -> None:
    for run_dialect in (chat, messages):
        with pytest.raises(ProviderError) as caught:
            run_dialect(junk)
        assert caught.value.kind == "unavailable"


def test_chat_without_a_finish_reason_is_cut() -> None:
    for values in ([], [delta(content="x")], [delta(content="x"), b"[DONE]"], [{"choices": []}]):
        with pytest.raises(ProviderError, match="before it was finished"):
            chat(*values)


def test_chat_errors_in_the_stream() -> None:
    with pytest.raises(ProviderError) as caught:
        chat(delta(content="x"), {"error": {"message": "Overloaded", "code": 529}})
    assert (caught.value.kind, caught.value.status) == ("unavailable", 529)
    with pytest.raises(ProviderError) as caught:
        chat({"object": "error", "message": "no such field", "type": "BadRequestError", "code": 400})
    assert (caught.value.kind, caught.value.status) == ("rejected", 400)
    assert finished(chat({"error": None, **delta("stop")})).reason == "stop"


def test_chat_other_choices_and_refusals() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": None}]}
    assert texts(chat(other, delta(refusal="I will not."), delta("stop"))) == "I will not."


def test_chat_answer_that_is_no_stream() -> None:
    decoder = ChatDecoder(JUDGE)
    body = {
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "content": "t", "reasoning_content": "r", "tool_calls": [
                {"id": "1", "function": {"name": "a", "arguments": "{}"}},
                {"id": "2", "function": {"name": "a", "arguments": "{}"}}]}}],
        "usage": USAGE,
    }  # fmt: skip
    events = decoder.whole(json.dumps(body).encode()) + decoder.result()
    assert events[:2] == [ReasoningChunk("r"), TextChunk("t")]
    assert len(finished(events).tool_calls) == 2
    for wrong, kind in (({"error": {"message": "no", "code": 400}}, "rejected"), ({"odd": 1}, "unavailable")):
        with pytest.raises(ProviderError) as caught:
            ChatDecoder(JUDGE).whole(json.dumps(wrong).encode())
        assert caught.value.kind == kind


# ---------------------------------------------------------------- messages


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def step(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(reason: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


BEGIN = {
    "type": "message_start",
    "message": {"usage": {"input_tokens": 2, "cache_read_input_tokens": 7, "output_tokens": 1}},
}
END = {"type": "message_stop"}


def test_messages_text_thinking_and_calls() -> None:
    events = messages(
        BEGIN, {"type": "ping"}, start(0, type="thinking", thinking="", signature=""),
        step(0, "thinking_delta", thinking="hm "), step(0, "thinking_delta", thinking="思"),
        step(0, "signature_delta", signature="si"), step(0, "signature_delta", signature="g"), {"type": "content_block_stop", "index": 0},
        start(1, type="redacted_thinking", data="opaque"), start(2, type="text", text="a"), step(2, "text_delta", text="b"),
        start(3, type="tool_use", id="t1", name="look", input={}), step(3, "input_json_delta", partial_json='{"x"'),
        step(3, "input_json_delta", partial_json=": 1}"), {"type": "content_block_stop", "index": 3},
        start(4, type="tool_use", id="t2", name="look", input={"y": 2}), {"type": "content_block_stop", "index": 4},
        start(5, type="tool_use", id="t3", name="look", input={}), start(6, type="server_tool_use", id="s", name="web"),
        stop("tool_use", output_tokens=30), END,
    )  # fmt: skip
    assert events[:-1] == [ReasoningChunk("hm "), ReasoningChunk("思"), TextChunk("a"), TextChunk("b")]
    assert finished(events) == Finished(
        "tool_calls",
        (ToolCall("t1", "look", '{"x": 1}'), ToolCall("t2", "look", '{"y":2}'), ToolCall("t3", "look", "")),
        TokenUsage(9, 7, 30),
        (ReasoningBlock(4, "sig"), ReasoningBlock(0, None, "opaque")),
    )


def test_messages_thinking_between_texts_keeps_its_place() -> None:
    events = messages(
        BEGIN, start(0, type="text", text="één "), start(1, type="thinking", thinking="hm", signature="s1"),
        start(2, type="text", text=""), step(2, "text_delta", text="two"), start(3, type="redacted_thinking", data="o"),
        stop(), END,
    )  # fmt: skip
    assert finished(events).reasoning_blocks == (ReasoningBlock(2, "s1", at=4), ReasoningBlock(0, None, "o", at=7))


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ("end_turn", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length"), ("refusal", "content_filter"),
        ("model_context_window_exceeded", "length"), ("pause_turn", "stop"), ("tool_use", "stop"), ("odd", "stop"),
    ],
)  # fmt: skip
def test_messages_finish_reasons(told: str, wanted: str) -> None:
    assert finished(messages(BEGIN, stop(told), END)).reason == wanted


def test_messages_are_whole_with_the_stop_reason_alone() -> None:
    assert finished(messages(start(0, type="text", text="x"), stop())).usage is None
    for values in ([], [BEGIN], [BEGIN, stop(None), END], [END]):
        with pytest.raises(ProviderError, match="before it was finished"):
            messages(*values)


def test_messages_errors_in_the_stream() -> None:
    with pytest.raises(ProviderError) as caught:
        messages(BEGIN, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    assert (caught.value.kind, caught.value.status) == ("unavailable", 529)


def test_messages_heartbeats_are_no_progress() -> None:
    decoder = MessagesDecoder(JUDGE)
    decoder.feed(SseEvent("ping", b'{"type":"ping"}'))
    assert decoder.taken == 0
    decoder.feed(SseEvent("", json.dumps(BEGIN).encode()))
    assert decoder.taken == 1


def test_messages_damage_in_a_call_fails_the_attempt() -> None:
    bad = b'{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"\xff"}}'
    with pytest.raises(ProviderError, match="damaged"):
        messages(start(0, type="tool_use", id="t", name="n", input={}), bad)


def test_messages_answer_that_is_no_stream() -> None:
    decoder = MessagesDecoder(JUDGE)
    body = {
        "type": "message", "stop_reason": "tool_use", "usage": {"input_tokens": 4, "output_tokens": 2},
        "content": [{"type": "thinking", "thinking": "h", "signature": "s"}, {"type": "text", "text": "t"},
                    {"type": "tool_use", "id": "1", "name": "a", "input": {"x": 1}}],
    }  # fmt: skip
    events = decoder.whole(json.dumps(body).encode()) + decoder.result()
    assert finished(events) == Finished(
        "tool_calls", (ToolCall("1", "a", '{"x":1}'),), TokenUsage(4, 0, 2), (ReasoningBlock(1, "s"),)
    )
    with pytest.raises(ProviderError) as caught:
        MessagesDecoder(JUDGE).whole(b'{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}')
    assert caught.value.kind == "rate_limited"
