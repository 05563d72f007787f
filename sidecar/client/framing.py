"""Frames of a byte stream: one JSON text a line."""

from __future__ import annotations

from anyio.abc import ByteReceiveStream

from sidecar.client.errors import ConnectionLost

READ_SIZE = 1 << 18


class LineReader:
    """Splits at `\\n` only; a line over `max_bytes` ends the connection, for nothing behind it can be trusted."""

    def __init__(self, stream: ByteReceiveStream, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._searched = 0

    async def next(self) -> bytes:
        """The next line without its end, blank ones skipped. Raises what the stream raises at its end."""
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end < 0:
                self._searched = len(self._buffer)
                if self._searched > self._max_bytes:
                    raise ConnectionLost("The daemon sent a frame over the limit")
                self._buffer += await self._stream.receive(READ_SIZE)
                continue
            line = bytes(self._buffer[:end]).strip()
            del self._buffer[: end + 1]
            self._searched = 0
            if line:
                return line
