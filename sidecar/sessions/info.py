"""What a host is told of a session. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.info import SessionInfo, SessionState
from record_store.fold import State


def session_info(
    state: State,
    *,
    agents: Iterable[str],
    model: str | None,
    tools_builtin: str,
    used: int,
    window: int,
    running: bool,
) -> SessionInfo:
    now: SessionState = "closed" if state.closed else "running" if running else "idle"
    return SessionInfo(
        session_id=state.session_id,
        title=state.title,
        cwd=state.cwd,
        model=model,
        created_at=state.created_at,
        updated_at=state.updated_at,
        state=now,
        turns=state.turns,
        agents=tuple(agents),
        tools_builtin=tools_builtin,
        used=used,
        window=window,
    )
