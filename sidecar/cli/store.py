"""The sessions on disk, for commands that only read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio

from record_store.backend import StoredSession
from record_store.errors import SessionNotFound, StoreError
from record_store.local import LocalStore
from sidecar import settings
from sidecar.errors import Fault
from sidecar.store_errors import store_fault

T = TypeVar("T")


def read(work: Callable[[LocalStore], Awaitable[T]]) -> T:
    """Runs `work` with the store. Storage failures come out as `Fault`."""

    async def run() -> T:
        try:
            return await work(LocalStore(settings.home_directory()))
        except StoreError as error:
            raise store_fault(error) from error

    return anyio.run(run)


async def session(store: LocalStore, session_id: str) -> StoredSession:
    """A stored session; `last` is the newest one."""
    if session_id == "last":
        page = await store.list(limit=1)
        if not page.sessions:
            raise Fault("session_not_found", "There are no sessions yet.")
        session_id = page.sessions[0].session_id
    try:
        return await store.read(session_id)
    except SessionNotFound:
        raise Fault("session_not_found", f"There is no session {session_id!r}.", hint="see sidecar sessions") from None


@contextmanager
def writing_to(path: str) -> Iterator[None]:
    """Around the writing of a file that the user named: what the system says of it comes out as a `Fault`."""
    try:
        yield
    except OSError as error:
        raise Fault("internal", f"{path} cannot be written: {error.strerror}") from None
