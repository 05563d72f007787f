"""What every provider keeps, whatever it speaks: one table of answers and refusals for both dialects over a real
socket and for the scripted provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from sidecar.providers.errors import ProviderError
from sidecar.providers.port import Binding, Finished, TokenUsage
from tests.support.chaos import REPLY, Chaos
from tests.support.fake_llm import FakeLLM, Reply, call
from tests.support.providers import (
    Kind,
    ask,
    failure_of,
    provider,
    registry_for,
    settings_of,
    summary_of,
)
from tests.support.requests import assistant, calling, image, result, user
from tests.support.strict_server import StrictServer

KINDS: list[Kind] = ["openai", "anthropic", "scripted"]
HTTP_KINDS: list[Kind] = ["openai", "anthropic"]

TOKENS: dict[str, Any] = {"prompt_tokens": 50, "cached_tokens": 40, "completion_tokens": 7}
USAGE = TokenUsage(50, 40, 7)
LONG = 'Grüße 🙂 中文字 a\u2028b\u0085c "quoted" \\ tab\t\r\n' + "x" * 300 + "👩‍👩‍👧"


def answer(**fields: Any) -> dict[str, Any]:
    return {"text": "", "reasoning": "", "calls": [], "reason": "stop", "usage": USAGE, **fields}


ANSWERS: dict[str, tuple[Reply, dict[str, Any]]] = {
    "text": (Reply(LONG, chunks=40, **TOKENS), answer(text=LONG)),
    "nothing": (Reply("", **TOKENS), answer()),
    "reasoning": (Reply("b", reasoning="a 思考", **TOKENS), answer(text="b", reasoning="a 思考")),
    "calls": (
        Reply("t", tool_calls=[call("look", '{"q": "ü"}', "1"), call("look", "", "2")], **TOKENS),
        answer(text="t", calls=[("1", "look", '{"q": "ü"}'), ("2", "look", "")], reason="tool_calls"),
    ),
    "arguments that are no JSON": (
        Reply("", tool_calls=[call("look", '{"q": ', "1")], **TOKENS),
        answer(calls=[("1", "look", '{"q": ')], reason="tool_calls"),
    ),
}

FINISHES: dict[str, tuple[dict[Kind, str], str]] = {
    "length": ({"openai": "length", "anthropic": "max_tokens", "scripted": "length"}, "length"),
    "filter": ({"openai": "content_filter", "anthropic": "refusal", "scripted": "content_filter"}, "content_filter"),
}


def refusal(status: int, message: str = "no", headers: dict[str, str] | None = None, **error: Any) -> Reply:
    return Reply(status=status, error={"message": message, **error}, headers=headers or {})


def failed(kind: str, status: int, *, wait: float | None = None, window: int | None = None) -> dict[str, Any]:
    retryable = kind in ("rate_limited", "unavailable")
    return {"kind": kind, "status": status, "retryable": retryable, "wait": wait, "window": window}


REFUSALS: dict[str, tuple[Reply, dict[str, Any]]] = {
    "key": (refusal(401), failed("auth", 401)),
    "rate limit": (refusal(429, headers={"retry-after": "2"}), failed("rate_limited", 429, wait=2)),
    "busy": (refusal(529, type="overloaded_error"), failed("unavailable", 529)),
    "broken": (refusal(500), failed("unavailable", 500)),
    "wrong": (refusal(400), failed("rejected", 400)),
    "unknown": (refusal(404), failed("rejected", 404)),
    "too large": (refusal(413), failed("rejected", 413)),
    "overflow": (
        refusal(400, "prompt is too long: 210000 tokens > 200000 maximum"),
        failed("overflow", 400, window=200_000),
    ),
    "filter": (refusal(400, code="content_filter"), failed("refused", 400)),
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ANSWERS)
async def test_answers(kind: Kind, case: str, tmp_path: Path) -> None:
    reply, wanted = ANSWERS[case]
    async with provider(kind, reply, tmp_path) as binding:
        assert summary_of(await ask(binding, [user("hi")])) == wanted


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", FINISHES)
async def test_finish_reasons(kind: Kind, case: str, tmp_path: Path) -> None:
    told, wanted = FINISHES[case]
    async with provider(kind, Reply("x", finish_reason=told[kind], **TOKENS), tmp_path) as binding:
        assert summary_of(await ask(binding, [user("hi")])) == answer(text="x", reason=wanted)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", REFUSALS)
async def test_refusals(kind: Kind, case: str, tmp_path: Path) -> None:
    reply, wanted = REFUSALS[case]
    async with provider(kind, reply, tmp_path) as binding:
        with pytest.raises(ProviderError) as caught:
            await ask(binding, [user("hi")])
        assert failure_of(caught.value) == wanted


@pytest.mark.anyio
@pytest.mark.parametrize("kind", HTTP_KINDS)
async def test_without_usage_there_is_none(kind: Kind, tmp_path: Path) -> None:
    async with provider(kind, Reply("x", usage=False), tmp_path) as binding:
        last = (await ask(binding, [user("hi")]))[-1]
        assert isinstance(last, Finished)
        assert kind == "anthropic" or last.usage is None


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_cancelling_ends_it_at_once(kind: Kind, tmp_path: Path) -> None:
    reply = Reply("never", delay=3600)
    async with provider(kind, reply, tmp_path, idle_timeout_s=3600) as binding:
        if kind == "scripted":
            (tmp_path / "script.jsonl").write_text('{"text": "never", "delay_ms": 3600000}')
        with anyio.move_on_after(0.1) as scope:
            await ask(binding, [user("hi")])
        assert scope.cancelled_caught


@pytest.mark.anyio
@pytest.mark.parametrize("kind", HTTP_KINDS)
async def test_a_strict_server_is_content_with_a_whole_conversation(kind: Kind) -> None:
    talk = [
        user("look", image()),
        assistant("", calling("c1", '{"a": 1}'), calling("c2", "no json"), reasoning="r"),
        result("c1", "seen", image()),
        result("c2", "bad", is_error=True),
        assistant(" "),
        assistant("so"),
        user("and?"),
    ]
    with StrictServer() as server:
        async with registry_for(server.environment()) as registry:
            binding = registry.resolve(f"{kind}/m", settings_of())
            for n in (1, 4, 7):
                assert summary_of(await ask(binding, talk[:n]))["text"] == "understood"
    assert server.refusals == []


# ---------------------------------------------------------------- chaos

WHOLE = {
    "text": REPLY.text,
    "reasoning": REPLY.reasoning,
    "calls": [(c["id"], c["name"], c["arguments"]) for c in REPLY.tool_calls],
    "reason": "tool_calls",
}


async def outcome(binding: Binding) -> dict[str, Any] | ProviderError:
    try:
        return summary_of(await ask(binding, [user("hi")]))
    except ProviderError as error:
        return error


@pytest.mark.anyio
@pytest.mark.parametrize("kind", HTTP_KINDS)
@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_an_answer_is_whole_or_a_failure_that_is_tried_again(kind: Kind, seed: int) -> None:
    chaos = Chaos(seed, ("whole", "split", "cut", "truncate", "garbage", "status", "drop", "page"))
    with FakeLLM(chaos) as llm:
        async with registry_for(llm.environment()) as registry:
            binding = registry.resolve(f"{kind}/m", settings_of())
            for n in range(25):
                found = await outcome(binding)
                fault = chaos.faults[n]
                if isinstance(found, ProviderError):
                    assert found.retryable, fault
                    assert fault.kind in ("status", "drop", "page") or (
                        fault.kind in ("cut", "truncate", "garbage") and not fault.settled
                    ), (fault, found)
                else:
                    assert {k: found[k] for k in WHOLE} == WHOLE, fault
                    assert fault.settled or fault.kind in ("whole", "split"), fault


@pytest.mark.anyio
@pytest.mark.parametrize("kind", HTTP_KINDS)
async def test_a_flipped_bit_is_never_more_than_another_answer_or_a_failure(kind: Kind) -> None:
    chaos = Chaos(11, ("flip",))
    with FakeLLM(chaos) as llm:
        async with registry_for(llm.environment()) as registry:
            binding = registry.resolve(f"{kind}/m", settings_of(idle_timeout_s=1))
            for _ in range(60):
                await outcome(binding)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", HTTP_KINDS)
async def test_a_stalled_stream_is_given_up(kind: Kind) -> None:
    chaos = Chaos(3, ("stall",))
    with FakeLLM(chaos) as llm:
        async with registry_for(llm.environment()) as registry:
            binding = registry.resolve(f"{kind}/m", settings_of(idle_timeout_s=0.1))
            for n in range(4):
                found = await outcome(binding)
                if isinstance(found, ProviderError):
                    assert (found.kind, chaos.faults[n].settled) == ("unavailable", False)
                else:
                    assert chaos.faults[n].settled
                    assert {k: found[k] for k in WHOLE} == WHOLE
            assert not all(f.settled for f in chaos.faults)
