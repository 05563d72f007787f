"""Tokens in every spelling."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.providers.port import TokenUsage
from sidecar.providers.usage import MessagesUsage, from_chat

CASES: list[tuple[str, Any, Any, TokenUsage | None]] = [
    ("openai", {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}, None,
     TokenUsage(10, 8, 3)),
    ("openai, details null", {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": None}, None,
     TokenUsage(10, 0, 3)),
    ("deepseek", {"prompt_tokens": 10, "completion_tokens": 3, "prompt_cache_hit_tokens": 6,
                  "prompt_cache_miss_tokens": 4}, None, TokenUsage(10, 6, 3)),
    ("deepseek, parts only", {"prompt_cache_hit_tokens": 6, "prompt_cache_miss_tokens": 4}, None, TokenUsage(10, 6, 0)),
    ("kimi", {"prompt_tokens": 10, "completion_tokens": 3, "cached_tokens": 7}, None, TokenUsage(10, 7, 3)),
    ("gateway", {"input_tokens": 10, "output_tokens": 3, "cache_read_input_tokens": 7}, None, TokenUsage(10, 7, 3)),
    ("llama.cpp timings", None, {"prompt_n": 4, "cache_n": 90, "predicted_n": 6}, TokenUsage(94, 90, 6)),
    ("llama.cpp both", {"prompt_tokens": 94, "completion_tokens": 6}, {"prompt_n": 4, "cache_n": 90},
     TokenUsage(94, 90, 6)),
    ("more cached than there is", {"prompt_tokens": 5, "cached_tokens": 9}, None, TokenUsage(5, 5, 0)),
    ("nothing", None, None, None),
    ("zeros", {"prompt_tokens": 0, "completion_tokens": 0}, None, None),
    ("an answer to no prompt", {"prompt_tokens": 0, "completion_tokens": 7}, None, None),
    ("nonsense", {"prompt_tokens": "many", "completion_tokens": -4, "cached_tokens": True}, [], None),
    ("floats", {"prompt_tokens": 10.0, "completion_tokens": float("nan")}, None, TokenUsage(10, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("usage", "timings", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_chat(usage: Any, timings: Any, wanted: TokenUsage | None) -> None:
    assert from_chat(usage, timings) == wanted


def test_messages_sum_what_was_read_written_and_fresh() -> None:
    usage = MessagesUsage()
    usage.take(
        {"input_tokens": 5, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 15, "output_tokens": 1}
    )
    usage.take({"output_tokens": 40})
    usage.take(None)
    assert usage.total() == TokenUsage(100, 80, 40)


def test_messages_figures_are_cumulative_wherever_they_come() -> None:
    usage = MessagesUsage()
    usage.take({"input_tokens": 0, "output_tokens": 0})
    usage.take({"input_tokens": 12, "cache_read_input_tokens": 3, "output_tokens": 7})
    usage.take({"input_tokens": 0, "output_tokens": 9})
    assert usage.total() == TokenUsage(15, 3, 9)
    assert MessagesUsage().total() is None
    partial = MessagesUsage()
    partial.take({"output_tokens": 9})
    assert partial.total() is None
