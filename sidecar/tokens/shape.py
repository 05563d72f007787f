"""What a provider's prompt cache did for a request, and why it missed. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from protocol.info import CacheDiagnostics, PrefixShape

UNEXPLAINED_TOKENS = 2_000
"""A loss of cached tokens up to this is no news: providers cache in blocks and forget the edges."""

UNEXPLAINED_SHARE = 0.95
"""A hit of at least this share of the last one is no news either."""


class Hashes(Protocol):
    """Of the bytes that stand before the messages."""

    @property
    def system(self) -> str: ...

    @property
    def tools(self) -> str: ...

    @property
    def prefix(self) -> str: ...


def take(hashes: Hashes, *, rewrites: int, tool_schema_tokens: int) -> PrefixShape:
    """The shape of a request about to be sent."""
    return PrefixShape(hashes.system, hashes.tools, hashes.prefix, rewrites, tool_schema_tokens)


def miss_reasons(rewrite_reasons: Iterable[str], *, idle_s: float | None, cache_ttl_s: float) -> tuple[str, ...]:
    """Why the cache may miss: what happened to the context since the last measured request, each once, in order,
    and `ttl` if `idle_s`, the time since any request of the agent (None: there was none), is over the cache's life."""
    reasons = tuple(dict.fromkeys(rewrite_reasons))
    return (*reasons, "ttl") if idle_s is not None and idle_s > cache_ttl_s else reasons


def compare(
    previous: PrefixShape | None,
    shape: PrefixShape,
    *,
    prompt_tokens: int,
    cached_tokens: int,
    reasons: tuple[str, ...] = (),
) -> CacheDiagnostics:
    """The diagnostics of a request that has just been counted by the provider.

    `previous` is the shape of the request before it, None for the first. `reasons` are those of `miss_reasons`.
    """
    hit = min(cached_tokens, prompt_tokens)
    changed: tuple[str, ...] = ()
    if previous is not None:
        pairs = (
            ("system", previous.system_hash, shape.system_hash),
            ("tools", previous.tools_hash, shape.tools_hash),
        )
        changed = tuple(name for name, before, now in pairs if before != now)
    return CacheDiagnostics(hit, prompt_tokens - hit, changed, reasons, shape)


def unexplained_miss(previous: CacheDiagnostics | None, current: CacheDiagnostics) -> bool:
    """Whether the cache lost much of what it had held, with neither a change nor a reason."""
    if previous is None or current.changed or current.reasons:
        return False
    before, now = previous.hit_tokens, current.hit_tokens
    return before - now > UNEXPLAINED_TOKENS and now < UNEXPLAINED_SHARE * before
