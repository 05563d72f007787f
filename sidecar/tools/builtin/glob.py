"""`glob`: files by name."""

from __future__ import annotations

import os

from sidecar.tools import globs
from sidecar.tools.builtin.common import PATH, builtin, touches
from sidecar.tools.builtin.searching import search
from sidecar.tools.port import ToolContext, ToolOutcome
from sidecar.tools.refusal import Refused

MAX_FILES = 1000


async def glob(context: ToolContext, pattern: str, path: str = ".") -> ToolOutcome:
    """Paths of files below `path` that match, one a line, at most `MAX_FILES`. What `.gitignore` leaves out is not
    looked into, unless the pattern or the path names that directory."""
    folder, rest = globs.literal_prefix(pattern)
    if ".." in rest.split("/"):
        raise Refused("`..` cannot stand after a wildcard: give the directory to start from in `path`.")
    start = os.path.join(path, folder) if folder else path
    return await search(context, "glob", start, pattern=rest, limit=MAX_FILES)


TOOL = builtin(
    glob,
    description=(
        "Finds files by name: `*` and `?` within a name, `**` for any directories, `{a,b}` for alternatives, e.g."
        " `src/**/*.{ts,tsx}`. Leaves out what .gitignore names. A pattern that ends in / finds directories."
    ),
    properties={
        "pattern": {"type": "string", "minLength": 1, "maxLength": globs.MAX_LENGTH},
        "path": PATH | {"description": "Directory to start from; the working directory if it is left out."},
    },
    required=("pattern",),
    main_argument="path",
    is_path=True,
    conflict_key=touches("path", "."),
)
