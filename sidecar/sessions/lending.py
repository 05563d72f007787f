"""Files and terminals that a session's hosts lend: an editor's open buffers, a terminal that its user sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from protocol.editor import (
    FileReadParams,
    FileReadResult,
    FileWriteParams,
    FileWriteResult,
    TerminalRunParams,
    TerminalRunResult,
)
from sidecar.sessions.hosts import Answer, Hosts
from sidecar.tools.port import TerminalOutcome

FILE_WAIT_S = 30.0
"""A host that has not answered by then is not waited for: the disk serves."""

TERMINAL_GRACE_S = 15.0
"""How long over a command's own time limit a host has to end it and to answer."""

T = TypeVar("T")


class HostFiles:
    """A `FileAccess`: the first attached host that lends files, else nothing."""

    def __init__(self, hosts: Hosts, session_id: str) -> None:
        self._hosts = hosts
        self._session_id = session_id

    async def read_text(self, path: Path) -> str | None:
        params = FileReadParams(session_id=self._session_id, path=str(path))
        result = await self._ask("file.read", params, FileReadResult)
        return result.text if result is not None else None

    async def write_text(self, path: Path, text: str) -> bool:
        params = FileWriteParams(session_id=self._session_id, path=str(path), text=text)
        result = await self._ask("file.write", params, FileWriteResult)
        return result is not None and result.written

    async def _ask(self, method: str, params: Any, kind: type[T]) -> T | None:
        answer = await self._hosts.borrow(method, params, lambda c: c.lends_files, timeout_s=FILE_WAIT_S)
        return _read(answer, kind)


class HostTerminal:
    """A `Terminal`: the first attached host that lends one, else nothing."""

    def __init__(self, hosts: Hosts, session_id: str, tool_call_id: str) -> None:
        self._hosts = hosts
        self._session_id = session_id
        self._tool_call_id = tool_call_id

    async def run(self, command: str, *, cwd: Path, timeout_s: float, output_bytes: int) -> TerminalOutcome | None:
        params = TerminalRunParams(
            session_id=self._session_id,
            tool_call_id=self._tool_call_id,
            command=command,
            cwd=str(cwd),
            timeout_s=timeout_s,
            output_bytes=output_bytes,
        )
        answer = await self._hosts.borrow(
            "terminal.run", params, lambda c: c.lends_terminal, timeout_s=timeout_s + TERMINAL_GRACE_S
        )
        if answer is not None and answer.failure in ("timeout", "no_host"):
            # It may have run: running it again here could do everything twice.
            return TerminalOutcome("", None, None, truncated=True, timed_out=True)
        result = _read(answer, TerminalRunResult)
        if result is None:
            return None
        return TerminalOutcome(result.output, result.exit_code, result.signal, result.truncated, result.timed_out)


def _read(answer: Answer | None, kind: type[T]) -> T | None:
    """The result of a host that gave one; what is no such result counts as none."""
    if answer is None or answer.failure is not None:
        return None
    try:
        return msgspec.convert(answer.value, kind, strict=True)
    except msgspec.ValidationError:
        return None
