"""Checks of sessions: made, listed, forked, removed."""

from __future__ import annotations

import msgspec

from record_store import records as r
from record_store.backend import MAIN_AGENT
from record_store.conformance.kit import Harness, expect, fresh, info, message, metadata, refused, same, texts
from record_store.errors import InvalidQuery, SessionExists, SessionNotFound
from record_store.verify import verify


async def check_list(harness: Harness) -> None:
    store = await harness.store()
    for n in range(7):
        session_id = f"s{n}"
        opened = await store.create(
            session_id, info(session_id, updated_at=100 * (n // 2), cwd=f"/{n % 2}"), metadata(session_id)
        )
        await opened.close()
    expected = ["s6", "s4", "s5", "s2", "s3", "s0", "s1"]
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list(limit=3, cursor=cursor)
        expect(len(page.sessions) <= 3, "a page is no longer than its limit")
        found += [s.session_id for s in page.sessions]
        cursor = page.next_cursor
        if cursor is None:
            break
    expect(found == expected, "pages hold all sessions, newest first, then by id")
    here = await store.list(cwd="/1")
    expect([s.session_id for s in here.sessions] == ["s5", "s3", "s1"], "a list can be of one directory")
    expect(await refused(store.list(cursor="nonsense"), by=InvalidQuery), "a wrong cursor is refused")


async def check_info(harness: Harness) -> None:
    store, session, _ = await fresh(harness)
    new = msgspec.structs.replace(info("one", updated_at=5_000), state="running", title="Another", turns=3)
    await session.save_info(new)
    stored = await (await harness.store()).read("one")
    expect(same(await stored.info(), msgspec.structs.replace(new, state="idle")), "running is stored as idle")
    expect((await store.list()).sessions[0].title == "Another", "the list shows the new info")
    await session.close()


async def check_delete(harness: Harness) -> None:
    store, session, _ = await fresh(harness)
    await session.blobs.put(b"blob")
    await session.close()
    await store.delete("one")
    other = await harness.store()
    expect(await refused(other.open("one"), other.read("one"), by=SessionNotFound), "a deleted session is gone")
    expect((await other.list()).sessions == (), "from the list too")
    _, session, journal = await fresh(harness)
    expect(journal.last_line == 2, "its id is free")
    await session.close()


async def check_fork(harness: Harness) -> None:
    store, session, journal = await fresh(harness)
    journal.append(r.AgentSpawn(2_000, "sub-1", "turn_1", "call_1", "work"), message(1))
    journal.append(r.AgentSpawn(2_001, "sub-2", "turn_2", "call_2", "later"), message(2))
    for name in ("sub-1", "sub-2"):
        sub, _ = await session.open_agent(name)
        sub.append(r.Metadata(1_000, 1, "one", name, 1_000, "0", parent_agent_id=MAIN_AGENT), message(9))
    blob = await session.blobs.put(b"a blob")
    await journal.sync()
    source = [raw for _, raw in journal.iterate()]
    copy = await store.fork("one", "two", 4, metadata("two"), info("two"))
    forked, recovered = await copy.open_agent(MAIN_AGENT)
    lines = [raw for _, raw in forked.iterate()]
    expect(not recovered and lines[1:] == source[1:4], "lines are copied byte for byte under their numbers")
    first = forked.read(1)
    expect(first is not None and first["session_id"] == "two", "the first line is the fork's own")
    expect(first is not None and (first["forked_from"], first["fork_line"]) == ("one", 4), "and says where it is from")
    expect(forked.append(message(3)) == [5], "the fork goes on by itself")
    expect(await copy.agents() == (MAIN_AGENT, "sub-1"), "agents spawned by then come along, others do not")
    sub, _ = await copy.open_agent("sub-1")
    expect(sub.state.session_id == "two" and len(texts(sub)) == 1, "with their whole logs")
    expect(sub.state.parent_agent_id == MAIN_AGENT, "and their parents")
    expect(copy.blobs.get(blob) == b"a blob", "so do blobs")
    expect([raw for _, raw in journal.iterate()] == source, "the source is as it was")
    expect(all(not report.problems for report in await verify(copy)), "a fork verifies")
    taken = await refused(store.fork("one", "two", 2, metadata("two"), info("two")), by=SessionExists)
    expect(taken, "a fork takes a free id")
    await copy.close()
    await session.close()


async def check_blobs(harness: Harness) -> None:
    _, session, _ = await fresh(harness)
    data = bytes(range(256)) * 100
    name = await session.blobs.put(data)
    expect(await session.blobs.put(data) == name, "the same bytes have the same name")
    await harness.crash(session)
    stored = await (await harness.store()).read("one")
    expect(stored.blobs.get(name) == data, "a blob is on disk when put returns")
    expect(stored.blobs.get("0" * 64) is None, "a blob that is not there is None")
    expect(stored.blobs.get("../session.json") is None and stored.blobs.get("") is None, "so is what is no hash")
