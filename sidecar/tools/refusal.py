"""The one exception of the daemon's own tools, and how the system's errors become it. Standard library only."""

from __future__ import annotations

import errno
import os


class Refused(Exception):
    """A call that cannot or must not be done. The text goes to the model: it names the thing and says what to do."""


_REASONS = {
    errno.EACCES: "permission denied",
    errno.EPERM: "not permitted",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "it is a loop of symbolic links",
    errno.EMFILE: "too many files are open; try again",
    errno.ENFILE: "too many files are open; try again",
    errno.EBUSY: "it is in use",
    errno.EIO: "the disk reported an error",
    errno.ENOTEMPTY: "the directory is not empty",
    errno.ETXTBSY: "it is a program that is running",
}


def from_os(error: OSError, name: str) -> Refused:
    """What an `OSError` about `name` means, in words; no path of ours is in it."""
    reason = _REASONS.get(error.errno or 0)
    if reason is None:
        reason = os.strerror(error.errno).lower() if error.errno else "the system refused it"
    return Refused(f"`{name}`: {reason}.")
