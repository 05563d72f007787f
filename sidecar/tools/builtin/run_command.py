"""`run_command`: a shell command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sidecar.tools import command as commands
from sidecar.tools.builtin.common import PATH, builtin, confinement
from sidecar.tools.command import Finished
from sidecar.tools.environment import for_commands
from sidecar.tools.port import TerminalOutcome, ToolContext, ToolOutcome
from sidecar.tools.text import clean, count

MAX_TIMEOUT_S = 3600
_BLOCKED = ("Permission denied", "Operation not permitted", "Read-only file system", "EACCES", "EPERM", "EROFS")


async def run_command(
    context: ToolContext, command: str, cwd: str = ".", timeout_s: float | None = None
) -> ToolOutcome:
    """Output (stdout and stderr together, middle left out when long) and exit code. An exit code other than 0 and a
    timeout are errors. Nothing of the command outlives the call."""
    place = confinement(context)
    seconds = context.settings.command_timeout_s if timeout_s is None else timeout_s
    if context.terminal is not None and context.settings.sandbox != "required":
        shown = await context.terminal.run(
            command, cwd=Path(place.resolve(cwd)), timeout_s=seconds, output_bytes=2 * commands.KEEP_BYTES
        )
        if shown is not None:
            return _in_terminal(shown, seconds)
    finished = await commands.run(
        command,
        confinement=place,
        directory=place.resolve(cwd),
        environment=for_commands(context.environment, context.secret_names),
        timeout_s=seconds,
        settings=context.settings,
    )
    text = _output(finished)
    notes = [_how_it_ended(finished, seconds), *_remarks(finished, text)]
    if text and not text.endswith("\n"):
        text += "\n"
    return ToolOutcome.text(
        text + "\n".join(f"[{note}]" for note in notes), is_error=finished.timed_out or finished.exit_code != 0
    )


def _in_terminal(shown: TerminalOutcome, seconds: float) -> ToolOutcome:
    """What ran in the host's own terminal, in the same words."""
    text = clean(shown.output)
    if shown.truncated:
        text = f"[... earlier output left out ...]\n{text}"
    if text and not text.endswith("\n"):
        text += "\n"
    if shown.timed_out:
        how = f"timed out after {seconds:g} s and was ended; run what takes longer with a larger timeout_s"
    elif shown.exit_code is None:
        how = f"ended by signal {clean(shown.signal or 'unknown')}"
    else:
        how = f"exit code {shown.exit_code}"
    return ToolOutcome.text(f"{text}[{how}]", is_error=shown.timed_out or shown.exit_code != 0)


def _output(finished: Finished) -> str:
    missing = finished.total - len(finished.head) - len(finished.tail)
    if missing <= 0:
        return clean((finished.head + finished.tail).decode("utf-8", "replace"))
    head = finished.head.decode("utf-8", "replace").rstrip("\ufffd")
    tail = finished.tail.decode("utf-8", "replace").lstrip("\ufffd")
    return clean(f"{head}\n[... {count(missing, 'byte')} of output left out ...]\n{tail}")


def _how_it_ended(finished: Finished, seconds: float) -> str:
    if finished.timed_out:
        return f"timed out after {seconds:g} s and was ended; run what takes longer with a larger timeout_s"
    if finished.exit_code < 0:
        return f"ended by signal {-finished.exit_code}"
    return f"exit code {finished.exit_code}"


def _remarks(finished: Finished, text: str) -> list[str]:
    remarks: list[str] = []
    if finished.left and not finished.timed_out:
        remarks.append("processes that it left in the background were ended with it")
    plan = finished.plan
    if finished.exit_code != 0 and plan.folders is not None and any(word in text for word in _BLOCKED):
        remarks.append(f"sandbox: only {', '.join(plan.folders)} and $TMPDIR can be written to")
    if finished.exit_code != 0 and plan.cuts_network:
        remarks.append("sandbox: there is no network")
    return remarks


async def _preview(context: ToolContext, arguments: dict[str, Any]) -> str | None:
    where = arguments.get("cwd", ".")
    return str(arguments["command"]) + ("" if where == "." else f"\n(in {where})")


TOOL = builtin(
    run_command,
    description=(
        "Runs a command with bash and returns its output and exit code. It has no stdin and no terminal, ends at the"
        " timeout (120 s unless timeout_s says otherwise), and background processes end with it. Only the working"
        " folders and $TMPDIR may be writable. To read, search or edit files use the other tools."
    ),
    properties={
        "command": {"type": "string", "minLength": 1, "maxLength": commands.MAX_COMMAND},
        "cwd": PATH | {"description": "Directory to run in; the working directory if it is left out."},
        "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_S},
    },
    required=("command",),
    side_effects=True,
    main_argument="command",
    conflict_key=lambda context, _arguments: context.cwd.anchor or "/",
    preview=_preview,
)
