"""A compaction under way, and how it ended. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import anyio

from record_store.fold import Entry
from record_store.records import Mode, Trigger
from sidecar.compaction.asking import Summary
from sidecar.compaction.policy import Policy


@dataclass(frozen=True, slots=True)
class End:
    """How a compaction ended; `reason` is None for `landed`, tokens are 0 for the others."""

    compaction_id: str
    kind: Literal["landed", "discarded", "failed"]
    reason: str | None = None
    pre_tokens: int = 0
    post_tokens: int = 0


@dataclass(slots=True, eq=False)
class Running:
    """A compaction under way.

    `at_block`: a turn goes no further without it, so an excerpt is better than nothing. `failure` is why no model's
    summary came. `closing`: it is landing, and can no longer be cancelled.
    """

    compaction_id: str
    trigger: Trigger
    mode: Mode
    policy: Policy
    original: tuple[Entry, ...]
    lines: tuple[int, int]
    pre_tokens: int
    started_at: int
    instruction: str | None = None
    at_block: bool = False
    attempts: int = 0
    failure: str | None = None
    summary: Summary | None = None
    closing: bool = False
    end: End | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)

    @property
    def manual(self) -> bool:
        return self.trigger == "manual"
