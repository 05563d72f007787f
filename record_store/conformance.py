"""What any backend must keep, as checks that can be run against it.

A backend brings a `Harness`; every check gets a fresh one and raises `NonConformance` naming what is not kept:

    for check in CHECKS:
        await check(MyHarness())

The checks use nothing but the port and the harness, so they hold for an engine at the far end of a network too: a
refusal may come from `append` or only from `sync`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio
import msgspec
from anyio import to_thread

from protocol.info import SessionInfo
from protocol.messages import Message, TextPart, Usage
from record_store import records as r
from record_store.backend import MAIN_AGENT, Journal, OpenSession, SessionStore
from record_store.errors import (
    InvalidId,
    InvalidQuery,
    RecordRejected,
    SessionExists,
    SessionLocked,
    SessionNotFound,
    StaleWriter,
    StoreError,
)
from record_store.replay import state_at
from record_store.transcript import read_transcript
from record_store.verify import verify


class NonConformance(AssertionError):
    """A promise of the port that the backend does not keep."""


class Harness(Protocol):
    """One home, fresh for every check."""

    async def store(self) -> SessionStore:
        """A handle on the home, as another process or machine would have it: a new one with every call."""
        ...

    async def crash(self, session: OpenSession) -> None:
        """Its holder dies at once. What it did not sync may be lost, from the end; what it did must not be."""
        ...

    async def depose(self, session_id: str) -> None:
        """The lease ends although its holder lives and knows nothing of it: the next `open` succeeds."""
        ...

    async def damage(self, session_id: str, agent_id: str, line: int) -> None:
        """Makes one stored line unreadable without changing how many lines there are. Nobody has the session open."""
        ...


# ---------------------------------------------------------------- material


def info(session_id: str, *, updated_at: int = 1_000, cwd: str = "/work") -> SessionInfo:
    return SessionInfo(
        session_id=session_id, title="A title", cwd=cwd, model="scripted/echo", created_at=1_000,
        updated_at=updated_at, state="idle", turns=0, agents=(MAIN_AGENT,), tools_builtin="none", used=0, window=32_768,
    )  # fmt: skip


def metadata(session_id: str, agent_id: str = MAIN_AGENT) -> r.Metadata:
    return r.Metadata(1_000, 1, session_id, agent_id, 1_000, "0")


def config() -> r.ConfigUpdate:
    return r.ConfigUpdate(1_001, title="A title", cwd="/work", model="scripted/echo", window=32_768)


def message(n: int, text: str | None = None) -> r.AppendMessage:
    """A user message; two with the same number are equal."""
    said = f'message {n}: \u2028 \u4f60\u597d "quoted"\nnext line' if text is None else text
    return r.AppendMessage(2_000 + n, Message(id=f"msg_{n}", role="user", content=(TextPart(said),), time=2_000 + n))


def expect(holds: bool, promise: str) -> None:
    if not holds:
        raise NonConformance(promise)


async def _new(harness: Harness, session_id: str = "one") -> tuple[SessionStore, OpenSession, Journal]:
    store = await harness.store()
    session = await store.create(session_id, info(session_id), metadata(session_id), config())
    journal, recovered = await session.open_agent(MAIN_AGENT)
    expect(not recovered, "a new session has nothing to recover")
    return store, session, journal


async def _again(harness: Harness, session_id: str = "one") -> tuple[OpenSession, Journal]:
    session = await (await harness.store()).open(session_id)
    journal, _ = await session.open_agent(MAIN_AGENT)
    return session, journal


def _same(one: object, other: object) -> bool:
    """Equal byte for byte as they would be stored."""
    return msgspec.json.encode(one) == msgspec.json.encode(other)


async def _refused(*calls: Awaitable[object], by: type[StoreError]) -> bool:
    for call in calls:
        try:
            await call
        except by:
            continue
        return False
    return True


def _texts(journal: Journal) -> list[str]:
    return [entry.message.text for entry in journal.state.entries]


# ---------------------------------------------------------------- order


async def check_order(harness: Harness) -> None:
    _, session, journal = await _new(harness)
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
    _, session, journal = await _new(harness)
    journal.append(r.TurnBegin(3_000, "turn_1"), message(1), r.StepBegin(3_001, "turn_1", 1))
    await journal.checkpoint()
    journal.append(message(2), r.TurnEnd(3_002, "turn_1", "end_turn", Usage()))
    await journal.sync()
    live = msgspec.json.encode(journal.state)
    expect(_same(state_at(journal), journal.state), "the state is the fold of the lines")
    expect(_same(await session.state(), journal.state), "a reader folds the same state")
    await session.close()
    session, journal = await _again(harness)
    expect(msgspec.json.encode(journal.state) == live, "after close and open the state is the same byte for byte")
    await session.close()


async def check_rejected_record(harness: Harness) -> None:
    _, session, journal = await _new(harness)
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
    _, session, journal = await _new(harness)
    journal.append(*(message(n) for n in range(50)))
    expect(journal.dirty, "what was appended is dirty")
    await journal.sync()
    expect(not journal.dirty, "what was synced is not")
    told = _texts(journal)
    journal.append(message(50), message(51))
    await harness.crash(session)
    session, journal = await _again(harness)
    kept = _texts(journal)
    expect(kept[: len(told)] == told, "what was synced is there after a crash")
    every = [message(n).message.text for n in range(52)]
    expect(kept == every[: len(kept)], "what was not is lost from the end only")
    expect(journal.append(message(99)) == [journal.last_line], "and the log goes on after it")
    await session.close()


async def check_concurrent_syncs(harness: Harness) -> None:
    _, session, journal = await _new(harness)

    async def tell(n: int) -> None:
        journal.append(message(n))
        await journal.sync()
        told.append(n)

    told: list[int] = []
    async with anyio.create_task_group() as group:
        for n in range(20):
            group.start_soon(tell, n)
    await harness.crash(session)
    session, journal = await _again(harness)
    expect(len(_texts(journal)) == len(told) == 20, "each of many syncs at once covers its own records")
    await session.close()


async def check_cancelled_sync(harness: Harness) -> None:
    _, session, journal = await _new(harness)
    journal.append(message(1))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await journal.sync()
    await journal.sync()
    await harness.crash(session)
    session, journal = await _again(harness)
    expect(len(_texts(journal)) == 1, "a cancelled sync spoils no later one")
    await session.close()


async def check_create_is_whole(harness: Harness) -> None:
    store, session, _ = await _new(harness)
    await harness.crash(session)
    session, journal = await _again(harness)
    expect(journal.last_line == 2 and journal.state.title == "A title", "create is on disk when it returns")
    expect(_same(await session.info(), info("one")), "its info too")
    await session.close()
    taken = await _refused(store.create("one", info("one"), metadata("one")), by=SessionExists)
    expect(taken, "an id is taken once")
    missing = await _refused(store.open("two"), store.read("two"), store.delete("two"), by=SessionNotFound)
    expect(missing, "what was not created is not found")
    for bad in ("", "..", "a/b", ".hidden", "a" * 129, "a\n", "\u00e9"):
        unsafe = await _refused(store.create(bad, info("x"), metadata("x")), store.read(bad), by=InvalidId)
        expect(unsafe, f"{bad!r} is no id")


# ---------------------------------------------------------------- one writer


async def check_single_writer(harness: Harness) -> None:
    store, session, journal = await _new(harness)
    other = await harness.store()
    for each in (store, other):
        try:
            await each.open("one")
        except SessionLocked as error:
            expect(error.pid == session.lease.pid, "who holds a session is told")
        else:
            raise NonConformance("a session has one writer")
    expect(await _refused(other.delete("one"), by=SessionLocked), "a session that is open is not deleted")
    expect(await _refused(session.open_agent(MAIN_AGENT), by=SessionLocked), "a log is opened once")
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
    _, session, _ = await _new(harness)
    token = session.lease.token
    await harness.crash(session)
    session, _ = await _again(harness)
    expect(session.lease.token > token, "after a crash the session is free at once, under a larger token")
    await session.close()


async def check_fencing(harness: Harness) -> None:
    _, old_session, old = await _new(harness)
    old.append(message(1))
    await old.sync()
    await harness.depose("one")
    new_session, new = await _again(harness)
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
    session, journal = await _again(harness)
    expect("from the stale writer" not in _texts(journal), "nor in the log")
    expect(_texts(journal)[-1] == message(3).message.text, "and its closing disturbs nothing")
    await session.close()


# ---------------------------------------------------------------- reading


async def check_reads_while_writing(harness: Harness) -> None:
    store, session, journal = await _new(harness)
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
    expect(_same(await stored.state(), journal.state), "and folds the same state")
    expect(await _refused(stored.log("nobody"), by=SessionNotFound), "an agent without a log is not found")
    page = await store.list()
    expect([s.session_id for s in page.sessions] == ["one"], "an open session is listed")
    await session.close()


async def check_damage(harness: Harness) -> None:
    store, session, journal = await _new(harness)
    journal.append(*(message(n) for n in range(10)))
    await session.close()
    await harness.damage("one", MAIN_AGENT, 5)
    session = await store.open("one")
    journal, recovered = await session.open_agent(MAIN_AGENT)
    wrong = [x.line for x in recovered if x.kind == "damaged_line"]
    expect(wrong in ([5], []), "only the damaged line is reported")
    expect(len(_texts(journal)) in (9, 10), "only the damaged line is missing, if it had to be read")
    expect(journal.last_line == 12 and journal.read(5) is None, "it stays where it is and is no record")
    expect(journal.append(message(20)) == [13], "a new record's seq is the number of its line")
    await journal.sync()
    (report,) = await verify(session)
    expect([p.line for p in report.problems] == [5] and report.lines == 13, "verify finds it, and nothing else")
    expect(len(await read_transcript(journal)) == 10, "the transcript goes on around it")
    await session.close()


async def check_agents(harness: Harness) -> None:
    _, session, journal = await _new(harness)
    sub, recovered = await session.open_agent("sub-1")
    expect(sub.last_line == 0 and not recovered, "an agent's log begins empty")
    expect(sub.append(metadata("one", "sub-1"), message(1)) == [1, 2], "and has lines of its own")
    journal.append(message(2))
    expect((sub.agent_id, sub.state.agent_id) == ("sub-1", "sub-1"), "it knows its agent")
    await sub.close()
    await session.close()
    session, journal = await _again(harness)
    expect(await session.agents() == (MAIN_AGENT, "sub-1"), "agents that have a log are listed, main first")
    sub, _ = await session.open_agent("sub-1")
    expect(len(_texts(sub)) == 1 and len(_texts(journal)) == 1, "logs do not mix")
    expect(await _refused(session.open_agent("../x"), by=InvalidId), "an agent's id is an id")
    await session.close()


# ---------------------------------------------------------------- sessions


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
    expect(await _refused(store.list(cursor="nonsense"), by=InvalidQuery), "a wrong cursor is refused")


async def check_info(harness: Harness) -> None:
    store, session, _ = await _new(harness)
    new = msgspec.structs.replace(info("one", updated_at=5_000), state="running", title="Another", turns=3)
    await session.save_info(new)
    stored = await (await harness.store()).read("one")
    expect(_same(await stored.info(), msgspec.structs.replace(new, state="idle")), "running is stored as idle")
    expect((await store.list()).sessions[0].title == "Another", "the list shows the new info")
    await session.close()


async def check_delete(harness: Harness) -> None:
    store, session, _ = await _new(harness)
    await session.blobs.put(b"blob")
    await session.close()
    await store.delete("one")
    other = await harness.store()
    expect(await _refused(other.open("one"), other.read("one"), by=SessionNotFound), "a deleted session is gone")
    expect((await other.list()).sessions == (), "from the list too")
    _, session, journal = await _new(harness)
    expect(journal.last_line == 2, "its id is free")
    await session.close()


async def check_fork(harness: Harness) -> None:
    store, session, journal = await _new(harness)
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
    expect(sub.state.session_id == "two" and len(_texts(sub)) == 1, "with their whole logs")
    expect(sub.state.parent_agent_id == MAIN_AGENT, "and their parents")
    expect(copy.blobs.get(blob) == b"a blob", "so do blobs")
    expect([raw for _, raw in journal.iterate()] == source, "the source is as it was")
    expect(all(not report.problems for report in await verify(copy)), "a fork verifies")
    taken = await _refused(store.fork("one", "two", 2, metadata("two"), info("two")), by=SessionExists)
    expect(taken, "a fork takes a free id")
    await copy.close()
    await session.close()


async def check_blobs(harness: Harness) -> None:
    _, session, _ = await _new(harness)
    data = bytes(range(256)) * 100
    name = await session.blobs.put(data)
    expect(await session.blobs.put(data) == name, "the same bytes have the same name")
    await harness.crash(session)
    stored = await (await harness.store()).read("one")
    expect(stored.blobs.get(name) == data, "a blob is on disk when put returns")
    expect(stored.blobs.get("0" * 64) is None, "a blob that is not there is None")
    expect(stored.blobs.get("../session.json") is None and stored.blobs.get("") is None, "so is what is no hash")


CHECKS: tuple[Callable[[Harness], Awaitable[None]], ...] = (
    check_order, check_live_is_replayed, check_rejected_record, check_synced_survives, check_concurrent_syncs,
    check_cancelled_sync, check_create_is_whole, check_single_writer, check_crash_frees, check_fencing,
    check_reads_while_writing, check_damage, check_agents, check_list, check_info, check_delete, check_fork,
    check_blobs,
)  # fmt: skip
