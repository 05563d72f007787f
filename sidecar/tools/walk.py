"""All files under a directory, in order, without following links. Blocking; standard library only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from sidecar.tools import ignore
from sidecar.tools.confine import Confinement
from sidecar.tools.refusal import Refused, from_os

MAX_DEPTH = 64
MAX_ENTRIES = 500_000

Kind = Literal["file", "directory", "link", "special"]


@dataclass(frozen=True, slots=True)
class Entry:
    """`path` is relative to the start of the walk, with `/`."""

    path: str
    kind: Kind


@dataclass(slots=True)
class Walk:
    """One walk from `start` (resolved, a directory), into directories up to `deepest` levels below it. Iterate it once;
    `incomplete` then says what was left out against its will."""

    confinement: Confinement
    start: str
    deepest: int = MAX_DEPTH
    entries: int = 0
    incomplete: str | None = None
    _rules: list[ignore.Rules] = field(default_factory=list)

    def __iter__(self) -> Iterator[Entry]:
        """Entries depth first, names sorted. Directories of version control, what `.gitignore` files leave out and
        what cannot be read is skipped. Raises `Refused` if the start cannot be read."""
        self._rules_above()
        with self.confinement.directory(self.start) as fd:
            yield from self._enter(fd, ".", "", 0)

    def _rules_above(self) -> None:
        """The rules of the start's own parents, as far as they lie in the working folder."""
        root = self.confinement.root_of(self.start)
        inner = [] if root is None else [p for p in self.start[len(root) :].split(os.sep) if p]
        folder = root or self.start
        for i, name in enumerate(inner):
            self._add_rules(folder, above="/".join(inner[i:]) + "/")
            folder = os.path.join(folder, name)

    def _add_rules(self, folder: str, *, base: str = "", above: str = "") -> bool:
        with suppress(Refused, OSError):
            with self.confinement.file(os.path.join(folder, ignore.FILE_NAME)) as fd:
                text = os.read(fd, ignore.MAX_BYTES).decode("utf-8", "replace")
            rules = ignore.parse(text.removeprefix("\ufeff"), base, above)
            if rules is not None:
                self._rules.append(rules)
                return True
        return False

    def _enter(self, parent: int, name: str, base: str, depth: int) -> Iterator[Entry]:
        """Entries of directory `name` of `parent` (-1: by path only), whose own path is `base`."""
        if depth > min(self.deepest, MAX_DEPTH):
            if self.deepest >= MAX_DEPTH:
                self.incomplete = f"what is more than {MAX_DEPTH} directories deep was left out"
            return
        fd = -1
        try:
            if parent >= 0:
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            found = _scan(fd if fd >= 0 else os.path.join(self.start, base))
        except OSError as error:
            if depth == 0:
                raise from_os(error, self.confinement.shown(self.start)) from None
            found = {}
        try:
            yield from self._list(fd, found, base, depth)
        finally:
            if fd >= 0:
                os.close(fd)

    def _list(self, fd: int, found: dict[str, Kind], base: str, depth: int) -> Iterator[Entry]:
        has_rules = ignore.FILE_NAME in found and self._add_rules(os.path.join(self.start, base), base=base)
        for name in sorted(found):
            kind = found[name]
            path = base + name
            if kind == "directory" and name in ignore.NEVER:
                continue
            if self._rules and ignore.is_ignored(self._rules, path, kind == "directory"):
                continue
            if self.entries >= MAX_ENTRIES:
                self.incomplete = f"only the first {MAX_ENTRIES:,} files and directories were looked at"
                break
            self.entries += 1
            yield Entry(path, kind)
            if kind == "directory":
                yield from self._enter(fd, name, path + "/", depth + 1)
        if has_rules:
            self._rules.pop()


def _scan(where: int | str) -> dict[str, Kind]:
    with os.scandir(where) as entries:
        return {entry.name: _kind(entry) for entry in entries}


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "special"
