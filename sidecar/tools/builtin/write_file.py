"""`write_file`: a whole text file, new or replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol.messages import JsonObject
from sidecar.tools import files, textfile
from sidecar.tools.builtin.common import PATH, blocking, builtin, confinement, from_editor, touches
from sidecar.tools.builtin.diffs import diff_of, unified
from sidecar.tools.confine import Confinement
from sidecar.tools.files import Stop
from sidecar.tools.port import ToolContext, ToolOutcome
from sidecar.tools.refusal import Refused
from sidecar.tools.text import count


async def write_file(context: ToolContext, path: str, content: str) -> ToolOutcome:
    """Writes the file in one step; missing directories are made. A file that is there keeps its encoding, BOM and
    mode, and its line ends if they are all alike. Binary files and what is no file are refused."""
    place = confinement(context)
    real = place.resolve(path)
    if context.files is not None:
        kept = await _kept(context, place, real)
        text = content if kept is None else _in_style_of(kept, content)
        if await context.files.write_text(Path(real), text):
            return _outcome(place, real, text, None if kept is None else kept.text)

    def write(stop: Stop) -> tuple[str | None, str]:
        before, old = _existing(place, real)
        text = content if old is None else _in_style_of(old, content)
        encoding = textfile.Encoding() if old is None else old.encoding
        files.replace(place, real, textfile.encode(text, encoding), before, stop)
        return (None if old is None else old.text), text

    old, new = await blocking(write)
    return _outcome(place, real, new, old)


async def _kept(context: ToolContext, place: Confinement, real: str) -> textfile.Text | None:
    """What would be replaced: the editor's text, else the file's; None if there is none."""
    open_text = await from_editor(context, place, real)
    if open_text is not None:
        return textfile.Text(open_text, textfile.Encoding())
    _, text = await blocking(lambda _: _existing(place, real))
    return text


def _existing(place: Confinement, real: str) -> tuple[files.Snapshot | None, textfile.Text | None]:
    before = files.snapshot_if_any(place, real)
    if before is None:
        return None, None
    return before, textfile.decode(before.data, place.shown(real))


def _in_style_of(old: textfile.Text, content: str) -> str:
    """The new text with the old one's line ends; where those are mixed, or the new text has its own, as it is. A byte
    order mark that it begins with is the one that the file has already."""
    if old.encoding.bom:
        content = content.removeprefix("\ufeff")
    if not textfile.is_uniform(old.text) or "\r" in content.replace("\r\n", "\n"):
        return content
    if old.newline == "\n" and "\r\n" in content:
        return content
    return textfile.with_newlines(content, old.newline)


def _outcome(place: Confinement, real: str, text: str, old: str | None) -> ToolOutcome:
    verb = "Created" if old is None else "Replaced"
    lines = text.count("\n") + (not text.endswith("\n") and text != "")
    summary = f"{verb} {place.shown(real)} ({count(lines, 'line')})."
    return ToolOutcome.text(summary, locations=(real,), diff=diff_of(real, old, text))


async def _preview(context: ToolContext, arguments: dict[str, Any]) -> str | None:
    place = confinement(context)
    content = str(arguments["content"])
    try:
        real = place.resolve(arguments["path"])
        old = await _kept(context, place, real)
    except Refused as refusal:
        return str(refusal)
    return unified(place.shown(real), "" if old is None else old.text, content)


_CONTENT: JsonObject = {"type": "string", "description": "The whole text of the file."}

TOOL = builtin(
    write_file,
    description=(
        "Writes a whole text file, replacing what is there; makes missing directories. An existing file keeps its"
        " encoding, line ends and mode. To change a part of a file use edit_file."
    ),
    properties={"path": PATH, "content": _CONTENT},
    required=("path", "content"),
    side_effects=True,
    is_edit=True,
    main_argument="path",
    is_path=True,
    conflict_key=touches("path"),
    preview=_preview,
)
