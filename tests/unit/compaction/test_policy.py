"""One place decides: presets, configuration, windows, the cheapest trigger."""

from __future__ import annotations

import msgspec
import pytest

from sidecar.compaction.policy import (
    FAMILIES,
    PRESETS,
    Family,
    Growth,
    Prices,
    cheapest_trigger,
    resolve_compaction_policy,
    step_cost,
)
from sidecar.providers.port import ModelInfo
from sidecar.settings import CompactionSettings
from tests.support.compaction_agent import settings
from tests.unit.compaction.build import policy

PER_PRESET = [
    # preset, shape, trigger, snip, prune at the trigger, summarizer
    ("default", "handoff", 0.75, "cold", False, True),
    ("handoff", "handoff", 0.85, "never", False, True),
    ("span", "span", 0.8, "cold", True, True),
    ("ladder", "ladder", 0.8, "always", True, True),
    ("excerpt", "span", 0.8, "cold", True, False),
]


@pytest.mark.parametrize(("preset", "shape", "trigger", "snip", "prune", "summarizer"), PER_PRESET)
def test_presets(preset: str, shape: str, trigger: float, snip: str, prune: bool, summarizer: bool) -> None:
    p = policy(128_000, preset=preset)
    assert (p.shape, p.compaction_trigger_ratio, p.snip_when) == (shape, trigger, snip)
    assert (p.prune_at_trigger, p.summarizer) == (prune, summarizer)
    assert p.trigger_at == round(trigger * 128_000)
    assert p.block_at == round(0.85 * 128_000)
    assert p.background is (trigger < 0.85)
    assert set(PRESETS) == {row[0] for row in PER_PRESET}


def test_defaults_of_a_usual_window() -> None:
    p = policy(128_000)
    assert (p.soft_at, p.snip_at, p.force_at, p.target, p.margin) == (64_000, 76_800, 115_200, 64_000, 12_800)
    assert (p.keep_last_messages, p.keep_last_tool_results, p.fold_excerpt_chars, p.keep_last_images) == (6, 2, 160, 1)
    assert (p.tail_tokens, p.user_message_max_tokens, p.user_message_head_tokens) == (16_384, 20_000, 2_000)
    assert (p.max_consecutive_failures, p.rapid_refill_window_steps, p.max_rapid_refills) == (3, 3, 3)
    assert (p.max_overflow_attempts, p.compaction_max_attempts, p.summary_max_output_tokens) == (3, 5, 131_072)
    assert (p.image_offload, p.micro_compact_interval_steps, p.cache_ttl_s) == (True, 0, 300.0)
    assert (p.auto, p.landing, p.objective, p.model) == (True, "rebase", "window", None)


def test_a_large_window_keeps_more_readable() -> None:
    p = policy(200_000)
    assert (p.keep_last_messages, p.keep_last_tool_results, p.fold_excerpt_chars, p.keep_last_images) == (
        16,
        16,
        4_000,
        4,
    )
    assert policy(199_999).keep_last_messages == 6


def test_small_windows_bound_tail_and_user_text() -> None:
    p = policy(8_000)
    assert p.tail_tokens == 4_000
    assert (p.user_message_max_tokens, p.user_message_head_tokens) == (1_600, 160)


def test_configured_user_text_is_not_bounded_by_the_window() -> None:
    p = policy(8_000, user_message_max_tokens=6_000, user_message_head_tokens=500)
    assert (p.user_message_max_tokens, p.user_message_head_tokens) == (6_000, 500)


def test_the_usual_reserve_never_bites_before_the_ratios() -> None:
    for window in (8_192, 32_768, 128_000, 200_000, 1_000_000):
        p = policy(window, preset="handoff")
        assert p.trigger_at == int(0.85 * window + 1e-6)
        assert p.reserved_context_size == min(50_000, int(0.15 * window + 1e-6))


def test_a_configured_reserve_decides_where_it_is_stricter() -> None:
    p = policy(128_000, preset="handoff", reserve=50_000)
    assert (p.trigger_at, p.block_at) == (78_000, 78_000)
    assert policy(400_000, preset="handoff", reserve=50_000).trigger_at == 340_000


def test_a_reserve_as_large_as_the_window_is_ignored_with_a_notice() -> None:
    p = policy(32_000, reserve=32_000)
    assert p.reserved_context_size == 4_800
    assert len(p.notices) == 1
    assert "32000" in p.notices[0]


def test_block_is_never_below_trigger_nor_below_its_floor() -> None:
    assert policy(trigger=0.6, block_ratio=0.7).block_ratio == 0.85
    assert policy(trigger=0.92).block_ratio == 0.92
    assert policy(trigger=0.6, block_ratio=0.95).block_ratio == 0.95


def test_ratios_are_free_of_binary_dust() -> None:
    assert policy(100, soft_ratio=0.29).soft_at == 29


def test_the_target_stays_below_the_trigger() -> None:
    p = policy(128_000, reserve=100_000)
    assert p.trigger_at == 28_000
    assert p.target == 28_000 - 12_800


def test_a_family_overrides_the_preset_and_the_session_overrides_the_family() -> None:
    family = Family(r"^fake/", CompactionSettings(keep_last_messages=9, tail_tokens=1_000), trigger_ratio=0.66)
    resolve = resolve_compaction_policy
    p = resolve("fake/model", 32_000, settings(tail_tokens=2_000), families=[family])
    assert (p.keep_last_messages, p.tail_tokens, p.compaction_trigger_ratio) == (9, 2_000, 0.66)
    assert resolve("other/model", 32_000, settings(), families=[family]).keep_last_messages == 6
    assert FAMILIES == ()


def test_it_serialises() -> None:
    shown = policy().as_json()
    assert msgspec.json.decode(msgspec.json.encode(shown)) == shown
    assert shown["trigger_at"] == 7_500
    assert shown["preset"] == "default"


# ---------------------------------------------------------------- the cheapest trigger


def test_the_cheapest_trigger_of_the_worked_example() -> None:
    growth, prices = Growth(1_500, 15_000, 1_500), Prices(0.1, 5)
    cheapest = cheapest_trigger(growth, prices)
    assert cheapest is not None
    assert 40_000 < cheapest < 43_000
    least = min(range(16_000, 900_000, 100), key=lambda u: step_cost(u, growth, prices))
    assert abs(least - cheapest) <= 100


def test_it_is_never_under_eight_steps_and_never_above_the_ratios() -> None:
    steep = Growth(10_000, 1_000, 100)
    cheapest = cheapest_trigger(steep, Prices(1.0, 1.0))
    assert cheapest == 1_000 + 80_000
    p = resolve_compaction_policy("m", 32_000, settings(objective="cost"), prices=Prices(), growth=steep)
    assert p.trigger_at == 24_000


def test_a_cost_trigger_brings_margin_and_target_along() -> None:
    growth = Growth(1_500, 15_000, 1_500)
    p = resolve_compaction_policy("m", 1_000_000, settings(objective="cost"), prices=Prices(), growth=growth)
    assert p.trigger_at < 43_000
    assert p.margin == 12_000
    assert p.target <= p.trigger_at - p.margin
    assert p.soft_at <= p.trigger_at
    assert p.block_at == 850_000
    assert p.background


def test_without_growth_the_ratios_decide() -> None:
    p = resolve_compaction_policy("m", 1_000_000, settings(objective="cost"), prices=Prices())
    assert p.trigger_at == 750_000
    assert cheapest_trigger(Growth(0, 1, 1), Prices()) is None
    assert cheapest_trigger(Growth(1, 1, 1), Prices(0, 5)) is None


def test_prices_are_relative_to_input() -> None:
    info = ModelInfo(input_price=2.0, cached_price=0.5, output_price=8.0)
    assert Prices.of(info) == Prices(0.25, 4.0)
    assert Prices.of(ModelInfo()) == Prices(0.1, 5.0)
    assert Prices.of(ModelInfo(input_price=3.0)) == Prices(0.1, 5.0)
