"""A provider of each kind, asked over a real socket (or from a script), and what it answered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from protocol.messages import Message
from sidecar.providers.errors import ProviderError
from sidecar.providers.port import Binding, Finished, Prefix, ReasoningChunk, StreamEvent, TextChunk
from sidecar.providers.registry import Registry
from sidecar.settings import Settings, effective
from tests.support.fake_llm import FakeLLM, Reply
from tests.support.requests import PREFIX, Held

Kind = Literal["openai", "anthropic", "scripted"]


def settings_of(**providers: Any) -> Settings:
    """Settings with these values for all three providers, short timeouts unless told otherwise."""
    values = {"connect_timeout_s": 5, "idle_timeout_s": 5, **providers}
    return effective({"providers": dict.fromkeys(("openai", "anthropic", "scripted"), values)})


@asynccontextmanager
async def registry_for(environment: Mapping[str, str]) -> AsyncIterator[Registry]:
    registry = Registry(environment)
    try:
        yield registry
    finally:
        await registry.aclose()


async def ask(
    binding: Binding, messages: list[Message], prefix: Prefix = PREFIX, *, limit: int | None = 100
) -> list[StreamEvent]:
    """Every event of one answer. Raises what the provider raises."""
    encoder = binding.provider.encoder(binding.model, lambda digest: None)
    encoder.sync(prefix, [Held(m) for m in messages], 0)
    async with binding.provider.stream(binding.model, encoder.request(max_output_tokens=limit)) as events:
        return [event async for event in events]


def summary_of(events: list[StreamEvent]) -> dict[str, Any]:
    """What an answer came to, chunks joined."""
    last = events[-1]
    assert isinstance(last, Finished)
    assert not any(isinstance(e, Finished) for e in events[:-1])
    return {
        "text": "".join(e.text for e in events if isinstance(e, TextChunk)),
        "reasoning": "".join(e.text for e in events if isinstance(e, ReasoningChunk)),
        "calls": [(c.id, c.name, c.arguments) for c in last.tool_calls],
        "reason": last.reason,
        "usage": last.usage,
    }


def failure_of(error: ProviderError) -> dict[str, Any]:
    return {
        "kind": error.kind,
        "status": error.status,
        "retryable": error.retryable,
        "wait": error.retry_after_s,
        "window": error.window,
    }


def script_line(reply: Reply) -> dict[str, Any]:
    """The same reply as a line of a script."""
    line: dict[str, Any] = {"text": reply.text, "reasoning": reply.reasoning, "tool_calls": reply.tool_calls}
    if reply.finish_reason is not None:
        line["finish_reason"] = reply.finish_reason
    if reply.usage:
        line["usage"] = {
            "prompt_tokens": reply.prompt_tokens,
            "cached_tokens": reply.cached_tokens,
            "completion_tokens": reply.completion_tokens,
        }
    if reply.status != 200:
        line["error"] = {"status": reply.status, "body": {"error": reply.error}}
        if "retry-after" in reply.headers:
            line["error"]["retry_after"] = reply.headers["retry-after"]
    return line


@asynccontextmanager
async def provider(kind: Kind, reply: Reply, folder: Path, **settings: Any) -> AsyncIterator[Binding]:
    """A provider of this kind whose model gives this one reply."""
    if kind == "scripted":
        path = folder / "script.jsonl"
        path.write_text(json.dumps(script_line(reply)) + "\n", "utf-8")
        async with registry_for({}) as registry:
            yield registry.resolve(f"scripted/{path}", settings_of(**settings))
        return
    with FakeLLM(lambda request, n: reply) as llm:
        async with registry_for(llm.environment()) as registry:
            yield registry.resolve(f"{kind}/fake-model", settings_of(**settings))
