"""What the tests of tools need: a context in a folder, and a way to call a tool as the loop does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol.messages import TextPart
from sidecar.settings import ToolSettings
from sidecar.tools.port import FileAccess, RecordAccess, Todos, Tool, ToolContext, ToolOutcome
from sidecar.tools.registry import builtin_tools
from sidecar.tools.schema import mismatch

TOOLS: Mapping[str, Tool] = {tool.spec.name: tool for tool in builtin_tools()}


def context_in(
    folder: Path,
    *,
    agent_id: str = "main",
    roots: tuple[Path, ...] = (),
    settings: ToolSettings | None = None,
    environment: Mapping[str, str] | None = None,
    records: RecordAccess | None = None,
    todos: Todos | None = None,
    files: FileAccess | None = None,
    secret_names: frozenset[str] = frozenset(),
) -> ToolContext:
    """A call's context that works in `folder`."""
    return ToolContext(
        session_id="s",
        agent_id=agent_id,
        turn_id="t",
        tool_call_id="c",
        cwd=Path(os.path.realpath(folder)),
        roots=tuple(Path(os.path.realpath(r)) for r in roots),
        settings=settings or ToolSettings(builtin="all"),
        environment=dict(os.environ) if environment is None else environment,
        records=records,
        todos=todos,
        files=files,
        secret_names=secret_names,
    )


async def call(context: ToolContext, name: str, **arguments: Any) -> ToolOutcome:
    """Checks the arguments and runs the tool."""
    tool = TOOLS[name]
    wrong = await mismatch(tool.spec, arguments)
    return ToolOutcome.error(wrong) if wrong is not None else await tool.run(context, arguments)


def text_of(outcome: ToolOutcome) -> str:
    return "".join(p.text for p in outcome.content if isinstance(p, TextPart))


async def good(context: ToolContext, name: str, **arguments: Any) -> str:
    """The text of a call that must succeed."""
    outcome = await call(context, name, **arguments)
    assert not outcome.is_error, text_of(outcome)
    return text_of(outcome)


async def bad(context: ToolContext, name: str, **arguments: Any) -> str:
    """The text of a call that must fail."""
    outcome = await call(context, name, **arguments)
    assert outcome.is_error, text_of(outcome)
    return text_of(outcome)
