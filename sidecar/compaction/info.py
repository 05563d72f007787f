"""What a host is told about one agent's context. Reads, never acts."""

from __future__ import annotations

from protocol.info import CacheDiagnostics, ContextInfo, LandingInfo, RunningCompaction
from record_store.fold import Landing
from sidecar.compaction import breakers, triggers
from sidecar.compaction.policy import Policy
from sidecar.compaction.ports import AgentPort
from sidecar.compaction.running import Running


def context_info(
    port: AgentPort, policy: Policy, running: Running | None, cache: CacheDiagnostics | None
) -> ContextInfo:
    """For `agent.context.get`: limits in tokens, the stage, breakers, what runs and what landed last."""
    used, window = port.used(), port.window()
    return ContextInfo(
        used=used,
        window=window.tokens,
        window_source=window.source,
        soft_at=policy.soft_at,
        trigger_at=policy.trigger_at,
        block_at=policy.block_at,
        stage=triggers.stage(policy, used),
        policy=policy.as_json(),
        breakers=breakers.as_info(port.state.breakers),
        compaction=None if running is None else _running(running, port.now_ms()),
        last_landing=None if port.state.last_landing is None else _landing(port.state.last_landing),
        cache=cache,
    )


def _running(running: Running, now_ms: int) -> RunningCompaction:
    return RunningCompaction(running.compaction_id, running.mode, running.trigger, now_ms - running.started_at)


def _landing(last: Landing) -> LandingInfo:
    return LandingInfo(last.compaction_id, last.pre_tokens, last.post_tokens, last.line)
