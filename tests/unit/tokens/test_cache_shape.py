"""What a prompt cache did, why, and when nobody can say why."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from protocol.info import CacheDiagnostics, PrefixShape
from protocol.messages import Usage
from sidecar.cache_shape import compare, unexplained

SHAPE = PrefixShape("s1", "t1", "p1", 0, 400)
FIRST = CacheDiagnostics(10_000, 500, (), (), SHAPE)


def counted(prompt: int, cached: int) -> Usage:
    return Usage(prompt, cached, 10, 1)


def test_hits_and_misses_add_up_to_the_prompt() -> None:
    assert compare(None, SHAPE, counted(1_000, 300), ttl_ms=1) == CacheDiagnostics(300, 700, (), (), SHAPE)
    assert compare(None, SHAPE, counted(1_000, 2_000), ttl_ms=1).miss_tokens == 0


@pytest.mark.parametrize(
    ("shape", "changed"),
    [
        (SHAPE, ()),
        (replace(SHAPE, system_hash="s2", prefix_hash="p2"), ("system",)),
        (replace(SHAPE, tools_hash="t2", prefix_hash="p2"), ("tools",)),
        (replace(SHAPE, system_hash="s2", tools_hash="t2"), ("system", "tools")),
        (replace(SHAPE, log_rewrite_version=3), ()),
    ],
)
def test_what_changed_before_the_messages(shape: PrefixShape, changed: tuple[str, ...]) -> None:
    assert compare(FIRST, shape, counted(1, 0), ttl_ms=1).changed == changed
    assert compare(None, shape, counted(1, 0), ttl_ms=1).changed == ()


@pytest.mark.parametrize(
    ("reasons", "idle_ms", "expected"),
    [
        ((), None, ()),
        ((), 300_000, ()),
        ((), 300_001, ("ttl",)),
        (("compaction", "snip", "compaction"), 0, ("compaction", "snip")),
        (("model",), 400_000, ("model", "ttl")),
    ],
)
def test_why_it_may_miss(reasons: tuple[str, ...], idle_ms: int | None, expected: tuple[str, ...]) -> None:
    found = compare(FIRST, SHAPE, counted(1, 0), reasons=reasons, idle_ms=idle_ms, ttl_ms=300_000)
    assert found.reasons == expected


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (10_000, 7_999, True),
        (10_000, 8_000, False),  # 2,000 less is no news
        (100_000, 94_999, True),
        (100_000, 95_000, False),  # 95 % is no news
        (10_000, 0, True),
        (0, 0, False),
        (5_000, 9_000, False),
    ],
)
def test_a_loss_without_change_or_reason_is_told(before: int, now: int, told: bool) -> None:
    previous, current = replace(FIRST, hit_tokens=before), replace(FIRST, hit_tokens=now)
    notice = unexplained(previous, current)
    assert (notice is not None) == told
    if notice is not None:
        assert notice.kind == "unexplained_miss"
        assert f"{before:,}" in notice.message
    assert unexplained(previous, replace(current, changed=("tools",))) is None
    assert unexplained(previous, replace(current, reasons=("ttl",))) is None
    assert unexplained(None, current) is None
