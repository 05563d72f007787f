"""Listening on Unix sockets and on TCP, and who may come in. Imported only where asked for; nothing here blocks long.

A Unix socket is for one user: mode 0600, in a directory that nobody else can enter, and the peer's uid is looked at.
TCP is for the loopback interface unless remote hosts were allowed, and always wants the token.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import secrets
import socket
import stat
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sidecar import logs
from sidecar.rpc.arguments import split_address
from sidecar.rpc.errors import StartError

BACKLOG = 128
LOCK_S = 2.0
_OTHERS_MAY_ENTER = 0o011

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket. `address` is what a client needs: the path, or `HOST:PORT` with the real port."""

    transport: Literal["socket", "tcp"]
    address: str
    listening: socket.socket
    identity: tuple[int, int] | None = None

    def accept(self) -> socket.socket | None:
        """The next connection, or None if it went away or must not come in. Raises `OSError` when none can be had."""
        try:
            connected, _ = self.listening.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return None
        if self.transport == "socket" and not is_same_user(connected):
            log.warning("a peer with another uid was refused", address=self.address)
            connected.close()
            return None
        return connected

    def close(self) -> None:
        """Removes the path if it is still this socket's."""
        self.listening.close()
        if self.identity is not None:
            try:
                if _identity(self.address) == self.identity:
                    os.unlink(self.address)
            except OSError:
                pass


# ---------------------------------------------------------------- Unix sockets


def listen_unix(path_text: str) -> Listener:
    """Raises `StartError` for a place that is not safe, and for a path that is taken; both are left as they are."""
    if not hasattr(socket, "AF_UNIX") or sys.platform == "win32":
        raise StartError("this platform has no Unix sockets", "use --tcp 127.0.0.1:0")
    path = Path(path_text).absolute()
    _check_directory(path.parent)
    with _locked(path.parent):
        _clear_dead_socket(path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _listen_at(listening, path)
        except OSError as error:
            listening.close()
            raise _cannot_listen(str(path), error, "choose a shorter path in a directory of your own") from None
    listening.setblocking(False)
    return Listener("socket", str(path), listening, _identity(str(path)))


def _listen_at(listening: socket.socket, path: Path) -> None:
    """The path appears when the socket listens already: who waited for it is not refused. Where no second name fits
    into its directory (the system limits the length), it appears a moment earlier."""
    # At least as long as the name itself: what is too long for the system is refused here.
    size = max(5, len(os.fsencode(path.name)))
    aside = path.with_name("." + secrets.token_hex(size)[: size - 1])
    try:
        listening.bind(str(aside))
    except OSError:
        listening.bind(str(path))
        aside = path
    try:
        os.chmod(aside, 0o600)
        listening.listen(BACKLOG)
        if aside != path:
            if os.path.lexists(path):
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            os.rename(aside, path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def _check_directory(directory: Path) -> None:
    """Only its owner, who must be this user, may enter; missing ones are made so."""
    missing = []
    while not directory.exists():
        missing.append(directory)
        directory = directory.parent
    try:
        for new in reversed(missing):
            new.mkdir(0o700)
            new.chmod(0o700)
            directory = new
        found = directory.stat()
    except OSError as error:
        raise StartError(
            f"{directory} cannot be used: {os.strerror(error.errno or 0)}", "choose another path"
        ) from None
    if not stat.S_ISDIR(found.st_mode):
        raise StartError(f"{directory} is not a directory", "choose a path in a directory")
    if found.st_uid != os.geteuid():
        raise StartError(f"{directory} belongs to another user", "choose a path in a directory of your own, mode 0700")
    if found.st_mode & stat.S_ISVTX and found.st_mode & _OTHERS_MAY_ENTER:
        # Shared on purpose, like /tmp: its mode is not to be changed.
        own = directory / f"sidecar-{os.geteuid()}"
        raise StartError(
            f"other users can enter {directory}", f"choose a path in a directory of its own, e.g. in {own}"
        )
    if found.st_mode & _OTHERS_MAY_ENTER:
        raise StartError(
            f"other users can enter {directory}",
            f"run `chmod 700 {directory}`, or choose a path in a directory of its own",
        )


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One daemon at a time looks for a dead socket and takes its place."""
    import fcntl

    fd = os.open(directory, os.O_RDONLY)
    try:
        end = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise StartError(f"{directory} is locked by another process", "try again") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(fd)


def _clear_dead_socket(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartError(f"{path} exists and is no socket", "remove it yourself, or choose another path")
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    probe.setblocking(False)
    try:
        probe.connect(str(path))
    except ConnectionRefusedError:
        path.unlink()
        return
    except (FileNotFoundError, BlockingIOError):
        pass
    except OSError as error:
        raise _cannot_listen(str(path), error, "remove the socket yourself, or choose another path") from None
    finally:
        probe.close()
    raise StartError(f"another daemon is listening on {path}", "use that one, stop it, or choose another path")


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def is_same_user(connected: socket.socket) -> bool:
    """Whether the process at the other end has this process's uid; true where the system does not tell."""
    if sys.platform == "win32":
        return True
    if hasattr(socket, "SO_PEERCRED"):
        raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        uid: int = struct.unpack("3i", raw)[1]
        return uid == os.geteuid()
    if hasattr(socket, "LOCAL_PEERCRED"):
        raw = connected.getsockopt(0, socket.LOCAL_PEERCRED, struct.calcsize("IIh16I"))
        return bool(struct.unpack_from("II", raw)[1] == os.geteuid())
    return True


# ---------------------------------------------------------------- TCP


def listen_tcp(text: str, *, allow_remote: bool) -> Listener:
    """The first address of the host, IPv4 before IPv6. May block for a name look-up: call it in a thread."""
    host, port = split_address(text)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise StartError(f"{host} is no address of this machine", "use 127.0.0.1") from None
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    if not allow_remote and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise StartError(f"{host} can be reached from other machines", "use 127.0.0.1, or add --allow-remote")
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _cannot_listen(text, error, "choose another port; 0 takes a free one") from None
    listening.setblocking(False)
    name, real_port = listening.getsockname()[:2]
    return Listener("tcp", f"[{name}]:{real_port}" if ":" in name else f"{name}:{real_port}", listening)


def _cannot_listen(where: str, error: OSError, fix: str) -> StartError:
    reason = errno.errorcode.get(error.errno or 0, type(error).__name__)
    return StartError(f"cannot listen on {where} ({reason})", fix)
