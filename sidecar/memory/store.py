"""Facts of one scope on disk.

    <folder>/facts/<id>.md              the facts, one file each; people may edit, add and remove files
    <folder>/revisions/<id>/<n>.md      earlier revisions
    <folder>/archive/<id>.<n>.md        forgotten facts
    <folder>/root                       project stores: the workspace root that the folder belongs to

Every write is a whole file or none, made under a lock that other processes respect, after a look at what they and
people have changed. All methods are thread-safe and may block; they raise `Fault` (`stale_revision`,
`invalid_params`, `store_write_failed`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from protocol.memory import Fact, FactInput, FactScope
from record_store import files
from sidecar import ids
from sidecar.clock import Clock
from sidecar.errors import Fault
from sidecar.memory import disk, facts
from sidecar.memory.catalogue import Catalogue
from sidecar.memory.facts import Parsed, serialise
from sidecar.memory.folder import FactFolder, file_of


class FactStore:
    """One folder. `catalogue` and `view` belong to who holds `lock`."""

    def __init__(self, folder: Path, scope: FactScope, clock: Clock, root: Path | None = None) -> None:
        self.folder = folder
        self.scope: FactScope = scope
        self.root = root
        self.lock = threading.RLock()
        self.catalogue = Catalogue()
        self.view = FactFolder(folder / "facts", scope, self.catalogue, self._adopt)
        self._clock = clock
        self._lock_depth = 0

    def is_of(self, root: Path) -> bool:
        """Whether this is the store of that workspace, by what its folder says too."""
        if self.root != root:
            return False
        try:
            return (self.folder / "root").read_bytes() == _root_text(root)
        except FileNotFoundError:
            return not self.view.directory.exists()
        except OSError:
            return False

    def get(self, fact_id: str) -> Fact | None:
        """The fact as it is on disk now."""
        with self.lock:
            if ids.is_valid(fact_id):
                self.view.look_at([fact_id])
            return self.catalogue.facts.get(fact_id)

    # ---------------------------------------------------------------- writing

    def create(self, given: FactInput, *, only_if: Callable[[], None] | None = None) -> Fact:
        """A new fact of checked input. `only_if` is called under the lock, after a whole look at the disk; what it
        raises ends the write."""
        with self._writing():
            if only_if is not None:
                only_if()
            fact = facts.created(ids.new("fact"), replace(given, scope=self.scope), self._clock.now_ms())
            self._write(fact)
            return fact

    def update(self, fact_id: str, given: FactInput, expected_revision: int) -> Fact:
        """The next revision; the one before is kept."""
        with self._writing():
            old = self._current(fact_id, expected_revision)
            fact = facts.updated(old, replace(given, scope=self.scope), self._clock.now_ms())
            self._keep(old)
            self._write(fact, self.view.foreign.get(fact_id, ""))
            return fact

    def put(self, fact: Fact, foreign: str = "") -> None:
        """Takes over a fact from another store, with what people wrote into its file."""
        with self._writing():
            self._write(fact, foreign)

    def archive(self, fact_id: str, expected_revision: int | None = None) -> Fact:
        """Moves a fact out of sight; its text stays in the archive."""
        with self._writing():
            fact = self._current(fact_id, expected_revision)
            archive = self.folder / "archive"
            files.make_directory(archive)
            files.replace(self.view.directory / file_of(fact_id), archive / f"{fact_id}.{fact.revision}.md")
            files.sync_directory(archive)
            files.sync_directory(self.view.directory)
            self.view.drop(file_of(fact_id))
            return fact

    def _current(self, fact_id: str, expected_revision: int | None) -> Fact:
        fact = self.catalogue.facts.get(fact_id)
        if fact is None:
            raise no_such_fact()
        if expected_revision is not None and fact.revision != expected_revision:
            raise Fault(
                "stale_revision",
                f"The fact is at revision {fact.revision} now, not at {expected_revision}.",
                hint="read it again with memory.get, then save with its revision",
                current=fact.revision,
            )
        return fact

    def _adopt(self, name: str, seen: bytes, written: Parsed, known: Fact | None) -> None:
        """Writes a person's version back as a revision of ours. Where that fails (a read-only store, one that is
        locked, a file that changed again) it stays as it is on disk."""
        try:
            with self._locked_on_disk():
                if known is not None:
                    self._keep(known)
                if (self.view.directory / name).read_bytes() == seen:
                    self._write(written.fact, written.foreign)
        except OSError:
            pass

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Holds both locks, with everything up to date; the one place where a failing disk becomes a `Fault`."""
        with self.lock:
            try:
                self._make_folder()
                with self._locked_on_disk():
                    self.view.refresh()
                    yield
            except OSError as error:
                raise Fault(
                    "store_write_failed",
                    "The memory could not be written.",
                    hint="check free space and permissions of the data directory",
                    cause="busy" if isinstance(error, TimeoutError) else "io",
                ) from None

    @contextmanager
    def _locked_on_disk(self) -> Iterator[None]:
        """The lock against other processes; `lock` is held. Taken once, however deep."""
        if self._lock_depth:
            yield
            return
        with disk.locked(self.folder):
            self._lock_depth = 1
            try:
                yield
            finally:
                self._lock_depth = 0

    def _make_folder(self) -> None:
        if self.view.directory.is_dir():
            return
        files.make_directory(self.folder)
        if self.root is not None:
            files.write_atomic(self.folder / "root", _root_text(self.root), "memory.root")
        files.make_directory(self.view.directory)

    def _keep(self, fact: Fact) -> None:
        directory = self.folder / "revisions" / fact.id
        files.make_directory(directory)
        text = serialise(fact, self.view.foreign.get(fact.id, ""))
        files.write_atomic(directory / f"{fact.revision}.md", text.encode(), "memory.revision")

    def _write(self, fact: Fact, foreign: str = "") -> None:
        path = self.view.directory / file_of(fact.id)
        files.write_atomic(path, serialise(fact, foreign).encode(), "memory.fact")
        self.view.keep_foreign(fact.id, foreign)
        self.view.wrote(fact, os.stat(path, follow_symlinks=False))


def no_such_fact() -> Fault:
    return Fault("invalid_params", "There is no fact with this id.", hint="memory.list names them", path="id")


def _root_text(root: Path) -> bytes:
    return f"{root}\n".encode("utf-8", "surrogateescape")
