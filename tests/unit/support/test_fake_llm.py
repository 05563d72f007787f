"""The fake model itself: what tests lean on must hold."""

from __future__ import annotations

import json
from typing import Any

import anyio
import httpx
import pytest

from tests.support.fake_llm import FakeLLM, Gate, Reply, call, failure, sequence
from tests.support.wire import assert_append_only, malformed, message_bytes

ASK = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}


def data(body: str) -> list[dict[str, Any]]:
    lines = [line[6:] for line in body.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


async def test_chat_completions() -> None:
    reply = Reply("hello", reasoning="hm", tool_calls=[call("add", {"a": 1}), call("add", "{")], cached_tokens=3)
    with FakeLLM(sequence(reply)) as llm:
        async with httpx.AsyncClient() as client:
            first = await client.post(f"{llm.openai_url}/chat/completions", json=ASK)
            second = await client.post(f"{llm.openai_url}/chat/completions", json={**ASK, "stream": False})
    deltas = [c["choices"][0]["delta"] for c in data(first.text) if c["choices"]]
    assert "".join(d.get("content", "") for d in deltas) == "hello"
    names = [c["function"]["name"] for d in deltas for c in d.get("tool_calls", ()) if c.get("id")]
    assert names == ["add", "add"]
    assert data(first.text)[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    message = second.json()["choices"][0]["message"]
    assert [c["function"]["arguments"] for c in message["tool_calls"]] == ['{"a":1}', "{"]
    assert len({c["id"] for c in message["tool_calls"]}) == 2
    assert llm.requests[0].json == ASK


async def test_messages() -> None:
    with FakeLLM(sequence(Reply("hello", reasoning="hm", tool_calls=[call("add", {})]))) as llm:
        async with httpx.AsyncClient() as client:
            got = await client.post(f"{llm.anthropic_url}/v1/messages", json=ASK)
    kinds = [e["type"] for e in data(got.text)]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert kinds.count("content_block_start") == 3
    assert llm.requests[0].is_anthropic


async def test_faults() -> None:
    script = sequence(
        failure(429, headers={"retry-after": "1"}),
        Reply("x" * 100, cut_after=2),
        Reply(refuse=True),
        Reply(raw=b"data: nonsense\n\n"),
        Reply("whole", slice_bytes=3),
    )
    with FakeLLM(script) as llm:
        async with httpx.AsyncClient() as client:
            url = f"{llm.openai_url}/chat/completions"
            limited = await client.post(url, json=ASK)
            assert (limited.status_code, limited.headers["retry-after"]) == (429, "1")
            for _ in range(2):
                with pytest.raises(httpx.RemoteProtocolError):
                    await client.post(url, json=ASK)
            assert (await client.post(url, json=ASK)).text == "data: nonsense\n\n"
            assert "whole" in "".join(
                c["choices"][0]["delta"].get("content", "")
                for c in data((await client.post(url, json=ASK)).text)
                if c["choices"]
            )


async def test_gates_and_disconnects() -> None:
    first, middle = Gate(), Gate()
    with FakeLLM(sequence(Reply("a", gate=first), Reply("bcde", hold_after=(2, middle)))) as llm:
        async with httpx.AsyncClient() as client:
            url = f"{llm.openai_url}/chat/completions"
            with anyio.move_on_after(0.05):
                await client.post(url, json=ASK)
            await llm.wait_for_disconnect()
            first.open()
            async with client.stream("POST", url, json=ASK) as stream:
                chunks = stream.aiter_bytes()
                assert b"role" in await anext(chunks)
                middle.open()
                rest = b"".join([c async for c in chunks])
            assert rest.endswith(b"data: [DONE]\n\n")
            assert (llm.count, llm.disconnects) == (2, 1)


def test_readers_of_bodies() -> None:
    one = b'{"messages":[{"role":"user","content":"a"}],"tools":[1]}'
    two = b'{"messages":[{"role":"user","content":"a"}, {"role":"assistant","content":"b"}],"tools":[1]}'
    assert_append_only([one, two])
    assert message_bytes(two)[1] == b'{"role":"assistant","content":"b"}'
    with pytest.raises(AssertionError, match="message 0 differs"):
        assert_append_only([two, two.replace(b'"a"', b'"c"')])
    with pytest.raises(AssertionError, match="tools changed"):
        assert_append_only([one, two.replace(b"[1]", b"[2]")])
    called = {"role": "assistant", "tool_calls": [{"id": "1"}]}
    assert malformed([called, {"role": "tool", "tool_call_id": "1"}]) is None
    assert malformed([called]) == "calls ['1'] are unanswered at the end"
    assert malformed([{"role": "tool", "tool_call_id": "1"}]) == "the result at 0 answers no open call"
