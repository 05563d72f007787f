"""How `glob` and `grep` hand their work to the process that searches."""

from __future__ import annotations

import json
from typing import Any

from anyio import to_thread

from sidecar.tools import process
from sidecar.tools.builtin.common import confinement
from sidecar.tools.builtin.read_file import must_exist
from sidecar.tools.environment import for_helpers
from sidecar.tools.port import ToolContext, ToolOutcome
from sidecar.tools.refusal import Refused
from sidecar.tools.search import MAX_TEXT, SECONDS
from sidecar.tools.search_worker import HARD_SECONDS


async def search(context: ToolContext, kind: str, path: str, **request: Any) -> ToolOutcome:
    """The result of a search that starts at `path`. Raises `Refused`."""
    place = confinement(context)
    start = place.resolve(path)
    await to_thread.run_sync(must_exist, place, start)
    line = json.dumps({"kind": kind, "cwd": place.cwd, "roots": place.roots, "start": start, **request})
    answer = await process.ask(
        "search_worker",
        line.encode(),
        environment=for_helpers(context.environment),
        timeout_s=HARD_SECONDS + 2,
        limit=8 * MAX_TEXT,
    )
    if answer.exit_code is not None and answer.exit_code > 0:
        raise Refused("The search failed. Try it with another pattern or path, or use run_command.")
    if answer.exit_code != 0:
        raise Refused(
            f"The search took more than {SECONDS:.0f} seconds and was stopped. Use a simpler pattern (nested"
            " repetitions such as (a+)+ can take for ever), or narrow it with path or glob."
        )
    result = json.loads(answer.output)
    if "refused" in result:
        raise Refused(result["refused"])
    return ToolOutcome.text(result["text"], locations=(start,))
