"""What compaction does for one model: the only place that decides it. Pure.

`resolve_compaction_policy` turns preset, model family, configuration and window into one frozen `Policy`; hooks hold
no defaults. All `*_at` values, `target`, `margin`, `reserved_context_size` and `min_gain` are tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any, Final, Literal

from protocol.messages import JsonObject
from sidecar.providers.port import ModelInfo
from sidecar.settings import CompactionSettings, Settings

Shape = Literal["handoff", "span", "ladder"]
SnipWhen = Literal["cold", "always", "never"]

LARGE_WINDOW: Final = 200_000
"""From here on more of the recent past is kept readable."""

MIN_STEPS_BETWEEN_LANDINGS: Final = 8
"""The cheapest trigger is never so low that landings follow each other faster."""

MIN_GAIN_RATIO: Final = 0.02
"""A warm cache is not given up for less than this part of the window (below the force ratio)."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A combination that belongs together. `summarizer` False: summaries are excerpts, no model is asked."""

    shape: Shape
    trigger: float
    snip_when: SnipWhen
    prune_at_trigger: bool
    summarizer: bool = True


PRESETS: Final[dict[str, Preset]] = {
    "default": Preset("handoff", 0.75, "cold", prune_at_trigger=False),
    "handoff": Preset("handoff", 0.85, "never", prune_at_trigger=False),
    "span": Preset("span", 0.8, "cold", prune_at_trigger=True),
    "ladder": Preset("ladder", 0.8, "always", prune_at_trigger=True),
    "excerpt": Preset("span", 0.8, "cold", prune_at_trigger=True, summarizer=False),
}


@dataclass(frozen=True, slots=True)
class Family:
    """Overrides for models whose reference (`provider/model`) matches; what the session configures still wins."""

    pattern: str
    settings: CompactionSettings
    trigger_ratio: float | None = None


DEFAULTS: Final[dict[str, Any]] = {
    "soft_ratio": 0.5,
    "snip_ratio": 0.6,
    "force_ratio": 0.9,
    "target_ratio": 0.5,
    "recompact_margin_ratio": 0.1,
    "image_offload": True,
    "micro_compact_interval_steps": 0,
    "cache_ttl_s": 300.0,
    "max_consecutive_failures": 3,
    "rapid_refill_window_steps": 3,
    "max_rapid_refills": 3,
    "max_overflow_attempts": 3,
    "summary_max_output_tokens": 131_072,
}
"""What neither configuration nor preset nor window decides."""

BY_WINDOW: Final[tuple[tuple[str, int, int], ...]] = (
    ("keep_last_messages", 6, 16),
    ("keep_last_tool_results", 2, 16),
    ("fold_excerpt_chars", 160, 4_000),
    ("keep_last_images", 1, 4),
)
"""Name, usual default, default from `LARGE_WINDOW` on."""

FAMILIES: Final[tuple[Family, ...]] = ()
"""Grows with evidence: a row states what was measured for that family."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a cached prompt token and of an output token, where an uncached prompt token costs 1."""

    cached: float = 0.1
    output: float = 5.0

    @staticmethod
    def of(info: ModelInfo) -> Prices:
        """From a model's prices; the usual ratios stand in for what is unknown."""
        usual = Prices()
        if not info.input_price:
            return usual
        cached = usual.cached if info.cached_price is None else info.cached_price / info.input_price
        output = usual.output if info.output_price is None else info.output_price / info.input_price
        return Prices(cached, output)


@dataclass(frozen=True, slots=True)
class Growth:
    """What a session was measured to do: tokens a step adds, tokens left after a landing, tokens of a summary."""

    per_step: float
    after_landing: float
    summary: float


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that is decided about one agent's compaction. Ratios as configured, tokens as resolved."""

    preset: str
    shape: Shape
    summarizer: bool
    prune_at_trigger: bool
    auto: bool
    objective: Literal["window", "cost"]
    model: str | None
    landing: Literal["rebase", "strict"]
    window: int
    compaction_trigger_ratio: float
    block_ratio: float
    soft_ratio: float
    snip_ratio: float
    force_ratio: float
    target_ratio: float
    recompact_margin_ratio: float
    reserved_context_size: int
    soft_at: int
    snip_at: int
    trigger_at: int
    block_at: int
    force_at: int
    target: int
    margin: int
    min_gain: int
    snip_when: SnipWhen
    tail_tokens: int
    keep_last_messages: int
    keep_last_tool_results: int
    fold_excerpt_chars: int
    image_offload: bool
    keep_last_images: int
    micro_compact_interval_steps: int
    cache_ttl_s: float
    max_consecutive_failures: int
    rapid_refill_window_steps: int
    max_rapid_refills: int
    max_overflow_attempts: int
    user_message_max_tokens: int
    user_message_head_tokens: int
    summary_max_output_tokens: int
    compaction_max_attempts: int
    max_steps: int
    notices: tuple[str, ...] = ()

    @property
    def background(self) -> bool:
        """Whether a turn goes on while a summary is made."""
        return self.trigger_at < self.block_at

    def as_json(self) -> JsonObject:
        """For `ContextInfo.policy`: every field by its name."""
        values: dict[str, Any] = asdict(self)
        values["notices"] = list(self.notices)
        return values


def resolve_compaction_policy(
    model: str,
    window: int,
    settings: Settings,
    *,
    prices: Prices | None = None,
    growth: Growth | None = None,
    families: Sequence[Family] = FAMILIES,
    presets: Mapping[str, Preset] = PRESETS,
) -> Policy:
    """The policy for a model (`provider/model`) with a window of `window` tokens.

    What the session configures wins over the model's family, that over the preset. `prices` and `growth` are used by
    the objective `cost` alone; without `growth` it decides by the ratios. Other `presets` are for comparing them.
    """
    family = next((f for f in families if re.search(f.pattern, model)), None)
    pick = _Picker(settings.compaction, family.settings if family else CompactionSettings())
    preset = presets[settings.compaction.preset]
    loop = settings.loop_control
    trigger = loop.compaction_trigger_ratio or (family.trigger_ratio if family else None) or preset.trigger
    block = max(pick("block_ratio", 0.85), trigger, 0.85)
    values = {name: pick(name, default) for name, default in DEFAULTS.items()}
    values |= {name: pick(name, large if window >= LARGE_WINDOW else usual) for name, usual, large in BY_WINDOW}

    reserve, notices = _reserve(loop.reserved_context_size, window)
    trigger_at = min(_part(trigger, window), window - reserve)
    margin = _part(values["recompact_margin_ratio"], window)
    if settings.compaction.objective == "cost" and growth is not None:
        trigger_at, margin = _for_cost(trigger_at, margin, growth, prices or Prices(), values["recompact_margin_ratio"])
    target = max(1, min(_part(values["target_ratio"], window), max(trigger_at - margin, trigger_at // 2)))
    user_max, user_head = _user_budget(pick, window)
    return Policy(
        preset=settings.compaction.preset,
        shape=preset.shape,
        summarizer=preset.summarizer,
        prune_at_trigger=preset.prune_at_trigger,
        snip_when=pick("snip_when", preset.snip_when),
        auto=settings.compaction.auto,
        objective=settings.compaction.objective,
        model=settings.compaction.model,
        landing=settings.compaction.landing,
        window=window,
        compaction_trigger_ratio=trigger,
        block_ratio=block,
        reserved_context_size=reserve,
        soft_at=min(_part(values["soft_ratio"], window), trigger_at),
        snip_at=min(_part(values["snip_ratio"], window), trigger_at),
        trigger_at=trigger_at,
        block_at=min(_part(block, window), window - reserve),
        force_at=_part(values["force_ratio"], window),
        target=target,
        margin=margin,
        min_gain=_part(MIN_GAIN_RATIO, window),
        tail_tokens=min(pick("tail_tokens", 16_384), target),
        user_message_max_tokens=user_max,
        user_message_head_tokens=user_head,
        compaction_max_attempts=loop.compaction_max_attempts,
        max_steps=loop.max_steps,
        notices=notices,
        **values,
    )


def _for_cost(trigger_at: int, margin: int, growth: Growth, prices: Prices, ratio: float) -> tuple[int, int]:
    """The cheapest trigger where it is below the ratios', and a margin that fits it: a tenth of a large window would
    keep any trigger from being reached again."""
    cheapest = cheapest_trigger(growth, prices)
    if cheapest is None or cheapest >= trigger_at:
        return trigger_at, margin
    gap = max(int(MIN_STEPS_BETWEEN_LANDINGS * growth.per_step), _part(ratio, cheapest))
    return cheapest, min(margin, gap)


class _Picker:
    """The session's value, else the family's, else the default."""

    __slots__ = ("_layers",)

    def __init__(self, *layers: CompactionSettings) -> None:
        self._layers = layers

    def __call__(self, name: str, default: Any) -> Any:
        for layer in self._layers:
            value = getattr(layer, name)
            if value is not None:
                return value
        return default


def _part(ratio: float, window: int) -> int:
    """`ratio` of the window in whole tokens, free of the dust of binary fractions (0.29 x 100 is 29)."""
    return int(ratio * window + 1e-6)


def _reserve(configured: int | None, window: int) -> tuple[int, tuple[str, ...]]:
    usual = min(50_000, _part(0.15, window))
    if configured is None:
        return usual, ()
    if configured >= window:
        return usual, (
            f"loop_control.reserved_context_size = {configured} is not smaller than the window of {window} tokens "
            f"and is ignored; {usual} is used",
        )
    return configured, ()


def _user_budget(pick: _Picker, window: int) -> tuple[int, int]:
    most = pick("user_message_max_tokens", None)
    if most is None:
        most = min(20_000, _part(0.2, window))
    head = pick("user_message_head_tokens", None)
    if head is None:
        head = min(2_000, most // 10)
    return most, min(head, most)


def cheapest_trigger(growth: Growth, prices: Prices) -> int | None:
    """The trigger with the lowest average cost of a step; None when nothing sensible was measured.

    With d new tokens a step, P left after a landing, S of a summary, cached price c and output price o, a step costs
    `d + c (U + P) / 2 + (P + o S + c U) d / (U - P)`. That is least at `U = P + sqrt(2 d (P (1 + c) + o S) / c)`,
    whatever the window. Never under eight steps between landings.
    """
    d, p, s = growth.per_step, growth.after_landing, growth.summary
    if d <= 0 or p < 0 or prices.cached <= 0:
        return None
    distance = sqrt(2 * d * (p * (1 + prices.cached) + prices.output * s) / prices.cached)
    return int(p + max(distance, MIN_STEPS_BETWEEN_LANDINGS * d))


def step_cost(trigger_at: float, growth: Growth, prices: Prices) -> float:
    """Average cost of a step, in uncached prompt tokens, for a trigger at `trigger_at` tokens."""
    d, p, s, u = growth.per_step, growth.after_landing, growth.summary, trigger_at
    return d + prices.cached * (u + p) / 2 + (p + prices.output * s + prices.cached * u) * d / (u - p)
