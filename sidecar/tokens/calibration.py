"""How a provider's tokens relate to ours, per model: learned from every request, kept from run to run."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

LEAST, MOST = 0.5, 2.0
"""Bounds of a factor: past them something else is wrong than the tokenizer."""

SMALLEST = 256
"""Requests under this estimate teach nothing: what a provider adds around them outweighs their text."""

WEIGHT = 0.1
"""Share of a new observation once there are ten; before, all observations count the same."""

NOTICEABLE = 0.01
"""A factor that has moved by less since it was stored is not worth a write."""

MAX_MODELS = 1_000

VERSION = 1


class Factor(Struct, frozen=True):
    factor: float
    samples: int


def smoothed(known: Factor | None, estimated: int, observed: int) -> Factor:
    """The factor after one more observation. Pure."""
    ratio = min(MOST, max(LEAST, observed / estimated))
    if known is None:
        return Factor(ratio, 1)
    weight = max(WEIGHT, 1 / (known.samples + 1))
    return Factor(known.factor + weight * (ratio - known.factor), min(known.samples + 1, 1_000_000))


def decoded(raw: bytes) -> dict[str, Factor]:
    """The factors of a file's bytes; what is not right in it is left out. Pure."""
    try:
        document: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    models = document.get("models") if isinstance(document, dict) else None
    found: dict[str, Factor] = {}
    for name, value in models.items() if isinstance(models, dict) else ():
        with suppress(msgspec.ValidationError):
            known = msgspec.convert(value, Factor)
            if LEAST <= known.factor <= MOST and known.samples > 0:
                found[name] = known
    return found


class FileCalibration:
    """The `Calibration` in a JSON file. A file that is missing or damaged is none; it is made anew at the next save.

    `observe` only changes memory; `save` is called when a turn has ended and at the end of the process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._factors = self._read()
        self._stored = {name: known.factor for name, known in self._factors.items()}
        self._changed: set[str] = set()

    def factor(self, model: str) -> float:
        known = self._factors.get(model)
        return known.factor if known is not None else 1.0

    def observe(self, model: str, *, estimated: int, observed: int) -> None:
        if estimated < SMALLEST or observed <= 0:
            return
        now = self._factors[model] = smoothed(self._factors.pop(model, None), estimated, observed)
        if abs(now.factor - self._stored.get(model, 1.0)) >= NOTICEABLE:
            self._changed.add(model)
        while len(self._factors) > MAX_MODELS:
            self._changed.discard(oldest := next(iter(self._factors)))
            self._stored.pop(oldest, None)
            del self._factors[oldest]

    def save(self) -> None:
        """Writes what has changed noticeably, atomically, over what another process may have written since. Never
        raises: what is lost is learned again. Takes well under a millisecond (no sync)."""
        if not self._changed:
            return
        merged = self._read() | {name: self._factors[name] for name in self._changed}
        document = {"version": VERSION, "models": merged}
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(msgspec.json.encode(document))
            os.replace(temporary, self._path)
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            return
        self._stored |= {name: self._factors[name].factor for name in self._changed}
        self._changed.clear()

    def _read(self) -> dict[str, Factor]:
        try:
            return decoded(self._path.read_bytes())
        except OSError:
            return {}
