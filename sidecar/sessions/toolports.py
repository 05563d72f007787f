"""What an agent's tools may reach of its session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from protocol.events import AnyEvent
from record_store.backend import Blobs, Journal
from record_store.records import Record
from sidecar.clock import Clock
from sidecar.sessions.hosts import Hosts
from sidecar.tools.port import Tool


@dataclass(slots=True)
class ToolDesk:
    """`append` and `emit` are the agent's; `enable_record_access` offers the tools that read the log;
    `stand_in` is asked for tools of servers that are not up."""

    session_id: str
    agent_id: str
    journal: Journal
    blobs: Blobs
    hosts: Hosts
    environment: Mapping[str, str]
    clock: Clock
    append: Callable[[Record], list[int]]
    emit: Callable[[AnyEvent], None]
    enable_record_access: Callable[[], None]
    approval_wait_s: Callable[[], float]
    stand_in: Callable[[str], Tool | None]
