"""What a host that is an editor can lend: the text of its open files, and a terminal. Pure data.

A host that says `files` or `terminal` in its capabilities is asked instead of the disk, or instead of a process of the
daemon's own. Paths are absolute; whether a path or a command is allowed was decided before.
"""

from __future__ import annotations

from protocol.common import Params, Result


class FileReadParams(Params, frozen=True):
    session_id: str
    path: str


class FileReadResult(Result, frozen=True):
    """`text` is null when the host does not have the file: the disk is read then."""

    text: str | None = None


class FileWriteParams(Params, frozen=True):
    session_id: str
    path: str
    text: str


class FileWriteResult(Result, frozen=True):
    """False: the host did not write it, the disk is written then."""

    written: bool


class TerminalRunParams(Params, frozen=True):
    """Run a shell command where the user sees it. The host ends it after `timeout_s`, and when it is told that the
    request is resolved. `output_bytes` is how much of the output's end is wanted."""

    session_id: str
    tool_call_id: str
    command: str
    cwd: str
    timeout_s: float
    output_bytes: int


class TerminalRunResult(Result, frozen=True):
    """`exit_code` is absent when a signal ended it. `truncated` says that the output's beginning is missing."""

    output: str
    exit_code: int | None = None
    signal: str | None = None
    truncated: bool = False
    timed_out: bool = False
