"""The event log from outside: its bytes while a real daemon works, when they are on disk, and who may write them."""

from __future__ import annotations

import base64
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import anyio
import pytest

from protocol.messages import ImagePart, TextPart
from sidecar.client.errors import SidecarError
from sidecar.client.host import HostCall, host_tool
from tests.support.fake_llm import FakeLLM, Gate, Reply, call
from tests.support.log_editor import PNG, assert_log_is_sound, lines_of
from tests.support.running import Sidecar, running_sidecar, until
from tests.support.wire import malformed, message_bytes, of_type

pytestmark = pytest.mark.anyio


@host_tool("look", "Looks.", {"n": {"type": "integer"}})
async def look(call: HostCall) -> str:
    return f"seen {call.arguments['n']}"


SUMMARY = "<summary>\nThe user asked for many things and all of them were done; the tools were asked twice.\n</summary>"


def picture(size: int = 0) -> ImagePart:
    """A PNG; with `size`, so many bytes of data after it (which readers of PNG ignore)."""
    return ImagePart(media_type="image/png", data=base64.b64encode(base64.b64decode(PNG) + bytes(size)).decode())


def script(request: dict[str, Any], n: int) -> Reply:
    last = request["messages"][-1]
    text = json.dumps(last.get("content"))
    if "<summary>" in text or "summary" in text.lower():
        return Reply(SUMMARY)
    if last["role"] == "tool":
        return Reply(f"answer {n}")
    if "tools please" in text:
        return Reply("looking", tool_calls=[call("look", {"n": n}, f"a{n}"), call("look", {"n": n + 1}, f"b{n}")])
    return Reply(f"plain {n} ä€😀", reasoning="thought" if n % 2 else "")


async def refused(awaitable: Any) -> SidecarError:
    with pytest.raises(SidecarError) as caught:
        await awaitable
    return caught.value


async def context(sidecar: Sidecar, sid: str, view: str = "context") -> Any:
    found: list[Any] = []
    cursor = None
    while True:
        params = {"session_id": sid, "view": view, **({"cursor": cursor} if cursor else {})}
        page = await sidecar.client.call("agent.session.messages", params)
        found += page["messages"]
        cursor = page.get("next_cursor")
        if cursor is None:
            return found


async def made(sidecar: Sidecar, **more: Any) -> str:
    return (await sidecar.client.sessions.create(cwd=str(sidecar.work), **more)).session_id


class Grows:
    """No byte of a whole log is ever changed: what is there now begins with what was there before."""

    def __init__(self, path: Path) -> None:
        self.path, self.seen = path, b""

    def check(self, what: str) -> None:
        now = self.path.read_bytes()
        assert now.startswith(self.seen), f"{what} changed bytes that were written"
        self.seen = now


async def test_everything_is_there_when_create_answers() -> None:
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sid = await made(sidecar, title="Größe", config={"tools": {"builtin": "read"}}, tools=[look])
            records = assert_log_is_sound(sidecar.wire(sid))
            assert [r["type"] for r in records[:3]] == ["metadata", "config.update", "tools.snapshot"]
            assert (records[0]["session_id"], records[0]["agent_id"]) == (sid, "main")
            assert (records[1]["title"], records[1]["cwd"]) == ("Größe", str(sidecar.work))
            folder = sidecar.home / "sessions" / sid
            assert json.loads((folder / "session.json").read_text())["title"] == "Größe"
            await sidecar.client.chat.send(sid, [TextPart("see"), picture(9000)])
            for path in (folder, *folder.rglob("*")):
                mode = stat.S_IMODE(path.stat().st_mode)
                assert mode == (0o700 if path.is_dir() else 0o600), f"{path}: {mode:o}"
            assert stat.S_IMODE((sidecar.home / "sessions").stat().st_mode) == 0o700


async def test_every_operation_only_appends_and_every_line_is_sound() -> None:
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            client = sidecar.client
            sid = await made(sidecar, tools=[look])
            log = Grows(sidecar.wire(sid))
            steps: dict[str, Any] = {
                "a turn": lambda: client.chat.run(sid, "hello"),
                "tools": lambda: client.chat.run(sid, "tools please"),
                "an image": lambda: client.chat.run(sid, [TextPart("look"), picture(6000)]),
                "undo": lambda: client.chat.undo(sid),
                "steer": lambda: client.chat.steer(sid, "steered"),
                "title": lambda: client.sessions.configure(sid, title="named"),
                "config": lambda: client.sessions.configure(sid, config={"loop_control": {"max_steps": 9}}),
                "much": lambda: client.chat.run(sid, "word " * 6000),
                "more": lambda: client.chat.run(sid, "word " * 2000),
                "compact": lambda: client.chat.compact(sid),
                "fork": lambda: client.sessions.fork(sid),
                "clear": lambda: client.chat.clear(sid),
                "after clear": lambda: client.chat.run(sid, "again"),
                "close": lambda: client.sessions.close(sid),
                "resume": lambda: client.sessions.resume(sid, tools=[look]),
                "after resume": lambda: client.chat.run(sid, "tools please"),
            }
            for what, step in steps.items():
                await step()
                while (await client.sessions.get(sid)).state == "running":
                    await anyio.sleep(0.01)
                log.check(what)
            await client.sessions.close(sid)
            log.check("the end")
            assert_log_is_sound(sidecar.wire(sid))
            for path in sidecar.home.rglob("wire.jsonl"):
                assert_log_is_sound(path)


async def test_a_turn_s_end_is_in_the_log_before_it_is_told() -> None:
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sid = await made(sidecar)
            with sidecar.client.events(sid) as events:
                for n in range(5):
                    sent = await sidecar.client.chat.send(sid, f"one {n}")
                    assert f"one {n}".encode() in sidecar.wire(sid).read_bytes()
                    async for told in events.of_turn(sent.turn_id):
                        if told.event.__class__.__name__ == "TurnEnded":
                            ends = of_type(sidecar.records(sid), "turn.end")
                            assert ends[-1]["turn_id"] == sent.turn_id
                            assert {"turn_id", "stop_reason", "usage"} <= set(ends[-1])


async def test_an_input_that_was_acknowledged_outlives_a_kill(tmp_path: Path) -> None:
    """Sent while a turn runs, killed right after the reply: each is in the context, each with its turn's end."""
    gate = Gate()
    with FakeLLM(lambda r, n: Reply("x", gate=gate)) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            sid = await made(sidecar)
            turns = [
                (await sidecar.client.chat.send(sid, f"input-{n}", client_message_id=f"m{n}")).turn_id for n in range(4)
            ]
            await sidecar.kill()
        gate.open()
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            recovered = (await sidecar.client.sessions.resume(sid)).recovered
            assert {r.kind for r in recovered} == {"open_turn"}
            texts = [m["content"][0]["text"] for m in await context(sidecar, sid) if m["role"] == "user"]
            assert [t for t in texts if t.startswith("input-")] == [f"input-{n}" for n in range(4)]
            ends = {r["turn_id"]: r for r in of_type(sidecar.records(sid), "turn.end")}
            for turn_id in turns:
                assert (ends[turn_id]["stop_reason"], ends[turn_id]["error"]["reason"]) == ("error", "restart")
            for n, turn_id in enumerate(turns):
                again = await sidecar.client.chat.send(sid, f"input-{n}", client_message_id=f"m{n}")
                assert again.turn_id == turn_id
            assert not llm.requests
            result = await sidecar.client.chat.run(sid, "go on")
            assert result.stop_reason == "end_turn"
            assert malformed(llm.requests[-1].messages) is None
            assert_log_is_sound(sidecar.wire(sid))
            assert (await sidecar.client.records.verify(sid)).ok


@pytest.mark.skipif(shutil.which("strace") is None, reason="NOT CHECKED: no strace")
async def test_inputs_and_ends_are_synced_before_they_are_told(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm, home=tmp_path / "home") as sidecar:
            sid = await made(sidecar)
            strace = await anyio.open_process(
                ["strace", "-f", "-y", "-s", "4096", "-e", "trace=write,writev,pwrite64,fsync,fdatasync,sendto,sendmsg",
                 "-o", str(trace), "-p", str(sidecar.pid)],
                stdin=None, stdout=None, stderr=-1,
            )  # fmt: skip
            assert strace.stderr is not None
            if b"attached" not in await strace.stderr.receive():
                pytest.skip("NOT CHECKED: strace may not attach here")
            await sidecar.client.chat.run(sid, "first")
            with sidecar.client.events(sid) as events:
                sent = await sidecar.client.chat.send(sid, "needle")
                async for _ in events.of_turn(sent.turn_id):
                    pass
            strace.terminate()
            await strace.wait()
        calls = trace.read_text(errors="replace").split("\n")

        def at(*parts: str, after: int = 0) -> int:
            return next(i for i, line in enumerate(calls) if i >= after and all(p in line for p in parts))

        written = at("wire.jsonl", "needle", "write")
        synced = at("wire.jsonl", "sync(", after=written)
        told = at("write", '\\"result\\":{\\"turn_id\\"', sent.turn_id)
        assert written < synced < told
        ended = at("wire.jsonl", "turn.end", "write", after=written)
        synced = at("wire.jsonl", "sync(", after=ended)
        told = at("turn_ended", "write", sent.turn_id)
        assert ended < synced < told


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_model_that_nobody_chose_is_told_after_a_rebuild_too(tmp_path: Path, turns: int) -> None:
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            sid = await made(sidecar)
            for n in range(turns):
                await sidecar.client.chat.run(sid, f"hello {n}")
            before = await sidecar.client.sessions.get(sid)
            assert before.model == "openai/fake-model"
        (tmp_path / "sessions" / sid / "session.json").unlink()
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            assert (await sidecar.client.sessions.get(sid)).model == before.model
            assert (await sidecar.client.sessions.list()).sessions[0].model == before.model
            assert (await sidecar.client.sessions.get(sid)).title == before.title


@pytest.mark.parametrize("damage", ["gone", "garbage", "edited", "empty"])
async def test_a_lost_session_file_is_rebuilt_from_the_log(tmp_path: Path, damage: str) -> None:
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            sid = await made(sidecar, title="first", model="openai/fake-model")
            await sidecar.client.chat.run(sid, "hello")
            await sidecar.client.sessions.configure(sid, title="the title")
            before = await sidecar.client.sessions.get(sid)
        file = tmp_path / "sessions" / sid / "session.json"
        if damage == "gone":
            file.unlink()
        else:
            text = file.read_bytes()
            file.write_bytes(
                {"garbage": b"\0\xff{", "empty": b"", "edited": text.replace(b"the title", b"forged!!!")}[damage]
            )
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            listed = (await sidecar.client.sessions.list()).sessions
            assert [(s.session_id, s.title, s.cwd, s.model) for s in listed] == [
                (sid, "the title", before.cwd, before.model)
            ]
            found = await sidecar.client.sessions.resume(sid)
            assert [r.kind for r in found.recovered] == ["session_file"]
            assert (found.session.title, found.session.turns) == ("the title", 1)
            assert json.loads(file.read_bytes())["title"] == "the title"
            await sidecar.client.sessions.close(sid)
            assert (await sidecar.client.sessions.resume(sid)).recovered == ()


async def test_a_list_reads_no_logs(tmp_path: Path) -> None:
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            sids = [await made(sidecar, title=f"t{n}") for n in range(3)]
            await sidecar.client.chat.run(sids[0], "hello")
        for sid in sids:
            wire = tmp_path / "sessions" / sid / "agents" / "main" / "wire.jsonl"
            wire.unlink()
            os.mkfifo(wire)  # whoever opens it to read waits for ever
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            with anyio.fail_after(10):
                listed = (await sidecar.client.sessions.list()).sessions
            assert sorted(s.session_id for s in listed) == sorted(sids)


async def test_blobs_are_raw_bytes_by_hash_and_a_lost_one_is_a_pointer(tmp_path: Path) -> None:
    import hashlib

    image = picture(9000)
    raw = base64.b64decode(image.data or "")
    name = hashlib.sha256(raw).hexdigest()
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            sid = await made(sidecar)
            await sidecar.client.chat.run(sid, [TextPart("see"), image])
            await sidecar.client.chat.run(sid, [TextPart("small"), picture()])
            blob = tmp_path / "sessions" / sid / "blobs" / name
            assert blob.read_bytes() == raw
            assert [p.name for p in blob.parent.iterdir()] == [name]
            wire = sidecar.wire(sid).read_bytes()
            assert name.encode() in wire
            assert (image.data or "")[:400].encode() not in wire
            assert (image.data or "") in llm.requests[0].body.decode()
        blob.unlink()
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            assert (await sidecar.client.sessions.resume(sid)).recovered == ()
            result = await sidecar.client.chat.run(sid, "and now")
            assert result.stop_reason == "end_turn"
            body = llm.requests[-1].body.decode()
            assert (image.data or "") not in body
            assert malformed(llm.requests[-1].messages) is None
            assert len(llm.requests[-1].messages) == 6


async def test_two_processes_race_for_one_session(tmp_path: Path) -> None:
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as first:
            sid = await made(first)
            await first.client.chat.run(sid, "hello")
            pid = first.pid
            async with running_sidecar(llm=llm, home=tmp_path) as second:
                before = first.wire(sid).read_bytes()
                error = await refused(second.client.sessions.resume(sid))
                assert (error.code, error.reason, error.data["pid"]) == (-32021, "session_locked", pid)
                assert (await refused(second.client.sessions.delete(sid))).reason == "session_locked"
                assert (await refused(second.client.chat.send(sid, "x"))).reason == "session_closed"
                # Reading goes on next to the writer.
                assert len(await context(second, sid)) == len(await context(first, sid))
                assert (await second.client.records.verify(sid)).ok
                assert first.wire(sid).read_bytes() == before
                await first.kill()
                with anyio.fail_after(5):
                    await second.client.sessions.resume(sid)
                assert (await second.client.chat.run(sid, "mine now")).stop_reason == "end_turn"
        results: list[str] = []
        async with running_sidecar(llm=llm, home=tmp_path) as one, running_sidecar(llm=llm, home=tmp_path) as two:

            async def attempt(sidecar: Sidecar) -> None:
                try:
                    await sidecar.client.sessions.resume(sid)
                    results.append("got")
                except SidecarError as error:
                    results.append(error.reason)

            async with anyio.create_task_group() as group:
                group.start_soon(attempt, one)
                group.start_soon(attempt, two)
        assert sorted(results) == ["got", "session_locked"]
        assert_log_is_sound(first.wire(sid))


async def test_idle_sessions_are_unloaded_and_go_on_with_their_host(tmp_path: Path) -> None:
    with FakeLLM(script) as llm:
        config = "[server]\nidle_unload_s = 0.2\n"
        async with running_sidecar(llm=llm, config=config) as sidecar:
            sid = await made(sidecar, tools=[look])
            await sidecar.client.chat.run(sid, "hello")
            before = await context(sidecar, sid)
            checkpoint = sidecar.wire(sid).parent / "checkpoint.json"
            await until(checkpoint.exists, timeout=20, what="the unloading")
            assert (await sidecar.client.sessions.get(sid)).state == "idle"
            assert await context(sidecar, sid) == before
            with sidecar.client.events(sid) as events:
                sent = await sidecar.client.chat.send(sid, "tools please")
                kinds = [told.event.__class__.__name__ async for told in events.of_turn(sent.turn_id)]
            assert (kinds[0], kinds[-1]) == ("TurnStarted", "TurnEnded")
            results = [m["content"][0]["text"] for m in await context(sidecar, sid) if m["role"] == "tool"]
            assert all(r.startswith("seen ") for r in results)
            assert len(results) == 2
            assert message_bytes(llm.requests[1].body)[: len(message_bytes(llm.requests[0].body))] == (
                message_bytes(llm.requests[0].body)
            )
            assert_log_is_sound(sidecar.wire(sid))


async def test_delete_leaves_nothing_and_reading_works_on_stored_sessions(tmp_path: Path) -> None:
    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            sid = await made(sidecar, tools=[look], title="kept")
            gone = await made(sidecar)
            await sidecar.client.chat.run(sid, "tools please")
            await sidecar.client.chat.run(gone, "secret-word")
            await sidecar.client.sessions.delete(gone)
            before = await context(sidecar, sid), await context(sidecar, sid, "full")
        for path in tmp_path.rglob("*"):
            assert not path.is_file() or b"secret-word" not in path.read_bytes(), path
        wire = lines_of(sidecar.wire(sid))
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            client = sidecar.client
            assert (await client.sessions.get(sid)).title == "kept"
            assert (await context(sidecar, sid), await context(sidecar, sid, "full")) == before
            assert [r.line for r in (await client.records.query(sid, limit=1000)).records] == list(
                range(1, len(wire) + 1)
            )
            row = (await client.records.query(sid, from_line=5, to_line=5)).records[0]
            assert row.record == json.loads(wire[4])
            assert (await client.records.verify(sid)).ok
            assert (await client.context.get(sid)).used > 0
            error = await refused(client.chat.send(sid, "x"))
            assert (error.code, error.reason) == (-32023, "session_closed")
            assert "resume" in error.data["hint"]
            assert (await refused(client.sessions.get(gone))).code == -32020
            assert (await refused(client.sessions.resume(gone))).code == -32020
            assert lines_of(sidecar.wire(sid)) == wire
