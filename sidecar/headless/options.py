"""What `sidecar run` was asked to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Output = Literal["text", "json", "stream-json"]

EXIT_DONE = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_STOPPED = 3
EXIT_CANCELLED = 130


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`tools`, `approve` and `max_steps` are None where nothing was said: a continued session keeps its own."""

    prompt: str
    cwd: str
    model: str | None = None
    session_id: str | None = None
    resume_last: bool = False
    output: Output = "text"
    tools: str | None = None
    approve: str | None = None
    max_steps: int | None = None
    timeout_s: float | None = None
    connect: str | None = None

    def config(self, *, new: bool) -> dict[str, Any]:
        """The session configuration that the flags stand for."""
        config: dict[str, Any] = {}
        if new or self.tools is not None:
            config["tools"] = {"builtin": self.tools or "read"}
        if self.approve is not None:
            config["approval"] = {"mode": self.approve}
        if self.max_steps is not None:
            config["loop_control"] = {"max_steps": self.max_steps}
        return config


def exit_code(stop_reason: str, *, timed_out: bool) -> int:
    if timed_out:
        return EXIT_STOPPED
    return {
        "end_turn": EXIT_DONE,
        "max_tokens": EXIT_STOPPED,
        "max_steps": EXIT_STOPPED,
        "refused": EXIT_STOPPED,
        "cancelled": EXIT_CANCELLED,
    }.get(stop_reason, EXIT_ERROR)
