"""Approvals at a terminal. Without one, nothing is approved."""

from __future__ import annotations

import sys
from typing import Any

import anyio

from protocol.chat import ApprovalParams
from sidecar.headless.terminal import shown

MAX_ARGUMENT = 2_000
MAX_PREVIEW = 4_000
"""Characters that are shown; what is left out is counted."""


def may_ask() -> bool:
    """Whether there is a person to ask: both ends of the terminal are there."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


async def ask_terminal(params: ApprovalParams) -> dict[str, Any]:
    """Shows the call and asks; anything but a clear yes is a no. Nothing in the call can look like the question, or
    hide a part of the call."""
    print(f"\n{shown(params.name)} wants to run:", file=sys.stderr)
    for name, value in params.arguments.items():
        print(_indented(f"{name}: {value}", MAX_ARGUMENT), file=sys.stderr)
    if params.preview:
        print(_indented(params.preview, MAX_PREVIEW), file=sys.stderr)
    session = "allow_session" in params.options
    print(f"Allow? [y]es{', for this [s]ession' if session else ''}, [N]o: ", end="", file=sys.stderr, flush=True)
    line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    answer = line.strip().lower()
    if answer in ("y", "yes"):
        return {"outcome": "allow_once"}
    if session and answer in ("s", "session"):
        return {"outcome": "allow_session"}
    return {"outcome": "reject", "reason": "declined at the terminal"}


def _indented(text: str, limit: int) -> str:
    """Every line behind two spaces, and at its end how much was left out."""
    lines = shown(text[:limit]).split("\n")
    if len(text) > limit:
        lines.append(f"[... and {len(text) - limit:,} characters more]")
    return "\n".join(f"  {line}" for line in lines)
