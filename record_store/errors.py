"""What storage can fail with. Whoever meets an `OSError` here converts it; nothing else leaves this package.

    StoreError
      InvalidId          an id that is not safe as a file name
      InvalidQuery       a cursor, a pattern or a range that cannot be used
      SessionNotFound    no such session, or no such agent in it
      SessionExists      the id is taken
      SessionLocked      another writer holds it; `pid` and `host` say who
      StaleWriter        our lease is over: someone else writes now; the session must be opened anew
      StoreWriteError    not written, or not known to be on disk; `reason` says why
      StoreReadError     the medium refused a read; damage in a log is never this
      RecordRejected     a record that has no encoding (lone surrogates, too large); nothing was written

Texts are for logs: they can hold paths, so none of them goes to a host.
"""

from __future__ import annotations

import errno
from typing import Literal

WriteFailure = Literal["no_space", "io", "changed", "denied"]
"""`changed`: the file is not as we left it (truncated, replaced or written by someone else)."""


class StoreError(Exception):
    """Base of all errors of storage."""


class InvalidId(StoreError):
    pass


class InvalidQuery(StoreError):
    """`field` names the parameter that is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class SessionNotFound(StoreError):
    pass


class SessionExists(StoreError):
    pass


class SessionLocked(StoreError):
    """`pid` is 0 when the holder could not be read."""

    def __init__(self, session_id: str, pid: int, host: str) -> None:
        super().__init__(f"session {session_id} is held by process {pid} on {host or 'this host'}")
        self.session_id = session_id
        self.pid = pid
        self.host = host


class StaleWriter(StoreError):
    pass


class StoreWriteError(StoreError):
    def __init__(self, reason: WriteFailure, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason: WriteFailure = reason


class StoreReadError(StoreError):
    pass


class RecordRejected(StoreError):
    pass


_NO_SPACE = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def write_error(error: OSError, what: str) -> StoreWriteError:
    """The one conversion of a failed write, sync or rename."""
    reason: WriteFailure = "no_space" if error.errno in _NO_SPACE else "denied" if error.errno in _DENIED else "io"
    return StoreWriteError(reason, f"{what}: {error.strerror or error}")


def read_error(error: OSError, what: str) -> StoreReadError:
    """The one conversion of a failed read."""
    return StoreReadError(f"{what}: {error.strerror or error}")
