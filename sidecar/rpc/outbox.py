"""What waits to be written to one host: a bounded queue that merges text deltas when it fills. No I/O.

Sizes are bytes of payload as queued; what the writer has taken counts until it says that it was written.
The queue itself refuses nothing: its owner looks at `size` before it puts.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import anyio

from sidecar.rpc import codec
from sidecar.rpc.framing import Framing, encode
from sidecar.rpc.port import Delta, Limits, SharedEvent

_DELTA_OVERHEAD = 320
"""What a delta takes on the wire, and about in memory, besides its text."""

_PAYLOAD_OVERHEAD = 64
_LARGE_BYTES = 65536
_JOIN_EVERY = 64
"""Merged texts are joined in this many pieces, or the objects would outweigh the characters."""

_Stream = tuple[str, str, str]
"""Agent, message and kind of a run of deltas."""


class _Ready:
    """A message that was serialised before it was queued."""

    __slots__ = ("_payload", "size")

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self.size = len(payload) + _PAYLOAD_OVERHEAD

    def payload(self) -> bytes:
        return self._payload


class _Streamed:
    """A delta, and the texts of those that were merged into it since."""

    __slots__ = ("_delta", "_end", "_fresh", "_texts", "size")

    def __init__(self, delta: Delta) -> None:
        self._delta = delta
        self._texts = [delta.text]
        self._fresh: list[str] = []
        self._end = delta.offset + len(delta.text)
        self.size = len(delta.text) + _DELTA_OVERHEAD

    def continues_with(self, delta: Delta) -> bool:
        return delta.offset == self._end and delta.event_id == self._delta.event_id

    def merge(self, delta: Delta) -> int:
        """Appends the text; how many bytes more that is."""
        self._fresh.append(delta.text)
        self._end += len(delta.text)
        if len(self._fresh) == _JOIN_EVERY:
            self._texts.append("".join(self._fresh))
            self._fresh.clear()
        self.size += len(delta.text)
        return len(delta.text)

    def payload(self) -> bytes:
        delta = self._delta
        params: dict[str, Any] = {
            "session_id": delta.session_id,
            "agent_id": delta.agent_id,
            "event_id": delta.event_id,
            "event": {
                "type": delta.kind,
                "message_id": delta.message_id,
                "text": "".join(self._texts + self._fresh),
                "offset": delta.offset,
            },
        }
        if delta.turn_id is not None:
            params["turn_id"] = delta.turn_id
        return codec.notification("agent.chat.event", params)


class Outbox:
    """The queue of one connection. `limits` may change at any time."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # bounded: by bytes; past the hard limit a socket peer is dropped and a stdio producer waits
        self._queue: deque[_Ready | _Streamed] = deque()
        self._queued = 0
        self._taken = 0
        # bounded: by the queue, and by what one write takes of it
        self._large: deque[int] = deque()
        """Sizes of the whole frames that are large, in their order, taken ones first."""
        self._large_taken = 0
        self._streams: dict[str, dict[_Stream, _Streamed]] = {}
        self._filled = anyio.Event()
        self._drained = anyio.Event()
        self.released = False

    @property
    def size(self) -> int:
        return self._queued + self._taken

    @property
    def backlog(self) -> int:
        """What waits besides the largest whole frame: a host that reads is not slow because one frame is large."""
        return self.size - max(self._large, default=0)

    def put(self, payload: bytes) -> None:
        self._append(_Ready(payload))

    def put_event(self, event: Delta | SharedEvent) -> None:
        """Keeps the order of each session's events; a delta may join an earlier one of the same message."""
        if isinstance(event, SharedEvent):
            self._streams.pop(event.session_id, None)
            self._append(_Ready(event.payload))
            return
        streams = self._streams.setdefault(event.session_id, {})
        key = (event.agent_id, event.message_id, event.kind)
        waiting = streams.get(key)
        if waiting is not None and self.size >= self.limits.outbox_soft_bytes and waiting.continues_with(event):
            self._queued += waiting.merge(event)
            return
        streams[key] = item = _Streamed(event)
        self._append(item)

    def _append(self, item: _Ready | _Streamed) -> None:
        self._queue.append(item)
        self._queued += item.size
        if _is_large(item):
            self._large.append(item.size)
        self._filled.set()

    async def wait_filled(self) -> None:
        """Returns when there is something to take."""
        while not self._queue:
            self._filled = anyio.Event()
            await self._filled.wait()

    def take(self, framing: Framing | None, at_most: int) -> bytes:
        """The next frames, whole, joined up to about `at_most` bytes. What is taken is merged into no more."""
        frames: list[bytes] = []
        length = 0
        self._streams.clear()
        while self._queue and length < at_most:
            item = self._queue.popleft()
            self._queued -= item.size
            self._taken += item.size
            self._large_taken += _is_large(item)
            frames.append(encode(framing, item.payload()))
            length += len(frames[-1])
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def written(self) -> None:
        """All that was taken has left."""
        self._taken = 0
        for _ in range(self._large_taken):
            self._large.popleft()
        self._large_taken = 0
        self._wake()

    async def wait_under(self, size: int) -> None:
        """Returns when less than `size` waits, or `release` was called."""
        while self.size >= size and not self.released:
            await self._drained.wait()

    async def wait_empty(self) -> None:
        """Returns when all that was put has been written, or was discarded."""
        while self.size:
            await self._drained.wait()

    def release(self) -> None:
        """Nobody waits for room from now on: the daemon ends."""
        self.released = True
        self._wake()

    def discard(self) -> None:
        """Nothing of it will ever be written: the host is gone."""
        self._queue.clear()
        self._streams.clear()
        self._large.clear()
        self._queued = self._taken = self._large_taken = 0
        self.release()

    def _wake(self) -> None:
        waiting, self._drained = self._drained, anyio.Event()
        waiting.set()


def _is_large(item: _Ready | _Streamed) -> bool:
    return isinstance(item, _Ready) and item.size >= _LARGE_BYTES
