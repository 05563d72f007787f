"""Approvals at a terminal. Without one, nothing is approved."""

from __future__ import annotations

import sys
from typing import Any

import anyio

from protocol.chat import ApprovalParams


def may_ask() -> bool:
    """Whether there is a person to ask: both ends of the terminal are there."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


async def ask_terminal(params: ApprovalParams) -> dict[str, Any]:
    """Shows the call and asks; anything but a clear yes is a no."""
    print(f"\n{params.name} wants to run:", file=sys.stderr)
    for name, value in params.arguments.items():
        print(f"  {name}: {str(value)[:2000]}", file=sys.stderr)
    if params.preview:
        print(params.preview[:4000], file=sys.stderr)
    session = "allow_session" in params.options
    print(f"Allow? [y]es{', for this [s]ession' if session else ''}, [N]o: ", end="", file=sys.stderr, flush=True)
    line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    answer = line.strip().lower()
    if answer in ("y", "yes"):
        return {"outcome": "allow_once"}
    if session and answer in ("s", "session"):
        return {"outcome": "allow_session"}
    return {"outcome": "reject", "reason": "declined at the terminal"}
