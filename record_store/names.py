"""Where things lie in a home directory, and which ids may become file names. Pure: no I/O.

    <home>/sessions/<session_id>/session.json
                                 lock
                                 agents/<agent_id>/wire.jsonl
                                                   wire.jsonl.torn-<n>
                                                   checkpoint.json
                                 blobs/<sha256>

Names that begin with a dot are ours in passing: `.new-*` is a session that is being made, `.deleted-*` one that is
being removed, `*.tmp` a file that is being written.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from record_store.errors import InvalidId

LOG = "wire.jsonl"
CHECKPOINT = "checkpoint.json"
SESSION = "session.json"
LOCK = "lock"
STAGED = ".new-"
DELETED = ".deleted-"

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_WINDOWS_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


def check_id(value: str) -> str:
    """The id, if it is safe as a file name here; else `InvalidId`."""
    if not is_id(value):
        raise InvalidId("an id has 1 to 128 letters, digits, dots, dashes and underscores, and begins with no sign")
    return value


def is_id(value: str) -> bool:
    if _ID.fullmatch(value) is None:
        return False
    return sys.platform != "win32" or not (value.endswith(".") or _WINDOWS_DEVICE.fullmatch(value))


def is_sha256(value: str) -> bool:
    return _SHA256.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class SessionPaths:
    """The files of one session."""

    root: Path

    @property
    def info(self) -> Path:
        return self.root / SESSION

    @property
    def lock(self) -> Path:
        return self.root / LOCK

    @property
    def agents(self) -> Path:
        return self.root / "agents"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    def agent(self, agent_id: str) -> Path:
        return self.agents / check_id(agent_id)

    def log(self, agent_id: str) -> Path:
        return self.agent(agent_id) / LOG

    def checkpoint(self, agent_id: str) -> Path:
        return self.agent(agent_id) / CHECKPOINT
