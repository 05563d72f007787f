"""What the checks are made of: the harness of a backend, sample records, ways to say that a promise is broken."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

import msgspec

from protocol.info import SessionInfo
from protocol.messages import Message, TextPart
from record_store import records as r
from record_store.backend import MAIN_AGENT, Journal, OpenSession, SessionStore
from record_store.errors import StoreError


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


async def fresh(harness: Harness, session_id: str = "one") -> tuple[SessionStore, OpenSession, Journal]:
    store = await harness.store()
    session = await store.create(session_id, info(session_id), metadata(session_id), config())
    journal, recovered = await session.open_agent(MAIN_AGENT)
    expect(not recovered, "a new session has nothing to recover")
    return store, session, journal


async def reopened(harness: Harness, session_id: str = "one") -> tuple[OpenSession, Journal]:
    session = await (await harness.store()).open(session_id)
    journal, _ = await session.open_agent(MAIN_AGENT)
    return session, journal


def same(one: object, other: object) -> bool:
    """Equal byte for byte as they would be stored."""
    return msgspec.json.encode(one) == msgspec.json.encode(other)


async def refused(*calls: Awaitable[object], by: type[StoreError]) -> bool:
    for call in calls:
        try:
            await call
        except by:
            continue
        return False
    return True


def texts(journal: Journal) -> list[str]:
    return [entry.message.text for entry in journal.state.entries]
