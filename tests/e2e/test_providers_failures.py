"""What goes wrong at the provider border and how a host sees it: retries, cuts, stalls, refusals, cancels."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import anyio
import pytest

from protocol import events as e
from protocol.errors import CODES
from sidecar.client.host import HostCall, host_tool
from tests.support.fake_dialects import Counts, anthropic_stream, openai_stream
from tests.support.fake_llm import Gate, Reply, call, failure, sequence
from tests.support.one_daemon import KEY, OneDaemon, Talk
from tests.support.running import until

pytestmark = pytest.mark.anyio


def retries(talk: Talk) -> list[tuple[int, str, int | None]]:
    return [(x.attempt, x.reason, x.status) for x in talk.of_type(e.RetryScheduled)]


# ---------------------------------------------------------------- retried


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_what_passes_is_tried_again(daemon: OneDaemon, dialect: str, status: int) -> None:
    script = sequence(failure(status), failure(status), Reply("here I am"))
    async with daemon.talk(dialect, script) as talk:
        result = await talk.run("hello")
        assert (result.stop_reason, result.text) == ("end_turn", "here I am")
        reason = "provider_rate_limited" if status == 429 else "provider_unavailable"
        assert retries(talk) == [(1, reason, status), (2, reason, status)]
        assert len(talk.requests) == 3
        assert len({r.body for r in talk.requests}) == 1
        assert not talk.of_type(e.StreamReset)
        assert result.usage.requests == 1


@pytest.mark.parametrize(
    ("headers", "least"),
    [({"retry-after": "1"}, 1.0), ({"retry-after": "0.4"}, 0.4), ({"retry-after-ms": "300"}, 0.3)],
    ids=["seconds", "fraction", "milliseconds"],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_the_provider_says_how_long_to_wait(
    daemon: OneDaemon, dialect: str, headers: dict[str, str], least: float, status: int
) -> None:
    async with daemon.talk(dialect, sequence(failure(status, headers=headers), Reply("ok"))) as talk:
        assert (await talk.run("hello")).stop_reason == "end_turn"
        first, second = talk.requests
        assert second.at - first.at >= least
        (scheduled,) = talk.of_type(e.RetryScheduled)
        assert scheduled.delay_ms >= least * 1000


async def test_waits_grow(daemon: OneDaemon, dialect: str) -> None:
    config = {"providers": {dialect: {"retry_base_s": 0.04, "max_retries": 4}}}
    async with daemon.talk(dialect, lambda r, n: failure(500), config=config) as talk:
        result = await talk.run("hello")
        waits = [x.delay_ms for x in talk.of_type(e.RetryScheduled)]
        assert len(waits) == 4
        assert len(talk.requests) == 5
        assert waits[2] > waits[0]
        assert waits[3] > waits[1]
        assert result.stop_reason == "error"
        assert result.error is not None
        assert (result.error.code, result.error.reason) == (CODES["provider_unavailable"], "provider_unavailable")
        assert result.error.provider_status == 500


async def test_the_default_is_five_retries(daemon: OneDaemon, dialect: str) -> None:
    async with daemon.talk(dialect, lambda r, n: failure(429, headers={"retry-after": "0"})) as talk:
        result = await talk.run("hello")
        assert len(talk.requests) == 6
        assert result.error is not None
        assert (result.error.reason, result.error.provider_status) == ("provider_rate_limited", 429)
        # The session is as usable as before.
        daemon.crowd.scripts[talk.model] = lambda r, n: Reply("back")
        assert (await talk.run("again")).text == "back"


async def test_no_retries_where_none_are_wanted(daemon: OneDaemon, dialect: str) -> None:
    config = {"providers": {dialect: {"max_retries": 0}}}
    async with daemon.talk(dialect, lambda r, n: failure(503), config=config) as talk:
        assert (await talk.run("hello")).stop_reason == "error"
        assert len(talk.requests) == 1
        assert not retries(talk)


async def test_a_refused_connection_is_tried_again(daemon: OneDaemon, dialect: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = {"providers": {dialect: {"base_url": f"http://127.0.0.1:{port}/v1", "max_retries": 2}}}
    async with daemon.talk(dialect, sequence(Reply()), config=config) as talk:
        result = await talk.run("hello")
        assert retries(talk) == [(1, "provider_unavailable", None), (2, "provider_unavailable", None)]
        assert result.error is not None
        assert result.error.reason == "provider_unavailable"
        assert result.error.provider_status is None


async def test_a_reset_connection_is_tried_again(daemon: OneDaemon, dialect: str) -> None:
    async with daemon.talk(dialect, sequence(Reply(refuse=True), Reply("ok"))) as talk:
        assert (await talk.run("hello")).text == "ok"
        assert retries(talk) == [(1, "provider_unavailable", None)]
        assert not talk.of_type(e.StreamReset)


# ---------------------------------------------------------------- streams that break


async def test_a_cut_before_content_shows_nothing(daemon: OneDaemon, dialect: str) -> None:
    async with daemon.talk(dialect, sequence(Reply("never", cut_after=1), Reply("whole"))) as talk:
        assert (await talk.run("hello")).text == "whole"
        assert len(retries(talk)) == 1
        assert not talk.of_type(e.StreamReset)
        assert talk.shown() == "whole"


async def test_a_cut_after_content_starts_the_step_anew(daemon: OneDaemon, dialect: str) -> None:
    script = sequence(Reply("first half and more", cut_after=4), Reply("whole answer"))
    async with daemon.talk(dialect, script) as talk:
        result = await talk.run("hello")
        assert result.text == talk.shown() == "whole answer"
        (reset,) = talk.of_type(e.StreamReset)
        (message,) = talk.of_type(e.MessageEvent)
        assert (reset.message_id, reset.offset) == (message.message.id, 0)
        assert {x.message_id for x in talk.of_type(e.TextDelta)} == {message.message.id}
        assert len(talk.of_type(e.StepStarted)) == 1
        page = await talk.client.sessions.messages(talk.session_id)
        assert [m.text for m in page.messages if m.role == "assistant"] == ["whole answer"]
        assert talk.requests[0].body == talk.requests[1].body


async def test_shown_reasoning_is_void_too(daemon: OneDaemon, dialect: str) -> None:
    cut = 2 if dialect == "openai" else 3
    script = sequence(Reply("x", reasoning="thinking hard", cut_after=cut), Reply("y", reasoning="again"))
    async with daemon.talk(dialect, script) as talk:
        assert (await talk.run("hello")).text == "y"
        assert len(talk.of_type(e.StreamReset)) == 1
        after = talk.seen[talk.seen.index(talk.of_type(e.StreamReset)[0]) :]
        deltas = [x for x in after if isinstance(x, e.ReasoningDelta)]
        assert deltas[0].offset == 0
        assert "".join(x.text for x in deltas) == "again"


async def test_a_call_that_was_cut_is_not_run(daemon: OneDaemon, dialect: str) -> None:
    """Cut in the middle of its arguments, and after whole arguments but before a finish reason."""
    ran: list[Any] = []

    @host_tool("act", "Acts.", {"n": {"type": "integer"}})
    async def act(call: HostCall) -> str:
        ran.append(call.arguments)
        return "done"

    whole = 4 if dialect == "openai" else 5
    for cut in (whole - 1, whole):
        ran.clear()
        script = sequence(
            Reply("", tool_calls=[call("act", {"n": 1})], cut_after=cut),
            Reply("", tool_calls=[call("act", {"n": 2})]),
            Reply("finished"),
        )
        async with daemon.talk(dialect, script, tools=[act]) as talk:
            assert (await talk.run("go")).text == "finished"
            assert ran == [{"n": 2}]
            assert len(talk.of_type(e.ToolCallStarted)) == 1


async def test_a_stall_is_tried_again(daemon: OneDaemon, dialect: str) -> None:
    config = {"providers": {dialect: {"idle_timeout_s": 0.8}}}
    for reply in (Reply("x y z", stall_after=0), Reply("abcdefgh", stall_after=4), Reply(gate=Gate())):
        async with daemon.talk(dialect, sequence(reply, Reply("moved")), config=config) as talk:
            began = time.monotonic()
            result = await talk.run("hello")
            assert result.text == talk.shown() == "moved"
            assert time.monotonic() - began >= 0.8
            assert retries(talk) == [(1, "provider_unavailable", None)]


async def test_a_slow_stream_is_no_stall(daemon: OneDaemon, dialect: str) -> None:
    """Longer in all than the time-out, with shorter pauses."""
    config = {"providers": {dialect: {"idle_timeout_s": 1.5}}}
    async with daemon.talk(dialect, sequence(Reply("abcdefgh", chunks=8, chunk_delay=0.2)), config=config) as talk:
        assert (await talk.run("hello")).text == "abcdefgh"
        assert not retries(talk)


async def test_garbage_is_tried_again(daemon: OneDaemon, dialect: str) -> None:
    for raw in (
        b"\n",
        b"data: {broken\n\n",
        b"data: 5\n\n",
        b"\x00\xff\xfe",
        b": only a comment\n\n",
        b"<html>hi</html>",
    ):
        async with daemon.talk(dialect, sequence(Reply(raw=raw), Reply("fine"))) as talk:
            assert (await talk.run("hello")).text == "fine", raw
            assert len(retries(talk)) == 1, raw


OVERLOADED = {
    "openai": b'data: {"error":{"message":"Overloaded","type":"server_error","code":503}}\n\n',
    "anthropic": b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
}
LIMITED = {
    "openai": b'data: {"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit_exceeded"}}\n\n',
    "anthropic": b'event: error\ndata: {"type":"error","error":{"type":"rate_limit_error","message":"slow"}}\n\n',
}
BROKEN = {
    "openai": b'data: {"error":{"message":"The server had an error","type":"server_error"}}\n\n',
    "anthropic": b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"Internal"}}\n\n',
}
INVALID = {
    "openai": b'data: {"error":{"message":"bad","type":"invalid_request_error","code":400}}\n\n',
    "anthropic": b'event: error\ndata: {"type":"error","error":{"type":"invalid_request_error","message":"bad"}}\n\n',
}
UNKNOWN_KEY = {
    "openai": b'data: {"error":{"message":"who?","type":"authentication_error","code":"invalid_api_key"}}\n\n',
    "anthropic": b'event: error\ndata: {"type":"error","error":{"type":"authentication_error","message":"who?"}}\n\n',
}


@pytest.mark.parametrize("event", [OVERLOADED, LIMITED, BROKEN], ids=["overloaded", "limited", "broken"])
@pytest.mark.parametrize("shown", [False, True], ids=["at once", "after content"])
async def test_an_error_event_that_passes(
    daemon: OneDaemon, dialect: str, event: dict[str, bytes], shown: bool
) -> None:
    def broken(request: dict[str, Any], n: int) -> Reply:
        return Reply(events=[*(_content(dialect) if shown else ()), event[dialect]])

    async with daemon.talk(dialect, sequence(broken, Reply("fine"))) as talk:
        assert (await talk.run("hello")).text == "fine"
        assert len(retries(talk)) == 1
        assert len(talk.of_type(e.StreamReset)) == shown
        assert talk.shown() == "fine"


def _content(dialect: str) -> list[bytes]:
    if dialect == "openai":
        return [b'data: {"choices":[{"index":0,"delta":{"content":"partly"}}]}\n\n']
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "partly"}}
    return [b"data: " + json.dumps(x).encode() + b"\n\n" for x in (start, delta)]


@pytest.mark.parametrize(
    ("event", "reason"),
    [(INVALID, "provider_rejected"), (UNKNOWN_KEY, "provider_auth")],
    ids=["invalid", "auth"],
)
async def test_an_error_event_that_stays(daemon: OneDaemon, dialect: str, event: dict[str, bytes], reason: str) -> None:
    async with daemon.talk(dialect, lambda r, n: Reply(events=[event[dialect]])) as talk:
        result = await talk.run("hello")
        assert result.error is not None
        assert (result.error.reason, result.error.code) == (reason, CODES[reason])
        assert len(talk.requests) == 1


async def test_an_error_event_that_stays_after_content(daemon: OneDaemon, dialect: str) -> None:
    """The turn fails, and what was shown is not taken back."""
    reply = Reply(events=[*_content(dialect), INVALID[dialect]])
    async with daemon.talk(dialect, sequence(reply, Reply("ok"))) as talk:
        result = await talk.run("hello")
        assert result.error is not None
        assert result.error.reason == "provider_rejected"
        assert talk.shown() == "partly"
        assert not talk.of_type(e.StreamReset)
        assert (await talk.run("again")).text == "ok"
        assert ("assistant", "partly") in talk.requests[1].texts


async def test_an_overflow_as_an_event(daemon: OneDaemon, dialect: str) -> None:
    """It makes room and goes on, as one that comes as a status."""
    error = {"message": "prompt is too long: 20831 tokens > 9000 maximum", "type": "invalid_request_error"}
    event = b"event: error\ndata: " + json.dumps({"type": "error", "error": error}).encode() + b"\n\n"

    def script(request: dict[str, Any], n: int) -> Reply:
        if n == 1:
            return Reply(events=[event])
        return Reply("first " * 500) if n == 0 else Reply("SUMMARY: " + "it went on and on. " * 50)

    async with daemon.talk(dialect, script) as talk:
        await talk.run("hello " * 3_000)
        assert (await talk.run("again")).stop_reason == "end_turn"
        assert len(talk.of_type(e.CompactionLanded)) == 1
        info = await talk.info()
        assert (info.window, info.window_source) == (9_000, "learned")


async def test_one_event_that_never_ends(daemon: OneDaemon) -> None:
    config = {"providers": {"openai": {"max_retries": 0}}}

    def script(request: dict[str, Any], n: int) -> Reply:
        start = b'data: {"choices":[{"index":0,"delta":{"content":"'
        return Reply(events=(start if i == 0 else b"x" * (1 << 20) for i in range(40)))

    async with daemon.talk("openai", script, config=config) as talk:
        result = await talk.run("hello")
        assert result.error is not None
        assert result.error.reason == "provider_unavailable"
        assert not talk.shown()


async def test_heartbeats_are_neither_content_nor_a_stall(daemon: OneDaemon, dialect: str) -> None:
    beat = b": still here\n\n" if dialect == "openai" else b'event: ping\ndata: {"type": "ping"}\n\n'
    config = {"providers": {dialect: {"idle_timeout_s": 1.2}}}
    raw = whole_answer(dialect)
    async with daemon.talk(
        dialect, lambda r, n: Reply(events=[beat] * 6 + raw, chunk_delay=0.2), config=config
    ) as talk:
        assert (await talk.run("hello")).text == "beaten"
        assert not retries(talk)


def whole_answer(dialect: str) -> list[bytes]:
    """A short answer as events."""
    stream = openai_stream if dialect == "openai" else anthropic_stream
    return list(stream({}, Reply("beaten", chunks=1), Counts(10, 0, 2)))


# ---------------------------------------------------------------- never retried

REFUSED = {400: "provider_rejected", 404: "provider_rejected", 413: "provider_rejected", 422: "provider_rejected",
           401: "provider_auth", 403: "provider_auth"}  # fmt: skip


@pytest.mark.parametrize("status", REFUSED)
async def test_what_stays_is_told_at_once(daemon: OneDaemon, dialect: str, status: int) -> None:
    script = sequence(failure(status, "no, thank you", type="some_error"), Reply("works again"))
    async with daemon.talk(dialect, script) as talk:
        result = await talk.run("hello")
        assert result.stop_reason == "error"
        error = result.error
        assert error is not None
        assert (error.reason, error.code, error.provider_status) == (REFUSED[status], CODES[REFUSED[status]], status)
        assert "no, thank you" in error.message
        assert not retries(talk)
        assert len(talk.requests) == 1
        # The session is as usable as before, and what the user said is still there.
        assert (await talk.run("again")).text == "works again"
        assert [t for _, t in talk.requests[1].texts].count("hello") == 1


FILTERS: list[dict[str, Any]] = [
    {"message": "The response was filtered due to the prompt triggering our content management policy.",
     "code": "content_filter", "type": None},
    {"message": "Your request was rejected as a result of our safety system", "code": "content_policy_violation"},
    {"message": "Content Exists Risk", "type": "invalid_request_error", "code": "invalid_request_error"},
]  # fmt: skip


@pytest.mark.parametrize("error", FILTERS, ids=["azure", "openai", "deepseek"])
async def test_a_filter_as_400_is_a_refusal(daemon: OneDaemon, dialect: str, error: dict[str, Any]) -> None:
    async with daemon.talk(dialect, lambda r, n: Reply(status=400, error=error)) as talk:
        result = await talk.run("hello")
        assert (result.stop_reason, result.error) == ("refused", None)
        assert len(talk.requests) == 1
        assert not retries(talk)


async def test_a_filter_as_finish_reason_is_a_refusal(daemon: OneDaemon, dialect: str) -> None:
    reason = "content_filter" if dialect == "openai" else "refusal"
    ran: list[str] = []

    @host_tool("act", "Acts.", {})
    async def act(call: HostCall) -> str:
        ran.append(call.tool_call_id)
        return "done"

    reply = Reply("I can", tool_calls=[call("act", {})], finish_reason=reason)
    async with daemon.talk(dialect, sequence(reply, Reply("ok")), tools=[act]) as talk:
        result = await talk.run("hello")
        assert result.stop_reason == "refused"
        assert not ran
        assert len(talk.requests) == 1
        assert (await talk.run("something else")).text == "ok"


async def test_length_ends_the_turn_and_runs_no_call(daemon: OneDaemon, dialect: str) -> None:
    """Neither the whole call nor the one that was cut."""
    ran: list[Any] = []

    @host_tool("act", "Acts.", {"n": {"type": "integer"}})
    async def act(call: HostCall) -> str:
        ran.append(call.arguments)
        return "done"

    reason = "length" if dialect == "openai" else "max_tokens"
    calls = [call("act", {"n": 1}, "c1"), call("act", '{"n": 2', "c2")]
    script = sequence(Reply("cut off", tool_calls=calls, finish_reason=reason), Reply("ok"))
    async with daemon.talk(dialect, script, tools=[act]) as talk:
        result = await talk.run("hello")
        assert (result.stop_reason, result.text, result.error) == ("max_tokens", "cut off", None)
        assert not ran
        assert len(talk.requests) == 1
        assert (await talk.run("go on")).text == "ok"
        assert not ran


async def test_length_without_a_word(daemon: OneDaemon, dialect: str) -> None:
    reason = "length" if dialect == "openai" else "max_tokens"
    async with daemon.talk(dialect, sequence(Reply("", finish_reason=reason), Reply("ok"))) as talk:
        assert (await talk.run("hello")).stop_reason == "max_tokens"
        assert (await talk.run("go on")).text == "ok"


# ---------------------------------------------------------------- whole without all of its parts


async def test_a_stream_is_whole_with_its_finish_reason(daemon: OneDaemon, dialect: str) -> None:
    """Without `[DONE]` or `message_stop`, cut right after it, with one event unterminated."""
    async with daemon.talk(dialect, sequence(Reply("whole", done=False), Reply("other"))) as talk:
        assert (await talk.run("hello")).text == "whole"
        assert len(talk.requests) == 1
    last = 6 if dialect == "openai" else 8
    async with daemon.talk(dialect, sequence(Reply("whole", cut_after=last), Reply("other"))) as talk:
        assert (await talk.run("hello")).text == "whole"
        assert len(talk.requests) == 1


async def test_an_unterminated_last_event_counts(daemon: OneDaemon) -> None:
    raw = (
        b'data: {"choices":[{"index":0,"delta":{"content":"end"}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
    )
    async with daemon.talk("openai", sequence(Reply(raw=raw), Reply("other"))) as talk:
        assert (await talk.run("hello")).text == "end"
        assert len(talk.requests) == 1


async def test_a_stream_by_the_letter(daemon: OneDaemon) -> None:
    """CRLF, comments, a BOM, `data` over several lines, U+2028 inside, cut at every byte."""
    raw = (
        "\ufeff: hello\r\nretry: 5\r\nid: 1\r\nevent: message\r\n"
        'data: {"choices":[{"index":0,\r\ndata: "delta":{"content":"a\u2028b\u0085é中😀"}}]}\r\n\r\n'
        ":keep-alive\r\n\r\n"
        'data:{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\r\n\r\ndata: [DONE]\r\n\r\n'
    ).encode()
    for size in (None, 1, 2, 3, 7):
        async with daemon.talk("openai", sequence(Reply(raw=raw, slice_bytes=size))) as talk:
            assert (await talk.run("hello")).text == "a\u2028b\u0085é中😀"
            assert talk.shown() == "a\u2028b\u0085é中😀"


# ---------------------------------------------------------------- cancel


async def _cancelled(talk: Talk, wanted: Any) -> None:
    """Starts a turn, cancels it when `wanted()` holds; returns at `turn_ended`."""
    talk.seen = []
    with talk.client.events(talk.session_id) as stream, anyio.fail_after(20):
        sent = await talk.client.chat.send(talk.session_id, "hello")
        async with anyio.create_task_group() as tasks:

            async def follow() -> None:
                async for told in stream.of_turn(sent.turn_id):
                    talk.seen.append(told.event)

            tasks.start_soon(follow)
            await until(wanted, what="the moment to cancel")
            assert await talk.client.chat.cancel(talk.session_id)
            await until(lambda: talk.of_type(e.TurnEnded), what="turn_ended")
    assert talk.seen[-1].stop_reason == "cancelled"


async def test_cancel_before_the_first_byte(daemon: OneDaemon, dialect: str) -> None:
    gate = Gate()
    left = daemon.crowd.llm.disconnects
    async with daemon.talk(dialect, sequence(Reply("never", gate=gate), Reply("next"))) as talk:
        await _cancelled(talk, lambda: talk.requests)
        await daemon.crowd.llm.wait_for_disconnect(left + 1)
        assert (await talk.run("again")).text == "next"
    gate.open()


async def test_cancel_in_the_middle_of_a_stream(daemon: OneDaemon, dialect: str) -> None:
    gate = Gate()
    left = daemon.crowd.llm.disconnects
    script = sequence(Reply("abcdefgh", hold_after=(4, gate)), Reply("next"))
    async with daemon.talk(dialect, script) as talk:
        await _cancelled(talk, lambda: talk.of_type(e.TextDelta))
        await daemon.crowd.llm.wait_for_disconnect(left + 1)
        shown = talk.shown()
        assert shown
        page = await talk.client.sessions.messages(talk.session_id)
        assert [m.text for m in page.messages if m.role == "assistant"] == [shown]
        assert (await talk.run("again")).text == "next"
        assert ("assistant", shown) in talk.requests[1].texts
    gate.open()


async def test_cancel_while_it_waits_to_try_again(daemon: OneDaemon, dialect: str) -> None:
    script = sequence(failure(429, headers={"retry-after": "60"}), Reply("next"))
    async with daemon.talk(dialect, script) as talk:
        await _cancelled(talk, lambda: talk.of_type(e.RetryScheduled))
        assert len(talk.requests) == 1
        assert (await talk.run("again")).text == "next"


async def test_cancel_while_it_connects(daemon: OneDaemon, dialect: str) -> None:
    """A listener whose queue is full accepts nobody."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        config = {"providers": {dialect: {"base_url": f"http://127.0.0.1:{full.getsockname()[1]}"}}}
        async with daemon.talk(dialect, sequence(Reply()), config=config) as talk:
            await _cancelled(talk, lambda: talk.of_type(e.StepStarted))
        for filler in fillers:
            filler.close()


# ---------------------------------------------------------------- keys


async def test_a_key_that_is_echoed_goes_nowhere(daemon: OneDaemon, dialect: str) -> None:
    """In an error body, in an error event, and in the words of an unreadable page."""
    key = daemon.place.env[f"{dialect.upper()}_API_KEY"]
    bodies = [
        Reply(status=401, error={"message": f"Incorrect API key provided: {key}. Authorization: Bearer {key}"}),
        Reply(status=400, error={"message": "no", "code": key, "type": key}),
        Reply(status=500, raw=f"<html><title>{key}</title></html>".encode()),
        Reply(events=[b'data: {"error":{"message":"bad %s","type":"invalid_request_error"}}\n\n' % key.encode()]),
    ]
    config = {"providers": {dialect: {"max_retries": 1}}}
    for reply in bodies:
        async with daemon.talk(dialect, sequence(reply), config=config) as talk:
            result = await talk.run("hello")
            assert result.error is not None
            assert key not in json.dumps([str(x) for x in talk.seen])
            assert any(key in v for v in talk.requests[0].headers.values())
    for path in [*daemon.place.home.rglob("*"), daemon.place.stderr_file]:
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
