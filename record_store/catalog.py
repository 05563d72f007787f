"""`session.json`: what a list shows of a session, so that listing reads no logs. Derived from the log.

One line: `{"version":1,...SessionInfo,"crc":"8 hex"}`, `crc` as in the log. Written atomically but not synced: what a
loss of power makes of it, its checksum finds, and the log has it all.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from zlib import crc32

import msgspec
import orjson
from msgspec.structs import replace

from protocol.info import SessionInfo
from record_store import files
from record_store.backend import MAIN_AGENT, SessionPage
from record_store.errors import InvalidQuery
from record_store.fold import State
from record_store.names import SESSION, is_id

_TAIL = len(b',"crc":"01234567"}\n')
_MAX_CACHED = 20_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SessionInfo).decode


def encode_info(info: SessionInfo) -> bytes:
    """The file's bytes. What runs in one process is idle to every other: `running` is stored as `idle`."""
    if info.state == "running":
        info = replace(info, state="idle")
    body = b'{"version":1,%b' % _encode(info)[1:-1]
    return b'%b,"crc":"%08x"}\n' % (body, crc32(body))


def decode_info(data: bytes) -> SessionInfo | None:
    """None if it is not what was written."""
    body, tail = data[:-_TAIL], data[-_TAIL:]
    if b',"crc":"%08x"}\n' % crc32(body) != tail:
        return None
    try:
        return _decode(data)
    except (msgspec.MsgspecError, ValueError):
        return None


def info_of(state: State, session_id: str) -> SessionInfo:
    """What the log says of its session. The model is the one that was chosen for it, else the one asked last."""
    tools = state.config.get("tools")
    builtin = tools.get("builtin") if isinstance(tools, dict) else None
    return SessionInfo(
        session_id=session_id,
        title=state.title,
        cwd=state.cwd,
        model=state.model or (state.last_request.model if state.last_request is not None else None),
        created_at=state.created_at,
        updated_at=state.updated_at,
        state="closed" if state.closed else "idle",
        turns=state.turns,
        agents=(MAIN_AGENT, *state.agents),
        tools_builtin=builtin if isinstance(builtin, str) else "none",
        used=state.anchor_tokens or 0,
        window=state.window,
    )


def read_info(path: Path) -> SessionInfo | None:
    """None if it is lost, unreadable or damaged."""
    try:
        return decode_info(path.read_bytes())
    except OSError:
        return None


def write_info(path: Path, info: SessionInfo) -> None:
    """Raises `OSError`."""
    files.write_atomic(path, encode_info(info), "session", durable=False)


class Catalog:
    """The sessions of a home, newest first. Reads each `session.json` again only when it changed. For one thread."""

    def __init__(self, sessions: Path, rebuild: Callable[[str], SessionInfo | None]) -> None:
        """`rebuild` gives a session without a readable `session.json` from its log, None if it is no session."""
        self._sessions = sessions
        self._rebuild = rebuild
        self._known: dict[str, tuple[tuple[int, int, int], SessionInfo]] = {}

    def page(self, cwd: str | None, limit: int, cursor: str | None) -> SessionPage:
        return page_of(self._all(), cwd, limit, cursor)

    def _all(self) -> list[SessionInfo]:
        try:
            with os.scandir(self._sessions) as entries:
                names = [e.name for e in entries if is_id(e.name)]
        except FileNotFoundError:
            return []
        known, self._known = self._known, {}
        return [info for name in names if (info := self._one(name, known)) is not None]

    def _one(self, name: str, known: dict[str, tuple[tuple[int, int, int], SessionInfo]]) -> SessionInfo | None:
        path = self._sessions / name / SESSION
        try:
            status = path.stat()
        except OSError:
            return self._rebuild(name)
        mark = (status.st_ino, status.st_mtime_ns, status.st_size)
        cached = known.get(name)
        if cached is None or cached[0] != mark:
            info = read_info(path)
            if info is None or info.session_id != name:
                return self._rebuild(name)
            cached = (mark, info)
        if len(self._known) < _MAX_CACHED:
            self._known[name] = cached
        return cached[1]


def page_of(infos: Iterable[SessionInfo], cwd: str | None, limit: int, cursor: str | None) -> SessionPage:
    """A page of these sessions, newest first. A session that changes while one pages is on a page already seen."""
    after = _parse_cursor(cursor) if cursor is not None else None
    keyed = {(-info.updated_at, info.session_id): info for info in infos if cwd is None or info.cwd == cwd}
    rest = [key for key in sorted(keyed) if after is None or key > after]
    taken = rest[: max(1, limit)]
    more = len(rest) > len(taken)
    return SessionPage(tuple(keyed[key] for key in taken), _make_cursor(taken[-1]) if more else None)


def _make_cursor(key: tuple[int, str]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(key)).decode().rstrip("=")


def _parse_cursor(cursor: str) -> tuple[int, str]:
    try:
        value = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, UnicodeEncodeError):
        value = None
    match value:
        case [int(when), str(session_id)]:
            return when, session_id
    raise InvalidQuery("cursor", "not a cursor of this list")
