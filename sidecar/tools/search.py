"""Finds files by name and lines by pattern in the working folders. Blocking; standard library only.

It runs in a process of its own (`search_worker`): a pattern that takes for ever is killed with it, and the work costs
the daemon nothing. The results are the same with ripgrep and without: it only tells which files need not be read.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from sidecar.tools import globs, literals
from sidecar.tools.confine import Confinement
from sidecar.tools.refusal import Refused, from_os
from sidecar.tools.text import around, clean, count, printable
from sidecar.tools.textfile import SAMPLE, binary, sniff
from sidecar.tools.walk import MAX_DEPTH, Walk

SECONDS = 20.0
"""After this a search ends with what it has."""
LINE_WIDTH = 400
MAX_TEXT = 40_000
"""Characters of all results together; below the limit at which results are moved out of the context."""
CHUNK = 1 << 20
MAX_LINE = 4 << 20
"""Characters; a longer line is searched in pieces."""
BATCH = 100_000
"""Characters of file names given to one run of ripgrep."""


@dataclass(frozen=True, slots=True)
class GlobRequest:
    """Files below `start` (resolved) whose path from there matches `pattern`."""

    place: Confinement
    start: str
    pattern: str
    limit: int


@dataclass(frozen=True, slots=True)
class GrepRequest:
    """Lines of files below `start` (resolved), or of that file, that match `pattern`, a Python regular expression.

    `glob` limits the files: by path from the start, or by name alone if it has no `/`; with a `!` in front it leaves
    out. `ripgrep` is its program, if there is one.
    """

    place: Confinement
    start: str
    pattern: str
    glob: str | None
    ignore_case: bool
    limit: int
    ripgrep: str | None


@dataclass(slots=True)
class _Found:
    """Result lines, bounded; `more` is why there may be more."""

    limit: int
    lines: list[str] = field(default_factory=list)
    more: str | None = None
    _size: int = 0

    def add(self, line: str) -> bool:
        """False if it did not fit any more."""
        if len(self.lines) >= self.limit:
            self.more = f"the first {self.limit:,} are shown; raise limit, or narrow the search, to see others"
            return False
        self._size += len(line) + 1
        if self._size > MAX_TEXT:
            self.more = f"the first {len(self.lines):,} are shown, which is all that fits; narrow the search"
            return False
        self.lines.append(line)
        return True

    def text(self, nothing: str, *notes: str | None) -> str:
        said = [n for n in (self.more, *notes) if n is not None]
        return "\n".join([*self.lines, *([] if self.lines else [nothing]), *(f"[{n}]" for n in said)])


def glob(request: GlobRequest) -> str:
    """One path a line, sorted within each directory; a pattern that ends in `/` finds directories, others files and
    links. Raises `Refused` for a bad pattern or start."""
    place, pattern = request.place, request.pattern
    wants_directories = pattern.endswith("/")
    matches = compiled(pattern.rstrip("/"))
    levels = MAX_DEPTH if "**" in pattern else max(f.count("/") for f in globs.alternatives(pattern.rstrip("/")))
    walk = Walk(place, request.start, deepest=levels)
    found = _Found(request.limit)
    until = time.monotonic() + SECONDS
    late = None
    for entry in walk:
        if (entry.kind == "directory") == wants_directories and matches.fullmatch(entry.path) is not None:
            name = place.shown(os.path.join(request.start, entry.path))
            if not found.add(name + ("/" if wants_directories else "")):
                break
        if time.monotonic() > until:
            late = f"stopped after {SECONDS:.0f} seconds; narrow the search"
            break
    nothing = f"No {'directory' if wants_directories else 'file'} matches `{printable(pattern)}` in"
    return found.text(f"{nothing} `{place.shown(request.start)}`.", walk.incomplete, late)


def compiled(pattern: str) -> re.Pattern[str]:
    """Raises `Refused` for a glob that cannot be used."""
    try:
        return globs.matcher(pattern)
    except (globs.BadGlob, re.error) as error:
        raise Refused(f"The glob `{printable(pattern)}` cannot be used: {error}.") from None


def grep(request: GrepRequest) -> str:
    """`path:line:text` for each matching line, files in the order of the walk; long lines are cut around the match.
    Binary files are left out. Raises `Refused` for a bad pattern, or a start that is no text and no directory."""
    try:
        pattern = re.compile(request.pattern, re.IGNORECASE if request.ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise Refused(
            f"`{printable(request.pattern)}` is not a valid regular expression (Python syntax): {error}."
            " To look for plain text, put a backslash before each of . * + ? ( ) [ ] { } | ^ $ \\"
        ) from None
    search = _Grep(request, pattern)
    return search.run()


class _Grep:
    def __init__(self, request: GrepRequest, pattern: re.Pattern[str]) -> None:
        self._request = request
        self._place = request.place
        self._pattern = pattern
        self._found = _Found(request.limit)
        self._until = time.monotonic() + SECONDS
        self._notes: list[str | None] = []
        self._searched = 0
        texts = literals.required(request.pattern)
        ignore_case = bool(pattern.flags & re.IGNORECASE)
        self._texts = None if texts is None else [literals.as_expression(t, ignore_case=ignore_case) for t in texts]

    def run(self) -> str:
        for batch in self._batches():
            for path in self._worth_reading(batch):
                if not self._file(path):
                    return self._text()
        return self._text()

    def _text(self) -> str:
        where = self._place.shown(self._request.start)
        looked = f"{count(self._searched, 'file')} looked at"
        return self._found.text(f"No line matches in `{where}` ({looked}).", *self._notes)

    def _batches(self) -> Iterator[list[str]]:
        """Paths of files to search, absolute, a bounded number at a time."""
        start = self._request.start
        if not os.path.isdir(start):
            try:
                with self._place.file(start) as fd:
                    if sniff(os.read(fd, SAMPLE)) is None:
                        raise binary(self._place.shown(start))
            except OSError as error:
                raise from_os(error, self._place.shown(start)) from None
            yield [start]
            return
        walk = Walk(self._place, start)
        batch: list[str] = []
        size = 0
        for entry in walk:
            if entry.kind == "file" and self._is_wanted(entry.path):
                path = os.path.join(start, entry.path)
                batch.append(path)
                size += len(path)
            if size > BATCH or self._late():
                yield batch
                batch, size = [], 0
                if self._late():
                    return
        self._notes.append(walk.incomplete)
        yield batch

    def _is_wanted(self, path: str) -> bool:
        glob = self._request.glob
        if glob is None:
            return True
        leaves_out = glob.startswith("!")
        glob = glob.removeprefix("!")
        subject = path if "/" in glob else path.rpartition("/")[2]
        return (compiled(glob.lstrip("/")).fullmatch(subject) is None) == leaves_out

    def _worth_reading(self, paths: list[str]) -> list[str]:
        """Those that may hold a match, in the same order."""
        self._searched += len(paths)
        if self._request.ripgrep is None or self._texts is None:
            return paths
        paths = [p for p in paths if self._is_searchable(p)]
        if not paths:
            return paths
        import subprocess

        command = [self._request.ripgrep, "--no-config", "--no-messages", "--files-with-matches", "--null", "--text"]
        for text in self._texts:
            command += ["--regexp", text]
        try:
            done = subprocess.run(
                [*command, "--", *paths],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=max(0.1, self._until - time.monotonic()),
            )
        except (OSError, subprocess.SubprocessError):
            return paths
        if done.returncode not in (0, 1):
            return paths
        matching = {os.fsdecode(name) for name in done.stdout.split(b"\0")}
        return [p for p in paths if p in matching]

    def _is_searchable(self, path: str) -> bool:
        """False for what ripgrep would read in vain, or for ever: no file any more, or a large one that is binary."""
        try:
            status = os.lstat(path)
            if not stat.S_ISREG(status.st_mode):
                return False
            if status.st_size <= CHUNK:
                return True
            with self._place.file(path) as fd:
                return sniff(os.read(fd, SAMPLE)) is not None
        except (Refused, OSError):
            return False

    def _file(self, path: str) -> bool:
        """Whether to go on with the next file."""
        name = self._place.shown(path)
        try:
            with self._place.file(path) as fd:
                for number, line in _lines(fd):
                    match = self._pattern.search(line)
                    if match is not None:
                        shown = printable_line(around(line, match.start(), match.end(), LINE_WIDTH))
                        if not self._found.add(f"{name}:{number}:{shown}"):
                            return False
        except (Refused, OSError) as error:
            if path == self._request.start:
                raise from_os(error, name) if isinstance(error, OSError) else error from None
        return not self._late()

    def _late(self) -> bool:
        if time.monotonic() <= self._until:
            return False
        note = f"stopped after {SECONDS:.0f} seconds; narrow the search with path or glob"
        if note not in self._notes:
            self._notes.append(note)
        return True


def printable_line(line: str) -> str:
    return clean(line.replace("\r", "\\r"))


def _lines(fd: int) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line, without its end; nothing if the file is binary."""
    head = os.read(fd, SAMPLE)
    encoding = sniff(head)
    if encoding is None:
        return
    decoder = codecs.getincrementaldecoder(encoding.codec)("replace")
    data = head[len(encoding.bom) :]
    rest = ""
    number = 1
    while True:
        text = rest + decoder.decode(data, final=not data)
        parts = text.split("\n")
        rest = parts.pop()
        for part in parts:
            yield number, part.removesuffix("\r")
            number += 1
        if not data:
            if rest:
                yield number, rest
            return
        if len(rest) > MAX_LINE:
            yield number, rest
            rest = ""
        data = os.read(fd, CHUNK)
