"""`edit_file`: an exact replacement in a text file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sidecar.tools import files, textfile
from sidecar.tools.builtin.common import PATH, blocking, builtin, confinement, from_editor, touches
from sidecar.tools.builtin.diffs import diff_of, unified
from sidecar.tools.builtin.read_file import must_exist
from sidecar.tools.confine import Confinement
from sidecar.tools.edits import Edited, edit
from sidecar.tools.files import Stop
from sidecar.tools.port import ToolContext, ToolOutcome
from sidecar.tools.refusal import Refused
from sidecar.tools.text import clean, count


async def edit_file(
    context: ToolContext, path: str, old_text: str, new_text: str, replace_all: bool = False
) -> ToolOutcome:
    """Replaces `old_text`, which must occur exactly once unless `replace_all`, in one step. Encoding, BOM, line ends
    and mode stay; `\\n` stands for the file's own line ends. A file that changes meanwhile is not overwritten."""
    place = confinement(context)
    real = place.resolve(path)
    name = place.shown(real)
    open_text = await from_editor(context, place, real)
    if context.files is not None and open_text is not None:
        edited = edit(open_text, old_text, new_text, replace_all=replace_all, name=name)
        if await context.files.write_text(Path(real), edited.text):
            return _outcome(real, name, open_text, edited, old_text, new_text)

    def change(stop: Stop) -> tuple[str, Edited]:
        before, text = _load(place, real)
        edited = edit(text.text, old_text, new_text, replace_all=replace_all, name=name)
        files.replace(place, real, textfile.encode(edited.text, text.encoding), before, stop)
        return text.text, edited

    old, edited = await blocking(change)
    return _outcome(real, name, old, edited, old_text, new_text)


def _load(place: Confinement, real: str) -> tuple[files.Snapshot, textfile.Text]:
    must_exist(place, real)
    before = files.snapshot(place, real)
    return before, textfile.decode(before.data, place.shown(real))


def _outcome(real: str, name: str, old: str, edited: Edited, old_text: str, new_text: str) -> ToolOutcome:
    lines = ", ".join(map(str, edited.lines[:20])) + (", ..." if len(edited.lines) > 20 else "")
    where = f"{'line' if len(edited.lines) == 1 else 'lines'} {lines}"
    summary = f"Edited {name}: {count(len(edited.lines), 'replacement')} ({where})."
    part = {"path": clean(real), "old_text": clean(old_text), "new_text": clean(new_text)}
    return ToolOutcome.text(summary, locations=(real,), diff=diff_of(real, old, edited.text) or part)


async def _preview(context: ToolContext, arguments: dict[str, Any]) -> str | None:
    place = confinement(context)
    every = bool(arguments.get("replace_all", False))
    try:
        real = place.resolve(arguments["path"])
        name = place.shown(real)
        open_text = await from_editor(context, place, real)

        def compare(_: Stop) -> str:
            text = _load(place, real)[1].text if open_text is None else open_text
            edited = edit(text, arguments["old_text"], arguments["new_text"], replace_all=every, name=name)
            return unified(name, text, edited.text)

        return await blocking(compare)
    except Refused as refusal:
        return str(refusal)


TOOL = builtin(
    edit_file,
    description=(
        "Replaces a passage of a text file. `old_text` must be exactly what the file holds, white space included, and"
        " occur once; give enough lines around it, or set replace_all. \\n matches the file's own line ends."
    ),
    properties={
        "path": PATH,
        "old_text": {"type": "string", "description": "The exact text to replace."},
        "new_text": {"type": "string", "description": "The text to put in its place; empty to delete it."},
        "replace_all": {"type": "boolean", "description": "Replace every occurrence. Default false."},
    },
    required=("path", "old_text", "new_text"),
    side_effects=True,
    is_edit=True,
    main_argument="path",
    is_path=True,
    conflict_key=touches("path"),
    preview=_preview,
)
