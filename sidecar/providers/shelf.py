"""Blobs that the next request needs, read and turned into base64 in a thread before it is made."""

from __future__ import annotations

from collections.abc import Iterable

import anyio

from protocol.messages import ImagePart, Message
from sidecar.base64text import encode
from sidecar.providers.port import BlobReader

MAX_CHARS = 64 << 20
"""Base64 that is held at once; what is beyond it is read when it is needed."""

HEAD_BYTES = 64 << 10


class BlobShelf:
    """A `BlobReader` that may have the answer ready. `fetch` fills it, `clear` empties it once the bytes are used."""

    def __init__(self, read: BlobReader) -> None:
        self._read = read
        self._ready: dict[str, tuple[bytes, str]] = {}
        self._chars = 0

    def __call__(self, sha256: str) -> bytes | None:
        return self._read(sha256)

    def head(self, sha256: str) -> bytes | None:
        """The first bytes, or all of them."""
        ready = self._ready.get(sha256)
        return self._read(sha256) if ready is None else ready[0]

    def base64(self, sha256: str) -> str | None:
        """None if the blob is lost."""
        ready = self._ready.get(sha256)
        if ready is not None:
            return ready[1]
        raw = self._read(sha256)
        return None if raw is None else encode(raw)

    async def fetch(self, messages: Iterable[Message]) -> None:
        """On return the blobs of these messages are ready, as far as they fit. Can be cancelled at any point."""
        wanted = {p.blob: None for m in messages for p in m.content if isinstance(p, ImagePart) and p.blob is not None}
        for sha256 in wanted:
            if sha256 in self._ready or self._chars >= MAX_CHARS:
                continue
            found = await anyio.to_thread.run_sync(self._load, sha256, abandon_on_cancel=True)
            if found is not None:
                self._ready[sha256] = found
                self._chars += len(found[1])

    def clear(self) -> None:
        self._ready.clear()
        self._chars = 0

    def _load(self, sha256: str) -> tuple[bytes, str] | None:
        raw = self._read(sha256)
        return None if raw is None else (raw[:HEAD_BYTES], encode(raw))
