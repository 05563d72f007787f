"""Compaction at its edges: what a host and a model server see of failures, overflows, the free half and crashes."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from protocol import events as e
from protocol.messages import ImagePart, TextPart
from sidecar.client.errors import SidecarError
from sidecar.client.host import HostCall, host_tool
from tests.support.fake_llm import FakeLLM, Gate, Reply, Request, call, failure
from tests.support.running import Sidecar, running_sidecar, until
from tests.support.wire import of_type

pytestmark = pytest.mark.anyio

SUMMARY = "SUMMARY: the goal stands; work goes on with the next item. " + "Details of what was done follow here. " * 8
OVERFLOW = failure(400, "The input exceeds the context window.", code="context_length_exceeded")
LINES = [f"line {i:04d} of an output that has a certain length" for i in range(300)]
RECOVERY = "## Context Recovery"


def is_summary(request: dict[str, Any]) -> bool:
    last = request["messages"][-1]
    return last["role"] == "user" and "about to be compacted" in json.dumps(last["content"])


def talk(summary: Reply | Callable[[int], Reply], words: int = 1200) -> Callable[[dict[str, Any], int], Reply]:
    """Long answers; what a summary request gets, by its number."""
    asked = iter(range(1_000))

    def script(request: dict[str, Any], n: int) -> Reply:
        if not is_summary(request):
            return Reply("word " * words)
        k = next(asked)
        return summary(k) if callable(summary) else summary

    return script


def config(window: int, **compaction: Any) -> dict[str, Any]:
    settings = {"preset": "handoff", **compaction}
    return {"model": {"window": window}, "compaction": settings, "providers": {"openai": {"retry_base_s": 0.01}}}


async def talked(sidecar: Sidecar, settings: dict[str, Any], turns: int = 6) -> str:
    session = await sidecar.client.sessions.create(cwd=str(sidecar.work), config=settings)
    for n in range(turns):
        await sidecar.client.chat.run(session.session_id, f"question {n}")
    return session.session_id


async def context(sidecar: Sidecar, session_id: str) -> list[Any]:
    return list((await sidecar.client.sessions.messages(session_id, view="context", limit=1_000)).messages)


def summaries(llm: FakeLLM) -> list[Request]:
    return [r for r in list(llm.requests) if is_summary(r.json)]


def reader(output: Callable[[int], str]) -> Any:
    @host_tool("page", "Returns a page.", {"n": {"type": "integer"}})
    async def page(told: HostCall) -> str:
        return output(told.arguments["n"])

    return page


def one_call_a_turn() -> Callable[[dict[str, Any], int], Reply]:
    """A call, then an answer, again and again."""
    made = iter(range(1, 1_000))

    def script(request: dict[str, Any], n: int) -> Reply:
        if is_summary(request):
            return Reply(SUMMARY)
        if request["messages"][-1]["role"] == "tool":
            return Reply("read it")
        return Reply("", tool_calls=[call("page", {"n": next(made)})])

    return script


def results(request: Request) -> list[str]:
    return [text for role, text in request.texts if role == "tool"]


# ---------------------------------------------------------------- overflow


async def test_an_overflow_of_what_no_summary_makes_smaller_fails_at_once() -> None:
    with FakeLLM(lambda request, n: OVERFLOW) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work), config=config(64_000))
            result = await sidecar.client.chat.run(session.session_id, "hello there")
            assert result.error is not None
            assert result.error.reason == "context_overflow"
            assert result.error.hint
            assert len(llm.requests) == 1


async def test_kept_words_and_one_summary_are_nothing_left_to_compact() -> None:
    """The date, which the turn tells anew, is nothing to pay a summary for."""
    refuses = False

    def script(request: dict[str, Any], n: int) -> Reply:
        if is_summary(request):
            return Reply(SUMMARY)
        return OVERFLOW if refuses else Reply("word " * 1200)

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sid = await talked(sidecar, config(64_000), turns=4)
            assert (await sidecar.client.chat.compact(sid)).outcome == "landed"
            asked, refuses = llm.count, True
            result = await sidecar.client.chat.run(sid, "and now?")
            assert result.error is not None
            assert result.error.reason == "context_overflow"
            assert llm.count == asked + 1


async def test_what_the_provider_counted_says_whether_a_compaction_can_help() -> None:
    """A context that is worth far more to its provider than to our estimate."""
    replies = iter([Reply("hi", prompt_tokens=6_000), OVERFLOW])

    def script(request: dict[str, Any], n: int) -> Reply:
        return Reply(SUMMARY) if is_summary(request) else next(replies, Reply("done"))

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sid = await talked(sidecar, config(16_000), turns=2)
            records = sidecar.records(sid)
            assert [r["trigger"] for r in of_type(records, "compaction.start")] == ["overflow"]
            (applied,) = of_type(records, "context.apply_compaction")
            assert applied["post_tokens"] < applied["pre_tokens"]
            assert of_type(records, "turn.end")[-1]["stop_reason"] == "end_turn"


async def test_a_refused_summary_request_is_never_sent_again() -> None:
    """One large answer: it is cut inside, smaller each time, until it is accepted."""

    def summary(request: dict[str, Any], n: int) -> Reply:
        if not is_summary(request):
            return Reply("word " * 9_000)
        return OVERFLOW if len(json.dumps(request)) > 26_000 else Reply(SUMMARY)

    with FakeLLM(summary) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sid = await talked(sidecar, config(64_000), turns=1)
            assert (await sidecar.client.chat.compact(sid)).outcome == "landed"
            sizes = [len(r.body) for r in summaries(llm)]
            assert len(sizes) > 2
            assert sizes == sorted(set(sizes), reverse=True)
            assert all("word word" in r.body.decode() for r in summaries(llm))


# ---------------------------------------------------------------- the summary request fails


@pytest.mark.parametrize(
    ("bad", "cause", "attempts"),
    [
        (OVERFLOW, "overflow", 4),
        (Reply("a part of a summary " * 40, finish_reason="length"), "truncated_summary", 5),
        (Reply(" \n "), "empty_summary", 5),
        (Reply("", reasoning="thinking " * 80), "empty_summary", 5),
        (Reply("", tool_calls=[call("page", {}, "x")]), "empty_summary", 5),
        (Reply("Done."), "empty_summary", 5),
        (Reply("", finish_reason="content_filter"), "content_filter", 1),
        (failure(503), "provider_unavailable", 5),
        (failure(401), "provider_auth", 1),
        (failure(400, "no such field"), "provider_rejected", 1),
        (Reply("much more than there was " * 9_000), "no_gain", 1),
    ],
    ids=["overflow", "length", "blank", "reasoning", "call", "trivial", "filter", "503", "401", "400", "no_gain"],
)
async def test_each_failure_has_its_word_and_leaves_the_context(bad: Reply, cause: str, attempts: int) -> None:
    with FakeLLM(talk(bad, words=800)) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sid = await talked(sidecar, config(64_000))
            before = await context(sidecar, sid)
            with sidecar.client.events(sid) as stream:
                with pytest.raises(SidecarError) as refused:
                    await sidecar.client.chat.compact(sid)
                assert (refused.value.reason, refused.value.data["cause"]) == ("compaction_failed", cause)
                with anyio.fail_after(5):
                    end = await anext(x.event async for x in stream if isinstance(x.event, e.CompactionFailed))
            assert (end.reason, end.attempts) == (cause, attempts)
            assert len(summaries(llm)) == attempts
            assert await context(sidecar, sid) == before
            assert of_type(sidecar.records(sid), "compaction.cancel")[0]["reason"] == cause


async def test_a_cancelled_compaction_leaves_the_context_and_the_session_usable() -> None:
    gate = Gate()
    with FakeLLM(talk(Reply(SUMMARY, gate=gate))) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sid = await talked(sidecar, config(64_000), turns=3)
            before = await context(sidecar, sid)
            causes: list[str] = []

            async def compact() -> None:
                with pytest.raises(SidecarError) as refused:
                    await sidecar.client.chat.compact(sid)
                causes.append(refused.value.data["cause"])

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(compact)
                await until(lambda: summaries(llm), what="the summary request")
                assert await sidecar.client.chat.cancel(sid)
            assert causes == ["cancelled"]
            assert await context(sidecar, sid) == before
            gate.open()
            assert (await sidecar.client.chat.run(sid, "and now?")).stop_reason == "end_turn"


# ---------------------------------------------------------------- the shape


async def test_the_first_words_survive_every_compaction_as_they_were_cut_first() -> None:
    """The measure of a token changes with what is said; the head does not wear away by it."""
    with FakeLLM(talk(Reply(SUMMARY), words=50)) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            settings = config(64_000, user_message_max_tokens=1_000, user_message_head_tokens=200)
            sid = await talked(sidecar, settings, turns=0)
            chat = sidecar.client.chat
            for n in range(6):
                await chat.run(sid, f"U{n} " + " ".join(f"w{n}x{k}" for k in range(150)))
            heads, elided = [], []
            for n in range(4):
                await chat.compact(sid)
                texts = [m.text for m in await context(sidecar, sid)]
                notes = [i for i, text in enumerate(texts) if "left out to save space" in text]
                assert len(notes) == 1
                heads.append(texts[notes[0] - 1])
                elided.append(int(re.findall(r"About (\d+) tokens", texts[notes[0]])[0]))
                assert sum(RECOVERY in text for text in texts) == 1
                await chat.run(sid, f"V{n} " + "plain words of another kind " * 250)
            assert len(set(heads)) == 1
            assert heads[0].startswith("U0 w0x0")
            assert elided == sorted(elided)
            assert elided[0] < elided[-1]


async def test_the_recovery_section_names_lines_that_can_be_read() -> None:
    with FakeLLM(talk(Reply(SUMMARY))) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sid = await talked(sidecar, config(64_000), turns=2)
            for _ in range(2):
                await sidecar.client.chat.compact(sid)
                await sidecar.client.chat.run(sid, "more")
            (text,) = [m.text for m in await context(sidecar, sid) if RECOVERY in m.text]
            assert str(sidecar.wire(sid)) in text
            windows = [(int(a), int(b)) for a, b in re.findall(r"(\d+)-(\d+) \(window", text)]
            lines = sidecar.wire(sid).read_bytes().split(b"\n")
            starts = of_type(sidecar.records(sid), "compaction.start")
            assert windows == [tuple(s["span"]) for s in starts]
            for first, last in windows:
                for line in (first, last):
                    record = json.loads(lines[line - 1])
                    assert record["seq"] == line
                    assert record["type"] in ("context.append_message", "context.apply_compaction")


# ---------------------------------------------------------------- the free half


async def test_a_cold_session_is_snipped_once_and_a_warm_one_never() -> None:
    settings = config(
        40_000, preset="span", snip_ratio=0.2, keep_last_messages=2, keep_last_tool_results=0, cache_ttl_s=3
    )
    with FakeLLM(one_call_a_turn()) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            tool = reader(lambda n: "\n".join(LINES))
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work), tools=[tool], config=settings)
            sid = session.session_id
            for n in range(3):
                await sidecar.client.chat.run(sid, f"question {n}")
            assert not of_type(sidecar.records(sid), "context.rewrite")
            await anyio.sleep(3.2)
            await sidecar.client.chat.run(sid, "after a pause")
            records = sidecar.records(sid)
            assert [r["action"] for r in of_type(records, "context.rewrite")] == ["snip"]
            shown = results(llm.requests[-1])[0]
            marker = re.search(
                r"\n\[snipped tool result — page, (\d+) bytes, (\d+) lines omitted, original: record (\d+)\]\n", shown
            )
            assert marker is not None
            assert shown[: marker.start()].split("\n") == LINES[:80]
            assert shown[marker.end() :].split("\n") == LINES[-12:]
            assert (int(marker[1]), int(marker[2])) == (len("\n".join(LINES)), len(LINES) - 92)
            assert records[int(marker[3]) - 1]["message"]["role"] == "tool"
            await sidecar.client.chat.run(sid, "at once")
            assert len(of_type(sidecar.records(sid), "context.rewrite")) == 1


async def test_pruning_that_is_enough_saves_the_summary() -> None:
    settings = config(16_000, preset="span", keep_last_messages=4, keep_last_tool_results=1, fold_excerpt_chars=0)
    with FakeLLM(one_call_a_turn()) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            tool = reader(lambda n: f"page {n}\n" + "\n".join(LINES))
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work), tools=[tool], config=settings)
            sid = session.session_id
            for n in range(5):
                await sidecar.client.chat.run(sid, f"question {n}")
            records = sidecar.records(sid)
            rewrites = of_type(records, "context.rewrite")
            assert {r["action"] for r in rewrites} == {"prune"}
            assert not summaries(llm)
            policy = (await sidecar.client.context.get(sid)).policy
            assert rewrites[0]["post_tokens"] <= policy["trigger_at"] - policy["margin"]
            shown = results(llm.requests[-1])
            marker = re.fullmatch(r"\[elided tool result — page, (\d+) bytes, original: record (\d+)\]", shown[0])
            assert marker is not None
            assert records[int(marker[2]) - 1]["message"]["content"][0]["text"].startswith("page 1\n")
            assert shown[-1].startswith("page 5\n")


async def test_a_result_that_is_the_whole_pressure_is_shortened_unpaid() -> None:
    settings = config(16_000, preset="span") | {"tools": {"builtin": "none", "spill_bytes": 1_000_000}}
    with FakeLLM(one_call_a_turn()) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            tool = reader(lambda n: "\n".join(LINES * 10))
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work), tools=[tool], config=settings)
            result = await sidecar.client.chat.run(session.session_id, "read it")
            assert result.text == "read it"
            assert not summaries(llm)
            assert [r["action"] for r in of_type(sidecar.records(session.session_id), "context.rewrite")] == ["prune"]
            assert len(llm.requests[-1].body) < 60_000


async def test_images_of_one_message_are_offloaded_one_by_one() -> None:
    image = base64.b64encode(b"\x89PNG" + bytes(600)).decode()
    settings = config(20_000, preset="span", snip_ratio=0.2, keep_last_messages=2, keep_last_images=1, cache_ttl_s=3)
    with FakeLLM(lambda request, n: Reply("word " * 3_000)) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work), config=settings)
            sid = session.session_id
            await sidecar.client.chat.run(sid, [TextPart("look"), *[ImagePart("image/png", data=image)] * 3])
            await sidecar.client.chat.run(sid, "and then?")
            await anyio.sleep(3.2)
            await sidecar.client.chat.run(sid, "after a pause")
            assert [r["action"] for r in of_type(sidecar.records(sid), "context.rewrite")] == ["image_offload"]
            (looked,) = [m for m in await context(sidecar, sid) if "look" in m.text]
            assert [isinstance(part, ImagePart) for part in looked.content] == [False, False, False, True]


# ---------------------------------------------------------------- what is never summarised


async def test_an_edit_of_the_instructions_survives_a_landing_within_the_turn() -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        if is_summary(request):
            return Reply(SUMMARY)
        if request["messages"][-1]["content"] == "question 1":
            return Reply("word " * 1200, tool_calls=[call("page", {"n": 1})])
        return Reply("word " * 1200)

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            rules = sidecar.work / "AGENTS.md"
            rules.write_text("Indent with spaces.\n")
            tool = reader(lambda n: "a page")
            session = await sidecar.client.sessions.create(cwd=str(sidecar.work), tools=[tool], config=config(64_000))
            sid = session.session_id
            await sidecar.client.chat.run(sid, "question 0")
            rules.write_text("Indent with TABULATORS.\n")
            await sidecar.client.chat.run(sid, "question 1")
            await sidecar.client.chat.compact(sid, when="next_step")
            await sidecar.client.chat.run(sid, "question 2")
            assert of_type(sidecar.records(sid), "context.apply_compaction")
            assert [m.text.count("TABULATORS") for m in await context(sidecar, sid) if "TABULATORS" in m.text] == [1]
            assert sum("TABULATORS" in text for _, text in llm.requests[-1].texts) == 1


# ---------------------------------------------------------------- brought back


async def test_turns_that_were_brought_back_can_be_undone(tmp_path: Path) -> None:
    with FakeLLM(talk(Reply(SUMMARY))) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            sid = await talked(sidecar, config(64_000), turns=2)
            two = await context(sidecar, sid)
            await sidecar.client.chat.run(sid, "question 2")
            assert (await sidecar.client.chat.compact(sid)).outcome == "landed"
            await sidecar.client.chat.run(sid, "question 3")
            brought = await sidecar.client.chat.uncompact(sid)
            assert brought.tokens == (await sidecar.client.context.get(sid)).used
        async with running_sidecar(llm=llm, home=tmp_path) as again:
            await again.client.sessions.resume(sid)
            assert (await again.client.chat.undo(sid, turns=2)).removed_turns == 2
            assert await context(again, sid) == two


# ---------------------------------------------------------------- a crash between summary and landing


async def test_a_paid_summary_lands_at_resume_without_a_request(tmp_path: Path) -> None:
    gate = Gate()
    with FakeLLM(talk(Reply(SUMMARY, gate=gate))) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            sid = await talked(sidecar, config(64_000), turns=3)
            async with anyio.create_task_group() as tasks:

                async def compact() -> None:
                    with pytest.raises(SidecarError):
                        await sidecar.client.chat.compact(sid)

                tasks.start_soon(compact)
                await until(lambda: summaries(llm), what="the summary request")
                await sidecar.kill()
            gate.open()
            _append_summary(sidecar.wire(sid), "PAID-FOR: " + SUMMARY)
        asked = llm.count
        async with running_sidecar(llm=llm, home=tmp_path) as again:
            resumed = await again.client.sessions.resume(sid)
            assert "open_compaction" in {r.kind for r in resumed.recovered}
            assert llm.count == asked
            types = [r["type"] for r in again.records(sid)]
            assert types.count("context.apply_compaction") == 1
            assert "compaction.cancel" not in types
            texts = [m.text for m in await context(again, sid)]
            assert any("PAID-FOR" in text for text in texts)
            assert "question 0" in texts
            assert (await again.client.records.verify(sid)).ok


def _append_summary(wire: Path, summary: str) -> None:
    """The record that a daemon writes as soon as the model answered."""
    lines = wire.read_bytes().split(b"\n")[:-1]
    start = of_type(map(json.loads, lines), "compaction.start")[-1]
    record = {
        "seq": len(lines) + 1,
        "type": "compaction.summary",
        "time": start["time"] + 5,
        "compaction_id": start["compaction_id"],
        "summary": summary,
        "usage": {"prompt_tokens": 9, "cached_tokens": 0, "completion_tokens": 9, "requests": 1},
        "attempts": 1,
        "dropped_messages": 0,
    }
    body = json.dumps(record, separators=(",", ":")).encode()[:-1]
    with wire.open("ab") as file:
        file.write(body + b',"crc":"%08x"}\n' % zlib.crc32(body))
