"""The port of storage: what the sessions need, whatever keeps the bytes. Protocols and frozen values only.

Local files (`record_store.local.LocalStore`) are the default, `record_store.memory.MemoryStore` is for tests, and
`record_store.conformance` checks any of them. An engine in which several machines share the sessions fits as well:

- Who opens a session gets a *lease* with a *fencing token* that is larger than every token handed out before for that
  session. Every append is made under the token of its lease. Once a larger token exists, an append under a smaller
  one is refused (`StaleWriter`) and leaves no trace.
- `append` decides the order and folds; `sync` makes durable. An engine at the far end of a network may learn only in
  `sync` that it was fenced or that there is no space: nothing may be told to a client before `sync` returned.
- A log is lines. Line numbers start at 1, never change, and are the `seq` of a record written on them.

`append`, `read` and the properties are synchronous and quick; everything that may wait is a coroutine and leaves the
event loop free. Everything but `iterate` and what is said to be thread-safe belongs to the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from protocol.info import Recovered, SessionInfo
from protocol.messages import JsonObject
from record_store.errors import (
    InvalidId,
    InvalidQuery,
    RecordRejected,
    SessionExists,
    SessionLocked,
    SessionNotFound,
    StaleWriter,
    StoreError,
    StoreReadError,
    StoreWriteError,
)
from record_store.fold import State
from record_store.records import Metadata, Record

__all__ = [
    "CHECKPOINT_EVERY",
    "COMMIT_WITHIN_S",
    "MAIN_AGENT",
    "Blobs",
    "InvalidId",
    "InvalidQuery",
    "Journal",
    "Lease",
    "Line",
    "LogReader",
    "OnDirty",
    "OpenSession",
    "RecordRejected",
    "SessionExists",
    "SessionLocked",
    "SessionNotFound",
    "SessionPage",
    "SessionStore",
    "StaleWriter",
    "StoreError",
    "StoreReadError",
    "StoreWriteError",
    "StoredSession",
]

MAIN_AGENT = "main"
CHECKPOINT_EVERY = 10_000
"""Records after which `Journal.checkpoint_due` asks for a checkpoint."""

COMMIT_WITHIN_S = 0.05
"""Longest time from an append to its group commit."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write one session. `token` grows with every lease of that session."""

    session_id: str
    token: int
    pid: int
    host: str


class Line(NamedTuple):
    """One physical line: its number, and its bytes without the newline. Not checked, possibly damaged."""

    line: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Newest first (by `updated_at`, then id). `next_cursor` is None on the last page."""

    sessions: tuple[SessionInfo, ...]
    next_cursor: str | None


class LogReader(Protocol):
    """The lines of one agent's log, as they are. Never raises for damage; `StoreReadError` if the medium refuses."""

    @property
    def session_id(self) -> str: ...

    @property
    def agent_id(self) -> str: ...

    @property
    def location(self) -> str:
        """Where a person finds the log: an absolute path, or an address of the engine."""
        ...

    @property
    def last_line(self) -> int:
        """Number of whole lines. Of a reader without a lease: as of when it was made."""
        ...

    @property
    def unfinished(self) -> int:
        """Bytes after the last whole line: a line that is being written, or a torn one. Of a journal: always 0."""
        ...

    def read(self, line: int) -> JsonObject | None:
        """The record on a line, `seq` and `crc` included; None if there is no such line or nothing whole on it.
        Of two records glued on one line it is the first."""
        ...

    def iterate(self, from_line: int = 1, to_line: int | None = None) -> Iterator[Line]:
        """Streams lines, both ends inclusive, in bounded memory. Thread-safe: it sees the lines that were there when
        it was called. Close it (or run it to its end) to free what it holds."""
        ...


class Journal(LogReader, Protocol):
    """One agent's log, open for its single writer."""

    @property
    def state(self) -> State:
        """The fold of all records, of those not yet synced too. Owned by the journal: read it, never change it."""
        ...

    @property
    def lease(self) -> Lease: ...

    @property
    def failed(self) -> bool:
        """The last write or sync failed and none has succeeded since: start no turn. Reading goes on."""
        ...

    @property
    def dirty(self) -> bool:
        """Something was appended that no sync has covered."""
        ...

    @property
    def checkpoint_due(self) -> bool: ...

    def append(self, *records: Record) -> list[int]:
        """Writes the records in one piece and folds them; their lines. All or nothing: on an error no byte of them
        stays in the log, nothing is folded, and `StoreWriteError`, `StaleWriter` or `RecordRejected` is raised.
        (A crash in the middle can leave the first of several records; what belongs together is one record.)
        After a failure it tries again for real, so a success ends `failed`."""
        ...

    def probe(self) -> bool:
        """Whether writing works (again). Cheap while it does; after a failure it tries, and ends `failed` if it can."""
        ...

    async def sync(self) -> None:
        """Returns once all that was appended before the call is on disk. Calls at the same time share one sync.
        Raises `StoreWriteError` if it cannot be known to be there: it stays in the log, is written again by the next
        probe or sync, and must not be told to anyone before one of them succeeded. Cancelling is safe."""
        ...

    async def checkpoint(self) -> None:
        """Syncs, then writes the derived state beside the log. Failing to write it loses nothing and raises nothing;
        failing to sync raises."""
        ...

    async def close(self) -> None:
        """Checkpoint, then let go. Idempotent; what could not be synced raises after everything was freed."""
        ...


class Blobs(Protocol):
    """Raw bytes by their SHA-256 in hex (64 lower-case digits)."""

    async def put(self, data: bytes) -> str:
        """On disk when it returns. The same bytes again cost a look."""
        ...

    def get(self, sha256: str) -> bytes | None:
        """None if it is lost, damaged, or no such hash. Thread-safe."""
        ...


class StoredSession(Protocol):
    """A session as it stands, whoever writes it. Needs no lease and changes nothing."""

    @property
    def session_id(self) -> str: ...

    @property
    def blobs(self) -> Blobs: ...

    async def info(self) -> SessionInfo:
        """From `session.json`; rebuilt from the log if that is lost or damaged."""
        ...

    async def agents(self) -> tuple[str, ...]:
        """Agents that have a log, `main` first."""
        ...

    async def log(self, agent_id: str = MAIN_AGENT) -> LogReader:
        """Its lines as of now. A line that is being written is not there yet. `SessionNotFound` without such a log."""
        ...

    async def state(self, agent_id: str = MAIN_AGENT) -> State:
        """The fold of its lines as of now."""
        ...


class OpenSession(StoredSession, Protocol):
    """A session that this process may write."""

    @property
    def lease(self) -> Lease: ...

    @property
    def recovered(self) -> tuple[Recovered, ...]:
        """What opening the session itself had to mend (`session_file`); each agent's is told by `open_agent`."""
        ...

    async def open_agent(self, agent_id: str) -> tuple[Journal, list[Recovered]]:
        """The agent's log with its state, made empty if there is none (the first append must then be its `metadata`).
        `recovered` lists `torn_tail`, `damaged_line` and `checkpoint`, in that order of lines; empty after a clean
        close. A log that is open already is refused (`SessionLocked`)."""
        ...

    async def save_info(self, info: SessionInfo) -> None:
        """Replaces `session.json`; a session that is `running` is stored as `idle`."""
        ...

    async def close(self) -> None:
        """Closes the journals that are open, then gives the lease back. Idempotent."""
        ...


class SessionStore(Protocol):
    """All sessions of one home."""

    async def create(self, session_id: str, info: SessionInfo, *records: Record) -> OpenSession:
        """A new session whose main log begins with `records` (`metadata` first). It is there whole, on disk, or not
        at all. `SessionExists` if the id is taken."""
        ...

    async def open(self, session_id: str) -> OpenSession:
        """Takes the lease. `SessionLocked` while someone else has it; nothing is waited for."""
        ...

    async def read(self, session_id: str) -> StoredSession:
        """`SessionNotFound` if there is none."""
        ...

    async def list(self, *, cwd: str | None = None, limit: int = 100, cursor: str | None = None) -> SessionPage:
        """Without reading logs, except for sessions whose `session.json` is lost or damaged."""
        ...

    async def delete(self, session_id: str) -> None:
        """Gone at once and for good, also over a crash. `SessionLocked` while someone has it open, we included."""
        ...

    async def fork(
        self, source: str, session_id: str, upto_line: int, metadata: Metadata, info: SessionInfo
    ) -> OpenSession:
        """A new session whose main log is `metadata` (with `forked_from` and `fork_line` filled in) and then lines 2 to
        `upto_line` of the source's, byte for byte, so that line numbers stay true. Logs of sub-agents that were spawned
        in those lines and all blobs go along."""
        ...


OnDirty = Callable[[Journal], None]
"""Called on the loop's thread when a journal that was clean becomes dirty, or a checkpoint becomes due."""
