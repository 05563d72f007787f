"""`list_dir`: what is in a directory."""

from __future__ import annotations

import os

from sidecar.tools.builtin.common import PATH, blocking, builtin, confinement, touches
from sidecar.tools.builtin.read_file import must_exist
from sidecar.tools.confine import Confinement, kind_of
from sidecar.tools.files import Stop
from sidecar.tools.port import ToolContext, ToolOutcome
from sidecar.tools.refusal import from_os
from sidecar.tools.text import count, printable

MAX_ENTRIES = 1000


async def list_dir(context: ToolContext, path: str = ".") -> ToolOutcome:
    """One entry a line, sorted by name: `name/` for directories, `name (12 bytes)` for files, `name -> target` for
    links, at most `MAX_ENTRIES`."""
    place = confinement(context)
    real = place.resolve(path)

    def read(stop: Stop) -> tuple[list[str], int]:
        must_exist(place, real)
        return _entries(place, real)

    lines, total = await blocking(read)
    if total > len(lines):
        lines.append(f"[{count(total - len(lines), 'more entry', 'more entries')}; use glob to narrow it down]")
    return ToolOutcome.text("\n".join(lines) or f"[{place.shown(real)} is an empty directory]", locations=(real,))


def _entries(place: Confinement, real: str) -> tuple[list[str], int]:
    """The lines of the first `MAX_ENTRIES`, and how many entries there are."""
    with place.directory(real) as folder:
        fd = -1
        try:
            if folder >= 0:
                fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
            with os.scandir(fd if fd >= 0 else real) as found:
                entries = sorted(found, key=lambda e: e.name)
                return [_line(e, fd) for e in entries[:MAX_ENTRIES]], len(entries)
        except OSError as error:
            raise from_os(error, place.shown(real)) from None
        finally:
            if fd >= 0:
                os.close(fd)


def _line(entry: os.DirEntry[str], fd: int) -> str:
    name = printable(entry.name)
    try:
        if entry.is_symlink():
            target = os.readlink(entry.name, dir_fd=fd) if fd >= 0 else os.readlink(entry.path)
            return f"{name} -> {printable(target)}"
        if entry.is_dir(follow_symlinks=False):
            return f"{name}/"
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return name
    if entry.is_file(follow_symlinks=False):
        return f"{name} ({count(status.st_size, 'byte')})"
    return f"{name} ({kind_of(status.st_mode)})"


TOOL = builtin(
    list_dir,
    description="Lists a directory: names sorted, directories end in `/`, files with their size. Not recursive.",
    properties={"path": PATH | {"description": "Directory; the working directory if it is left out."}},
    main_argument="path",
    is_path=True,
    conflict_key=touches("path", "."),
)
