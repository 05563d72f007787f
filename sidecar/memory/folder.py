"""A folder of fact files and what is known of it: notices what came, went or changed, and reads only that.

A file that cannot be read as a fact is left alone and reported in `problems`. Not thread-safe; may block; damage and
unreadable files never raise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace as replace_fact
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from protocol.memory import Fact, FactScope
from sidecar import ids
from sidecar.memory import disk, facts
from sidecar.memory.catalogue import Catalogue
from sidecar.memory.disk import Sign
from sidecar.memory.facts import InvalidFact, Parsed
from sidecar.memory.times import to_iso
from sidecar.regular_files import read_regular

MAX_FILE_BYTES: Final = 1 << 20
"""A larger file is no fact."""

LOOKS_PER_TURN: Final = 256
"""Files whose signs a quick refresh looks at, in turn, besides the folder's own: a store up to this size is always up
to date, a larger one finds what was edited in place (editors mostly replace files, which is always seen) some turns
later. Looking at 5,000 files takes 10 ms and more."""

Adopt = Callable[[str, bytes, Parsed, "Fact | None"], None]
"""Asked to write a person's version (file name, bytes as read, what they say) back as a revision; last the one it
replaces."""


class FactFolder:
    """The facts of `directory` in `catalogue`, as of the last look. `foreign` has the lines of front matter that
    people wrote besides our fields, by the fact's id."""

    def __init__(self, directory: Path, scope: FactScope, catalogue: Catalogue, adopt: Adopt) -> None:
        self.directory = directory
        self.problems: dict[str, str] = {}
        self.foreign: dict[str, str] = {}
        self._scope: FactScope = scope
        self._catalogue = catalogue
        self._adopt = adopt
        self._folder_sign: Sign | None = None
        self._signs: dict[str, Sign | None] = {}
        self._inodes: dict[str, int] = {}
        self._last_good: dict[str, Fact] = {}
        self._next_look = 0

    def refresh(self, *, quick: bool = False) -> None:
        """Takes in what changed. A whole look asks for every file's sign; a quick one for a bounded number, besides
        files that are new."""
        sign = self._sign()
        new = self._list(sign) if sign is None or sign != self._folder_sign else []
        names = list(self._signs)
        if quick and len(names) > LOOKS_PER_TURN:
            start = self._next_look % len(names)
            self._next_look = start + LOOKS_PER_TURN
            names = new + (names + names)[start : start + LOOKS_PER_TURN]
        self._look_at(names)

    def look_at(self, fact_ids: Iterable[str]) -> bool:
        """Takes in what changed in these facts' files; whether anything did."""
        return self._look_at([file_of(i) for i in fact_ids])

    def wrote(self, fact: Fact, status: os.stat_result) -> None:
        """We wrote this fact's file ourselves: there is nothing to read."""
        name = file_of(fact.id)
        self._signs[name] = disk.sign_of(status)
        self._inodes[name] = status.st_ino
        self._remember(name, fact)

    def drop(self, name: str) -> None:
        """The file is gone."""
        self._signs.pop(name, None)
        self._inodes.pop(name, None)
        self.problems.pop(name, None)
        self._last_good.pop(_id_of(name), None)
        self.foreign.pop(_id_of(name), None)
        self._catalogue.discard(_id_of(name))

    # ---------------------------------------------------------------- looking

    def _look_at(self, names: Iterable[str]) -> bool:
        changed = False
        directory = str(self.directory)
        for name in names:
            try:
                status = os.stat(os.path.join(directory, name), follow_symlinks=False)
                sign = Sign(status.st_mtime_ns, status.st_size, status.st_ino)
            except OSError:
                sign = None
            if sign is None or sign != self._signs.get(name):
                before = self._known(name)
                self._read(name)
                changed = changed or before != self._known(name)
        return changed

    def _known(self, name: str) -> tuple[Fact | None, str | None]:
        return self._catalogue.facts.get(_id_of(name)), self.problems.get(name)

    def _sign(self) -> Sign | None:
        try:
            return disk.sign_of(os.stat(self.directory))
        except OSError:
            return None

    def _list(self, sign: Sign | None) -> list[str]:
        """The files that came or were replaced, by their names and inodes alone; those that went are dropped."""
        present: dict[str, int] = {}
        try:
            with os.scandir(self.directory) as entries:
                present = {e.name: e.inode() for e in entries if e.name.endswith(".md") and e.name[0] != "."}
        except OSError:
            pass
        self._folder_sign = sign
        for name in [n for n in self._signs if n not in present]:
            self.drop(name)
        new = sorted(name for name, inode in present.items() if self._inodes.get(name) != inode)
        for name in new:
            self._signs[name] = None
            self._inodes[name] = present[name]
        return new

    # ---------------------------------------------------------------- reading

    def _read(self, name: str) -> None:
        self._signs[name] = None
        try:
            raw = read_regular(self.directory / name, MAX_FILE_BYTES + 1)
            if raw is None or len(raw[0]) > MAX_FILE_BYTES:
                raise InvalidFact("file", f"is no regular file of at most {MAX_FILE_BYTES >> 20} MiB")
            data, status = raw
            self._signs[name] = disk.sign_of(status)
            self._inodes[name] = status.st_ino
            self._remember(name, self._fact_in(name, data, status.st_mtime_ns // 1_000_000))
        except FileNotFoundError:
            self.drop(name)
        except OSError:
            self._report(name, "file: cannot be read; check its permissions (links are not followed)")
        except UnicodeDecodeError:
            self._report(name, "file: is not UTF-8 text")
        except InvalidFact as error:
            self._report(name, str(error))

    def _fact_in(self, name: str, data: bytes, modified_ms: int) -> Fact:
        """A person's edit has no revision of its own yet: it gets one, so that nobody overwrites it unseen."""
        fact_id = _id_of(name)
        if not ids.is_valid(fact_id):
            raise InvalidFact("file", "has a name that is no id: use letters, digits, `.`, `_` and `-`")
        parsed = facts.parse(data.decode("utf-8"), fact_id=fact_id, scope=self._scope, modified_ms=modified_ms)
        fact, known = parsed.fact, self._last_good.get(fact_id)
        if known is not None and fact != known and fact.revision <= known.revision:
            fact = replace(
                fact, revision=known.revision + 1, created_at=known.created_at, updated_at=to_iso(modified_ms)
            )
            self._adopt(name, data, replace_fact(parsed, fact=fact), known)
        elif not parsed.complete:
            self._adopt(name, data, parsed, None)
        self.keep_foreign(fact_id, parsed.foreign)
        return fact

    def keep_foreign(self, fact_id: str, lines: str) -> None:
        if lines:
            self.foreign[fact_id] = lines
        else:
            self.foreign.pop(fact_id, None)

    def _remember(self, name: str, fact: Fact) -> None:
        self.problems.pop(name, None)
        self._last_good[fact.id] = fact
        self._catalogue.put(fact)

    def _report(self, name: str, message: str) -> None:
        self._catalogue.discard(_id_of(name))
        self.problems[name] = message


def file_of(fact_id: str) -> str:
    return f"{fact_id}.md"


def _id_of(name: str) -> str:
    return name.removesuffix(".md")
