"""Copies of sessions: the same lines under the same numbers in a new session. Blocking; raises `OSError`."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec.structs import replace

from record_store import failpoints, files, repair
from record_store.backend import MAIN_AGENT
from record_store.blobs import link_all
from record_store.decoder import decode
from record_store.encoder import encode
from record_store.index import LineIndex
from record_store.names import LOG, SessionPaths, is_id
from record_store.reader import stream
from record_store.records import AgentSpawn, Metadata

_CHUNK = 1 << 20


def write_log(path: Path, data: bytes) -> None:
    """A new log with these lines, on disk with its directories."""
    files.make_directory(path.parent)
    if failpoints.on:
        failpoints.hit("create.log")
    fd = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        files.write_all(fd, data, "log.write")
        files.sync_data(fd)
    finally:
        os.close(fd)
    files.sync_directory(path.parent)
    files.sync_directory(path.parent.parent)


def agents_of(paths: SessionPaths) -> tuple[str, ...]:
    """Agents that have a log, `main` first, the others by name."""
    with os.scandir(paths.agents) as entries:
        names = sorted(e.name for e in entries if is_id(e.name) and (paths.agents / e.name / LOG).is_file())
    return tuple(sorted(names, key=lambda name: name != MAIN_AGENT))


def copy_session(source: SessionPaths, target: SessionPaths, upto_line: int, metadata: Metadata) -> None:
    """Main log up to a line, the whole logs of the sub-agents that were spawned by then, all blobs."""
    metadata = replace(metadata, forked_from=source.root.name)
    spawned = _copy_log(source.log(MAIN_AGENT), target.log(MAIN_AGENT), upto_line, metadata)
    present = agents_of(source)
    while spawned:
        agent_id = spawned.pop()
        if agent_id in present and not target.log(agent_id).exists():
            own = replace(metadata, agent_id=agent_id, parent_agent_id=_parent(source.log(agent_id)))
            spawned += _copy_log(source.log(agent_id), target.log(agent_id), None, own)
    link_all(source.blobs, target.blobs)


def _copy_log(source: Path, target: Path, upto_line: int | None, metadata: Metadata) -> list[str]:
    """Copies lines 2 to `upto_line` (None: all); the agents that they spawn."""
    fd = files.open_file(source, os.O_RDONLY)
    try:
        end = repair.last_newline(fd, os.fstat(fd).st_size)
        index = LineIndex()
        if upto_line is not None:
            end = index.locate(fd, upto_line + 1, end)
        start = index.locate(fd, 2, end)
        write_log(target, encode(replace(metadata, fork_line=index.count(fd, end)), 1))
        _append(fd, start, end, target)
        return [
            record.agent_id
            for _, raw in stream(fd, start, end, 2)
            if b'"agent.spawn"' in raw and isinstance(record := decode(raw), AgentSpawn) and is_id(record.agent_id)
        ]
    finally:
        os.close(fd)


def _append(fd: int, start: int, end: int, target: Path) -> None:
    out = files.open_file(target, os.O_WRONLY | os.O_APPEND)
    try:
        while start < end:
            chunk = files.pread(fd, min(_CHUNK, end - start), start)
            if not chunk:
                break
            files.write_all(out, chunk, "fork.copy")
            start += len(chunk)
        if failpoints.on:
            failpoints.hit("fork.sync")
        files.sync_data(out)
    finally:
        os.close(out)


def _parent(log: Path) -> str | None:
    """The parent that a sub-agent's first line names."""
    try:
        with log.open("rb") as file:
            first = decode(file.readline(1 << 20).rstrip(b"\n"))
    except (OSError, msgspec.MsgspecError):
        return None
    return first.parent_agent_id if isinstance(first, Metadata) else None
