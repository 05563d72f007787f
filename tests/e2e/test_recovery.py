"""Damage and abrupt ends, from outside: an editor at a real session's log, kill -9, and what a resume makes of it."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from protocol.messages import TextPart
from sidecar.client.errors import SidecarError
from sidecar.client.host import HostCall, host_tool
from tests.e2e.test_event_log import context, look, made, picture, script
from tests.support.fake_llm import FakeLLM, Gate, Reply
from tests.support.log_editor import assert_log_is_sound, edit, flip, line_with, lines_of, sealed
from tests.support.running import Sidecar, running_sidecar, until
from tests.support.wire import malformed, message_bytes, of_type

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def again(llm: FakeLLM, home: Path, sid: str) -> AsyncIterator[tuple[Sidecar, list[Any]]]:
    """A new process in which the session is resumed."""
    async with running_sidecar(llm=llm, home=home) as sidecar:
        found = await sidecar.client.sessions.resume(sid, tools=[look])
        yield sidecar, list(found.recovered)


async def talk(llm: FakeLLM, home: Path) -> str:
    """A session with a plain turn, a turn with two calls and another plain one, closed cleanly."""
    async with running_sidecar(llm=llm, home=home) as sidecar:
        sid = await made(sidecar, tools=[look], title="damaged")
        for text in ("hello", "tools please", "goodbye"):
            await sidecar.client.chat.run(sid, text)
    return sid


def wire_of(home: Path, sid: str) -> Path:
    return home / "sessions" / sid / "agents" / "main" / "wire.jsonl"


def drop_checkpoint(wire: Path) -> None:
    (wire.parent / "checkpoint.json").unlink()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return {"at": tmp_path_factory.mktemp("stored")}


async def a_copy(stored: dict[str, Any], llm: FakeLLM, home: Path) -> tuple[str, Path]:
    """A home of its own with the same stored session."""
    if "sid" not in stored:
        stored["sid"] = await talk(llm, stored["at"])
    shutil.copytree(stored["at"], home, dirs_exist_ok=True)
    return stored["sid"], wire_of(home, stored["sid"])


async def test_after_a_clean_close_nothing_is_recovered(tmp_path: Path) -> None:
    with FakeLLM(script) as llm:
        sid = await talk(llm, tmp_path)
        async with again(llm, tmp_path, sid) as (_, recovered):
            assert recovered == []


@pytest.mark.parametrize("cut", ["1", "half", "all but the bracket", "in a character", "after the crc's comma"])
async def test_a_torn_last_line_is_cut_and_kept(tmp_path: Path, stored: dict[str, Any], cut: str) -> None:
    with FakeLLM(script) as llm:
        sid, wire = await a_copy(stored, llm, tmp_path)
        whole = wire.read_bytes()
        count = len(lines_of(wire))
        if cut == "in a character":
            extra = sealed({"type": "context.append_message", "time": 1, "message": "ä"}, count + 1)
            size = extra.index("ä".encode()) + 1
        else:
            extra = lines_of(wire)[-1]
            size = {"1": 1, "half": len(extra) // 2, "all but the bracket": len(extra) - 1}.get(
                cut, extra.rindex(b',"crc') + 1
            )
        torn = extra[:size]
        wire.write_bytes(whole + torn)
        async with running_sidecar(llm=llm, home=tmp_path) as reader:
            problems = (await reader.client.records.verify(sid)).agents[0].problems
            assert [(p.line, p.kind) for p in problems] == [(count + 1, "torn_tail")]
            assert wire.read_bytes() == whole + torn
        async with again(llm, tmp_path, sid) as (sidecar, recovered):
            assert [r.kind for r in recovered] == ["torn_tail"]
            saved = sorted(wire.parent.glob("wire.jsonl.torn-*"))
            assert [p.name for p in saved] == ["wire.jsonl.torn-1"]
            assert saved[0].read_bytes() == torn
            assert saved[0].stat().st_mode & 0o777 == 0o600
            assert wire.read_bytes().startswith(whole)
            records = assert_log_is_sound(wire)
            assert [r["seq"] for r in of_type(records, "store.repair")] == [count + 1]
            assert recovered[0].line == count + 1
            assert (await sidecar.client.chat.run(sid, "more")).stop_reason == "end_turn"
            assert malformed(llm.requests[-1].messages) is None
            assert (await sidecar.client.records.verify(sid)).ok
        with wire.open("ab") as log:
            log.write(b'{"seq":')
        async with again(llm, tmp_path, sid) as (_, recovered):
            assert [r.kind for r in recovered] == ["torn_tail"]
            assert (wire.parent / "wire.jsonl.torn-2").read_bytes() == b'{"seq":'
        async with again(llm, tmp_path, sid) as (_, recovered):
            assert recovered == []
            assert_log_is_sound(wire)


async def test_a_log_cut_anywhere_opens(tmp_path: Path, stored: dict[str, Any]) -> None:
    """Every record's middle and end, without checkpoint: the context is that of the lines before."""
    with FakeLLM(script) as llm:
        _, wire = await a_copy(stored, llm, tmp_path / "first")
        whole = wire.read_bytes()
        ends = [i for i, b in enumerate(whole) if b == 10]
        cuts = [(a + b) // 2 for a, b in itertools.pairwise(ends[2:])] + ends[3:]
        homes = []
        for n, at in enumerate(cuts):
            copy = tmp_path / "one" / "sessions" / f"s{n}"
            shutil.copytree(wire.parents[2], copy)
            log = copy / "agents" / "main" / "wire.jsonl"
            log.write_bytes(whole[:at])
            homes.append((f"s{n}", log, whole[:at]))
        async with running_sidecar(llm=llm, home=tmp_path / "one") as sidecar:
            for name, log, before in homes:
                recovered = (await sidecar.client.sessions.resume(name, tools=[look])).recovered
                torn = log.parent / "wire.jsonl.torn-1"
                kept = before[: before.rfind(b"\n") + 1]
                if torn.exists():
                    assert before == kept + torn.read_bytes()
                    assert "torn_tail" in {r.kind for r in recovered}
                else:
                    assert log.read_bytes().startswith(before + b"\n")
                    assert "torn_tail" not in {r.kind for r in recovered}
                assert log.read_bytes().startswith(kept)
                assert_log_is_sound(log)
                result = await sidecar.client.chat.run(name, "go on")
                assert result.stop_reason == "end_turn"
                assert malformed(llm.requests[-1].messages) is None


async def test_a_last_line_without_newline_is_whole_and_one_with_a_bad_crc_is_damaged(
    tmp_path: Path, stored: dict[str, Any]
) -> None:
    with FakeLLM(script) as llm:
        sid, wire = await a_copy(stored, llm, tmp_path / "a")
        whole = wire.read_bytes()
        wire.write_bytes(whole[:-1])
        async with again(llm, tmp_path / "a", sid) as (_, recovered):
            assert [r.kind for r in recovered if r.kind != "checkpoint"] == []
            assert wire.read_bytes().startswith(whole)
            assert list(wire.parent.glob("*.torn-*")) == []
            assert_log_is_sound(wire)
        sid, wire = await a_copy(stored, llm, tmp_path / "b")
        count = len(lines_of(wire))
        bad = sealed({"type": "todo.update", "time": 1, "todos": []}, count + 1)
        bad = bad[:-4] + (b"0" if bad[-4:-3] != b"0" else b"1") + bad[-3:] + b"\n"
        wire.write_bytes(whole + bad)
        async with again(llm, tmp_path / "b", sid) as (sidecar, recovered):
            assert [(r.kind, r.line) for r in recovered] == [("damaged_line", count + 1)]
            assert list(wire.parent.glob("*.torn-*")) == []
            assert wire.read_bytes().startswith(whole + bad)
            await sidecar.client.chat.run(sid, "more")
            assert_log_is_sound(wire, damaged=[count + 1])


KINDS: dict[str, Callable[[bytes], bytes]] = {
    "bit flip": flip,
    "garbage": lambda raw: b"garbage, not JSON at all",
    "JSON, but no record": lambda raw: b'{"hello": "world"}',
    "no object": lambda raw: b"[1,2,3]",
    "NUL block": lambda raw: b"\0" * 512,
    "bad UTF-8": lambda raw: raw[:30] + b"\xff\xfe\xc3" + raw[33:],
    "empty": lambda raw: b"",
    "cut": lambda raw: raw[: len(raw) // 2],
    "carriage return": lambda raw: raw + b"\r",
    "deep": lambda raw: b"[" * 200_000,
}
VICTIMS: dict[str, dict[str, Any]] = {
    "user": {"type": "context.append_message", "role": "user", "nth": 1},
    "call": {"type": "context.append_message", "role": "assistant", "nth": 1},
    "result": {"type": "context.append_message", "role": "tool", "nth": 0},
    "answer": {"type": "context.append_message", "role": "assistant", "nth": -1},
    "turn.begin": {"type": "turn.begin", "nth": 1},
    "turn.end": {"type": "turn.end", "nth": 1},
    "metadata": {"type": "metadata"},
    "config": {"type": "config.update"},
    "usage": {"type": "llm.usage", "nth": 1},
}


async def test_damage_in_the_middle_is_kept_told_and_skipped(tmp_path: Path, stored: dict[str, Any]) -> None:
    """Each kind of damage, and each kind of line."""
    with FakeLLM(script) as llm:
        _, source = await a_copy(stored, llm, tmp_path / "first")
        cases = [(k, v) for k in KINDS for v in ("call", "result")] + [("bit flip", v) for v in VICTIMS]
        home = tmp_path / "one"
        for n in range(len(cases)):
            shutil.copytree(source.parents[2], home / "sessions" / f"s{n}")
        async with running_sidecar(llm=llm, home=home) as sidecar:
            for n, (kind, victim) in enumerate(cases):
                what, name = f"{kind} at {victim}", f"s{n}"
                wire = wire_of(home, name)
                drop_checkpoint(wire)
                at = line_with(wire, **VICTIMS[victim])

                def damage(lines: list[bytes], at: int = at, kind: str = kind) -> None:
                    lines[at - 1] = KINDS[kind](lines[at - 1])

                damaged = edit(wire, damage)
                problems = (await sidecar.client.records.verify(name)).agents[0].problems
                assert at in {p.line for p in problems}, what
                recovered = (await sidecar.client.sessions.resume(name, tools=[look])).recovered
                assert ("damaged_line", at) in {(r.kind, r.line) for r in recovered}, what
                assert {r.line for r in recovered if r.kind == "damaged_line"} == {at}, what
                assert (await sidecar.client.chat.run(name, "tools please")).stop_reason == "end_turn", what
                for request in list(llm.requests)[-2:]:
                    assert malformed(request.messages) is None, f"{what}: {malformed(request.messages)}"
                assert wire.read_bytes().startswith(damaged), what
                assert_log_is_sound(wire, damaged=[at])
                problems = (await sidecar.client.records.verify(name)).agents[0].problems
                # A copy has another name than its log says.
                others = {p.line for p in problems if p.kind != "metadata"}
                assert others == {at} - {1 if victim == "metadata" and not others else 0}, f"{what}: {problems}"
                rows = (await sidecar.client.records.query(name, limit=1000)).records
                unread = {at} if kind != "carriage return" else set()
                assert {r.line for r in rows} == set(range(1, len(lines_of(wire)) + 1)) - unread, what
                assert (await sidecar.client.sessions.get(name)).turns >= 3, what


async def test_glued_records_are_both_read(tmp_path: Path, stored: dict[str, Any]) -> None:
    with FakeLLM(script) as llm:
        sid, wire = await a_copy(stored, llm, tmp_path)
        async with again(llm, tmp_path, sid) as (sidecar, _):
            before = await context(sidecar, sid)
        at = line_with(wire, "context.append_message", role="tool")
        (wire.parent / "checkpoint.json").unlink()

        def glue(lines: list[bytes]) -> list[bytes]:
            return [*lines[: at - 1], lines[at - 1] + lines[at], *lines[at + 1 :]]

        damaged = edit(wire, glue)
        async with again(llm, tmp_path, sid) as (sidecar, _):
            assert await context(sidecar, sid) == before
            problems = (await sidecar.client.records.verify(sid)).agents[0].problems
            assert at in {p.line for p in problems}
            await sidecar.client.chat.run(sid, "more")
            assert malformed(llm.requests[-1].messages) is None
            assert wire.read_bytes().startswith(damaged)
            last = json.loads(lines_of(wire)[-1])
            assert last["seq"] == len(lines_of(wire))


async def test_what_newer_versions_write_is_kept_quietly(tmp_path: Path, stored: dict[str, Any]) -> None:
    with FakeLLM(script) as llm:
        sid, wire = await a_copy(stored, llm, tmp_path)
        async with again(llm, tmp_path, sid) as (sidecar, _):
            before = await context(sidecar, sid)
        drop_checkpoint(wire)
        count = len(lines_of(wire))
        new = [
            sealed({"type": "from.the.future", "time": 5, "x": {"deep": [1]}}, count + 1),
            sealed({"type": "todo.update", "time": 5, "todos": [], "newer": 1}, count + 2),
            sealed({"type": "turn.end", "time": 5, "shape": "unknown"}, count + 3),
        ]
        data = wire.read_bytes() + b"\n".join(new) + b"\n"
        wire.write_bytes(data)
        async with again(llm, tmp_path, sid) as (sidecar, recovered):
            assert recovered == []
            assert await context(sidecar, sid) == before
            assert (await sidecar.client.records.verify(sid)).ok
            rows = (await sidecar.client.records.query(sid, types=["from.the.future"])).records
            assert [(r.line, r.record["x"]) for r in rows] == [(count + 1, {"deep": [1]})]
            await sidecar.client.chat.run(sid, "more")
            assert wire.read_bytes().startswith(data)


@pytest.mark.parametrize(
    "newer",
    [
        {"tools": {"builtin": "everything", "newer": 1}, "compaction": {"soft_ratio": 0.4, "preset": "better"}},
        {"tools": True, "compaction": {"soft_ratio": 0.4, "trigger": [1]}, "mcp": 5, "newer": {"x": [1]}},
    ],
)
async def test_settings_that_only_another_version_knows_are_left_out_and_kept(
    tmp_path: Path, stored: dict[str, Any], newer: dict[str, Any]
) -> None:
    with FakeLLM(script) as llm:
        sid, wire = await a_copy(stored, llm, tmp_path)
        drop_checkpoint(wire)
        changed = sealed({"type": "config.update", "time": 5, "config": newer}, len(lines_of(wire)) + 1)
        wire.write_bytes(wire.read_bytes() + changed + b"\n")
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            client = sidecar.client
            assert await client.call("agent.context.get", {"session_id": sid})
            values = (await client.call("config.get", {"session_id": sid}))["values"]
            assert values["compaction.soft_ratio"] == {"value": 0.4, "source": "session"}
            assert values["tools.builtin"] == {"value": "none", "source": "default"}
            found = await client.sessions.resume(sid)
            assert (list(found.recovered), found.session.tools_builtin) == ([], "none")
            assert (await client.chat.run(sid, "more")).stop_reason == "end_turn"
            with pytest.raises(SidecarError) as refused:
                await client.sessions.configure(sid, config={"newer": {"x": 1}})
            assert refused.value.reason == "config_invalid"
            await client.sessions.configure(sid, config={"compaction": {"soft_ratio": 0.3}})
            stays = json.loads(json.dumps(newer))
            stays["compaction"]["soft_ratio"] = 0.3
            stays.pop("mcp", None)
            assert of_type(sidecar.records(sid), "config.update")[-1]["config"] == stays


async def test_the_checkpoint_changes_no_message(tmp_path: Path) -> None:
    """Close, resume, resume without checkpoint, with a damaged one, with one of another log: byte for byte the same."""
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            chat = sidecar.client.chat
            sids: dict[str, str] = {}
            for kind in ("tools", "image", "steer", "undo", "clear", "compaction", "history", "other"):
                sid = sids[kind] = await made(sidecar, tools=[look])
                await chat.run(sid, f"tools please {kind}")
                await chat.run(sid, "word " * 400)
                match kind:
                    case "image":
                        await chat.run(sid, [TextPart("see"), picture(9000)])
                    case "steer":
                        await chat.steer(sid, "steered")
                        while (await sidecar.client.sessions.get(sid)).state == "running":
                            await anyio.sleep(0.01)
                    case "undo":
                        await chat.undo(sid)
                    case "clear":
                        await chat.clear(sid)
                    case "compaction":
                        for n in range(12):
                            await chat.run(sid, f"{n} " + "word " * 600)
                        done = await chat.compact(sid)
                        assert done.outcome == "landed"
                    case "history":
                        history = [
                            {"role": "user", "content": "mine"},
                            {"role": "assistant", "content": "yours"},
                        ]
                        await sidecar.client.call(
                            "agent.chat.send",
                            {"session_id": sid, "content": "seeded", "history": history, "wait": True},
                        )
                await chat.run(sid, "the last")
            sids["fork"] = (await sidecar.client.sessions.fork(sids["compaction"])).session_id
            live = {k: (await context(sidecar, s), await context(sidecar, s, "full")) for k, s in sids.items()}
        for change in ("kept", "deleted", "flipped", "another's", "garbage", "cut"):
            for kind, sid in sids.items():
                file = wire_of(tmp_path, sid).parent / "checkpoint.json"
                assert file.exists(), kind
                data = file.read_bytes()
                if change == "deleted":
                    file.unlink()
                elif change != "kept":
                    other = wire_of(tmp_path, sids["other" if kind != "other" else "undo"]).parent / "checkpoint.json"
                    file.write_bytes(
                        {
                            "flipped": flip(data),
                            "another's": other.read_bytes(),
                            "garbage": b"\0garbage",
                            "cut": data[: len(data) // 2],
                        }[change]
                    )
            async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
                for kind, sid in sids.items():
                    found = await sidecar.client.sessions.resume(sid)
                    expected = {"flipped", "garbage", "cut"}
                    assert [r.kind for r in found.recovered] == ["checkpoint"] * (change in expected), (kind, change)
                    now = (await context(sidecar, sid), await context(sidecar, sid, "full"))
                    assert json.dumps(now) == json.dumps(live[kind]), (kind, change)


async def test_a_kill_in_a_tool_call_leaves_calls_that_are_answered(tmp_path: Path) -> None:
    started = anyio.Event()

    @host_tool("look", "Looks.", {"n": {"type": "integer"}})
    async def stuck(call: HostCall) -> str:
        started.set()
        await anyio.sleep_forever()
        return ""

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            sid = await made(sidecar, tools=[stuck])
            await sidecar.client.chat.send(sid, "tools please")
            await started.wait()
            wire = sidecar.wire(sid)
            await until(lambda: b'"tool_calls"' in wire.read_bytes(), what="the calls in the log")
            await sidecar.kill()
        # Reading a session that was killed changes nothing.
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            data = wire.read_bytes()
            assert (await sidecar.client.sessions.get(sid)).state == "idle"
            await context(sidecar, sid)
            assert wire.read_bytes() == data
        asked = len(llm.requests)
        async with again(llm, tmp_path, sid) as (sidecar, recovered):
            assert sorted(r.kind for r in recovered) == ["open_calls", "open_turn"]
            assert len(llm.requests) == asked
            end = of_type(sidecar.records(sid), "turn.end")[-1]
            assert (end["stop_reason"], end["error"]["reason"]) == ("error", "restart")
            results = [m for m in await context(sidecar, sid) if m["role"] == "tool"]
            assert len(results) == 2
            assert all(
                m["is_error"] and "interrupted; it may have had effects" in m["content"][0]["text"] for m in results
            )
            assert (await sidecar.client.chat.run(sid, "go on")).stop_reason == "end_turn"
            assert malformed(llm.requests[-1].messages) is None
        async with again(llm, tmp_path, sid) as (_, recovered):
            assert recovered == []


async def test_steering_that_outlived_its_turn_waits_for_the_next_and_holds_nothing_up(tmp_path: Path) -> None:
    gate = Gate()
    with FakeLLM(lambda request, n: Reply("one two", gate=gate) if n == 1 else Reply("fine")) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            sid = await made(sidecar)
            await sidecar.client.chat.run(sid, "before")
            await sidecar.client.chat.send(sid, "cut short")
            await until(lambda: len(llm.requests) == 2, what="the second request")
            await sidecar.client.chat.steer(sid, "one more thing")
            await sidecar.kill()
        gate.open()
        async with again(llm, tmp_path, sid) as (sidecar, recovered):
            assert [r.kind for r in recovered] == ["open_turn"]
            assert (await sidecar.client.sessions.get(sid)).state == "idle"
            # What needs a session in which nothing runs is not refused.
            assert (await sidecar.client.chat.undo(sid)).removed_turns == 1
            assert (await sidecar.client.chat.run(sid, "go on")).stop_reason == "end_turn"
            said = [m["content"][0]["text"] for m in await context(sidecar, sid) if m["role"] == "user"]
            assert [text for text in said if text[0] != "<"] == ["before", "go on", "one more thing"]
            assert len(llm.requests) == 3


async def test_a_kill_in_a_stream_and_in_a_compaction(tmp_path: Path) -> None:
    gate = Gate()

    def slow(request: dict[str, Any], n: int) -> Reply:
        text = json.dumps(request["messages"][-1].get("content"))
        if "hold" in text:
            return Reply("partial answer " * 20, hold_after=(3, gate))
        if "summar" in text.lower():
            return Reply("the summary", gate=gate)
        return Reply(f"plain {n}")

    with FakeLLM(slow) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            sid = await made(sidecar)
            await sidecar.client.chat.run(sid, "hello")
            with sidecar.client.events(sid) as events:
                await sidecar.client.chat.send(sid, "hold")
                async for told in events:
                    if told.event.__class__.__name__ == "TextDelta":
                        break
            await sidecar.kill()
        async with again(llm, tmp_path, sid) as (sidecar, recovered):
            assert [r.kind for r in recovered] == ["open_turn"]
            for n in range(12):
                await sidecar.client.chat.run(sid, f"{n} " + "word " * 600)
            before = await context(sidecar, sid)

            async def compact() -> None:
                try:
                    await sidecar.client.chat.compact(sid)
                except Exception:
                    return

            async with anyio.create_task_group() as group:
                group.start_soon(compact)
                await until(lambda: of_type(sidecar.records(sid), "compaction.start"), what="the bracket")
                await sidecar.kill()
                group.cancel_scope.cancel()
        gate.open()
        async with again(llm, tmp_path, sid) as (sidecar, recovered):
            assert [r.kind for r in recovered] == ["open_compaction"]
            cancel = of_type(sidecar.records(sid), "compaction.cancel")[-1]
            assert cancel["reason"] == "restart"
            assert await context(sidecar, sid) == before
            assert_log_is_sound(sidecar.wire(sid))
            assert (await sidecar.client.records.verify(sid)).ok


@pytest.mark.parametrize("way", ["SIGTERM", "EOF"])
async def test_an_orderly_end_with_a_running_turn_leaves_nothing_to_recover(tmp_path: Path, way: str) -> None:
    import signal

    gate = Gate()
    with FakeLLM(lambda r, n: Reply("so far so good " * 9, hold_after=(3, gate))) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            sid = await made(sidecar)
            with sidecar.client.events(sid) as events:
                await sidecar.client.chat.send(sid, "hold")
                await sidecar.client.chat.send(sid, "queued")
                async for told in events:
                    if told.event.__class__.__name__ == "TextDelta":
                        break
            if way == "SIGTERM":
                os.kill(sidecar.pid, signal.SIGTERM)
                process = sidecar.client.process
                assert process is not None
                with anyio.fail_after(5):
                    assert await process.wait() == 0
        records = assert_log_is_sound(wire_of(tmp_path, sid))
        assert {r["stop_reason"] for r in of_type(records, "turn.end")} == {"cancelled"}
        assert len(of_type(records, "turn.end")) == 2
        gate.open()
        async with again(llm, tmp_path, sid) as (sidecar, recovered):
            assert recovered == []
            texts = json.dumps(await context(sidecar, sid))
            assert "so far" in texts
            assert "queued" in texts
            await sidecar.client.chat.run(sid, "more")
            assert malformed(llm.requests[-1].messages) is None


async def test_the_same_bytes_are_sent_after_a_resume(tmp_path: Path) -> None:
    with FakeLLM(script) as llm:
        sid = await talk(llm, tmp_path)
        last = message_bytes(llm.requests[-1].body)
        async with again(llm, tmp_path, sid) as (sidecar, _):
            await sidecar.client.chat.run(sid, "more")
            assert message_bytes(llm.requests[-1].body)[: len(last)] == last
        last = message_bytes(llm.requests[-1].body)
        drop_checkpoint(wire_of(tmp_path, sid))
        async with again(llm, tmp_path, sid) as (sidecar, _):
            await sidecar.client.chat.run(sid, "even more")
            assert message_bytes(llm.requests[-1].body)[: len(last)] == last
