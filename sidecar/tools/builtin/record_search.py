"""`record_search`: looks for text in the agent's own event log."""

from __future__ import annotations

from sidecar.tools.builtin.common import builtin
from sidecar.tools.port import ToolContext, ToolOutcome
from sidecar.tools.refusal import Refused

DEFAULT_HITS = 20
MAX_HITS = 200


async def record_search(
    context: ToolContext, query: str, regex: bool = False, limit: int = DEFAULT_HITS
) -> ToolOutcome:
    """The lines of the log whose text holds `query`, the newest first, each with an excerpt around the hit."""
    if context.records is None:
        raise Refused("This session's event log cannot be read.")
    if not query.strip():
        raise Refused("`query` is empty: give a word or a phrase to look for.")
    return ToolOutcome.text(await context.records.search(query, regex=regex, limit=limit))


TOOL = builtin(
    record_search,
    description=(
        "Searches everything that was said and done in this session, also what compaction took out of the context."
        " Lists the record's line, type, role and time with an excerpt; read one with record_read."
        " Case does not matter; with regex true, `query` is a regular expression."
    ),
    properties={
        "query": {"type": "string", "minLength": 1, "maxLength": 1000},
        "regex": {"type": "boolean", "description": "Whether query is a regular expression. Default false."},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_HITS, "description": f"Default {DEFAULT_HITS}."},
    },
    required=("query",),
    main_argument="query",
)
