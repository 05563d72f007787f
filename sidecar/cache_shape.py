"""What a provider's prompt cache did for a request, and why it missed. Pure."""

from __future__ import annotations

from typing import Protocol

from protocol.events import Notice
from protocol.info import CacheDiagnostics, PrefixShape

UNEXPLAINED_TOKENS = 2_000
"""A loss of cached tokens up to this is no news: providers cache in blocks and forget the edges."""

UNEXPLAINED_SHARE = 0.95
"""A hit of at least this share of the last one is no news either."""


class Counted(Protocol):
    """A request as the provider counted it; `prompt_tokens` includes the cached ones."""

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...


def compare(
    previous: CacheDiagnostics | None,
    shape: PrefixShape,
    counted: Counted,
    *,
    reasons: tuple[str, ...] = (),
    idle_ms: int | None = None,
    ttl_ms: int,
) -> CacheDiagnostics:
    """The diagnostics of a request whose prefix had `shape`.

    `previous` is that of the last counted request, None for the first. `reasons` say what happened to the context
    since then; `ttl` joins them when `idle_ms`, the time from the agent's last request to this one (None: there was
    none), is over the life of the provider's cache.
    """
    hit = min(counted.cached_tokens, counted.prompt_tokens)
    changed: tuple[str, ...] = ()
    if previous is not None:
        pairs = (
            ("system", previous.shape.system_hash, shape.system_hash),
            ("tools", previous.shape.tools_hash, shape.tools_hash),
        )
        changed = tuple(name for name, before, now in pairs if before != now)
    why = tuple(dict.fromkeys(reasons))
    if idle_ms is not None and idle_ms > ttl_ms and "ttl" not in why:
        why = (*why, "ttl")
    return CacheDiagnostics(hit, counted.prompt_tokens - hit, changed, why, shape)


def unexplained(previous: CacheDiagnostics | None, current: CacheDiagnostics) -> Notice | None:
    """The notice that the cache lost much of what it had held, with neither a change nor a reason; else None."""
    if previous is None or current.changed or current.reasons:
        return None
    before, now = previous.hit_tokens, current.hit_tokens
    if before - now <= UNEXPLAINED_TOKENS or now >= UNEXPLAINED_SHARE * before:
        return None
    return Notice(
        kind="unexplained_miss",
        message=(
            f"The provider's prompt cache held {before:,} tokens of the last request and {now:,} of this one, "
            "although nothing before the new messages changed. It may have been evicted."
        ),
    )
