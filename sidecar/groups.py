"""A task group whose single failure comes out as itself, not wrapped in a group of one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


def first_failure(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure that explains the others: the first that is no cancellation."""
    leaves: list[BaseException] = []

    def walk(error: BaseException) -> None:
        if isinstance(error, BaseExceptionGroup):
            for child in error.exceptions:
                walk(child)
        else:
            leaves.append(error)

    walk(group)
    cancelled = anyio.get_cancelled_exc_class()
    return next((e for e in leaves if not isinstance(e, cancelled)), leaves[0])


@asynccontextmanager
async def task_group() -> AsyncIterator[TaskGroup]:
    """Like `anyio.create_task_group()`, but a failure inside is raised as the first one that happened."""
    try:
        async with anyio.create_task_group() as group:
            yield group
    except BaseExceptionGroup as failures:
        raise first_failure(failures) from None
