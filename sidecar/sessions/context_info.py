"""What a host is told of a context. Pure."""

from __future__ import annotations

from protocol.info import ContextInfo, LandingInfo, RunningCompaction, WindowSource
from record_store.fold import State
from sidecar.compaction import breakers, triggers
from sidecar.compaction.policy import Policy


def context_info(
    state: State,
    policy: Policy,
    *,
    used: int,
    source: WindowSource,
    running: RunningCompaction | None = None,
) -> ContextInfo:
    landing = state.last_landing
    return ContextInfo(
        used=used,
        window=policy.window,
        window_source=source,
        soft_at=policy.soft_at,
        trigger_at=policy.trigger_at,
        block_at=policy.block_at,
        stage=triggers.stage(policy, used),
        policy=policy.as_json(),
        breakers=breakers.as_info(state.breakers),
        compaction=running,
        last_landing=None
        if landing is None
        else LandingInfo(landing.compaction_id, landing.pre_tokens, landing.post_tokens, landing.line),
        cache=state.last_usage.cache if state.last_usage is not None else None,
    )
