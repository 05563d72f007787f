"""Compaction, seen from a host: a real daemon, a real model server, long turns."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from protocol import events as e
from sidecar.client.errors import SidecarError
from sidecar.client.host import HostCall, host_tool
from tests.support.fake_llm import FakeLLM, Gate, Reply, call
from tests.support.running import Sidecar, running_sidecar, until
from tests.support.wire import message_bytes, of_type, prefix_bytes

pytestmark = pytest.mark.anyio

WINDOW = 16_000
SUMMARY = "SUMMARY: the goal stands; work goes on with the next item. " + "Details of what was done follow here. " * 8


def is_summary(request: dict[str, Any]) -> bool:
    """A summary request ends with the fixed instruction, which no host message of these tests resembles."""
    last = request["messages"][-1]
    text = last["content"] if isinstance(last["content"], str) else "".join(p.get("text", "") for p in last["content"])
    return (
        last["role"] == "user" and "summar" in text.lower() and "handoff" not in text[:20].lower() and len(text) > 300
    )


def config(**more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"model": {"window": WINDOW}, "compaction": {"preset": "handoff"}, "loop_control": {}}
    for section, values in more.items():
        base[section] = {**base.get(section, {}), **values}
    return base


def page_tool(chars: int = 2000) -> Any:
    @host_tool("page", "Returns a page.", {"n": {"type": "integer"}})
    async def page(call: HostCall) -> str:
        return f"page {call.arguments['n']}: " + "lorem ipsum dolor " * (chars // 18)

    return page


class Worker:
    """Answers with a tool call for `steps` steps of a turn, then ends it. Summaries wait for `gate` or take `delay`."""

    def __init__(self, steps: int, *, summary: Any = None) -> None:
        self.steps = steps
        self.done = 0
        self.summaries = 0
        self._summary = summary

    def __call__(self, request: dict[str, Any], n: int) -> Any:
        if is_summary(request):
            self.summaries += 1
            return self._summary(self) if self._summary is not None else Reply(SUMMARY)
        if self.done >= self.steps:
            self.done = 0
            return Reply("finished")
        self.done += 1
        return Reply(f"step {self.done}", tool_calls=[call("page", {"n": self.done}, f"c{n}")])


def started_and_ended(events: list[Any]) -> None:
    """Every compaction that started has exactly one end."""
    starts = Counter(x.compaction_id for x in events if isinstance(x, e.CompactionStarted))
    ends = Counter(
        x.compaction_id
        for x in events
        if isinstance(x, e.CompactionLanded | e.CompactionDiscarded | e.CompactionFailed)
    )
    assert starts == ends
    assert all(n == 1 for n in starts.values())


async def turn(sidecar: Sidecar, session_id: str, text: str, timeout: float = 60) -> list[Any]:
    """Runs a turn; all of its session's events until its end."""
    seen: list[Any] = []
    with sidecar.client.events(session_id) as stream, anyio.fail_after(timeout):
        sent = await sidecar.client.chat.send(session_id, text)
        async for told in stream:
            seen.append(told.event)
            if isinstance(told.event, e.TurnEnded) and told.turn_id == sent.turn_id:
                return seen
    return seen


async def test_a_background_compaction_lands_while_the_turn_goes_on() -> None:
    """Trigger 0.7, block 0.85, 60 tool steps: one landing per fill, nothing discarded, no wasted summary."""
    with FakeLLM(Worker(60, summary=lambda w: Reply(SUMMARY, delay=0.1))) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            session = await sidecar.client.sessions.create(
                cwd=str(sidecar.work),
                tools=[page_tool(3000)],
                config=config(loop_control={"compaction_trigger_ratio": 0.7}),
            )
            seen = await turn(sidecar, session.session_id, "do all sixty, the magic word is XYZZY-42")
            assert seen[-1].stop_reason == "end_turn"
            started_and_ended(seen)
            landed = [x for x in seen if isinstance(x, e.CompactionLanded)]
            assert len(landed) >= 2
            assert not [x for x in seen if isinstance(x, e.CompactionDiscarded | e.CompactionFailed)]
            assert all(x.post_tokens < x.pre_tokens for x in landed)
            first = next(i for i, x in enumerate(seen) if isinstance(x, e.CompactionStarted))
            end = seen.index(landed[0])
            assert [x for x in seen[first:end] if isinstance(x, e.StepStarted)], "the turn stood still"
            last = [r for r in llm.requests if not is_summary(r.json)][-1]
            assert any("XYZZY-42" in text for role, text in last.texts if role == "user")
            assert (await sidecar.client.records.verify(session.session_id)).ok


async def test_the_summary_request_is_the_last_request_and_one_message() -> None:
    """Byte for byte, tools and system prompt too, in both dialects."""
    for model in ("openai/fake-model", "anthropic/fake-model"):
        with FakeLLM(Worker(40)) as llm:
            async with running_sidecar(llm=llm, model=model) as sidecar:
                session = await sidecar.client.sessions.create(
                    cwd=str(sidecar.work), tools=[page_tool()], system_prompt="Be brief.", config=config()
                )
                await turn(sidecar, session.session_id, "work")
                index = next(i for i, r in enumerate(llm.requests) if is_summary(r.json))
                before, summary = llm.requests[index - 1], llm.requests[index]
                old, new = _unmarked(message_bytes(before.body)), _unmarked(message_bytes(summary.body))
                assert new[: len(old)] == old
                assert prefix_bytes(before.body) == prefix_bytes(summary.body)
                # What was appended since (one exchange), and the instruction.
                assert len(new) - len(old) == 3


def _unmarked(messages: list[bytes]) -> list[bytes]:
    return [re.sub(rb',?"cache_control":\{"type":"ephemeral"\}', b"", m) for m in messages]


async def test_strict_landing_discards_and_one_fresh_compaction_lands_at_block() -> None:
    with FakeLLM(Worker(30, summary=lambda w: Reply(SUMMARY, delay=0.05))) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            session = await sidecar.client.sessions.create(
                cwd=str(sidecar.work),
                tools=[page_tool()],
                config=config(compaction={"landing": "strict"}, loop_control={"compaction_trigger_ratio": 0.6}),
            )
            seen = await turn(sidecar, session.session_id, "work")
            assert seen[-1].stop_reason == "end_turn"
            started_and_ended(seen)
            discarded = [x for x in seen if isinstance(x, e.CompactionDiscarded)]
            landed = [x for x in seen if isinstance(x, e.CompactionLanded)]
            assert discarded
            assert {x.reason for x in discarded} == {"stale"}
            assert landed


async def test_thirty_compactions_fire_between_margin_and_block_and_keep_what_the_user_said() -> None:
    with FakeLLM(Worker(3)) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            session = await sidecar.client.sessions.create(
                cwd=str(sidecar.work), tools=[page_tool(6000)], config=config(model={"window": 8_000})
            )
            sid = session.session_id
            seen: list[Any] = []
            words = []
            for n in range(90):
                words.append(f"KEEP-{n:03d}-{n * 7919 % 9973}")
                seen += await turn(sidecar, sid, f"item {n}: {words[-1]}")
                if sum(isinstance(x, e.CompactionLanded) for x in seen) >= 30:
                    break
            landed = [x for x in seen if isinstance(x, e.CompactionLanded)]
            assert len(landed) >= 30
            started_and_ended(seen)
            info = await sidecar.client.context.get(sid)
            margin = 0.1 * info.window
            after = None
            for x in seen:
                if isinstance(x, e.CompactionStarted):
                    assert after is None or x.pre_tokens >= after + margin - 1
                elif isinstance(x, e.CompactionLanded):
                    after = x.post_tokens
            last = [r for r in llm.requests if not is_summary(r.json)][-1]
            text = "\n".join(t for role, t in last.texts if role == "user")
            # All of them are within the budget of kept user text.
            assert [w for w in words if w not in text] == []


async def test_killed_after_the_start_leaves_the_span(tmp_path: Path) -> None:
    gate = Gate()
    worker = Worker(40, summary=lambda w: Reply(SUMMARY, gate=gate))
    with FakeLLM(worker) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work), tools=[page_tool()], config=config())
            sid = session.session_id
            await sidecar.client.chat.send(sid, "work")
            await until(lambda: of_type(sidecar.records(sid), "compaction.start"), what="compaction.start")
            await until(lambda: worker.summaries, what="the summary request")
            before = (await sidecar.client.sessions.messages(sid, view="context")).messages
            await sidecar.kill()
        gate.open()
        async with running_sidecar(llm=llm, home=tmp_path) as again:
            asked = len(llm.requests)
            resumed = await again.client.sessions.resume(sid, tools=[page_tool()])
            assert "open_compaction" in {r.kind for r in resumed.recovered}
            now = (await again.client.sessions.messages(sid, view="context")).messages
            assert [m.id for m in now[: len(before)]] == [m.id for m in before]
            cancelled = of_type(again.records(sid), "compaction.cancel")
            assert [c["reason"] for c in cancelled] == ["restart"]
            assert len(llm.requests) == asked


async def test_manual_compaction_needs_an_idle_session_and_says_what_it_did() -> None:
    gate = Gate()
    replies = {"hold": False}

    def script(request: dict[str, Any], n: int) -> Reply:
        if is_summary(request):
            return Reply(SUMMARY)
        return Reply("word " * 400, gate=gate if replies["hold"] else None)

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            chat = sidecar.client.chat
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work), config=config())
            sid = session.session_id
            assert (await chat.compact(sid)).outcome == "nothing_to_compact"
            for n in range(3):
                await chat.run(sid, f"question {n}")
            done = await chat.compact(sid, "keep the numbers")
            assert done.outcome == "landed"
            assert done.tokens_after is not None
            assert done.tokens_before is not None
            assert done.tokens_after < done.tokens_before
            asked = next(r for r in llm.requests if is_summary(r.json))
            assert "keep the numbers" in asked.texts[-1][1]
            info = await sidecar.client.context.get(sid)
            assert info.last_landing is not None
            assert info.last_landing.compaction_id == done.compaction_id
            record = sidecar.records(sid)[info.last_landing.line - 1]
            assert record["type"] == "context.apply_compaction"
            tools = {t.name for t in await sidecar.client.tools.list(sid)}
            assert {"record_search", "record_read"} <= tools
            replies["hold"] = True
            await chat.send(sid, "long one")
            await until(lambda: len(llm.requests) == 5, what="the held request")
            with pytest.raises(SidecarError) as refused:
                await chat.compact(sid)
            assert refused.value.reason == "turn_active"
            assert (await chat.compact(sid, when="next_step")).outcome == "queued"
            gate.open()


async def test_uncompact_brings_the_span_back_byte_for_byte() -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        return Reply(SUMMARY) if is_summary(request) else Reply("word " * 300)

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work), config=config())
            sid = session.session_id
            for n in range(3):
                await sidecar.client.chat.run(sid, f"question {n}")
            before = (await sidecar.client.sessions.messages(sid, view="context")).messages
            await sidecar.client.chat.compact(sid)
            assert (await sidecar.client.sessions.messages(sid, view="context")).messages != before
            await sidecar.client.chat.uncompact(sid)
            assert (await sidecar.client.sessions.messages(sid, view="context")).messages == before
            with pytest.raises(SidecarError) as refused:
                await sidecar.client.chat.uncompact(sid)
            assert refused.value.reason == "undo_blocked"
            assert refused.value.data["cause"] == "nothing_to_bring_back"


async def test_after_the_last_failure_the_next_request_is_the_same_bytes() -> None:
    """An empty summary, again and again: the history is untouched and the turn goes on below block."""
    worker = Worker(24, summary=lambda w: Reply(""))

    @host_tool("page", "Returns a page.", {"n": {"type": "integer"}})
    async def page(told: HostCall) -> str:
        if told.arguments["n"] == 22:
            await until(lambda: worker.summaries == 2, what="the second attempt")
        return f"page {told.arguments['n']}: " + "lorem ipsum dolor " * 105

    with FakeLLM(worker) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            session = await sidecar.client.sessions.create(
                cwd=str(sidecar.work),
                tools=[page],
                config=config(
                    compaction={"max_consecutive_failures": 1},  # no other is under way when the turn ends
                    loop_control={"compaction_trigger_ratio": 0.6, "compaction_max_attempts": 2},
                ),
            )
            seen = await turn(sidecar, session.session_id, "work")
            started_and_ended(seen)
            failed = [x for x in seen if isinstance(x, e.CompactionFailed)]
            assert failed
            assert failed[0].reason == "empty_summary"
            assert failed[0].attempts == 2
            steps = [r for r in llm.requests if not is_summary(r.json)]
            index = next(i for i, r in enumerate(llm.requests) if is_summary(r.json))
            before = llm.requests[index - 1]
            after = next(r for r in list(llm.requests)[index:] if not is_summary(r.json))
            assert message_bytes(after.body)[: len(message_bytes(before.body))] == message_bytes(before.body)
            assert len(steps) == 25


async def test_an_overflow_is_answered_by_a_compaction_and_the_window_is_learned() -> None:
    limit = {"tokens": 6_000}

    def script(request: dict[str, Any], n: int) -> Reply:
        if is_summary(request):
            return Reply(SUMMARY)
        size = sum(len(str(m)) for m in request["messages"]) // 4
        if size > limit["tokens"]:
            message = f"This model's maximum context length is {limit['tokens']} tokens, you sent {size}."
            return Reply(status=400, error={"message": message, "code": "context_length_exceeded"})
        return Reply("word " * 1200)

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            session = await sidecar.client.sessions.create(
                cwd=str(sidecar.work), config={"compaction": {"preset": "handoff"}}
            )
            sid = session.session_id
            for n in range(8):
                result = await sidecar.client.chat.run(sid, f"question {n}")
                assert result.stop_reason == "end_turn", result.error
            info = await sidecar.client.context.get(sid)
            assert (info.window, info.window_source) == (6_000, "learned")
            assert of_type(sidecar.records(sid), "context.apply_compaction")
