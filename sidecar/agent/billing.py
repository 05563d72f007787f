"""What a provider says that a request took, in the forms in which it is written down, told and added up. Pure."""

from __future__ import annotations

from typing import Literal

from protocol.events import UsageEvent
from protocol.info import CacheDiagnostics
from protocol.messages import Usage
from record_store.records import LlmUsage
from sidecar.providers.port import TokenUsage

Kind = Literal["step", "compaction"]


def usage_record(
    told: TokenUsage,
    *,
    time: int,
    kind: Kind,
    model: str,
    failed: bool = False,
    cache: CacheDiagnostics | None = None,
    compaction_id: str | None = None,
) -> LlmUsage:
    """`failed`: the request is paid for and came to nothing."""
    return LlmUsage(
        time=time,
        kind=kind,
        model=model,
        prompt_tokens=told.prompt_tokens,
        cached_tokens=told.cached_tokens,
        completion_tokens=told.completion_tokens,
        failed=failed,
        cache=cache,
        compaction_id=compaction_id,
    )


def usage_event(told: TokenUsage, *, kind: Kind, cache: CacheDiagnostics | None = None) -> UsageEvent:
    return UsageEvent(
        kind=kind,
        prompt_tokens=told.prompt_tokens,
        cached_tokens=told.cached_tokens,
        completion_tokens=told.completion_tokens,
        cache=cache,
    )


def usage_of(told: TokenUsage) -> Usage:
    """Of one request."""
    return Usage(told.prompt_tokens, told.cached_tokens, told.completion_tokens, 1)
