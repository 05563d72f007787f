"""`record_read`: one record of the agent's own event log."""

from __future__ import annotations

from sidecar.tools.builtin.common import builtin
from sidecar.tools.port import ToolContext, ToolOutcome
from sidecar.tools.refusal import Refused

DEFAULT_CHARACTERS = 10_000
MAX_CHARACTERS = 100_000


async def record_read(context: ToolContext, line: int, offset: int = 0, limit: int = DEFAULT_CHARACTERS) -> ToolOutcome:
    """Characters `offset` to `offset + limit - 1` (from 0) of the record's stored text, what was moved out of the
    context included, with a head line that says what it is and how much there is."""
    if context.records is None:
        raise Refused("This session's event log cannot be read.")
    return ToolOutcome.text(await context.records.read(line, offset=offset, limit=min(limit, MAX_CHARACTERS)))


TOOL = builtin(
    record_read,
    description=(
        "Reads one record of this session's log by its line number, as named in a marker, a summary or a"
        " record_search hit. Returns up to `limit` characters from character `offset` (from 0) of its text."
    ),
    properties={
        "line": {"type": "integer", "minimum": 1},
        "offset": {"type": "integer", "minimum": 0, "description": "First character, from 0."},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_CHARACTERS, "description": "Number of characters."},
    },
    required=("line",),
)
