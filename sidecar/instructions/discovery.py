"""Finds and reads the files of standing instructions. Blocking: for a thread. Never raises for what it finds."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from sidecar.instructions.imports import imports_of, is_relative, names_a_file
from sidecar.instructions.standing import SourceFile, Standing, compose_standing
from sidecar.regular_files import read_regular
from sidecar.workspace import directories_down, label, workspace_root

NAMES: Final = ("AGENTS.md", "CLAUDE.md", "AGENTS.local.md", "CLAUDE.local.md")
"""In this order; later wins."""

MAX_IMPORT_DEPTH: Final = 5
"""Levels of imports; a file that is found by its name is level 0."""

MAX_FILE_BYTES: Final = 64 * 1024
MAX_TOTAL_CHARS: Final = 256 * 1024
MAX_FILES: Final = 128
MAX_TARGETS: Final = 1_000
"""Of one file: most `@words` are people and packages, and each is looked for on the disk."""

MAX_NOTICES: Final = 50
SETTLED_NS: Final = 2_000_000_000

Signs: TypeAlias = "dict[Path, tuple[int, int, int, int] | None]"
"""What tells that a file changed: times, size, inode; None for what is not there."""


def load(cwd: Path, home: Path) -> Standing:
    """The instructions for work in `cwd` of a user whose home is `home`.

    Order: the home directory, then the workspace root and every directory from there down to `cwd`; in each the
    names of `NAMES`; what a file imports stands before it. Nothing is read from outside the workspace root (for
    files of the home directory: from outside of that), links resolved. What could not be read is a notice.
    """
    return _read(workspace_root(cwd), cwd, home)[0]


def _read(root: Path, cwd: Path, home: Path) -> tuple[Standing, frozenset[Path]]:
    """The instructions, and every path that they depend on, there or not."""
    home = home.resolve()
    reader = _Reader(root, home)
    for directory, bound in [(home, home), *((d, root) for d in directories_down(root, cwd.resolve()))]:
        for name in NAMES:
            reader.looked_at.add(directory / name)
            if os.path.lexists(directory / name):
                reader.read(directory / name, bound)
    return compose_standing(reader.within_limit(), reader.notices), frozenset(reader.looked_at)


class Watched:
    """The instructions for one directory, read again only when the status of a file says that one may have changed.
    Not thread-safe."""

    def __init__(self, cwd: Path, home: Path) -> None:
        self._cwd = cwd
        self._home = home
        self._paths: frozenset[Path] = frozenset()
        self._known: tuple[Path, Signs] | None = None
        self._standing = compose_standing(())

    def load(self) -> Standing:
        """As `load`; the same object while nothing changed."""
        root = workspace_root(self._cwd)
        if self._known is None or self._known != (root, _signs(self._paths)):
            began_ns = time.time_ns()
            self._standing, self._paths = _read(root, self._cwd, self._home)
            signs = _signs(self._paths)
            # A file that changed just now may change again within the same tick of its file system's clock.
            settled = all(sign is None or max(sign[:2]) < began_ns - SETTLED_NS for sign in signs.values())
            self._known = (root, signs) if settled else None
        return self._standing


def _signs(paths: Iterable[Path]) -> Signs:
    signs: Signs = {}
    for path in paths:
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            signs[path] = None
        else:
            signs[path] = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
    return signs


class _Skipped(Exception):
    """This file is left out; the text says why."""


@dataclass(slots=True)
class _Reader:
    """Reads files with their imports, in order, into `found`; a file that is met again stands there again."""

    root: Path
    home: Path
    found: list[SourceFile] = field(default_factory=list)
    looked_at: set[Path] = field(default_factory=set)
    notices: list[str] = field(default_factory=list)
    _texts: dict[Path, str] = field(default_factory=dict)
    _depths: dict[Path, int] = field(default_factory=dict)

    def read(self, path: Path, bound: Path, chain: tuple[Path, ...] = ()) -> None:
        """`chain` are the files, resolved, whose imports led here."""
        name = self._label(path)
        try:
            real = self._resolved(path, bound, chain)
            text = self._text(real, name)
        except _Skipped as why:
            self._notice(f"{name}: {why}")
            return
        if self._depths.get(real, MAX_IMPORT_DEPTH + 1) > len(chain):
            self._depths[real] = len(chain)
            targets = imports_of(text)
            if len(targets) > MAX_TARGETS:
                self._notice(f"{name}: only its first {MAX_TARGETS} imports are followed")
            for target in targets[:MAX_TARGETS]:
                self._import(target, real, bound, (*chain, real))
        self.found.append(SourceFile(name, text))

    def within_limit(self) -> list[SourceFile]:
        """The files that fit together, the nearest to the work first to stay."""
        room = MAX_TOTAL_CHARS
        kept: list[SourceFile] = []
        for file in reversed(self.found):
            if len(file.text) <= room:
                room -= len(file.text)
                kept.append(file)
            else:
                self._notice(f"{file.path}: left out, all together are over {MAX_TOTAL_CHARS >> 10} Ki characters")
        return kept[::-1]

    def _resolved(self, path: Path, bound: Path, chain: tuple[Path, ...]) -> Path:
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            raise _Skipped("is a link that leads nowhere") from None
        if not real.is_relative_to(bound):
            raise _Skipped(f"lies outside of the {'workspace' if bound == self.root else 'home directory'}")
        if real in chain:
            raise _Skipped(f"is imported in a circle, by {self._label(chain[-1])}")
        return real

    def _import(self, target: str, importer: Path, bound: Path, chain: tuple[Path, ...]) -> None:
        path = Path(os.path.normpath(importer.parent / target))
        self.looked_at.add(path)
        meant = names_a_file(target)
        if not is_relative(target):
            problem = "an import is relative to the file that it stands in"
        elif not os.path.lexists(path):
            problem = "there is no such file"
        elif path.is_dir():
            problem, meant = "", False
        elif len(chain) > MAX_IMPORT_DEPTH:
            problem, meant = f"is deeper than {MAX_IMPORT_DEPTH} levels of imports", True
        else:
            return self.read(path, bound, chain)
        if meant:
            self._notice(f"{self._label(importer)}: @{target}: {problem}")
        return None

    def _text(self, real: Path, name: str) -> str:
        text = self._texts.get(real)
        if text is None:
            if len(self._texts) >= MAX_FILES:
                raise _Skipped(f"left out, there are more than {MAX_FILES} files")
            text = self._texts[real] = self._decoded(real, name)
        return text

    def _decoded(self, real: Path, name: str) -> str:
        try:
            found = read_regular(real, MAX_FILE_BYTES)
        except OSError:
            raise _Skipped("cannot be read; check its permissions") from None
        if found is None:
            raise _Skipped("is no regular file")
        raw, status = found
        if b"\0" in raw:
            raise _Skipped("is no text file")
        if status.st_size > len(raw):
            self._notice(f"{name}: cut, only the first {MAX_FILE_BYTES >> 10} KiB of a file are read")
            raw = raw[: raw.rfind(b"\n") + 1] or raw
        text = raw.decode("utf-8-sig", "replace")
        if "\ufffd" in text and b"\xef\xbf\xbd" not in raw:
            self._notice(f"{name}: has bytes that are no UTF-8")
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def _label(self, path: Path) -> str:
        return re.sub(r'["\n\r<>]', "_", label(path, self.root, self.home))

    def _notice(self, text: str) -> None:
        if len(self.notices) < MAX_NOTICES and text not in self.notices:
            self.notices.append(text)
