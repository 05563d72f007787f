"""The bytes that a model gets: canonical, append-only, marked for caches, clean; in both dialects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol import events as e
from protocol.messages import TextPart, ToolSpec
from sidecar.client.host import HostCall, host_tool
from tests.support import strict_anthropic, strict_openai
from tests.support.fake_llm import FakeLLM, Reply, Request, call, sequence
from tests.support.one_daemon import OneDaemon
from tests.support.raw_host import SocketHost
from tests.support.running import a_place, running_sidecar
from tests.support.wire import assert_append_only, message_bytes, prefix_bytes

pytestmark = pytest.mark.anyio


def check(request: Request) -> dict[str, Any]:
    strict = strict_anthropic if request.is_anthropic else strict_openai
    return strict.check(request.body)


def bodies(requests: list[Request]) -> list[bytes]:
    """The bodies, cache marks taken out."""
    return [strict_anthropic.without_marks(r.body) for r in requests]


SCHEMA = {
    "type": "object",
    "required": ["zeta", "alpha"],
    "properties": {"zeta": {"type": "string", "description": "é"}, "alpha": {"type": "number", "minimum": 0.5}},
    "additionalProperties": False,
}


def echo_tool(name: str, answer: str = "done") -> Any:
    @host_tool(name, f"The tool {name}.", {"x": {"type": "string"}}, required=())
    async def tool(call: HostCall) -> str:
        return answer

    return tool


# ---------------------------------------------------------------- tools


async def test_tools_are_sorted_and_their_schemas_as_given(daemon: OneDaemon, dialect: str) -> None:
    names = ["zebra", "alpha", "Mid", "read_filed", "mcp_like__x"]
    tools = [ToolSpec(name=n, description="d", parameters=SCHEMA) for n in names]
    config = {"tools": {"builtin": "all"}}
    async with daemon.talk(dialect, sequence(Reply("ok")), tools=tools, config=config) as talk:
        await talk.run("one")
        await talk.run("two")
        request = check(talk.requests[0])
        if dialect == "openai":
            rows = [(t["function"]["name"], t["function"]["parameters"]) for t in request["tools"]]
        else:
            rows = [(t["name"], t["input_schema"]) for t in request["tools"]]
        assert [n for n, _ in rows] == sorted(n for n, _ in rows)
        assert {*names, "read_file", "run_command"} <= {n for n, _ in rows}
        assert json.dumps(SCHEMA, separators=(",", ":"), ensure_ascii=False).encode() in talk.requests[0].body
        assert prefix_bytes(talk.requests[0].body) == prefix_bytes(talk.requests[1].body)


async def test_the_same_tools_in_another_order_are_the_same_bytes(daemon: OneDaemon, dialect: str) -> None:
    tools = [ToolSpec(name=n, description="d", parameters=SCHEMA) for n in ("b", "c", "a")]
    prefixes = []
    for order in (tools, tools[::-1]):
        async with daemon.talk(dialect, sequence(Reply("ok")), tools=order) as talk:
            await talk.run("one")
            prefixes.append(prefix_bytes(talk.requests[0].body))
    assert prefixes[0] == prefixes[1]


async def test_without_tools_there_is_no_field_for_them(daemon: OneDaemon, dialect: str) -> None:
    async with daemon.talk(dialect, sequence(Reply("ok"))) as talk:
        await talk.run("one")
        assert "tools" not in check(talk.requests[0])
        assert "tool_choice" not in talk.requests[0].json


# ---------------------------------------------------------------- append-only


async def test_requests_only_grow(daemon: OneDaemon, dialect: str) -> None:
    """Calls side by side, results with odd text, reasoning, steering, failed turns in between."""
    replies = [
        Reply("", reasoning="let me see", tool_calls=[call("a", {"x": "1"}), call("b", {"x": "ü\n"})]),
        Reply("then", tool_calls=[call("a", ' {"x" : "spaced"} ')]),
        Reply("first answer"),
        Reply(status=400, error={"message": "odd", "type": "invalid_request_error"}),
        Reply("second answer", reasoning="hm"),
        Reply("cut", cut_after=3),
        Reply("", tool_calls=[call("nosuch", {}), call("b", "not json"), call("a", "")]),
        Reply("third"),
    ]
    tools = [echo_tool("a", "tab\tnul\x00 esc\x1b[0m \u2028 end"), echo_tool("b", '{"json": "in text"}')]
    async with daemon.talk(dialect, sequence(*replies), tools=tools, system_prompt="Be ünderstanding.") as talk:
        for text in ("one", "two", "three", "four"):
            await talk.run(text)
        assert len(talk.requests) >= 8
        for request in talk.requests:
            check(request)
        assert_append_only(bodies(talk.requests))
        # The model's own argument text goes back as it was.
        spaced = b' {\\"x\\" : \\"spaced\\"} ' if dialect == "openai" else b'"input": {"x" : "spaced"} '
        assert spaced in talk.requests[2].body


async def test_a_restart_changes_no_byte(dialect: str) -> None:
    """Resumed from the log, the next request still extends the last one before the kill."""
    replies = [Reply("", reasoning="r", tool_calls=[call("a", {"x": "é"})]), Reply("one"), Reply("two")]
    with FakeLLM(sequence(*replies)) as llm, a_place(llm) as place:
        session_id = ""
        for life in range(2):
            async with running_sidecar(llm=llm, home=place.home, model=f"{dialect}/fake-model") as sidecar:
                if life == 0:
                    made = await sidecar.client.sessions.create(
                        cwd=str(place.work), tools=[echo_tool("a")], system_prompt="Be brief."
                    )
                    session_id = made.session_id
                else:
                    await sidecar.client.sessions.resume(session_id, tools=[echo_tool("a")])
                await sidecar.client.chat.run(session_id, f"life {life}")
                await sidecar.kill()
        assert_append_only([strict_anthropic.without_marks(b) for b in llm.bodies])


async def test_switching_the_model_and_back(daemon: OneDaemon, dialect: str) -> None:
    """Same provider, other model: reasoning is not replayed to it; messages are append-only per model."""
    quirks = {"quirks": {"reasoning_replay": "all"}} if dialect == "openai" else {}
    config = {"providers": {dialect: quirks}}
    script = sequence(Reply("A says", reasoning="secret thought"))
    async with daemon.talk(dialect, script, config=config) as talk:
        other = talk.model + "-other"
        daemon.crowd.scripts[other] = sequence(Reply("B says", reasoning="other thought"))
        await talk.run("one")
        await talk.run("two")
        assert b"secret thought" in talk.requests[1].body
        await talk.client.sessions.configure(talk.session_id, model=f"{dialect}/{other}")
        await talk.run("three")
        (switched,) = daemon.crowd.of(other)
        assert b"secret thought" not in switched.body
        assert b"signature" not in switched.body
        assert [t for _, t in switched.texts if t in ("one", "two", "three")] == ["one", "two", "three"]
        await talk.run("four")
        assert_append_only(bodies(daemon.crowd.of(other)))
        assert b"other thought" in daemon.crowd.of(other)[1].body
        await talk.client.sessions.configure(talk.session_id, model=f"{dialect}/{talk.model}")
        await talk.run("five")
        back = talk.requests[-1]
        assert b"other thought" not in back.body
        assert back.body.count(b"secret thought") == 2
        assert_append_only(bodies(talk.requests))
        check_ = strict_anthropic.check if dialect == "anthropic" else json.loads
        check_(back.body)


async def test_switching_the_dialect(daemon: OneDaemon) -> None:
    script = sequence(
        Reply("", reasoning="deep", tool_calls=[call("a", {"x": "1"}, "call.with:odd|id")]), Reply("A says")
    )
    async with daemon.talk("openai", script, tools=[echo_tool("a")]) as talk:
        await talk.run("one")
        daemon.crowd.scripts["claude-x"] = sequence(Reply("C says", reasoning="signed"))
        await talk.client.sessions.configure(talk.session_id, model="anthropic/claude-x")
        await talk.run("two")
        await talk.run("three")
        requests = daemon.crowd.of("claude-x")
        for request in requests:
            assert request.is_anthropic
            check(request)
        assert b"deep" not in requests[0].body
        assert_append_only(bodies(requests))
        await talk.client.sessions.configure(talk.session_id, model=f"openai/{talk.model}")
        await talk.run("four")
        for request in talk.requests:
            check(request)
        assert_append_only(bodies(talk.requests))
        assert b"signed" not in talk.requests[-1].body


# ---------------------------------------------------------------- reasoning


async def test_reasoning_goes_back_signed_to_its_model(daemon: OneDaemon) -> None:
    script = sequence(
        Reply("", reasoning="step by step", signature="U2lnbmVk", tool_calls=[call("a", {})]), Reply("done")
    )
    async with daemon.talk("anthropic", script, tools=[echo_tool("a")]) as talk:
        await talk.run("one")
        request = check(talk.requests[1])
        (assistant,) = [m for m in request["messages"] if m["role"] == "assistant"]
        assert assistant["content"][0] == {"type": "thinking", "thinking": "step by step", "signature": "U2lnbmVk"}
        (event, *_) = talk.of_type(e.MessageEvent)
        assert event.message.reasoning == "step by step"


async def test_redacted_and_several_blocks_keep_their_order(daemon: OneDaemon) -> None:
    events = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "füst"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "AAA"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "RRR"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "thinking_delta", "thinking": "second"}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "signature_delta", "signature": "BBB"}},
        {"type": "content_block_stop", "index": 2},
        {"type": "content_block_start", "index": 3, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "said"}},
        {"type": "content_block_stop", "index": 3},
        {"type": "ping"},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    stream = [b"event: %s\ndata: %s\n\n" % (x["type"].encode(), json.dumps(x).encode()) for x in events]  # type: ignore[attr-defined]
    async with daemon.talk("anthropic", lambda r, n: Reply(events=stream)) as talk:
        assert (await talk.run("one")).text == "said"
        await talk.run("two")
        assistant = check(talk.requests[1])["messages"]
        (found,) = [m["content"] for m in assistant if m["role"] == "assistant"]
        assert found == [
            {"type": "thinking", "thinking": "füst", "signature": "AAA"},
            {"type": "redacted_thinking", "data": "RRR"},
            {"type": "thinking", "thinking": "second", "signature": "BBB"},
            {"type": "text", "text": "said"},
        ]


async def test_chat_reasoning_goes_back_only_where_a_quirk_asks(daemon: OneDaemon) -> None:
    replies = [Reply("", reasoning="why", tool_calls=[call("a", {})]), Reply("x", reasoning="because"), Reply("y")]
    wanted = {"none": [], "tool_calls": ["why", None], "all": ["why", "because"]}
    for mode, expected in wanted.items():
        config = {"providers": {"openai": {"quirks": {"reasoning_replay": mode}}}}
        async with daemon.talk("openai", sequence(*replies), tools=[echo_tool("a")], config=config) as talk:
            await talk.run("one")
            await talk.run("two")
            said = [m for m in talk.requests[2].messages if m["role"] == "assistant"]
            assert [m.get("reasoning_content") for m in said] == (expected or [None, None]), mode
            if mode == "none":
                assert b"reasoning" not in talk.requests[2].body
            assert_append_only([r.body for r in talk.requests])


async def test_reasoning_under_other_names(daemon: OneDaemon) -> None:
    for name in ("reasoning_content", "reasoning"):
        raw = (
            f'data: {{"choices":[{{"index":0,"delta":{{"{name}":"thought"}}}}]}}\n\n'
            'data: {"choices":[{"index":0,"delta":{"content":"said"},"finish_reason":"stop"}]}\n\n'
        ).encode()
        async with daemon.talk("openai", sequence(Reply(raw=raw))) as talk:
            assert (await talk.run("one")).text == "said"
            assert "".join(x.text for x in talk.of_type(e.ReasoningDelta)) == "thought"


# ---------------------------------------------------------------- cache marks


def places(request: dict[str, Any]) -> list[str]:
    """Where the cache marks of a request stand."""
    out = [f"system[{i}]" for i, b in enumerate(request.get("system", ())) if "cache_control" in b]
    out += [t["name"] for t in request.get("tools", ()) if "cache_control" in t]
    for i, message in enumerate(request["messages"]):
        for j, block in enumerate(message["content"]):
            if "cache_control" in block:
                assert j == len(message["content"]) - 1
                out.append(f"{message['role']}[{i}]")
    return out


async def test_cache_marks(daemon: OneDaemon) -> None:
    """On the system prompt, the last tool, the last two user-role messages, tool results included."""
    script = sequence(Reply("", tool_calls=[call("a", {}), call("b", {})]), Reply("one"), Reply("two"))
    tools = [echo_tool("b"), echo_tool("a")]
    async with daemon.talk("anthropic", script, tools=tools, system_prompt="Be brief.") as talk:
        await talk.run("hello")
        await talk.run("again")
        assert len(talk.requests) == 3
        for request in talk.requests:
            body = check(request)
            users = [f"user[{i}]" for i, m in enumerate(body["messages"]) if m["role"] == "user"]
            assert places(body) == ["system[0]", "b", *users[-2:]]
        assert b"cache_control" not in b"".join(r.body for r in await _chat_requests(daemon))


async def _chat_requests(daemon: OneDaemon) -> list[Request]:
    async with daemon.talk("openai", sequence(Reply("x")), tools=[echo_tool("a")], system_prompt="s") as talk:
        await talk.run("hello")
        return talk.requests


async def test_no_fields_of_ours(daemon: OneDaemon, dialect: str) -> None:
    """Neither in a step's request nor in a summary's: a strict reader takes both."""
    config = {"model": {"window": 16_000}}
    script = sequence(*(Reply("word " * 300) for _ in range(4)), Reply("SUMMARY: " + "it went on. " * 60))
    async with daemon.talk(dialect, script, config=config) as talk:
        for n in range(4):
            await talk.run(f"tell me more {n} " + "about it " * 300)
        landed = await talk.client.chat.compact(talk.session_id)
        assert landed.outcome == "landed"
        for request in talk.requests:
            check(request)
            assert b"cache_retention" not in request.body
            assert b"prompt_cache" not in request.body
        before, summary = talk.requests[-2:]
        if dialect == "anthropic":
            # The last step's marks, byte for byte, and none on what comes after.
            old, new = before.body, summary.body
            marked = [m for m in message_bytes(old) if b"cache_control" in m]
            assert [m for m in message_bytes(new) if b"cache_control" in m] == marked
            assert prefix_bytes(old) == prefix_bytes(new)


# ---------------------------------------------------------------- hygiene


def test_what_cannot_be_sent_is_replaced(daemon: OneDaemon, dialect: str) -> None:
    """From a host's input, a tool's result, the system prompt, a tool's schema; and from the model itself."""
    model = f"hygiene-{dialect}"
    arguments = '{"x":"\\ud800 and \\u0000"}'
    daemon.crowd.scripts[model] = sequence(Reply("half \ud83d pair", tool_calls=[call("a", arguments)]), Reply("fine"))
    odd = "lone \udc00 nul \x00 bell \x07 esc \x1b del \x7f nel \x85 zwj \u200d end"
    clean = odd.replace("\udc00", "\ufffd").replace("\x00", "\ufffd")
    tool = {"name": "a", "description": odd, "parameters": {"type": "object", "title": odd, "properties": {"x": {}}}}
    with SocketHost(str(daemon.socket)) as host:
        made = host.call(
            "agent.session.create",
            {"model": f"{dialect}/{model}", "system_prompt": odd, "tools": [tool], "cwd": str(daemon.place.work)},
        )
        session_id = made["session"]["session_id"]
        sent = host.start("agent.chat.send", {"session_id": session_id, "content": f"user {odd}", "wait": True})
        asked = host.wait(lambda frames: [f for f in frames if f.get("method") == "tool.call"], "tool.call")[0]
        host.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": f"tool {odd}"}})
        assert host.reply(sent)["result"]["text"] == "fine"
    first, second = daemon.crowd.of(model)
    for request in (first, second):
        check(request)
        assert request.texts[-1][1] in (f"user {clean}", f"tool {clean}")
    assert any(text == "half \ufffd pair" for _, text in second.texts)
    system = first.json["system"][0]["text"] if dialect == "anthropic" else first.texts[0][1]
    assert system.startswith(clean)
    assert_append_only(bodies([first, second]))


async def test_pairs_of_surrogates_are_joined(daemon: OneDaemon, dialect: str) -> None:
    """A pair that JSON escapes as two units is one character, whatever it is cut into."""
    if dialect == "openai":
        chunks = [
            b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n',
            b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00!"},"finish_reason":"stop"}]}\n\n',
        ]
    else:
        deltas = [{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}]
        deltas += [
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}}  # type: ignore[dict-item]
            for t in ("\ud83d", "\ude00!")
        ]
        deltas += [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]  # type: ignore[dict-item]
        chunks = [b"data: " + json.dumps(d).encode() + b"\n\n" for d in deltas]
    async with daemon.talk(dialect, lambda r, n: Reply(events=chunks)) as talk:
        assert (await talk.run("one")).text == talk.shown() == "😀!"


async def test_blank_texts_never_reach_a_model(daemon: OneDaemon, dialect: str) -> None:
    script = sequence(Reply("", tool_calls=[call("a", {})]), Reply("  \n "), Reply("fine"))
    async with daemon.talk(dialect, script, tools=[echo_tool("a", "")]) as talk:
        await talk.run([TextPart(""), TextPart("x"), TextPart("  ")])
        await talk.run("two")
        for request in talk.requests:
            check(request)
        assert len(talk.requests) == 3


async def test_odd_calls_are_made_safe(daemon: OneDaemon, dialect: str) -> None:
    """Empty and repeated ids, across turns too; names that no provider would take; arguments that are no object."""
    calls = [call("a", {}, "same"), call("a", {}, "same"), call("bad name!", "[1]", "x"), call("a", "null", "y")]

    def script(request: dict[str, Any], n: int) -> Reply:
        made = [dict(c) for c in calls]
        return Reply("", tool_calls=made) if n in (0, 2) else Reply("fine")

    config = {"providers": {"openai": {"quirks": {"strict_names": True}}}}
    async with daemon.talk(dialect, script, tools=[echo_tool("a")], config=config) as talk:
        await talk.run("one")
        assert (await talk.run("two")).text == "fine"
        assert len(talk.requests) == 4
        for request in talk.requests:
            check(request)
        assert_append_only(bodies(talk.requests))


async def test_very_long_text_crosses_whole(daemon: OneDaemon, dialect: str) -> None:
    config = {"model": {"window": 5_000_000}}
    async with daemon.talk(dialect, sequence(Reply("ok")), config=config) as talk:
        text = "0123456789abcdef" * 200_000
        await talk.run(text)
        await talk.run("two")
        assert talk.requests[1].texts[-3][1].endswith(text) or any(t == text for _, t in talk.requests[1].texts)
        assert_append_only(bodies(talk.requests))


# ---------------------------------------------------------------- connections


async def test_connections_are_used_again(daemon: OneDaemon, dialect: str) -> None:
    script = sequence(*(Reply("", tool_calls=[call("a", {})]) for _ in range(5)), Reply("done"))
    server = daemon.crowd.llm
    async with daemon.talk(dialect, script, tools=[echo_tool("a")]) as talk:
        await talk.run("warm up")
        before = server.connections
        for n in range(5):
            await talk.run(f"turn {n}")
        assert server.connections == before
