"""The part of an encoder that is the same in every dialect: what was seen, what is new, where cache marks stand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from protocol.messages import Message
from sidecar.providers.blocks import hash_of
from sidecar.providers.port import EncodedRequest, HasMessage, Prefix, PrefixHashes
from sidecar.providers.transcript import Codec, Transcript, rebuilt


class TranscriptEncoder(ABC):
    """See `port.Encoder`. A dialect adds its codec, its prefix and its head."""

    cache_mark: bytes = b""
    """What is put into a marked message; empty: the dialect has no marks."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._transcript = Transcript(codec)
        self._prefix: Prefix | None = None
        self._hashes = PrefixHashes("", "", "")
        self._rewrites = 0
        self._step_marks: tuple[int, ...] | None = None

    def sync(self, prefix: Prefix, entries: Sequence[HasMessage], rewrites: int) -> PrefixHashes:
        if self._prefix is None or (prefix is not self._prefix and prefix != self._prefix):
            system, tools = self._encode_prefix(prefix)
            self._hashes = PrefixHashes(hash_of(system), hash_of(tools), hash_of(system, b"\x00", tools))
            self._prefix = prefix
        if rewrites != self._rewrites or len(entries) < len(self._transcript):
            self._transcript = rebuilt(self._transcript, self._codec, entries)
            self._rewrites = rewrites
            self._step_marks = None
        else:
            for i in range(len(self._transcript), len(entries)):
                self._transcript.append(entries[i].message)
        return self._hashes

    def request(self, *, max_output_tokens: int | None, suffix: Message | None = None) -> EncodedRequest:
        transcript = self._transcript
        closing = transcript.closing()
        now = (*transcript.marks, *closing.marks)[-2:]
        if suffix is None:
            self._step_marks = now
        marks = now if suffix is None or self._step_marks is None else self._step_marks
        if not self.cache_mark:
            marks = ()
        head, tail = self._head(max_output_tokens)
        size = transcript.tape.size + len(closing.data)
        end = bytearray()
        if suffix is not None:
            end += (b"," if size else b"") + self._codec.user(suffix)
        separator = self._separator if size or end else b""
        body = transcript.tape.chunks(marks, self.cache_mark, closing.data)
        return EncodedRequest(
            chunks=(head + separator, *body, bytes(end) + tail),
            message_count=len(transcript),
            messages_bytes=size,
            messages_hash=transcript.tape.hash_with(closing.data),
        )

    @property
    def _separator(self) -> bytes:
        """What stands between the head and the first message: a comma where the head ends in a message."""
        return b""

    @abstractmethod
    def _encode_prefix(self, prefix: Prefix) -> tuple[bytes, bytes]:
        """Serialises and keeps system prompt and tools; returns the bytes that are hashed."""

    @abstractmethod
    def _head(self, max_output_tokens: int | None) -> tuple[bytes, bytes]:
        """The body up to where the first message goes, and what follows the last one."""
