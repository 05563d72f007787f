"""What the service knows about its agent right now: policy, sizes, cold caches, growth, overflows."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Final

from protocol.events import Notice
from record_store.records import WindowLearned
from sidecar.compaction.policy import PRESETS, Growth, Policy, Preset, Prices, resolve_compaction_policy
from sidecar.compaction.ports import AgentPort
from sidecar.compaction.sizes import ScaledSizes
from sidecar.compaction.triggers import OverflowRun, lesson_of
from sidecar.providers.errors import ProviderError

SMOOTHING: Final = 0.2
"""Weight of the newest step in the measured growth."""

MIN_STEPS_MEASURED: Final = 5
"""Growth is not known before so many steps."""

USUAL_SUMMARY_TOKENS: Final = 1_500
USUAL_KEPT_TOKENS: Final = 2_000
"""Stand in for what is kept and said in a landing until there was one."""


class Gauge:
    """Reads one agent; remembers what only a sequence of readings tells. `resumed`: the cache may be cold."""

    def __init__(self, port: AgentPort, *, resumed: bool, presets: Mapping[str, Preset] = PRESETS) -> None:
        self._port = port
        self._presets = presets
        self._resumed = resumed
        self._noticed: set[str] = set()
        self._steps = 0
        self._per_step = 0.0
        self._last_used: int | None = None
        self._last_rewrites = port.state.rewrites
        self.summary_tokens = USUAL_SUMMARY_TOKENS
        self.overflow = OverflowRun()

    def policy(self) -> Policy:
        """The policy in force now; resolved anew, which takes some microseconds."""
        port = self._port
        cost = port.settings.compaction.objective == "cost"
        return resolve_compaction_policy(
            port.model,
            port.window().tokens,
            port.settings,
            prices=Prices.of(port.model_info()) if cost else None,
            growth=self.growth() if cost else None,
            presets=self._presets,
        )

    def tell_notices(self, policy: Policy) -> None:
        """What is wrong with the configuration, once each."""
        for text in policy.notices:
            if text not in self._noticed:
                self._noticed.add(text)
                self._port.emit(Notice(kind="reserve_ignored", message=text))

    def sizes(self) -> ScaledSizes:
        return ScaledSizes(self._port.message_tokens, self._port.text_tokens, self._port.factor)

    def prefix_tokens(self) -> int:
        """Of what stands before the messages, as the provider would count it."""
        return ceil(self._port.prefix_tokens() * self._port.factor)

    # ------------------------------------------------------------ steps

    def step_finished(self) -> None:
        """A step's request was answered: the cache is warm, the run of overflows is over, growth is measured."""
        self._resumed = False
        self.overflow = OverflowRun()
        used, rewrites = self._port.used(), self._port.state.rewrites
        if self._last_used is not None and rewrites == self._last_rewrites and used > self._last_used:
            grown = used - self._last_used
            self._per_step = grown if self._steps == 0 else self._per_step + SMOOTHING * (grown - self._per_step)
            self._steps += 1
        self._last_used, self._last_rewrites = used, rewrites

    def growth(self) -> Growth | None:
        """Per step, after a landing, per summary; None before enough steps were seen."""
        if self._steps < MIN_STEPS_MEASURED:
            return None
        landed = self._port.state.tokens_after_landing
        if landed is None:
            landed = self.prefix_tokens() + USUAL_KEPT_TOKENS + self.summary_tokens
        return Growth(self._per_step, landed, self.summary_tokens)

    def is_cold(self, policy: Policy) -> bool:
        """Whether the provider's cache holds nothing of this context anyway."""
        port = self._port
        idle_ms = port.now_ms() - port.state.last_request_at
        return self._resumed or idle_ms > policy.cache_ttl_s * 1000 or port.prefix_changed()

    # ------------------------------------------------------------ overflows

    def teach(self, error: ProviderError, estimate: int, model: str | None = None) -> None:
        """Learns the window from an overflow: of the session's model, or of another that was asked (`model`)."""
        port = self._port
        known = port.window().tokens if model is None else self.window_of(model)
        lesson = lesson_of(error, estimate, known, self.overflow)
        if lesson is None:
            return
        name = model or port.model
        port.append(WindowLearned(port.now_ms(), name, lesson.window, lesson.source))
        if lesson.source == "estimate":
            self.overflow = self.overflow.taught()
        text = f"{name} refused a request as too large: its window is taken to be {lesson.window} tokens"
        port.emit(Notice(kind="window_learned", message=text))

    def window_of(self, model: str | None) -> int:
        """The window of the model that is asked for a summary."""
        if model is None or model == self._port.model:
            return self._port.window().tokens
        window = self._port.model_info(model).window
        return min(window, self._port.state.learned_windows.get(model, window))
