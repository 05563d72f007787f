"""What is measured and told: usage in every spelling, `used`, windows and their sources, limits, caches."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from protocol import events as e
from protocol.messages import TextPart
from sidecar.client.host import HostCall, host_tool
from tests.support.fake_llm import FakeLLM, Gate, Reply, call, sequence
from tests.support.one_daemon import OneDaemon, Talk
from tests.support.running import running_sidecar, until
from tests.support.wire import of_type

pytestmark = pytest.mark.anyio


def chat_usage(usage: Any, **top: Any) -> list[bytes]:
    """A chat completions stream whose last event carries this usage."""
    events = [
        {"choices": [{"index": 0, "delta": {"content": "said"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": usage, **top},
    ]
    return [*(b"data: " + json.dumps(x).encode() + b"\n\n" for x in events), b"data: [DONE]\n\n"]


def messages_usage(start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": start}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "said"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": end},
        {"type": "message_stop"},
    ]
    return [b"event: %s\ndata: %s\n\n" % (x["type"].encode(), json.dumps(x).encode()) for x in events]


SPELLINGS: dict[str, list[bytes]] = {
    "openai": chat_usage(
        {"prompt_tokens": 1000, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 600}}
    ),
    "deepseek": chat_usage(
        {
            "prompt_tokens": 1000,
            "completion_tokens": 50,
            "prompt_cache_hit_tokens": 600,
            "prompt_cache_miss_tokens": 400,
        }
    ),
    "kimi": chat_usage({"prompt_tokens": 1000, "completion_tokens": 50, "cached_tokens": 600}),
    "responses": chat_usage(
        {"input_tokens": 1000, "output_tokens": 50, "input_tokens_details": {"cached_tokens": 600}}
    ),
    "llamacpp": chat_usage(
        {"prompt_tokens": 1000, "completion_tokens": 50}, timings={"cache_n": 600, "prompt_n": 400, "predicted_n": 50}
    ),
    "in the choice": [
        b'data: {"choices":[{"index":0,"delta":{"content":"said"},"finish_reason":"stop","usage":'
        b'{"prompt_tokens":1000,"completion_tokens":50,"cached_tokens":600}}]}\n\n',
        b"data: [DONE]\n\n",
    ],
    "with every chunk": [
        b'data: {"choices":[{"index":0,"delta":{"content":"sa"}}],"usage":{"prompt_tokens":1000,'
        b'"completion_tokens":1}}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"id"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,'
        b'"completion_tokens":50,"prompt_tokens_details":{"cached_tokens":600}}}\n\n',
        b"data: [DONE]\n\n",
    ],
}
MESSAGES: dict[str, list[bytes]] = {
    "read from the cache": messages_usage(
        {"input_tokens": 400, "cache_read_input_tokens": 600, "output_tokens": 1}, {"output_tokens": 50}
    ),
    "read and written": messages_usage(
        {"input_tokens": 100, "cache_read_input_tokens": 600, "cache_creation_input_tokens": 300, "output_tokens": 1},
        {"output_tokens": 50},
    ),
    "all at the end": messages_usage(
        {"input_tokens": 0, "output_tokens": 0},
        {"input_tokens": 400, "cache_read_input_tokens": 600, "cache_creation_input_tokens": 0, "output_tokens": 50},
    ),
}
CASES = [*(("openai", name, x) for name, x in SPELLINGS.items()), *(("anthropic", n, x) for n, x in MESSAGES.items())]


@pytest.mark.parametrize(("provider", "name", "events"), CASES, ids=[f"{p} {n}" for p, n, _ in CASES])
async def test_usage_in_every_spelling(daemon: OneDaemon, provider: str, name: str, events: list[bytes]) -> None:
    async with daemon.talk(provider, lambda r, n: Reply(events=events)) as talk:
        result = await talk.run("hello")
        assert result.text == "said"
        told = (result.usage.prompt_tokens, result.usage.cached_tokens, result.usage.completion_tokens)
        assert told == (1000, 600, 50)
        assert result.usage.requests == 1
        (usage,) = talk.of_type(e.UsageEvent)
        assert (usage.kind, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == ("step", *told)
        assert usage.cache is not None
        assert (usage.cache.hit_tokens, usage.cache.miss_tokens) == (600, 400)
        assert (await talk.info()).used == 1050
        (record,) = of_type(talk.records, "llm.usage")
        assert (record["prompt_tokens"], record["cached_tokens"], record["completion_tokens"]) == told


async def test_no_usage_is_an_estimate(daemon: OneDaemon) -> None:
    async with daemon.talk("openai", sequence(Reply("said so", usage=False))) as talk:
        result = await talk.run("hello " * 100)
        assert 100 < result.usage.prompt_tokens < 400
        assert result.usage.completion_tokens > 0
        info = await talk.info()
        assert result.usage.prompt_tokens <= info.used < 500
        assert info.cache is None


# ---------------------------------------------------------------- used


async def test_used_is_what_the_provider_counted(daemon: OneDaemon, dialect: str) -> None:
    """After each turn, whatever the estimates say; sums over a turn's requests; what is appended since is estimated."""
    figures = [(5_000, 40), (5_500, 60), (7_777, 3), (9_001, 1_000)]

    def script(request: dict[str, Any], n: int) -> Reply:
        prompt, completion = figures[n]
        calls = [call("act", {})] if n == 1 else []
        return Reply("x", tool_calls=calls, prompt_tokens=prompt, completion_tokens=completion, cached_tokens=n * 100)

    @host_tool("act", "Acts.", {})
    async def act(call: HostCall) -> str:
        return "done"

    async with daemon.talk(dialect, script, tools=[act]) as talk:
        await talk.run("one")
        assert (await talk.info()).used == 5_040
        result = await talk.run("two")
        assert (await talk.info()).used == 7_780
        u = result.usage
        assert (u.prompt_tokens, u.cached_tokens, u.completion_tokens, u.requests) == (13_277, 300, 63, 2)
        assert [x.prompt_tokens for x in talk.of_type(e.UsageEvent)] == [5_500, 7_777]
        await talk.run("three")
        assert (await talk.info()).used == 10_001
        assert (await talk.client.sessions.get(talk.session_id)).used == 10_001


async def test_before_any_report_it_is_an_estimate_of_everything(daemon: OneDaemon, dialect: str) -> None:
    """Of system prompt and tools before the first word; and again after the context was rewritten."""
    words = "Be kind and brief and true. " * 500

    @host_tool("act", "Acts. " * 1_000, {})
    async def act(call: HostCall) -> str:
        return "done"

    config = {"model": {"window": 200_000}}
    replies = sequence(Reply("ok", prompt_tokens=9_000))
    async with daemon.talk(dialect, replies, config=config, tools=[act], system_prompt=words) as talk:
        used = (await talk.info()).used
        assert 5_000 < used < 7_500
        await talk.run("one")
        assert (await talk.info()).used > 9_000
        await talk.client.chat.undo(talk.session_id)
        # In the model's own tokens, of which there are more than of ours, as it has just told.
        assert used <= (await talk.info()).used < 9_000


async def test_what_was_appended_since_is_estimated(daemon: OneDaemon, dialect: str) -> None:
    """In the middle of a step, with a large result waiting: used = last report + estimate of the result."""
    gate = Gate()

    @host_tool("read", "Reads.", {})
    async def read(call: HostCall) -> str:
        return "The quick brown fox jumps over the lazy dog. " * 400

    script = sequence(
        Reply("", tool_calls=[call("read", {})], prompt_tokens=2_000, completion_tokens=20), Reply("ok", gate=gate)
    )
    async with daemon.talk(dialect, script, tools=[read]) as talk:
        with talk.client.events(talk.session_id):
            await talk.client.chat.send(talk.session_id, "go")
            await until(lambda: len(talk.requests) == 2, what="the second request")
            used = (await talk.info()).used
            assert 2_020 + 3_800 < used < 2_020 + 4_400
            gate.open()
            await talk.client.chat.cancel(talk.session_id)


async def test_failed_attempts_are_billed_and_not_measured(daemon: OneDaemon) -> None:
    """A cut stream of the Messages dialect had told its prompt already."""
    script = sequence(
        Reply("abcdefgh", cut_after=4, prompt_tokens=4_000, cached_tokens=100),
        Reply("whole", prompt_tokens=4_001, completion_tokens=9),
    )
    async with daemon.talk("anthropic", script) as talk:
        result = await talk.run("hello")
        assert result.text == "whole"
        assert (await talk.info()).used == 4_010
        assert (result.usage.prompt_tokens, result.usage.cached_tokens) == (8_001, 100)
        assert result.usage.completion_tokens == 10
        assert result.usage.requests == 2
        failed = [r for r in of_type(talk.records, "llm.usage") if r.get("failed")]
        assert [r["prompt_tokens"] for r in failed] == [4_000]


# ---------------------------------------------------------------- windows


async def window_of(talk: Talk) -> tuple[int, str]:
    info = await talk.info()
    return info.window, info.window_source


async def test_windows_and_where_they_are_known_from() -> None:
    rows = [{"id": "fake-model"}, {"id": "listed", "context_length": 54_321}, {"id": "both", "max_model_len": 11_000}]
    config = '[models."openai/both"]\nwindow = 12000\n'
    with FakeLLM(models=rows) as llm:
        async with running_sidecar(llm=llm, config=config) as sidecar:
            client = sidecar.client

            async def seen(name: str, **config: Any) -> tuple[int, str]:
                session = await client.sessions.create(cwd=str(sidecar.work), model=name, config=config)
                info = await client.context.get(session.session_id)
                return info.window, info.window_source

            assert await seen("openai/both") == (12_000, "table")
            assert await seen("openai/both", model={"window": 9_000}) == (9_000, "config")
            assert await seen("openai/gpt-4o") == (128_000, "table")
            assert llm.model_queries == 0
            assert await seen("openai/fake-model") == (32_768, "fallback")
            session = await client.sessions.create(cwd=str(sidecar.work), model="openai/listed")
            with_list = [("", 0)]

            async def look() -> bool:
                info = await client.context.get(session.session_id)
                with_list.append((info.window_source, info.window))
                return info.window_source == "provider"

            for _ in range(400):
                if await look():
                    break
            assert with_list[-1] == ("provider", 54_321)
            assert await seen("openai/listed", models={"openai/listed": {"window": 7_000}}) == (7_000, "table")
            assert llm.model_queries == 1


NAMED: dict[str, tuple[dict[str, Any], int]] = {
    "openai": (
        {"message": "This model's maximum context length is 16385 tokens. However, your messages resulted in 20000 "
                    "tokens. Please reduce the length of the messages.",
         "type": "invalid_request_error", "code": "context_length_exceeded"}, 16_385),
    "anthropic": ({"message": "prompt is too long: 208310 tokens > 20000 maximum", "type": "invalid_request_error"},
                  20_000),
    "llamacpp": ({"message": "the request exceeds the available context size, try increasing it", "code": 400,
                  "type": "exceed_context_size_error", "n_prompt_tokens": 20_000, "n_ctx": 8_192}, 8_192),
    "vllm": ({"message": "This model's maximum context length is 9000 tokens. However, you requested 12000 tokens "
                         "(10000 in the messages, 2000 in the completion).", "type": "BadRequestError", "code": 400},
             9_000),
    "input and limit": ({"message": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 12000, "
                                    "decrease input length or `max_tokens` and try again",
                         "type": "invalid_request_error"}, 12_000),
}  # fmt: skip


def overflowing(error: dict[str, Any], times: int = 1) -> Any:
    """Refuses the second turn's request, `times` over; whatever else is asked is answered."""
    left = {"n": times}

    def script(request: dict[str, Any], n: int) -> Reply:
        if n == 0:
            return Reply("first " * 800, completion_tokens=900)
        if left["n"] and not _asks_for_summary(request):
            left["n"] -= 1
            return Reply(status=400, error=error)
        return Reply("SUMMARY: " + "what was done follows here. " * 40)

    return script


def _asks_for_summary(request: dict[str, Any]) -> bool:
    last = request["messages"][-1]["content"]
    text = last if isinstance(last, str) else "".join(p.get("text", "") for p in last)
    return "summar" in text.lower()


@pytest.mark.parametrize("name", NAMED)
async def test_a_named_maximum_is_learned_exactly(daemon: OneDaemon, dialect: str, name: str) -> None:
    error, window = NAMED[name]
    async with daemon.talk(dialect, overflowing(error)) as talk:
        await talk.run("hello " * 2_000)
        assert await window_of(talk) == (32_768, "fallback")
        result = await talk.run("again")
        assert result.stop_reason == "end_turn", result.error
        assert await window_of(talk) == (window, "learned")
        (record,) = of_type(talk.records, "model.window_learned")
        assert (record["window"], record["source"], record["model"]) == (window, "named", f"{dialect}/{talk.model}")
        assert len(talk.of_type(e.CompactionLanded)) == 1


async def test_a_learned_window_never_raises_one(daemon: OneDaemon) -> None:
    error = {"message": "maximum context length is 100000 tokens", "code": "context_length_exceeded"}
    config = {"model": {"window": 20_000}}
    async with daemon.talk("openai", overflowing(error), config=config) as talk:
        await talk.run("hello " * 2_000)
        await talk.run("again")
        assert await window_of(talk) == (20_000, "config")


async def test_a_learned_window_bounds_the_configured_one(daemon: OneDaemon) -> None:
    error = {"message": "maximum context length is 8000 tokens", "code": "context_length_exceeded"}
    config = {"model": {"window": 200_000}}
    async with daemon.talk("openai", overflowing(error), config=config) as talk:
        await talk.run("hello " * 2_000)
        await talk.run("again")
        assert await window_of(talk) == (8_000, "learned")


async def test_an_overflow_without_a_number_teaches_a_share_of_the_estimate_once(daemon: OneDaemon) -> None:
    error = {"message": "context_length_exceeded", "code": "context_length_exceeded", "type": "invalid_request_error"}
    async with daemon.talk("openai", overflowing(error, times=2), config={"model": {"window": 100_000}}) as talk:
        await talk.run("hello " * 40_000)
        used = (await talk.info()).used
        await talk.run("again " * 200)
        learned = of_type(talk.records, "model.window_learned")
        assert [r["source"] for r in learned] == ["estimate"]
        assert 0.8 * used < learned[0]["window"] < 0.92 * used
        assert await window_of(talk) == (learned[0]["window"], "learned")


async def test_an_estimate_is_never_under_a_quarter_of_what_was_known(daemon: OneDaemon) -> None:
    error = {"message": "context_length_exceeded", "code": "context_length_exceeded", "type": "invalid_request_error"}
    async with daemon.talk("openai", overflowing(error), config={"model": {"window": 100_000}}) as talk:
        await talk.run("hello " * 2_000)
        await talk.run("again")
        assert await window_of(talk) == (25_000, "learned")


async def test_a_plain_413_teaches_nothing(daemon: OneDaemon, dialect: str) -> None:
    """Over half the window it is an overflow and makes room; under it, it is a refusal."""

    def script(request: dict[str, Any], n: int) -> Reply:
        if n == 1:
            return Reply(status=413, error={"message": "Request Entity Too Large"})
        return Reply("SUMMARY: " + "what was done follows here. " * 40) if n else Reply("first " * 800)

    for text, events in (("hello " * 12_000, 1), ("hello", 0)):
        config = {"model": {"window": 30_000}}
        async with daemon.talk(dialect, script, config=config) as talk:
            await talk.run(text)
            result = await talk.run("again")
            assert not of_type(talk.records, "model.window_learned")
            assert (await talk.info()).window_source == "config"
            assert len(talk.of_type(e.CompactionStarted)) == events
            assert result.stop_reason == ("end_turn" if events else "error")


async def test_a_learned_window_is_kept(dialect: str) -> None:
    """In the log: a new process knows it, another model does not have it."""
    error = {"message": "prompt is too long: 20831 tokens > 9000 maximum", "type": "invalid_request_error"}
    with FakeLLM(overflowing(error)) as llm:
        async with running_sidecar(llm=llm, model=f"{dialect}/fake-model") as sidecar:
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work))
            await sidecar.client.chat.run(session.session_id, "hello " * 2_000)
            await sidecar.client.chat.run(session.session_id, "again")
            home = sidecar.home
            await sidecar.kill()
            async with running_sidecar(llm=llm, home=home, model=f"{dialect}/fake-model") as second:
                await second.client.sessions.resume(session.session_id)
                info = await second.client.context.get(session.session_id)
                assert (info.window, info.window_source) == (9_000, "learned")
                await second.client.sessions.configure(session.session_id, model=f"{dialect}/other")
                info = await second.client.context.get(session.session_id)
                assert info.window_source == "fallback"


async def test_what_was_learned_of_a_model_survives_a_kill(dialect: str) -> None:
    """After a rewrite `used` is an estimate, and the model's factor is in it."""
    with anyio.fail_after(60), FakeLLM(sequence(Reply("a", prompt_tokens=4_000, completion_tokens=10))) as llm:
        async with running_sidecar(llm=llm, model=f"{dialect}/fake-model") as sidecar:
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work))
            for text in ("hello " * 2_000, "again"):
                await sidecar.client.chat.run(session.session_id, text)
            await sidecar.client.chat.undo(session.session_id)
            used = (await sidecar.client.context.get(session.session_id)).used
            home = sidecar.home
            await sidecar.kill()
            async with running_sidecar(llm=llm, home=home, model=f"{dialect}/fake-model") as second:
                await second.client.sessions.resume(session.session_id)
                # It is rough until the vocabulary is there.
                while abs((await second.client.context.get(session.session_id)).used - used) > used // 50:
                    await anyio.sleep(0.05)


# ---------------------------------------------------------------- output limits


async def test_the_output_limit_never_exceeds_what_the_window_leaves(daemon: OneDaemon, dialect: str) -> None:
    config = {"model": {"window": 10_000, "max_output": 4_000}, "compaction": {"auto": False}}
    script = sequence(
        Reply("a", prompt_tokens=3_000, completion_tokens=10),
        Reply("b", prompt_tokens=8_500, completion_tokens=10),
        Reply("c", prompt_tokens=9_990, completion_tokens=9),
        Reply("d"),
    )
    async with daemon.talk(dialect, script, config=config) as talk:
        for text in ("one", "two", "three", "four"):
            await talk.run(text)
        limits = [r.json["max_tokens"] for r in talk.requests]
        assert limits[:2] == [4_000, 4_000]
        assert 0 < limits[2] <= 10_000 - 8_510
        assert limits[3] >= 1


# ---------------------------------------------------------------- caches


async def test_cache_diagnostics(daemon: OneDaemon, dialect: str) -> None:
    """Hits and misses; what changed and why; a loss without either is a notice."""
    figures = [(10_000, 0), (10_100, 9_900), (10_200, 3_000), (10_300, 10_200), (10_400, 0), (10_500, 10_000),
               (10_600, 9_000)]  # fmt: skip

    def script(request: dict[str, Any], n: int) -> Reply:
        prompt, cached = figures[n]
        return Reply("ok", prompt_tokens=prompt, cached_tokens=cached, completion_tokens=10)

    @host_tool("late", "Comes late.", {})
    async def late(call: HostCall) -> str:
        return "done"

    async with daemon.talk(dialect, script, system_prompt="Be.", config={"model": {"window": 100_000}}) as talk:
        seen = []
        for n in range(len(figures)):
            if n == 4:
                await talk.client.sessions.configure(talk.session_id, tools=[late])
            if n == 6:
                await talk.client.chat.undo(talk.session_id)
            await talk.run(f"turn {n}")
            notices = [x.kind for x in talk.of_type(e.Notice)]
            (usage,) = talk.of_type(e.UsageEvent)
            seen.append((usage.cache, notices))
            info = await talk.info()
            assert info.cache == usage.cache
        for (cache, _), (prompt, cached) in zip(seen, figures, strict=True):
            assert (cache.hit_tokens, cache.miss_tokens) == (cached, prompt - cached)
        assert [notices for _, notices in seen] == [[], [], ["unexplained_miss"], [], [], [], []]
        assert [list(cache.changed) for cache, _ in seen] == [[], [], [], [], ["tools"], [], []]
        assert "undo" in seen[6][0].reasons
        shapes = [cache.shape for cache, _ in seen]
        assert len({s.system_hash for s in shapes}) == 1
        assert shapes[0].tools_hash != shapes[4].tools_hash
        assert shapes[0].prefix_hash == shapes[3].prefix_hash != shapes[4].prefix_hash
        assert shapes[4].tool_schema_tokens > shapes[0].tool_schema_tokens == 0
        assert shapes[6].log_rewrite_version > shapes[5].log_rewrite_version == shapes[0].log_rewrite_version


async def test_small_losses_are_no_news(daemon: OneDaemon) -> None:
    figures = [(50_000, 0), (50_100, 50_000), (50_200, 48_000), (50_300, 47_000), (10_000, 1_000), (10_100, 900)]

    def script(request: dict[str, Any], n: int) -> Reply:
        prompt, cached = figures[n]
        return Reply("ok", prompt_tokens=prompt, cached_tokens=cached, completion_tokens=10)

    async with daemon.talk("openai", script, config={"model": {"window": 1_000_000}}) as talk:
        notices = []
        for n in range(len(figures)):
            await talk.run(f"turn {n}")
            notices.append([x.kind for x in talk.of_type(e.Notice)])
        assert notices == [[], [], [], [], ["unexplained_miss"], []]


async def test_a_changed_model_is_a_reason(daemon: OneDaemon) -> None:
    async with daemon.talk("openai", lambda r, n: Reply("a", prompt_tokens=9_000, cached_tokens=8_000)) as talk:
        await talk.run("one")
        daemon.crowd.scripts[talk.model + "-b"] = lambda r, n: Reply("b", prompt_tokens=9_000, cached_tokens=0)
        await talk.client.sessions.configure(talk.session_id, model=f"openai/{talk.model}-b")
        await talk.run("two")
        (usage,) = talk.of_type(e.UsageEvent)
        assert "model" in usage.cache.reasons
        assert not [x for x in talk.of_type(e.Notice) if x.kind == "unexplained_miss"]


async def test_a_cache_that_was_left_alone_too_long(daemon: OneDaemon) -> None:
    config = {"compaction": {"cache_ttl_s": 0}}
    script = sequence(Reply("a", prompt_tokens=9_000, cached_tokens=8_000), Reply("b", prompt_tokens=9_000))
    async with daemon.talk("openai", script, config=config) as talk:
        await talk.run("one")
        await talk.run("two")
        (usage,) = talk.of_type(e.UsageEvent)
        assert usage.cache.reasons == ("ttl",)
        assert not talk.of_type(e.Notice)


async def test_an_image_is_counted_by_its_size(daemon: OneDaemon) -> None:
    from tests.e2e.test_providers_images import image

    async with daemon.talk("openai", sequence(Reply("ok", usage=False))) as talk:
        await talk.run([TextPart("look"), image(1, 200_000)])
        assert (await talk.info()).used < 1_000
