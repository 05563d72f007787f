"""The provider that plays a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sidecar.providers.errors import ProviderError
from sidecar.providers.port import Binding, TokenUsage
from sidecar.providers.registry import Registry
from sidecar.settings import Settings
from tests.support.providers import ask, summary_of
from tests.support.requests import PREFIX, Held, assistant, calling, result, user

pytestmark = pytest.mark.anyio


def script(path: Path, *lines: Any) -> Binding:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), "utf-8")
    return Registry({}).resolve(f"scripted/{path}", Settings())


async def said(binding: Binding, text: str = "hi") -> str:
    return str(summary_of(await ask(binding, [user(text)]))["text"])


async def test_echo() -> None:
    binding = Registry({}).resolve("scripted/echo", Settings())
    talk = [user("first"), assistant("", calling("c")), result("c", "out"), user("«last» one\n")]
    found = summary_of(await ask(binding, talk))
    assert (found["text"], found["reason"]) == ("«last» one\n", "stop")
    assert summary_of(await ask(binding, talk[:3]))["text"] == "first"
    assert summary_of(await ask(binding, []))["text"] == "(nothing was said)"
    encoder = binding.provider.encoder("echo", lambda digest: None)
    encoder.sync(PREFIX, [Held(m) for m in talk], 0)
    request = encoder.request(max_output_tokens=None, suffix=user("summarise"))
    async with binding.provider.stream("echo", request) as events:
        assert summary_of([e async for e in events])["text"] == "summarise"


async def test_lines_in_order_and_the_last_again_and_again(tmp_path: Path) -> None:
    binding = script(tmp_path / "s.jsonl", {"text": "one"}, "", {"text": "two"})
    assert [await said(binding) for _ in range(4)] == ["one", "two", "two", "two"]


async def test_a_file_that_changes_is_read_again_from_where_it_was(tmp_path: Path) -> None:
    binding = script(tmp_path / "s.jsonl", {"text": "one"})
    assert await said(binding) == "one"
    script(tmp_path / "s.jsonl", {"text": "one"}, {"text": "new"})
    assert await said(binding) == "new"


async def test_calls_and_figures(tmp_path: Path) -> None:
    calls = [{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": "raw"}, {"name": "c"}]
    told = {"text": "x" * 40, "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    binding = script(tmp_path / "s.jsonl", {"reasoning": "r", "tool_calls": calls}, told)
    first = summary_of(await ask(binding, [user("hi")]))
    assert (first["reasoning"], first["reason"]) == ("r", "tool_calls")
    assert [c[1:] for c in first["calls"]] == [("a", '{"x":1}'), ("b", "raw"), ("c", "{}")]
    assert len({c[0] for c in first["calls"]}) == 3
    second = summary_of(await ask(binding, [user("hi")]))
    assert second["usage"] == TokenUsage(9, 0, 2)
    again = script(tmp_path / "t.jsonl", {"text": "x" * 40})
    figures = [summary_of(await ask(again, [user("hi")]))["usage"] for _ in range(2)]
    assert figures[0] == figures[1]
    assert figures[0].completion_tokens == 10


async def test_refusals(tmp_path: Path) -> None:
    binding = script(
        tmp_path / "s.jsonl",
        {"error": {"status": 429, "body": {"error": {"message": "slow"}}, "retry_after": 1}},
        {"error": {"status": 400, "body": "maximum context length is 4096 tokens"}},
        {"error": {}},
    )
    found = []
    for _ in range(3):
        with pytest.raises(ProviderError) as caught:
            await said(binding)
        found.append((caught.value.kind, caught.value.status, caught.value.retry_after_s, caught.value.window))
    assert found == [("rate_limited", 429, 1.0, None), ("overflow", 400, None, 4096), ("unavailable", 500, None, None)]


async def test_what_cannot_be_played_is_named_by_its_line(tmp_path: Path) -> None:
    binding = script(tmp_path / "s.jsonl", "not json", "[]")
    for words in ("reply 1 of the script s.jsonl", "reply 2"):
        with pytest.raises(ProviderError, match=words):
            await said(binding)
    (tmp_path / "s.jsonl").write_text("")
    with pytest.raises(ProviderError, match="no replies"):
        await said(binding)
    (tmp_path / "s.jsonl").unlink()
    with pytest.raises(ProviderError, match="cannot be read"):
        await said(binding)
