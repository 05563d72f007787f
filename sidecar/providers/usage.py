"""Token usage in every spelling that providers have for it. Pure.

`prompt_tokens` of the result includes the cached ones, whatever the source counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sidecar.providers.port import TokenUsage


def count(value: Any) -> int:
    """A token count; 0 for what is none (null, text, negative)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1 << 53:
        return 0
    return int(value)


def from_chat(usage: Any, timings: Any = None) -> TokenUsage | None:
    """Usage of a chat completion; None if neither argument tells what the prompt took, which is never nothing.

    Cached tokens stand in `prompt_tokens_details.cached_tokens` (OpenAI and most), `prompt_cache_hit_tokens`
    (DeepSeek), `cached_tokens` (Kimi) or `cache_read_input_tokens` (gateways); llama.cpp tells `timings` with
    `cache_n` tokens reused and `prompt_n` read.
    """
    usage = usage if isinstance(usage, Mapping) else {}
    timings = timings if isinstance(timings, Mapping) else {}
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    cached = max(
        count(details.get("cached_tokens")) if isinstance(details, Mapping) else 0,
        count(usage.get("prompt_cache_hit_tokens")),
        count(usage.get("cached_tokens")),
        count(usage.get("cache_read_input_tokens")),
        count(timings.get("cache_n")),
    )
    prompt = count(usage.get("prompt_tokens")) or count(usage.get("input_tokens"))
    if not prompt:
        prompt = count(usage.get("prompt_cache_hit_tokens")) + count(usage.get("prompt_cache_miss_tokens"))
    if not prompt:
        prompt = count(timings.get("prompt_n")) + count(timings.get("cache_n"))
    completion = count(usage.get("completion_tokens")) or count(usage.get("output_tokens"))
    completion = completion or count(timings.get("predicted_n"))
    if not prompt:
        return None
    return TokenUsage(prompt, min(cached, prompt), completion)


class MessagesUsage:
    """Usage of a Messages stream, told in several events: each figure is cumulative, so the largest one holds."""

    __slots__ = ("_figures",)

    _NAMES = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")

    def __init__(self) -> None:
        self._figures: dict[str, int] = {}

    def take(self, usage: Any) -> None:
        if isinstance(usage, Mapping):
            for name in self._NAMES:
                self._figures[name] = max(self._figures.get(name, 0), count(usage.get(name)))

    def total(self) -> TokenUsage | None:
        """The sum, or None if nothing was told of the prompt. What was read from the cache and what was written to it
        are both outside the dialect's `input_tokens`."""
        fresh, read, written, output = (self._figures.get(name, 0) for name in self._NAMES)
        prompt = fresh + read + written
        return TokenUsage(prompt, read, output) if prompt else None
