"""The child of `matching`: tries one pattern on texts until its input ends. Run by path, imports nothing of ours.

In: a number of texts, then each text, numbers being 32 bits, little-endian; the first text is the pattern. Out: one
byte for each text, 1 for a match (for the pattern: 1 if it is one).
"""

from __future__ import annotations

import re
import struct
import sys


def main() -> None:
    pattern = None
    while texts := _receive():
        if pattern is None:
            try:
                pattern = re.compile(texts[0], re.IGNORECASE | re.MULTILINE)
            except (re.error, OverflowError, RecursionError):
                _answer(b"\0")
                return
            _answer(b"\1")
        else:
            _answer(bytes(pattern.search(text) is not None for text in texts))


def _receive() -> list[str]:
    head = sys.stdin.buffer.read(4)
    if len(head) < 4:
        return []
    return [_text() for _ in range(struct.unpack("<I", head)[0])]


def _text() -> str:
    size = struct.unpack("<I", sys.stdin.buffer.read(4))[0]
    return sys.stdin.buffer.read(size).decode("utf-8", "surrogatepass")


def _answer(answer: bytes) -> None:
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
