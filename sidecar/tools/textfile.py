"""What a file's bytes are as text, and back without loss. Pure; standard library only.

UTF-8 (with or without BOM) and UTF-16 with BOM are text. Bytes that are no UTF-8 are carried as lone surrogates, so
that an edit elsewhere in the file leaves them as they are.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Literal

from sidecar.tools.refusal import Refused

NewLine = Literal["\n", "\r\n", "\r"]

SAMPLE = 8192
"""Bytes that are looked at to tell text from binary data."""

_BOMS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_TEXT_CONTROLS = frozenset(b"\t\n\r\x0b\x0c\x08\x1b")


@dataclass(frozen=True, slots=True)
class Encoding:
    """`codec` is Python's name without BOM, `bom` the bytes in front of the text."""

    codec: str = "utf-8"
    bom: bytes = b""

    @property
    def errors(self) -> str:
        return "surrogateescape" if self.codec == "utf-8" else "surrogatepass"

    @property
    def title(self) -> str:
        """How people call it: `UTF-8`, `UTF-8 with BOM`, `UTF-16 LE`."""
        if self.codec == "utf-8":
            return "UTF-8 with BOM" if self.bom else "UTF-8"
        return "UTF-16 " + self.codec[-2:].upper()


def sniff(head: bytes) -> Encoding | None:
    """The encoding of a file that begins with `head` (at least `SAMPLE` bytes, or all of it); None: it is binary."""
    if head.startswith(_UTF32):
        return None
    for bom, codec in _BOMS:
        if head.startswith(bom):
            return Encoding(codec, bom) if codec != "utf-8" or not _is_binary(head) else None
    return None if _is_binary(head) else Encoding()


def _is_binary(head: bytes) -> bool:
    """A NUL decides; else more than three in ten bytes that no text has."""
    head = head[:SAMPLE]
    if b"\0" in head:
        return True
    if not head:
        return False
    odd = sum(b < 32 and b not in _TEXT_CONTROLS for b in head)
    return odd * 10 > len(head) * 3


@dataclass(frozen=True, slots=True)
class Text:
    """A whole file. `text` has no BOM and the file's own line ends; it may hold surrogates for undecodable bytes."""

    text: str
    encoding: Encoding

    @property
    def newline(self) -> NewLine:
        return newline_of(self.text)


def decode(data: bytes, name: str) -> Text:
    """The whole file as text. Raises `Refused` if `name` is binary."""
    encoding = sniff(data)
    if encoding is None:
        raise binary(name)
    try:
        return Text(data[len(encoding.bom) :].decode(encoding.codec, encoding.errors), encoding)
    except UnicodeDecodeError:
        raise Refused(f"`{name}` ends in the middle of a {encoding.title} character; it may be damaged.") from None


def encode(text: str, encoding: Encoding) -> bytes:
    """The bytes of a file with this text: `decode` the other way round."""
    return encoding.bom + text.encode(encoding.codec, encoding.errors)


def binary(name: str) -> Refused:
    return Refused(f"`{name}` is a binary file (it holds bytes that no text has); it cannot be read or edited as text.")


def newline_of(text: str) -> NewLine:
    """The line end that most lines of the text have; `\\n` if it has none."""
    crlf = text.count("\r\n")
    lf = text.count("\n") - crlf
    if crlf or lf:
        return "\r\n" if crlf > lf else "\n"
    return "\r" if "\r" in text else "\n"


def is_uniform(text: str) -> bool:
    """Whether all lines end alike."""
    crlf = text.count("\r\n")
    return (crlf > 0) + (text.count("\n") > crlf) + (text.count("\r") > crlf) <= 1


def with_newlines(text: str, newline: NewLine) -> str:
    """The text with every `\\r\\n` and `\\n` as `newline`."""
    text = text.replace("\r\n", "\n")
    return text if newline == "\n" else text.replace("\n", newline)
