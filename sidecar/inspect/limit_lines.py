"""The lines that a policy draws over an agent's life, and its models' prices, as far as a log has told them. Pure."""

from __future__ import annotations

import msgspec

from protocol.messages import JsonObject
from sidecar import settings as settings_module
from sidecar.compaction.policy import Prices, resolve_compaction_policy
from sidecar.inspect.fields import number, text
from sidecar.inspect.report import Limits
from sidecar.providers.catalog import resolve_info
from sidecar.settings import Layer, Settings


class LimitLines:
    """One agent's. Every method that is told of a change takes the place `x` from which on it holds."""

    def __init__(self, configuration: Layer) -> None:
        """`configuration` is what holds besides the session's own."""
        self.model = ""
        self.drawn: list[Limits] = []
        self._configuration = configuration
        self._settings = _settings(configuration, {})
        self._window = 0
        self._learned: dict[str, int] = {}
        self._prices: dict[str, Prices] = {}

    def configured(self, x: float, raw: JsonObject) -> None:
        self.model = text(raw, "model") or self.model
        self._window = number(raw, "window") or self._window
        if isinstance(raw.get("config"), dict):
            self._settings = _settings(self._configuration, raw["config"])
            self._prices.clear()
        self._draw_resolved(x)

    def asked(self, x: float, model: str) -> None:
        """A step's request went to this model: it is the agent's where no configuration names one."""
        if not self.model:
            self.model = model
            self._draw_resolved(x)

    def window_learned(self, x: float, raw: JsonObject) -> None:
        model, window = text(raw, "model"), number(raw, "window")
        if window > 0:
            self._learned[model] = min(window, self._learned.get(model, window))
        self._draw_resolved(x)

    def compaction_started(self, x: float, told: JsonObject) -> None:
        """What a compaction was started under stands over what the configuration says: it may follow from prices."""
        window, trigger, block = (number(told, name) for name in ("window", "trigger_at", "block_at"))
        if window > 0 and 0 < trigger <= block:
            last = self.drawn[-1] if self.drawn else Limits(0, 0, trigger, trigger, 0, 0)
            self._draw(Limits(x, window, min(last.soft, trigger), min(last.snip, trigger), trigger, block))

    def prices(self, model: str) -> Prices:
        """By the configuration that holds now."""
        found = self._prices.get(model)
        if found is None:
            found = self._prices[model] = Prices.of(resolve_info(model, self._settings, None))
        return found

    def _draw_resolved(self, x: float) -> None:
        if not self.model:
            return
        info = resolve_info(self.model, self._settings, None)
        window = self._window if self._window and info.window_source != "config" else info.window
        window = min(window, self._learned.get(self.model, window))
        policy = resolve_compaction_policy(self.model, window, self._settings)
        self._draw(Limits(x, window, policy.soft_at, policy.snip_at, policy.trigger_at, policy.block_at))

    def _draw(self, limits: Limits) -> None:
        last = self.drawn[-1] if self.drawn else None
        if last is not None and _same_lines(last, limits):
            return
        if last is not None and last.x == limits.x:
            self.drawn.pop()
        self.drawn.append(limits)


def _same_lines(a: Limits, b: Limits) -> bool:
    return (a.window, a.soft, a.snip, a.trigger, a.block) == (b.window, b.soft, b.snip, b.trigger, b.block)


def _settings(configuration: Layer, own: JsonObject) -> Settings:
    """The settings of these layers; what is not valid (any more) is left out whole."""
    for layers in ((configuration, own), (configuration,), ()):
        try:
            return settings_module.effective(*layers)
        except msgspec.ValidationError:
            continue
    return Settings()
