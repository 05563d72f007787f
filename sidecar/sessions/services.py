"""What all sessions of a process share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anyio.abc import TaskGroup

from record_store.backend import SessionStore
from sidecar.clock import Clock
from sidecar.memory.service import MemoryService
from sidecar.providers.registry import Registry
from sidecar.sessions.layers import Layers
from sidecar.sessions.ports import RequestIds
from sidecar.tokens.estimator import TextCounter
from sidecar.tokens.port import Calibration


@dataclass(frozen=True, slots=True)
class Services:
    """Made once by the composition root. `group` is the daemon's task group, `home` its data directory,
    `user_home` where the user's own instructions and skills are."""

    store: SessionStore
    registry: Registry
    counter: TextCounter
    calibration: Calibration
    memory: MemoryService
    layers: Layers
    clock: Clock
    environment: Mapping[str, str]
    home: Path
    user_home: Path
    group: TaskGroup
    request_ids: RequestIds
