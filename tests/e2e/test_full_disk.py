"""A disk that is full while a session runs: a named error, nothing half-written, and a session that works again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.client.errors import SidecarError
from tests.support.fake_llm import FakeLLM, Gate, Reply
from tests.support.running import running_sidecar, until
from tests.support.small_disk import mounted
from tests.support.wire import read_records

pytestmark = pytest.mark.anyio


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 4 MiB."""
    with mounted(tmp_path / "disk", "4m") as disk:
        yield disk


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler


async def test_a_full_disk_ends_the_turn_and_space_brings_the_session_back(small_disk: Path) -> None:
    gate = Gate()
    replies = iter([Reply("before"), Reply("lost answer", gate=gate)])
    with FakeLLM(lambda r, n: next(replies, Reply("after"))) as llm:
        async with running_sidecar(llm=llm, home=small_disk) as sidecar:
            client = sidecar.client
            sid = (await client.sessions.create(cwd=str(sidecar.work))).session_id
            await client.chat.run(sid, "one")
            with client.events(sid) as events:
                sent = await client.chat.send(sid, "two")
                await until(lambda: len(llm.requests) == 2, what="the request")
                filler = fill(small_disk)
                gate.open()
                ended = [x.event async for x in events.of_turn(sent.turn_id)][-1]
            assert ended.stop_reason == "error"
            assert ended.error.reason == "store_write_failed"
            before = sidecar.wire(sid).read_bytes()
            assert before.endswith(b"\n")
            with pytest.raises(SidecarError) as refused:
                await client.chat.send(sid, "no room for this")
            assert refused.value.reason == "store_write_failed"
            assert sidecar.wire(sid).read_bytes() == before
            # Reading goes on.
            assert (await client.sessions.messages(sid, view="context")).messages
            os.unlink(filler)
            result = await client.chat.run(sid, "three")
            assert (result.stop_reason, result.text) == ("end_turn", "after")
            texts = [t for _, t in llm.requests[-1].texts]
            assert "two" in texts
            assert "no room for this" not in texts
            verified = await client.records.verify(sid)
            assert verified.ok, verified
            records = read_records(sidecar.wire(sid))
            assert [r["seq"] for r in records] == list(range(1, len(records) + 1))


@pytest.mark.parametrize(("failing", "attempts"), [("log.write=ENOSPC@1-2", 2), ("log.sync=EIO@1", 1)])
async def test_a_session_that_could_not_be_mended_is_resumed_later(tmp_path: Path, failing: str, attempts: int) -> None:
    gate = Gate()
    replies = iter([Reply("before"), Reply("never read", gate=gate)])
    with FakeLLM(lambda r, n: next(replies, Reply("after"))) as llm:
        async with running_sidecar(llm=llm, home=tmp_path) as sidecar:
            sid = (await sidecar.client.sessions.create(cwd=str(sidecar.work))).session_id
            await sidecar.client.chat.run(sid, "one")
            await sidecar.client.chat.send(sid, "two")
            await until(lambda: len(llm.requests) == 2, what="the request")
            await sidecar.kill()
        gate.open()
        async with running_sidecar(llm=llm, home=tmp_path, env={"SIDECAR_FAILPOINTS": failing}) as sidecar:
            client = sidecar.client
            for _ in range(attempts):
                with pytest.raises(SidecarError) as refused:
                    await client.sessions.resume(sid)
                assert refused.value.reason == "store_write_failed"
                with pytest.raises(SidecarError) as refused:
                    await client.chat.send(sid, "too early")
                assert refused.value.reason == "session_closed"
                assert (await client.sessions.messages(sid, view="context")).messages
            await client.sessions.resume(sid)
            assert [r["error"]["reason"] for r in sidecar.records(sid) if r["type"] == "turn.end" and "error" in r] == [
                "restart"
            ]
            assert (await client.chat.run(sid, "three")).text == "after"
            assert "too early" not in str(llm.requests[-1].json)
            assert (await client.records.verify(sid)).ok


async def test_a_session_that_cannot_be_made_whole_is_not_there(tmp_path: Path) -> None:
    with FakeLLM() as llm:
        # The first write of session.json is the one before the session has its name.
        env = {"SIDECAR_FAILPOINTS": "session.write=ENOSPC@2"}
        async with running_sidecar(llm=llm, home=tmp_path, env=env) as sidecar:
            client = sidecar.client
            with pytest.raises(SidecarError) as refused:
                await client.sessions.create(cwd=str(sidecar.work), session_id="mine")
            assert refused.value.reason == "store_write_failed"
            assert not (await client.sessions.list()).sessions
            assert (await client.sessions.create(cwd=str(sidecar.work), session_id="mine")).session_id == "mine"
            assert (await client.chat.run("mine", "hello")).stop_reason == "end_turn"
