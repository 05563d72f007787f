"""What the built-in tools share: how a typed function becomes a `Tool`, and how blocking work is done."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from anyio import to_thread

from protocol.messages import JsonObject, ToolSpec
from sidecar.tools.confine import Confinement
from sidecar.tools.files import Stop
from sidecar.tools.port import Preview, Tool, ToolContext, ToolOutcome
from sidecar.tools.refusal import Refused, from_os
from sidecar.tools.text import clean
from sidecar.tools.textfile import SAMPLE, binary, sniff

T = TypeVar("T")

PATH: JsonObject = {"type": "string", "description": "Path, relative to the working directory or absolute."}


def builtin(
    function: Callable[..., Awaitable[ToolOutcome]],
    *,
    description: str,
    properties: JsonObject,
    required: tuple[str, ...] = (),
    side_effects: bool = False,
    is_edit: bool = False,
    main_argument: str | None = None,
    is_path: bool = False,
    conflict_key: Callable[[ToolContext, dict[str, Any]], str | None] | None = None,
    preview: Preview | None = None,
) -> Tool:
    """The tool that calls `function(context, **arguments)`, under the function's name. What the function refuses
    becomes an error result. Integers arrive as integers, also where a model wrote `2.0`."""

    whole = frozenset(name for name, schema in properties.items() if schema.get("type") == "integer")

    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutcome:
        try:
            outcome = await function(context, **{k: int(v) if k in whole else v for k, v in arguments.items()})
        except Refused as refusal:
            return ToolOutcome.error(clean(str(refusal)))
        return replace(outcome, locations=tuple(map(clean, outcome.locations)))

    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    spec = ToolSpec(name=function.__name__, description=description, parameters=parameters, side_effects=side_effects)
    return Tool(spec, run, side_effects, is_edit, main_argument, is_path, conflict_key, preview)


def confinement(context: ToolContext) -> Confinement:
    return Confinement.of(context.cwd, context.roots)


def touches(argument: str, default: str | None = None) -> Callable[[ToolContext, dict[str, Any]], str | None]:
    """A conflict key: the resolved path that this argument names; None if it names none that may be used."""

    def key(context: ToolContext, arguments: dict[str, Any]) -> str | None:
        text = arguments.get(argument, default)
        if not isinstance(text, str):
            return None
        try:
            return confinement(context).resolve(text)
        except Refused:
            return None

    return key


async def from_editor(context: ToolContext, place: Confinement, real: str) -> str | None:
    """The text of a file as the host's editor has it; None: read the disk. What lies there as something else than a
    text file is refused before the editor is asked."""
    if context.files is None:
        return None
    await blocking(lambda _: _refuse_no_text(place, real))
    return await context.files.read_text(Path(real))


def _refuse_no_text(place: Confinement, real: str) -> None:
    if not os.path.lexists(real):
        return
    try:
        with place.file(real) as fd:
            if sniff(os.read(fd, SAMPLE)) is None:
                raise binary(place.shown(real))
    except OSError as error:
        raise from_os(error, place.shown(real)) from None


async def blocking(work: Callable[[Stop], T]) -> T:
    """Runs `work` in a thread. On cancellation the caller is free at once; the work is told by `Stop` and ends soon,
    and what it has not put in place by then it never does."""
    stop = Stop()
    try:
        return await to_thread.run_sync(work, stop, abandon_on_cancel=True)
    finally:
        stop.set()
