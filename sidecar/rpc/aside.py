"""Keeps the real stdin and stdout for frames alone. Imports next to nothing: it runs before everything else."""

from __future__ import annotations

import os


def keep_stdio_aside() -> tuple[int, int]:
    """Private descriptors for reading and writing; 0 then is the null device and 1 is what 2 is.

    No library and no child process can write into the frames or read from them afterwards: the private descriptors
    are not inherited. A descriptor that was closed at start reads as ended and takes what is written to it nowhere.
    """
    null = os.open(os.devnull, os.O_RDWR)
    read_fd = _duplicate(0, null)
    write_fd = _duplicate(1, null)
    os.dup2(null, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(null, 1)
        os.dup2(null, 2)
    if null > 2:
        os.close(null)
    return read_fd, write_fd


def _duplicate(fd: int, null: int) -> int:
    """A copy above the standard three."""
    try:
        copy = os.dup(fd)
    except OSError:
        copy = os.dup(null)
    lower = []
    while copy <= 2:
        lower.append(copy)
        copy = os.dup(copy)
    for unwanted in lower:
        os.close(unwanted)
    return copy
