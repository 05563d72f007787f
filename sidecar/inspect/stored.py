"""Reads a stored session's logs for the report, whoever is writing them."""

from __future__ import annotations

from collections.abc import Iterator

from anyio import to_thread

from protocol.messages import JsonObject
from record_store.backend import LogReader, StoredSession
from record_store.reader import parse
from sidecar.inspect.page import render
from sidecar.inspect.reading import build
from sidecar.settings import Layer


async def page_of(session: StoredSession, configuration: Layer) -> str:
    """The session's page as HTML, made in a thread: 1.5 s for a log of 100,000 records.

    `configuration` is what the process was configured with (file and environment). Raises `StoreReadError`.
    """
    logs = [(agent_id, await session.log(agent_id)) for agent_id in await session.agents()]

    def make() -> str:
        return render(build(((agent_id, _objects(log)) for agent_id, log in logs), configuration=configuration))

    return await to_thread.run_sync(make)


def _objects(log: LogReader) -> Iterator[tuple[int, JsonObject | None]]:
    for line in log.iterate():
        yield line.line, parse(line.raw)
