"""The group commit: everything that no one waited for is synced a moment after it was written."""

from __future__ import annotations

import anyio

from record_store.backend import COMMIT_WITHIN_S, Journal
from record_store.errors import StoreError


class Committer:
    """Syncs journals that became dirty, and writes checkpoints that became due. One per store, run in a task.

    `mark` is the `OnDirty` of the store; it holds at most the journals that are open. A sync that fails is not
    reported here: the journal is then `failed`, and whoever tells a client something syncs for himself.
    """

    def __init__(self, delay_s: float = COMMIT_WITHIN_S / 2) -> None:
        self._delay_s = delay_s
        self._marked: set[Journal] = set()
        self._wake = anyio.Event()

    def mark(self, journal: Journal) -> None:
        """From the loop's thread."""
        self._marked.add(journal)
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled. What is marked then is left to the journals' `close`."""
        while True:
            await self._wake.wait()
            await anyio.sleep(self._delay_s)
            self._wake = anyio.Event()
            marked, self._marked = self._marked, set()
            async with anyio.create_task_group() as group:
                for journal in marked:
                    group.start_soon(_commit, journal)


async def _commit(journal: Journal) -> None:
    try:
        if journal.checkpoint_due:
            await journal.checkpoint()
        else:
            await journal.sync()
    except StoreError:
        pass
