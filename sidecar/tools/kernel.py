"""What Linux offers a process to confine itself: Landlock for writes, seccomp for the network. Standard library only.

Everything here changes the calling process for good; it is meant for a child between fork and exec. The numbers are
those of the kernel's headers `linux/landlock.h`, `linux/seccomp.h`, `linux/audit.h` and `linux/prctl.h`.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION = 1
_RULE_PATH_BENEATH = 1

_WRITE_FILE = 1 << 1
_MAKE_DEVICES = 1 << 6 | 1 << 11
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_SCOPES = 0b11
"""Abstract sockets and signals of processes outside, from version 6 on."""

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 24, 36, 38
_SECCOMP_MODE_FILTER = 2

_ARCHITECTURES = {
    "x86_64": (0xC000003E, 41),
    "aarch64": (0xC00000B7, 198),
    "riscv64": (0xC00000F3, 198),
}
"""Per machine: its name in seccomp data, and the number of `socket`."""
STRONG_CAPABILITIES = {
    "CAP_SYS_MODULE": 16,
    "CAP_SYS_RAWIO": 17,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_BOOT": 22,
    "CAP_MKNOD": 27,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
"""What lets root reach into other processes, the kernel or the disks: a way out of any confinement."""
_IO_URING_SETUP = 425
_AF_UNIX = 1


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(function: str, *arguments: object) -> int:
    libc = _libc()
    result = int(getattr(libc, function)(*arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _prctl(option: int, *arguments: object) -> None:
    rest = [ctypes.c_ulong(0)] * (4 - len(arguments))
    _call("prctl", ctypes.c_int(option), *arguments, *rest)


def landlock_version() -> int:
    """The kernel's Landlock version; 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return _call("syscall", ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(_GET_VERSION))
    except (OSError, AttributeError):
        return 0


def can_cut_network() -> bool:
    """Whether `cut_network` knows this machine."""
    return sys.platform.startswith("linux") and os.uname().machine in _ARCHITECTURES and sys.maxsize > 1 << 32


def end_with_parent(signal_number: int, parent: int) -> None:
    """This process gets the signal when the thread that made it ends; at once if `parent` is gone already."""
    if sys.platform.startswith("linux"):
        _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number))
        if os.getppid() != parent:
            os.kill(os.getpid(), signal_number)


def adopt_orphans() -> bool:
    """Descendants whose parent ends become children of this process. False where the system cannot do that."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
    except OSError:
        return False
    return True


def no_new_privileges() -> None:
    """From now on no program that is run gains rights; the other two need it."""
    _prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1))


def drop_strong_capabilities() -> None:
    """Programs that are run from now on lack these even as root; without effect for other users."""
    for number in STRONG_CAPABILITIES.values():
        try:
            _prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number))
        except OSError:  # not root, or a kernel that does not know it
            continue


def confine_writes(directories: Iterable[str], devices: Iterable[str]) -> None:
    """From now on this process and its descendants change files below `directories` only, and write to `devices`.

    Device nodes are made nowhere: one would lead out. Reading stays free. Paths that do not exist are left out.
    Raises OSError if the kernel refuses.
    """
    version = landlock_version()
    file_rights = _WRITE_FILE | (_TRUNCATE if version >= 3 else 0)
    rights = file_rights | _REMOVE_AND_MAKE | (_REFER if version >= 2 else 0)
    attributes = struct.pack("=QQQ", rights, 0, _SCOPES)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _call(
        "syscall", ctypes.c_long(_CREATE_RULESET), attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0)
    )
    try:
        for path in directories:
            _allow(ruleset, path, rights & ~_MAKE_DEVICES)
        for path in devices:
            _allow(ruleset, path, file_rights)
        _call("syscall", ctypes.c_long(_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rule = struct.pack("=Qi", rights, fd)
        _call(
            "syscall",
            ctypes.c_long(_ADD_RULE),
            ctypes.c_int(ruleset),
            ctypes.c_int(_RULE_PATH_BENEATH),
            rule,
            ctypes.c_uint(0),
        )
    finally:
        os.close(fd)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def cut_network() -> None:
    """From now on sockets other than local ones cannot be made (EPERM). Raises OSError if the kernel refuses."""
    code = _network_filter(*_ARCHITECTURES[os.uname().machine])
    program = _Program(len(code) // 8, code)
    _prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(program))


def _network_filter(architecture: int, socket: int) -> bytes:
    """The filter's instructions: load a word (0x20), jump if equal (0x15) or greater or equal (0x35), return (0x06).

    System calls of another architecture, x32 among them, are refused whole: their numbers mean other things.
    """
    allow, refuse = 0x7FFF0000, 0x00050000 | 1
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    steps = (
        (load, 0, 0, 4),
        (equal, 0, 7, architecture),
        (load, 0, 0, 0),
        (at_least, 5, 0, 0x40000000),
        (equal, 4, 0, _IO_URING_SETUP),
        (equal, 0, 2, socket),
        (load, 0, 0, 16),
        (equal, 0, 1, _AF_UNIX),
        (give, 0, 0, allow),
        (give, 0, 0, refuse),
    )
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
