"""`sidecar.sessions.conversation`: the raw conversation, however many ask for it at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import anyio
import pytest

from protocol.messages import Message, TextPart
from record_store.backend import Journal
from record_store.encoder import encode
from record_store.records import AppendMessage
from sidecar.sessions.conversation import Conversation

pytestmark = pytest.mark.anyio


class SlowLog:
    """Ten messages, read slowly enough that two readers meet."""

    last_line = 10

    def iterate(self, first: int = 1, last: int | None = None) -> Iterator[tuple[int, bytes]]:
        for line in range(first, (last or self.last_line) + 1):
            time.sleep(0.002)
            message = Message(id=f"m{line}", role="user", content=(TextPart(f"text {line}"),), time=1)
            yield line, encode(AppendMessage(time=1, message=message), line).rstrip(b"\n")


async def test_readers_at_once_see_each_message_once() -> None:
    conversation = Conversation(cast(Journal, SlowLog()))
    seen: list[Any] = []

    async def read() -> None:
        seen.append([m.id for m in await conversation.messages()])

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(read)
    assert seen == [[f"m{n}" for n in range(1, 11)]] * 3
