"""Who compacts: the arms of the contest. All of them hook into the same loop.

none        nobody: the context grows until the provider refuses it
naive       the oldest messages are dropped, down to half of the window, with no trace
fold_only   old results are cut down at 0.8; no summary is ever written
handoff     the preset
span        the preset
ladder      the preset
default     the preset
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from record_store import records as r
from scripts.evaluation.agent import RECORD_TOOLS, SimulatedAgent
from sidecar import ids
from sidecar.compaction import regions
from sidecar.compaction.gauge import Gauge
from sidecar.compaction.policy import PRESETS, Preset
from sidecar.compaction.rewrites import Rewrites
from sidecar.compaction.service import CompactionService
from sidecar.providers.errors import ProviderError
from sidecar.settings import Settings, effective, merge


class Compactor(Protocol):
    """The hooks of the loop, as `CompactionService` has them."""

    async def on_will_begin_step(self, turn_id: str | None) -> None: ...

    async def on_did_finish_step(self, turn_id: str | None) -> None: ...

    async def on_request_error(self, turn_id: str | None, error: ProviderError) -> bool: ...

    def breakers_after_step(self, used: int) -> r.Breakers | None: ...

    def on_context_changed(self) -> None: ...

    async def close(self) -> None: ...


class Nobody:
    """Does nothing about anything."""

    def __init__(self, agent: SimulatedAgent) -> None:
        self._agent = agent

    async def on_will_begin_step(self, turn_id: str | None) -> None:
        return

    async def on_did_finish_step(self, turn_id: str | None) -> None:
        return

    async def on_request_error(self, turn_id: str | None, error: ProviderError) -> bool:
        return False

    def breakers_after_step(self, used: int) -> r.Breakers | None:
        return None

    def on_context_changed(self) -> None:
        return

    async def close(self) -> None:
        return


DROP_AT, DROP_TO = 0.8, 0.5


class DropsOldest(Nobody):
    """A sliding window: at 0.8 of it the oldest messages go until half is free."""

    async def on_will_begin_step(self, turn_id: str | None) -> None:
        agent = self._agent
        window = agent.window().tokens
        if agent.used() >= DROP_AT * window:
            self._drop(int(DROP_TO * window))

    async def on_request_error(self, turn_id: str | None, error: ProviderError) -> bool:
        return self._drop(int(DROP_TO * self._agent.window().tokens))

    def _drop(self, target: int) -> bool:
        agent = self._agent
        messages = agent.state.messages()
        sizes = Gauge(agent, resumed=False).sizes()
        start = regions.raw_tail_by_tokens(messages, target - agent.prefix_tokens(), sizes, at_least=2)
        start = regions.widen(regions.safe_starts(messages), start)
        if start == 0:
            return False
        kept = tuple(r.Kept(m.id) for m in messages[start:])
        used, now = agent.used(), agent.now_ms()
        agent.append(
            r.ApplyCompaction(now, ids.new("drop"), "span", "excerpt", len(messages), kept, used, target, len(kept))
        )
        return True


class Folds(Nobody):
    """The free half alone: old results are cut down at the trigger, then the newest too where that is not enough."""

    def __init__(self, agent: SimulatedAgent) -> None:
        super().__init__(agent)
        self._gauge = Gauge(agent, resumed=False)
        self._rewrites = Rewrites(agent, self._gauge)
        agent.enable_record_access()

    async def on_will_begin_step(self, turn_id: str | None) -> None:
        policy = self._gauge.policy()
        if self._agent.used() >= policy.trigger_at and not self._rewrites.prune_below_trigger(policy, force=True):
            self._rewrites.last_pass(policy)

    async def on_request_error(self, turn_id: str | None, error: ProviderError) -> bool:
        return self._rewrites.last_pass(self._gauge.policy())


@dataclass(frozen=True, slots=True)
class Arm:
    """A compactor with its settings. `presets` replaces the product's table where a sweep tries another one."""

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    presets: Mapping[str, Preset] = field(default_factory=lambda: PRESETS)
    make: Callable[[SimulatedAgent], Compactor] | None = None

    def settings(self) -> Settings:
        return effective(self.config)

    def compactor(self, agent: SimulatedAgent) -> Compactor:
        return self.make(agent) if self.make is not None else CompactionService(agent, presets=self.presets)


def preset(name: str, **config: Any) -> Arm:
    """A preset, with sections of configuration over it."""
    return Arm(name, merge({"compaction": {"preset": name}}, config))


ARMS: Final[dict[str, Arm]] = {
    "none": Arm("none", make=Nobody),
    "naive": Arm("naive", make=DropsOldest),
    "fold_only": Arm("fold_only", {"compaction": {"preset": "span"}}, make=Folds),
    "handoff": preset("handoff"),
    "span": preset("span"),
    "ladder": preset("ladder"),
    "default": preset("default"),
}

KNOWN_BAD: Final = ("none", "naive", "fold_only")
"""Arms that the standard must tell from the rest."""

__all__ = ["ARMS", "KNOWN_BAD", "RECORD_TOOLS", "Arm", "Compactor", "preset"]
