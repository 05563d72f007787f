"""`grep`: lines by pattern."""

from __future__ import annotations

import os
import shutil

from sidecar.tools import globs
from sidecar.tools.builtin.common import PATH, builtin, touches
from sidecar.tools.builtin.searching import search
from sidecar.tools.port import ToolContext, ToolOutcome
from sidecar.tools.search import compiled

DEFAULT_LINES = 100
MAX_LINES = 1000


async def grep(
    context: ToolContext,
    pattern: str,
    path: str = ".",
    glob: str | None = None,
    ignore_case: bool = False,
    limit: int = DEFAULT_LINES,
) -> ToolOutcome:
    """`path:line:text` of every matching line, at most `limit`; the same with ripgrep installed and without."""
    if glob is not None:
        compiled(glob.removeprefix("!").lstrip("/"))
    ripgrep = shutil.which("rg", path=context.environment.get("PATH", os.defpath))
    return await search(
        context, "grep", path, pattern=pattern, glob=glob, ignore_case=ignore_case, limit=limit, ripgrep=ripgrep
    )


TOOL = builtin(
    grep,
    description=(
        "Searches the lines of files for a regular expression (Python syntax). Returns `path:line:text`. Leaves out"
        " binary files and what .gitignore names; `glob` limits it to some files, e.g. `*.py`, `src/**`, `!*.min.js`."
    ),
    properties={
        "pattern": {"type": "string", "minLength": 1, "maxLength": 2000},
        "path": PATH | {"description": "File or directory; the working directory if it is left out."},
        "glob": {"type": "string", "minLength": 1, "maxLength": globs.MAX_LENGTH},
        "ignore_case": {"type": "boolean", "description": "Default false."},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LINES, "description": f"Default {DEFAULT_LINES}."},
    },
    required=("pattern",),
    main_argument="path",
    is_path=True,
    conflict_key=touches("path", "."),
)
