"""A process that writes sessions and is killed for it, again and again.

`python -m tests.support.crash_writer` reads one JSON object a line, `{home, failpoints, seed, steps, first}`, forks a
child for it and answers `{"pid": p}`; the child does what a daemon does with its store (`first` names what it does
first) and tells, one JSON object a line, what a client would have been told. When it is gone, `{"status": s}` follows.
Forking spares each victim the start of Python.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import anyio

from record_store import failpoints
from record_store.backend import MAIN_AGENT, Journal, OpenSession
from record_store.commit import Committer
from record_store.conformance import config, info, message, metadata
from record_store.errors import SessionExists, SessionNotFound, StoreError
from record_store.local import LocalStore


def tell(**what: Any) -> None:
    """Straight to the system: what was said before a kill was said."""
    os.write(1, json.dumps(what).encode() + b"\n")


WEIGHTS = {"tell": 30, "append": 10, "checkpoint": 4, "blob": 4, "info": 3, "end": 3, "fork": 2, "delete": 3}
"""How often a writer does what."""


class Writer:
    """One life. Errors of the store are survived, as a daemon does; nothing is told that failed."""

    def __init__(self, home: Path, seed: int, first: list[str], committer: Committer) -> None:
        self._store = LocalStore(home, on_dirty=committer.mark)
        self._random = random.Random(seed)
        self._number = seed * 10_000
        self._first = first
        self._session: OpenSession | None = None
        self._journal: Journal | None = None

    async def step(self) -> None:
        try:
            if self._journal is None:
                await self._begin()
            else:
                await self._act(self._session, self._journal)
        except StoreError:
            if self._random.random() < 0.3:
                await self.end()

    async def _begin(self) -> None:
        try:
            self._session = await self._store.create("one", info("one"), metadata("one"), config())
            tell(created="one")
        except SessionExists:
            self._session = await self._store.open("one")
        self._journal, _ = await self._session.open_agent(MAIN_AGENT)

    async def _act(self, session: OpenSession | None, journal: Journal) -> None:
        assert session is not None
        match self._first.pop(0) if self._first else self._random.choices(*zip(*WEIGHTS.items(), strict=True))[0]:
            case "tell":
                numbers = [self._next() for _ in range(self._random.randint(1, 4))]
                for number in numbers:
                    journal.append(message(number, "x" * self._random.randint(0, 3_000)))
                await journal.sync()
                tell(told=numbers)
            case "append":
                journal.append(message(self._next()), message(self._next()))
            case "checkpoint":
                await journal.checkpoint()
            case "blob":
                tell(blob=await session.blobs.put(b"%d" % self._next() * 500))
            case "info":
                await session.save_info(info("one", updated_at=self._next()))
            case "end":
                await self.end()
            case "fork":
                await self._fork(journal)
            case _:
                await self._delete()

    async def _fork(self, journal: Journal) -> None:
        name = f"fork-{self._next()}"
        copy = await self._store.fork("one", name, journal.last_line, metadata(name), info(name))
        tell(created=name)
        await copy.close()

    async def _delete(self) -> None:
        page = await self._store.list(limit=5)
        for found in page.sessions:
            if found.session_id != "one":
                tell(deleting=found.session_id)
                try:
                    await self._store.delete(found.session_id)
                except SessionNotFound:
                    pass
                tell(deleted=found.session_id)
                return

    async def end(self) -> None:
        session, self._session, self._journal = self._session, None, None
        if session is not None:
            try:
                await session.close()
            except StoreError:
                pass

    def _next(self) -> int:
        self._number += 1
        return self._number


async def live(home: Path, seed: int, steps: int, first: list[str]) -> None:
    committer = Committer()
    async with anyio.create_task_group() as group:
        group.start_soon(committer.run)
        writer = Writer(home, seed, first, committer)
        for _ in range(steps):
            await writer.step()
        await writer.end()
        group.cancel_scope.cancel()
    tell(done=True)


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                failpoints.set_rules(order.get("failpoints", ""))
                anyio.run(live, Path(order["home"]), order["seed"], order["steps"], order["first"])
                os._exit(0)
            finally:
                os._exit(1)
        tell(pid=child)
        tell(status=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main()
