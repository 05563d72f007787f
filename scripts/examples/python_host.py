"""A whole host in Python: starts the daemon, brings a tool, answers approvals, prints the answer as it comes.

    SIDECAR_MODEL=openai/gpt-5.2 python scripts/examples/python_host.py "What time is it in Kyiv?"

Arguments after the prompt are the command of the daemon; by default the one that is installed with this Python.
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import anyio

from protocol.chat import ApprovalParams, ApprovalResult
from protocol.events import TextDelta, ToolCallStarted, TurnEnded
from sidecar.client import HostCall, SidecarClient, SidecarError, ToolFailed, host_tool
from sidecar.client.links import DAEMON


@host_tool(
    "current_time",
    "The current time in a time zone.",
    {"zone": {"type": "string", "description": "an IANA name, e.g. Europe/Kyiv"}},
    required=["zone"],
)
async def current_time(call: HostCall) -> str:
    try:
        return datetime.now(ZoneInfo(call.arguments["zone"])).isoformat(timespec="seconds")
    except (ZoneInfoNotFoundError, ValueError):
        raise ToolFailed(f"There is no time zone {call.arguments['zone']!r}.") from None


async def approve(request: ApprovalParams) -> ApprovalResult:
    """The daemon's own tools with side effects ask first. This host shows them and says no."""
    print(f"[refused: {request.name} {request.arguments}]", file=sys.stderr)
    return ApprovalResult(outcome="reject", reason="this example allows nothing")


async def main(prompt: str, command: list[str]) -> int:
    async with SidecarClient.spawn(command, name="python-example", version="1", approve=approve) as client:
        session = await client.sessions.create(cwd=str(Path.cwd()), tools=[current_time])
        with client.events(session.session_id) as events:
            turn = await client.chat.send(session.session_id, prompt)
            async for item in events.of_turn(turn.turn_id):
                match item.event:
                    case TextDelta(text=text):
                        print(text, end="", flush=True)
                    case ToolCallStarted(name=name, arguments=arguments):
                        print(f"[{name} {arguments}]", file=sys.stderr)
                    case TurnEnded(stop_reason=reason, error=error):
                        print()
                        if error is not None:
                            print(f"{error.reason}: {error.message}", file=sys.stderr)
                        return 0 if reason == "end_turn" else 1
    return 1


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        sys.exit(anyio.run(main, sys.argv[1], sys.argv[2:] or list(DAEMON)))
    except OSError as error:
        sys.exit(f"the daemon cannot be started: {error}")
    except SidecarError as error:
        sys.exit(f"{error.message}" + (f" ({error.hint})" if error.hint else ""))
