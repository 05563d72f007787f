"""Checks of logs: order, durability, one writer, reading."""

from __future__ import annotations

import anyio
import msgspec
from anyio import to_thread

from protocol.messages import Usage
from record_store import records as r
from record_store.backend import MAIN_AGENT
from record_store.conformance.kit import (
    Harness,
    NonConformance,
    expect,
    fresh,
    info,
    message,
    metadata,
    refused,
    reopened,
    same,
    texts,
)
from record_store.errors import InvalidId, RecordRejected, SessionExists, SessionLocked, SessionNotFound, StaleWriter
from record_store.replay import state_at
from record_store.transcript import read_transcript
from record_store.verify import verify

# ---------------------------------------------------------------- order


async def check_order(harness: Harness) -> None:
    _, session, journal = await fresh(harness)
    first = journal.append(message(3))
    more = journal.append(message(4), message(5), message(6))
    expect((first, more) == ([3], [4, 5, 6]), "append returns the lines, one after the other")
    expect(journal.append() == [] and journal.last_line == 6, "appending nothing does nothing")
    await journal.sync()
    lines = list(journal.iterate())
    expect([line.line for line in lines] == [1, 2, 3, 4, 5, 6], "iterate gives every line in order")
    for number in range(1, 7):
        record = journal.read(number)
        expect(record is not None and record["seq"] == number, "seq is the number of the line")
    expect(journal.read(0) is None and journal.read(7) is None, "there is nothing before the first and after the last")
    expect([n for n, _ in journal.iterate(2, 4)] == [2, 3, 4], "both ends are inclusive")
    expect([n for n, _ in journal.iterate(5, 99)] == [5, 6], "the end of the log ends a range")
    expect(list(journal.iterate(9)) == [] and list(journal.iterate(4, 3)) == [], "empty ranges are empty")
    expect(b"\n" not in b"".join(raw for _, raw in lines), "no line holds a newline")
    await session.close()


async def check_live_is_replayed(harness: Harness) -> None:
    _, session, journal = await fresh(harness)
    journal.append(r.TurnBegin(3_000, "turn_1"), message(1), r.StepBegin(3_001, "turn_1", 1))
    await journal.checkpoint()
    journal.append(message(2), r.TurnEnd(3_002, "turn_1", "end_turn", Usage()))
    await journal.sync()
    live = msgspec.json.encode(journal.state)
    expect(same(state_at(journal), journal.state), "the state is the fold of the lines")
    expect(same(await session.state(), journal.state), "a reader folds the same state")
    await session.close()
    session, journal = await reopened(harness)
    expect(msgspec.json.encode(journal.state) == live, "after close and open the state is the same byte for byte")
    await session.close()


async def check_rejected_record(harness: Harness) -> None:
    _, session, journal = await fresh(harness)
    before = msgspec.json.encode(journal.state)
    try:
        journal.append(message(1), message(2, "a lone surrogate \ud83d"), message(3))
    except RecordRejected:
        pass
    else:
        raise NonConformance("a record without an encoding is refused")
    expect(journal.last_line == 2 and msgspec.json.encode(journal.state) == before, "and nothing of it stays")
    expect(journal.append(message(1)) == [3], "and the log goes on")
    await session.close()


# ---------------------------------------------------------------- durability


async def check_synced_survives(harness: Harness) -> None:
    _, session, journal = await fresh(harness)
    journal.append(*(message(n) for n in range(50)))
    expect(journal.dirty, "what was appended is dirty")
    await journal.sync()
    expect(not journal.dirty, "what was synced is not")
    told = texts(journal)
    journal.append(message(50), message(51))
    await harness.crash(session)
    session, journal = await reopened(harness)
    kept = texts(journal)
    expect(kept[: len(told)] == told, "what was synced is there after a crash")
    every = [message(n).message.text for n in range(52)]
    expect(kept == every[: len(kept)], "what was not is lost from the end only")
    expect(journal.append(message(99)) == [journal.last_line], "and the log goes on after it")
    await session.close()


async def check_concurrent_syncs(harness: Harness) -> None:
    _, session, journal = await fresh(harness)

    async def tell(n: int) -> None:
        journal.append(message(n))
        await journal.sync()
        told.append(n)

    told: list[int] = []
    async with anyio.create_task_group() as group:
        for n in range(20):
            group.start_soon(tell, n)
    await harness.crash(session)
    session, journal = await reopened(harness)
    expect(len(texts(journal)) == len(told) == 20, "each of many syncs at once covers its own records")
    await session.close()


async def check_cancelled_sync(harness: Harness) -> None:
    _, session, journal = await fresh(harness)
    journal.append(message(1))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await journal.sync()
    await journal.sync()
    await harness.crash(session)
    session, journal = await reopened(harness)
    expect(len(texts(journal)) == 1, "a cancelled sync spoils no later one")
    await session.close()


async def check_create_is_whole(harness: Harness) -> None:
    store, session, _ = await fresh(harness)
    await harness.crash(session)
    session, journal = await reopened(harness)
    expect(journal.last_line == 2 and journal.state.title == "A title", "create is on disk when it returns")
    expect(same(await session.info(), info("one")), "its info too")
    await session.close()
    taken = await refused(store.create("one", info("one"), metadata("one")), by=SessionExists)
    expect(taken, "an id is taken once")
    missing = await refused(store.open("two"), store.read("two"), store.delete("two"), by=SessionNotFound)
    expect(missing, "what was not created is not found")
    for bad in ("", "..", "a/b", ".hidden", "a" * 129, "a\n", "\u00e9"):
        unsafe = await refused(store.create(bad, info("x"), metadata("x")), store.read(bad), by=InvalidId)
        expect(unsafe, f"{bad!r} is no id")


# ---------------------------------------------------------------- one writer


async def check_single_writer(harness: Harness) -> None:
    store, session, journal = await fresh(harness)
    other = await harness.store()
    for each in (store, other):
        try:
            await each.open("one")
        except SessionLocked as error:
            expect(error.pid == session.lease.pid, "who holds a session is told")
        else:
            raise NonConformance("a session has one writer")
    expect(await refused(other.delete("one"), by=SessionLocked), "a session that is open is not deleted")
    expect(await refused(session.open_agent(MAIN_AGENT), by=SessionLocked), "a log is opened once")
    await journal.close()
    await session.close()
    await session.close()
    try:
        journal.append(message(1))
    except StaleWriter:
        pass
    else:
        raise NonConformance("a closed journal takes nothing")
    again = await other.open("one")
    expect(again.lease.token > session.lease.token, "tokens grow")
    await again.close()


async def check_crash_frees(harness: Harness) -> None:
    _, session, _ = await fresh(harness)
    token = session.lease.token
    await harness.crash(session)
    session, _ = await reopened(harness)
    expect(session.lease.token > token, "after a crash the session is free at once, under a larger token")
    await session.close()


async def check_fencing(harness: Harness) -> None:
    _, old_session, old = await fresh(harness)
    old.append(message(1))
    await old.sync()
    await harness.depose("one")
    new_session, new = await reopened(harness)
    expect(new_session.lease.token > old_session.lease.token, "a later lease has a larger token")
    before = new.last_line
    try:
        old.append(message(2, "from the stale writer"))
        await old.sync()
    except StaleWriter:
        pass
    else:
        raise NonConformance("a stale writer is refused")
    expect(new.append(message(3)) == [before + 1], "what it wrote left no trace in the order")
    await new.sync()
    try:
        await old_session.save_info(info("one", updated_at=9))
    except StaleWriter:
        pass
    else:
        raise NonConformance("a stale writer changes no info")
    await old_session.close()
    await new_session.close()
    session, journal = await reopened(harness)
    expect("from the stale writer" not in texts(journal), "nor in the log")
    expect(texts(journal)[-1] == message(3).message.text, "and its closing disturbs nothing")
    await session.close()


# ---------------------------------------------------------------- reading


async def check_reads_while_writing(harness: Harness) -> None:
    store, session, journal = await fresh(harness)
    stored = await (await harness.store()).read("one")
    journal.append(*(message(n) for n in range(300)))
    await journal.sync()
    log = await stored.log()
    seen, size = 0, log.last_line
    expect(size == 302, "a reader sees what was synced")
    for line, raw in log.iterate():
        if seen % 50 == 0:
            journal.append(message(1_000 + seen))
        expect(msgspec.json.decode(raw)["seq"] == line, "lines stay whole while others are written")
        seen += 1
    expect(seen == size == log.last_line, "a reader's log is as of when it was made")
    from_thread = await to_thread.run_sync(lambda: len(list(journal.iterate())))
    expect(from_thread == journal.last_line, "a journal can be read in another thread")
    await journal.sync()
    expect((await stored.log()).last_line == journal.last_line, "a new one sees more")
    expect(same(await stored.state(), journal.state), "and folds the same state")
    expect(await refused(stored.log("nobody"), by=SessionNotFound), "an agent without a log is not found")
    page = await store.list()
    expect([s.session_id for s in page.sessions] == ["one"], "an open session is listed")
    await session.close()


async def check_damage(harness: Harness) -> None:
    store, session, journal = await fresh(harness)
    journal.append(*(message(n) for n in range(10)))
    await session.close()
    await harness.damage("one", MAIN_AGENT, 5)
    session = await store.open("one")
    journal, recovered = await session.open_agent(MAIN_AGENT)
    wrong = [x.line for x in recovered if x.kind == "damaged_line"]
    expect(wrong in ([5], []), "only the damaged line is reported")
    expect(len(texts(journal)) in (9, 10), "only the damaged line is missing, if it had to be read")
    expect(journal.last_line == 12 and journal.read(5) is None, "it stays where it is and is no record")
    expect(journal.append(message(20)) == [13], "a new record's seq is the number of its line")
    await journal.sync()
    (report,) = await verify(session)
    expect([p.line for p in report.problems] == [5] and report.lines == 13, "verify finds it, and nothing else")
    expect(len(await read_transcript(journal)) == 10, "the transcript goes on around it")
    await session.close()


async def check_agents(harness: Harness) -> None:
    _, session, journal = await fresh(harness)
    sub, recovered = await session.open_agent("sub-1")
    expect(sub.last_line == 0 and not recovered, "an agent's log begins empty")
    expect(sub.append(metadata("one", "sub-1"), message(1)) == [1, 2], "and has lines of its own")
    journal.append(message(2))
    expect((sub.agent_id, sub.state.agent_id) == ("sub-1", "sub-1"), "it knows its agent")
    await sub.close()
    await session.close()
    session, journal = await reopened(harness)
    expect(await session.agents() == (MAIN_AGENT, "sub-1"), "agents that have a log are listed, main first")
    sub, _ = await session.open_agent("sub-1")
    expect(len(texts(sub)) == 1 and len(texts(journal)) == 1, "logs do not mix")
    expect(await refused(session.open_agent("../x"), by=InvalidId), "an agent's id is an id")
    await session.close()
