"""Paths that a model names, kept inside the folders that it may work in. Standard library only.

A path is resolved, symbolic links and `..` included, at the time of use, and must then lie in one of the folders. It
is opened by walking down from that folder without following links: what was swapped for a link in between is refused.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sidecar.tools.refusal import Refused, from_os
from sidecar.tools.text import printable

_AT = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_DIRECTORY = getattr(os, "O_DIRECTORY", 0)
_PASSING = getattr(os, "O_PATH", os.O_RDONLY)
_BINARY = getattr(os, "O_BINARY", 0)
_CAREFUL = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
"""A fifo or a terminal that is opened by accident neither blocks nor becomes ours."""

_RACED = (errno.ELOOP, errno.ENOTDIR, getattr(errno, "EMLINK", errno.ELOOP))


@dataclass(frozen=True, slots=True)
class Confinement:
    """`cwd` is where relative paths start, `roots` are all folders that may be used. All absolute and resolved."""

    cwd: str
    roots: tuple[str, ...]

    @staticmethod
    def of(cwd: os.PathLike[str] | str, roots: Iterable[os.PathLike[str] | str] = ()) -> Confinement:
        """`cwd` is the first of the roots."""
        return Confinement(os.fspath(cwd), tuple(dict.fromkeys(os.fspath(p) for p in (cwd, *roots))))

    def resolve(self, text: str) -> str:
        """The absolute path that `text` stands for now; it need not exist. Raises `Refused` if it is outside."""
        if not text or text.isspace():
            raise Refused("The path is empty: name a file or a directory, `.` for the working directory.")
        if "\0" in text:
            raise Refused("The path contains a NUL character: leave it out.")
        shown = printable(text)
        if sys.platform == "win32" and _names_a_stream(text):
            raise Refused(f"`{shown}`: a colon inside a path names no file here.")
        try:
            real = os.path.realpath(os.path.join(self.cwd, os.path.expanduser(text)))
        except (OSError, ValueError):
            raise Refused(f"`{shown}` is not a path that can be resolved.") from None
        if self.root_of(real) is None:
            folders = ", ".join(f"`{r}`" for r in self.roots)
            raise Refused(
                f"`{shown}` is outside the working folders. Use a path inside {folders}"
                " (symbolic links that lead out do not count as inside)."
            )
        return real

    def root_of(self, path: str) -> str | None:
        """The root that holds an absolute, resolved path; None: it is outside."""
        folded = os.path.normcase(path)
        for root in self.roots:
            base = os.path.normcase(root)
            if folded == base or folded.startswith(base if base.endswith(os.sep) else base + os.sep):
                return root
        return None

    def shown(self, path: str) -> str:
        """How a path inside is named to the model: relative to `cwd` if it lies there, with `/`."""
        base = self.cwd if self.cwd.endswith(os.sep) else self.cwd + os.sep
        if path == self.cwd:
            return "."
        name = path[len(base) :] if path.startswith(base) else path
        return printable(name.replace(os.sep, "/"))

    @contextmanager
    def directory(self, path: str, *, create: bool = False) -> Iterator[int]:
        """A descriptor of a resolved directory, good for `dir_fd`; -1 where the system has no such thing.

        With `create`, missing directories are made. Raises `Refused`.
        """
        if not _AT:
            self._check_again(path, create)
            yield -1
            return
        fd = self._walk(path, create)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def file(self, path: str) -> Iterator[int]:
        """A descriptor of a resolved regular file, open for reading. Raises `Refused` with the reason otherwise."""
        fd = self._open_file(path)
        try:
            yield fd
        finally:
            os.close(fd)

    def _walk(self, path: str, create: bool) -> int:
        root = self.root_of(path)
        if root is None:
            raise Refused(f"`{self.shown(path)}` is outside the working folders.")
        try:
            fd = os.open(root, _PASSING | _DIRECTORY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise from_os(error, self.shown(root)) from None
        so_far = root
        for part in filter(None, path[len(root) :].split(os.sep)):
            so_far = os.path.join(so_far, part)
            try:
                inner = self._step(fd, part, create)
            except OSError as error:
                raise self._explain(error, so_far) from None
            finally:
                os.close(fd)
            fd = inner
        return fd

    @staticmethod
    def _step(fd: int, part: str, create: bool) -> int:
        flags = _PASSING | _DIRECTORY | _NO_FOLLOW
        try:
            return os.open(part, flags, dir_fd=fd)
        except FileNotFoundError:
            if not create:
                raise
        try:
            os.mkdir(part, dir_fd=fd)
        except FileExistsError:
            pass
        return os.open(part, flags, dir_fd=fd)

    def _explain(self, error: OSError, path: str) -> Refused:
        name = self.shown(path)
        if isinstance(error, FileNotFoundError):
            return Refused(f"There is no `{name}`.")
        if error.errno in _RACED:
            try:
                linked = stat.S_ISLNK(os.lstat(path).st_mode)
            except OSError:
                linked = True
            if linked and _is_loop(path):
                return Refused(f"`{name}` is a loop of symbolic links: it stands for nothing.")
            if linked:
                return Refused(f"`{name}` became a symbolic link while it was being opened. Try again.")
            return Refused(f"`{name}` is not a directory.")
        return from_os(error, name)

    def _open_file(self, path: str) -> int:
        parent, name = os.path.split(path)
        if not name or path in self.roots:
            raise Refused(f"`{self.shown(path)}` is a directory; use list_dir.")
        with self.directory(parent) as folder:
            where = {"dir_fd": folder} if folder >= 0 else {}
            target = name if folder >= 0 else path
            try:
                self.must_be_regular(os.stat(target, follow_symlinks=False, **where).st_mode, path)
                fd = os.open(target, os.O_RDONLY | _BINARY | _NO_FOLLOW | _CAREFUL, **where)
            except OSError as error:
                raise self._explain(error, path) from None
        try:
            self.must_be_regular(os.fstat(fd).st_mode, path)
        except Refused:
            os.close(fd)
            raise
        return fd

    def must_be_regular(self, mode: int, path: str) -> None:
        """Raises `Refused` for what is no regular file, naming what it is."""
        if stat.S_ISREG(mode):
            return
        name = self.shown(path)
        if stat.S_ISDIR(mode):
            raise Refused(f"`{name}` is a directory; use list_dir to see what is in it.")
        if stat.S_ISLNK(mode) and _is_loop(path):
            raise Refused(f"`{name}` is a loop of symbolic links: it stands for nothing.")
        if stat.S_ISLNK(mode):
            raise Refused(f"`{name}` became a symbolic link while it was being opened. Try again.")
        raise Refused(f"`{name}` is {kind_of(mode)}, not a file; only regular files can be read or written.")

    def _check_again(self, path: str, create: bool) -> None:
        """Where there is no `dir_fd`: the path must still be its own resolution."""
        try:
            if create:
                os.makedirs(path, exist_ok=True)
            if not os.path.isdir(path):
                raise FileNotFoundError(errno.ENOENT, "", path)
        except OSError as error:
            raise self._explain(error, path) from None
        if os.path.normcase(os.path.realpath(path)) != os.path.normcase(path):
            raise Refused(f"`{self.shown(path)}` became a link while it was being opened. Try again.")


def kind_of(mode: int) -> str:
    """What a file mode says a thing is, with its article."""
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_ISFIFO(mode):
        return "a fifo"
    if stat.S_ISSOCK(mode):
        return "a socket"
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return "a device"
    return "a file" if stat.S_ISREG(mode) else "something special"


def _is_loop(path: str) -> bool:
    try:
        os.stat(path)
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _names_a_stream(text: str) -> bool:
    """Whether a Windows path holds a colon that is not its drive's: `file.txt:hidden`, `C:relative`."""
    drive, rest = os.path.splitdrive(text)
    return ":" in rest or (drive.endswith(":") and not rest.startswith(("\\", "/")))
