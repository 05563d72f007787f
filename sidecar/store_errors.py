"""The one conversion of storage failures to what a host is told."""

from __future__ import annotations

from record_store.errors import (
    InvalidId,
    InvalidQuery,
    RecordRejected,
    SessionExists,
    SessionLocked,
    SessionNotFound,
    StaleWriter,
    StoreError,
    StoreReadError,
    StoreWriteError,
)
from sidecar.errors import Fault

_WRITE_HINTS = {
    "no_space": "free some disk space, then go on: nothing that was told is lost",
    "denied": "check the permissions of the data directory (SIDECAR_HOME)",
    "io": "check the disk, and that SIDECAR_HOME is a directory that can be written",
    "changed": "something else wrote into the session's files; resume the session",
}

_READ_HINT = "check the permissions of the data directory (SIDECAR_HOME), and the disk"


def store_fault(error: StoreError, session_id: str | None = None) -> Fault:
    """A `Fault` for every error of `record_store`, which names the session if it is known; texts of the error itself
    stay here, they can hold paths."""
    match error:
        case SessionNotFound():
            if session_id is None:
                return Fault("session_not_found", "There is no such session, or no such agent in it.")
            return Fault("session_not_found", f"There is no session {session_id!r}.", hint="see agent.session.list")
        case SessionExists():
            return Fault("session_exists", "A session with this id exists.", hint="choose another session_id")
        case SessionLocked():
            where = f" on {error.host}" if error.host else ""
            return Fault(
                "session_locked",
                f"The session is open in process {error.pid}{where}.",
                hint="end that process, or connect to it",
                pid=error.pid,
            )
        case StoreWriteError():
            return Fault(
                "store_write_failed",
                f"The event log cannot be written ({error.reason}).",
                hint=_WRITE_HINTS.get(error.reason),
                cause=error.reason,
            )
        case StaleWriter():
            return Fault(
                "store_write_failed",
                "Another process writes this session now.",
                hint="resume the session",
                cause="stale_writer",
            )
        case RecordRejected():
            return Fault("store_write_failed", "This cannot be stored: too large, or no valid text.", cause="rejected")
        case StoreReadError():
            return Fault("store_damaged", "The session's files cannot be read.", hint=_READ_HINT)
        case InvalidQuery():
            return Fault("invalid_params", f"{error.field}: {error.message}", path=error.field)
        case InvalidId():
            return Fault("invalid_params", "This is no valid id.", path="session_id")
        case _:
            return Fault("store_damaged", "The session cannot be opened.", hint="run `sidecar record verify`")
