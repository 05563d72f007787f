"""Facts, a clock that stands still, and a memory on a real disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.memory import Fact, FactInput
from sidecar.memory import facts
from sidecar.memory.service import MemoryService
from sidecar.memory.times import DAY_MS

NOW = 1_790_000_000_000
"""2026-09-21T14:13:20Z"""


@dataclass
class StillClock:
    """Time passes when a test says so."""

    now: int = NOW

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000

    def pass_days(self, days: float) -> None:
        self.now += round(days * DAY_MS)


def given(**fields: Any) -> FactInput:
    """Checked input; what is not said is harmless."""
    plain: dict[str, Any] = {
        "name": "Build tool", "description": "How it is built", "type": "project", "body": "Run make."
    }  # fmt: skip
    return facts.checked(FactInput(**{**plain, **fields}))


def fact(fact_id: str = "fact_1", *, at: int = NOW, **fields: Any) -> Fact:
    return facts.created(fact_id, given(**fields), at)


@dataclass
class World:
    """A workspace, a second one, and a memory folder under one directory."""

    base: Path
    clock: StillClock = field(default_factory=StillClock)

    def __post_init__(self) -> None:
        for name in ("work", "other"):
            (self.base / name / ".git").mkdir(parents=True)
        self.work = self.base / "work"
        self.other = self.base / "other"
        self.home = str(self.base / "home" / "ann")
        self.service = self.open()

    def open(self) -> MemoryService:
        """Another daemon on the same folder, or this one after a restart."""
        return MemoryService(self.base / "memory", self.clock, [self.home])

    def file_of(self, fact: Fact) -> Path:
        (found,) = (self.base / "memory").glob(f"**/facts/{fact.id}.md")
        return found

    async def save(self, cwd: Path | None = None, **fields: Any) -> Fact:
        return (await self.service.save(cwd or self.work, given(**fields))).fact
