"""Results that are too long for the context: what of them stays, and how the rest is found again. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from protocol.messages import Part, TextPart

HEAD_BYTES = 8_000
TAIL_BYTES = 4_000

_MARK = re.compile(r"^\[spilled tool result \u2014 .*?, \d+ bytes stored .*? blob ([0-9a-f]{64})\]$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Spilled:
    """`content` goes into the context; `stored` is the whole text as UTF-8, to be kept as the blob `blob` (the SHA-256
    of `stored` in hex)."""

    content: tuple[Part, ...]
    stored: bytes
    blob: str


def spill(content: tuple[Part, ...], *, tool: str, line: int, spill_bytes: int) -> Spilled | None:
    """What a result comes to whose record will stand on `line`; None if its text has at most `spill_bytes` bytes.

    The text keeps its first `HEAD_BYTES` and last `TAIL_BYTES` (never over a quarter of `spill_bytes` each) around a
    line that names the bytes stored and the call that reads on: `record_read(line=.., offset=..)`, the offset counted
    in characters of the stored text. Images stay as they are, after it.
    """
    text = "".join(p.text for p in content if isinstance(p, TextPart))
    stored = text.encode("utf-8", "replace")
    if len(stored) <= spill_bytes:
        return None
    head = stored[: min(HEAD_BYTES, spill_bytes // 4)].decode("utf-8", "ignore")
    tail = stored[-min(TAIL_BYTES, spill_bytes // 4) :].decode("utf-8", "ignore")
    blob = hashlib.sha256(stored).hexdigest()
    mark = (
        f"[spilled tool result \u2014 {tool}, {len(stored)} bytes stored in {len(text)} characters;"
        f" read on with record_read(line={line}, offset={len(head)}); blob {blob}]"
    )
    kept = TextPart("\n".join((head.removesuffix("\n"), mark, tail)))
    return Spilled((kept, *(p for p in content if not isinstance(p, TextPart))), stored, blob)


def blob_of(text: str) -> str | None:
    """The blob that a spilled result's text names; None if it is no spilled result."""
    match = _MARK.search(text)
    return match.group(1) if match is not None else None
