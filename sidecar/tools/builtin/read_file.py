"""`read_file`: lines of a text file."""

from __future__ import annotations

import difflib
import os

from sidecar.tools.builtin.common import PATH, blocking, builtin, confinement, from_editor, touches
from sidecar.tools.confine import Confinement
from sidecar.tools.files import Stop
from sidecar.tools.port import ToolContext, ToolOutcome
from sidecar.tools.reading import Slice, read_slice, slice_text
from sidecar.tools.refusal import Refused, from_os
from sidecar.tools.text import clean, count, printable

DEFAULT_LINES = 2000
MAX_LINES = 100_000
ROOM_FOR_NOTES = 1024
"""Bytes below the spill limit that are left for what is said about the text."""


async def read_file(context: ToolContext, path: str, offset: int = 1, limit: int = DEFAULT_LINES) -> ToolOutcome:
    """The text of lines `offset` to `offset + limit - 1` with `\\n` line ends and without BOM, then, if it is not the
    whole file, a line that says which part it is and how to go on."""
    place = confinement(context)
    real = place.resolve(path)
    name = place.shown(real)
    budget = context.settings.spill_bytes - min(ROOM_FOR_NOTES, context.settings.spill_bytes // 4)
    open_text = await from_editor(context, place, real)
    if open_text is not None:
        part = slice_text(open_text, first=offset, count=limit, budget=budget)
    else:

        def read(stop: Stop) -> Slice:
            must_exist(place, real)
            try:
                with place.file(real) as fd:
                    return read_slice(fd, name, first=offset, count=limit, budget=budget, check=stop.check)
            except OSError as error:
                raise from_os(error, name) from None

        part = await blocking(read)
    if part.last < part.first and part.first > 1:
        raise Refused(f"`{name}` has only {count(part.total or 0, 'line')}: offset {offset} is past its end.")
    return ToolOutcome.text(clean(part.text) + _notes(part, name), locations=(real,))


def must_exist(place: Confinement, real: str) -> None:
    """Raises `Refused` for a path that is not there, with names that look like it."""
    if os.path.lexists(real):
        return
    parent, wanted = os.path.split(real)
    try:
        names = os.listdir(parent)
    except OSError:
        raise Refused(f"There is no `{place.shown(real)}`, nor a directory `{place.shown(parent)}`.") from None
    close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(f'`{printable(n)}`' for n in close)}?" if close else ""
    raise Refused(f"There is no `{place.shown(real)}`.{hint}")


def _notes(part: Slice, name: str) -> str:
    notes: list[str] = []
    if part.total == 0:
        notes.append(f"{name} is empty")
    elif not part.text.strip():
        notes.append("nothing but white space")
    elif part.cut:
        notes.append(
            f"line {part.last} is too long and was cut here; use grep to find a place in it"
            " or run_command (cut, head -c) to see another part"
        )
    if not part.is_whole and part.total != 0:
        of = f" of {part.total:,}" if part.total is not None else ""
        ends = part.total is not None and part.last >= part.total
        way_on = "the end of the file" if ends else f"continue with offset {part.last + 1}"
        notes.append(f"lines {part.first:,} to {part.last:,}{of}; {way_on}")
    if part.odd:
        notes.append("bytes that are no text are shown as \ufffd")
    if part.encoding.title != "UTF-8" or part.newline != "\n":
        ends_of_lines = {"\n": "LF", "\r\n": "CRLF", "\r": "CR"}[part.newline]
        notes.append(f"{part.encoding.title}, {ends_of_lines} line ends, both kept when it is edited")
    if not notes:
        return ""
    return ("" if part.text.endswith("\n") or not part.text else "\n") + "\n".join(f"[{note}]" for note in notes)


TOOL = builtin(
    read_file,
    description=(
        "Reads a text file. Returns whole lines from `offset` (the first line is 1), at most `limit` of them"
        f" (default {DEFAULT_LINES}); a note at the end says when there is more. Line ends are shown as \\n."
    ),
    properties={
        "path": PATH,
        "offset": {"type": "integer", "minimum": 1, "description": "First line to read, from 1."},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LINES, "description": "Number of lines to read."},
    },
    required=("path",),
    main_argument="path",
    is_path=True,
    conflict_key=touches("path"),
)
