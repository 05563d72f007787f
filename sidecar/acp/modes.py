"""Approval modes as the editor's session modes. Pure."""

from __future__ import annotations

from typing import Any

from acp.schema import SessionMode, SessionModeState

MODES: dict[str, tuple[str, str]] = {
    "ask": ("Ask", "Every call with side effects asks first"),
    "auto_edit": ("Edit freely", "File edits run, everything else with side effects asks"),
    "auto": ("Auto", "Everything runs without asking"),
    "deny": ("Read only", "Every call with side effects is refused"),
}
"""By the word of `approval.mode`: name and description."""


def state(current: str) -> Any:
    modes = [SessionMode(id=word, name=name, description=text) for word, (name, text) in MODES.items()]
    return SessionModeState(current_mode_id=current, available_modes=modes)
