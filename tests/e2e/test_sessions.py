"""`agent.session.*`, `record.*`, `config.*`, `model.list`, `tool.list` against a real daemon."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from protocol import events as e
from sidecar.client.errors import SidecarError
from sidecar.client.host import HostCall, host_tool
from tests.support.fake_llm import FakeLLM, Gate, Reply, call, sequence
from tests.support.running import running_sidecar, until
from tests.support.wire import message_bytes, of_type

pytestmark = pytest.mark.anyio


@host_tool("echo", "Echoes.", {"x": {"type": "string"}}, required=["x"])
async def echo(call: HostCall) -> str:
    return str(call.arguments["x"])


async def refused(awaitable: Any) -> SidecarError:
    with pytest.raises(SidecarError) as caught:
        await awaitable
    return caught.value


async def test_list_pages_newest_first_and_knows_directories(tmp_path: Path) -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sessions = sidecar.client.sessions
            ids = []
            for n in range(5):
                made = await sessions.create(cwd=str(sidecar.work if n % 2 else tmp_path), title=f"t{n}")
                ids.append(made.session_id)
                await anyio.sleep(0.003)
            page = await sessions.list(limit=2)
            found = [s.session_id for s in page.sessions]
            while page.next_cursor is not None:
                page = await sessions.list(limit=2, cursor=page.next_cursor)
                found += [s.session_id for s in page.sessions]
            assert found == ids[::-1]
            mine = await sessions.list(cwd=str(tmp_path))
            assert await sessions.list(cwd=f"{tmp_path}/") == mine
            assert [s.session_id for s in mine.sessions] == [ids[4], ids[2], ids[0]]
            # A turn makes the oldest the newest.
            await sidecar.client.chat.run(ids[0], "hello")
            assert (await sessions.list(limit=1)).sessions[0].session_id == ids[0]


async def test_what_is_refused_leaves_nothing_behind() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            create = client.sessions.create
            assert (await refused(create(cwd=str(sidecar.work), config={"nope": {}}))).reason == "config_invalid"
            assert (await refused(create(cwd=str(sidecar.work), model="nowhere/x"))).reason == "no_provider"
            for cwd in (str(sidecar.work / "missing"), "~no-such-user-here/x", "/" + "x" * 300, "relative", "/a\0b"):
                assert (await refused(create(cwd=cwd))).data["path"] == "cwd"
            bad_rule = create(cwd=str(sidecar.work), config={"approval": {"allow": ["run_command(("]}})
            assert (await refused(bad_rule)).reason == "config_invalid"
            per_session = create(cwd=str(sidecar.work), config={"server": {"idle_unload_s": 1}})
            assert (await refused(per_session)).reason == "config_invalid"
            assert (await client.sessions.list()).sessions == ()
            assert not list((sidecar.home / "sessions").glob("*/session.json"))


async def test_configure_changes_all_or_nothing() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work))).session_id
            bad = client.sessions.configure(sid, title="new", config={"loop_control": {"max_steps": 0}})
            assert (await refused(bad)).data["key"] == "loop_control.max_steps"
            assert (await client.sessions.get(sid)).title == ""
            changed = await client.sessions.configure(sid, title="new", config={"model": {"window": 9_000}})
            assert (changed.title, changed.window) == ("new", 9_000)
            assert (await client.context.get(sid)).window_source == "config"
            # A second configuration is merged into the first.
            await client.sessions.configure(sid, config={"tools": {"builtin": "read"}})
            assert (await client.sessions.get(sid)).window == 9_000
            assert "read_file" in {t.name for t in await client.tools.list(sid)}


async def test_close_refuses_input_until_resume_and_delete_removes_everything() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work))).session_id
            await client.chat.run(sid, "one")
            await client.sessions.close(sid)
            for call_ in (
                client.chat.send(sid, "x"),
                client.chat.steer(sid, "x"),
                client.chat.undo(sid),
                client.sessions.configure(sid, title="x"),
                client.sessions.attach(sid),
            ):
                assert (await refused(call_)).reason == "session_closed"
            # Reading goes on.
            assert (await client.sessions.get(sid)).state == "closed"
            assert len((await client.sessions.messages(sid, view="context")).messages) == 3
            assert (await client.records.verify(sid)).ok
            assert (await client.context.get(sid)).used > 0
            assert (await client.sessions.resume(sid)).recovered == ()
            assert (await client.chat.run(sid, "two")).stop_reason == "end_turn"
            await client.sessions.delete(sid)
            assert (await refused(client.sessions.get(sid))).reason == "session_not_found"
            assert not (sidecar.home / "sessions" / sid).exists()


async def test_a_running_turn_ends_as_cancelled_when_its_session_closes() -> None:
    gate = Gate()
    with FakeLLM(lambda r, n: Reply("late", gate=gate)) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work))).session_id
            with client.events(sid) as events:
                sent = await client.chat.send(sid, "wait")
                await until(lambda: llm.requests, what="the request")
                await client.sessions.close(sid)
                ended = [x.event async for x in events.of_turn(sent.turn_id)][-1]
            assert ended.stop_reason == "cancelled"
            gate.open()


async def test_a_fork_has_the_same_bytes_and_a_future_of_its_own() -> None:
    with FakeLLM(lambda r, n: Reply(f"answer {n}")) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work), tools=[echo], title="source")).session_id
            turns = [(await client.chat.run(sid, f"question {n}")).turn_id for n in range(3)]
            fork = await client.sessions.fork(sid)
            assert fork.session_id != sid
            assert (fork.turns, fork.title) == (3, "source")
            assert [t.name for t in await client.tools.list(fork.session_id)] == ["echo"]
            source_lines = sidecar.wire(sid).read_bytes().split(b"\n")
            fork_lines = sidecar.wire(fork.session_id).read_bytes().split(b"\n")
            assert fork_lines[1 : len(source_lines) - 1] == source_lines[1:-1]
            await client.chat.run(fork.session_id, "in the fork")
            assert message_bytes(llm.requests[-1].body)[:-1][: len(message_bytes(llm.requests[2].body))] == (
                message_bytes(llm.requests[2].body)
            )
            early = await client.sessions.fork(sid, at_turn=turns[0])
            texts = [m.text for m in (await client.sessions.messages(early.session_id, view="context")).messages]
            assert texts[-2:] == ["question 0", "answer 0"]
            wrong = await refused(client.sessions.fork(sid, at_turn="turn_none"))
            assert wrong.data["path"] == "at_turn"


async def test_a_fork_while_a_turn_runs_ends_with_the_last_turn_that_ended() -> None:
    gate = Gate()
    with FakeLLM(sequence(Reply("one"), Reply("two", gate=gate))) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work))).session_id
            await client.chat.run(sid, "first")
            await client.chat.send(sid, "second")
            await client.chat.send(sid, "third, queued")
            await until(lambda: len(llm.requests) == 2, what="the second request")
            fork = await client.sessions.fork(sid)
            texts = [m.text for m in (await client.sessions.messages(fork.session_id, view="context")).messages]
            assert texts[-2:] == ["first", "one"]
            gate.open()


@pytest.mark.parametrize("at_turn", [False, True])
async def test_a_fork_while_a_compaction_runs_closes_its_copy_of_the_bracket(at_turn: bool) -> None:
    gate = Gate()
    script = sequence(
        *(Reply("word " * 200, prompt_tokens=50 + 300 * n) for n in range(3)), Reply("summary", gate=gate)
    )
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work))).session_id
            turns = [(await client.chat.run(sid, f"question {n}")).turn_id for n in range(3)]
            async with anyio.create_task_group() as group:
                group.start_soon(client.chat.compact, sid)
                await until(lambda: len(llm.requests) == 4, what="the summary request")
                fork = await client.sessions.fork(sid, at_turn=turns[-1] if at_turn else None)
                gate.open()
            assert (
                subprocess.run(
                    sidecar.command("record", "verify", fork.session_id, "--policy"), env=sidecar.env, cwd=sidecar.work
                ).returncode
                == 0
            )
            records = sidecar.records(fork.session_id)
            started = [r["compaction_id"] for r in of_type(records, "compaction.start")]
            ended = [(r["compaction_id"], r["reason"]) for r in of_type(records, "compaction.cancel")]
            assert ended == [(c, "restart") for c in started]
            assert len(started) == (0 if at_turn else 1)
            assert (await client.context.get(fork.session_id)).compaction is None
            assert (await client.records.verify(fork.session_id)).ok


async def test_detach_ends_the_events_and_attach_replays_what_was_missed() -> None:
    with FakeLLM(lambda r, n: Reply(f"answer {n}")) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work))).session_id
            with client.events(sid) as events:
                first = await client.chat.send(sid, "one")
                seen = [x async for x in events.of_turn(first.turn_id)]
                await client.sessions.detach(sid)
                await client.chat.run(sid, "unseen")
                attached = await client.sessions.attach(sid, after_event=seen[-1].event_id)
                assert (attached.resync_required, attached.events_replayed > 4) == (False, True)
                replayed = []
                async for told in events:
                    replayed.append(told)
                    if isinstance(told.event, e.TurnEnded):
                        break
                numbers = [int(x.event_id.split("-")[1]) for x in replayed]
                start = int(seen[-1].event_id.split("-")[1])
                assert numbers == list(range(start + 1, start + 1 + len(numbers)))
            assert (await client.sessions.attach(sid, after_event="00000000-3")).resync_required
            assert (await client.sessions.attach(sid, after_event="nonsense")).resync_required


async def test_idle_sessions_leave_memory_and_come_back_with_their_host(tmp_path: Path) -> None:
    with FakeLLM(sequence(Reply("one"), Reply(tool_calls=[call("echo", {"x": "hi"})]), Reply("two"))) as llm:
        async with running_sidecar(llm=llm, config="[server]\nmax_loaded_sessions = 1\n") as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work), tools=[echo])).session_id
            await client.chat.run(sid, "first")
            before = (await client.sessions.messages(sid, view="context")).messages
            await client.sessions.create(cwd=str(sidecar.work))
            await until(lambda: (sidecar.wire(sid).parent / "checkpoint.json").exists(), what="the checkpoint")
            assert (await client.sessions.messages(sid, view="context")).messages == before
            result = await client.chat.run(sid, "second")
            assert result.text == "two"
            last = (await client.sessions.messages(sid, view="context")).messages
            assert [m.text for m in last if m.role == "tool"] == ["hi"]


async def test_records_are_found_by_line_type_and_text() -> None:
    with FakeLLM(lambda r, n: Reply("Grüße an alle")) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work))).session_id
            for n in range(3):
                await client.chat.run(sid, f"needle-{n} in a haystack")
            everything = (await client.records.query(sid)).records
            assert [r.line for r in everything] == list(range(1, len(everything) + 1))
            assert all(r.record["seq"] == r.line for r in everything)
            ends = (await client.records.query(sid, types=["turn.end"])).records
            assert len(ends) == 3
            found = (await client.records.query(sid, grep="NEEDLE-1", types=["context.append_message"])).records
            assert len(found) == 1
            part = (await client.records.query(sid, from_line=found[0].line, to_line=found[0].line)).records
            assert part == found
            assert (await client.records.query(sid, grep=r"needle-[02]", regex=True)).records
            page = await client.records.query(sid, limit=4)
            assert len(page.records) == 4
            assert page.next_cursor is not None
            rest = await client.records.query(sid, limit=1000, cursor=page.next_cursor)
            assert [r.line for r in (*page.records, *rest.records)] == [r.line for r in everything]
            bad = await refused(client.records.query(sid, grep="(", regex=True))
            assert bad.data["path"] == "grep"


async def test_settings_say_where_they_come_from() -> None:
    with FakeLLM() as llm:
        config = "[compaction]\nsoft_ratio = 0.4\n"
        env = {"SIDECAR_TOOLS_HOST_WAIT_S": "7"}
        async with running_sidecar(llm=llm, config=config, env=env) as sidecar:
            client = sidecar.client
            sid = (
                await client.sessions.create(cwd=str(sidecar.work), config={"tools": {"builtin": "read"}})
            ).session_id
            assert (await client.config.get("compaction.soft_ratio")).source == "file"
            assert (await client.config.get("tools.host_wait_s")).value == 7
            assert (await client.config.get("tools.host_wait_s")).source == "environment"
            assert (await client.config.get("tools.builtin", session_id=sid)).source == "session"
            assert (await client.config.get("tools.builtin")).value == "none"
            await client.config.set({"compaction": {"soft_ratio": 0.3}}, session_id=sid)
            assert (await client.context.get(sid)).soft_at == int(0.3 * 32_768)
            await client.config.set({"tools.spill_bytes": 2048})
            assert (await client.config.get("tools.spill_bytes", session_id=sid)).source == "process"
            assert (await refused(client.config.get("no.such"))).reason == "config_invalid"
            assert (await refused(client.config.set({"tools.spill_bytes": 1}))).reason == "config_invalid"
            assert (await client.config.get("tools.spill_bytes")).value == 2048


async def test_models_and_tools_are_listed() -> None:
    with FakeLLM(models=[{"id": "big", "object": "model", "context_length": 77_000}]) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            rows = {m.name: m for m in await client.models.list()}
            assert (rows["openai/big"].window, rows["openai/big"].source) == (77_000, "provider")
            sid = (await client.sessions.create(cwd=str(sidecar.work), tools=[echo])).session_id
            assert [t.name for t in await client.tools.list(sid)] == ["echo"]


async def test_a_second_process_is_refused_and_named(tmp_path: Path) -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as one, running_sidecar(llm=llm, home=tmp_path) as two:
            sid = (await one.client.sessions.create(cwd=str(one.work))).session_id
            size = one.wire(sid).stat().st_size
            error = await refused(two.client.sessions.resume(sid))
            assert (error.reason, error.data["pid"]) == ("session_locked", one.pid)
            assert (await two.client.sessions.get(sid)).session_id == sid
            assert one.wire(sid).stat().st_size == size
            assert of_type(one.records(sid), "metadata")


async def test_an_unloaded_session_that_another_process_took_and_closed_is_closed(tmp_path: Path) -> None:
    limit = "[server]\nmax_loaded_sessions = 1\n"
    with FakeLLM() as llm:
        async with (
            running_sidecar(llm=llm, home=tmp_path, config=limit) as one,
            running_sidecar(llm=llm, home=tmp_path) as two,
        ):
            sid = (await one.client.sessions.create(cwd=str(one.work))).session_id
            await one.client.chat.run(sid, "in one")
            await one.client.sessions.create(cwd=str(one.work))
            await until(lambda: (one.wire(sid).parent / "checkpoint.json").exists(), what="the checkpoint")
            with anyio.fail_after(10):
                while True:
                    try:
                        await two.client.sessions.resume(sid)
                        break
                    except SidecarError as error:
                        if error.reason != "session_locked":
                            raise
                        await anyio.sleep(0.01)
            await two.client.chat.run(sid, "in two")
            assert (await refused(one.client.chat.send(sid, "early"))).data["pid"] == two.pid
            await two.client.sessions.close(sid)
            for _ in range(2):
                assert (await refused(one.client.chat.send(sid, "still closed"))).reason == "session_closed"
            assert (await one.client.sessions.get(sid)).state == "closed"
            found = await one.client.sessions.resume(sid)
            assert (found.session.state, list(found.recovered)) == ("idle", [])
            assert (await one.client.chat.run(sid, "in one again")).stop_reason == "end_turn"
            said = [m.text for m in (await one.client.sessions.messages(sid, view="context")).messages]
            assert [text for text in said if text.startswith("in ")] == ["in one", "in two", "in one again"]
