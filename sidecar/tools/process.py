"""Helper programs of the daemon: Python processes with nothing but the standard library, ended on every way out."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import Process

_PACKAGES = str(Path(__file__).resolve().parents[2])
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from importlib import import_module;"
    " import_module('sidecar.tools.' + sys.argv[2]).main()"
)
_PIECE = 65536


@dataclass(frozen=True, slots=True)
class Answer:
    """What a helper wrote; `exit_code` is None if it had to be ended."""

    output: bytes
    exit_code: int | None


async def ask(
    module: str,
    request: bytes,
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    limit: int,
    pass_fds: Sequence[int] = (),
    grace_s: float = 0.0,
) -> Answer:
    """Runs `sidecar.tools.<module>.main()` in a process of its own with `request` (one line) on its stdin, and
    returns what it wrote, at most `limit` bytes. Its stdin stays open as a lifeline: when it closes, it should end.

    At `timeout_s`, at the limit and on cancellation its lifeline is closed, it has `grace_s` to end by itself, and
    then its process group is killed.
    """
    process = await anyio.open_process(
        [sys.executable, "-I", "-S", "-X", "utf8", "-c", _START, _PACKAGES, module],
        stderr=None,
        env=dict(environment),
        start_new_session=True,
        pass_fds=tuple(pass_fds),
    )
    output = bytearray()
    whole = False
    try:
        with anyio.move_on_after(timeout_s):
            whole = await _converse(process, request, output, limit)
            if whole:
                await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process, 0.0 if whole else grace_s)
    return Answer(bytes(output), process.returncode if whole else None)


async def _converse(process: Process, request: bytes, output: bytearray, limit: int) -> bool:
    """Whether the helper's whole output was read."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(anyio.BrokenResourceError, ConnectionError):
        await process.stdin.send(request + b"\n")
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while len(output) <= limit:
            output += await process.stdout.receive(_PIECE)
        return False
    return True


async def _end(process: Process, grace_s: float) -> None:
    """On return the helper is gone; it is asked first, then killed with its group."""
    assert process.stdin is not None
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
        await process.stdin.aclose()
    if process.returncode is None and grace_s > 0:
        with anyio.move_on_after(grace_s):
            await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
    await process.aclose()
