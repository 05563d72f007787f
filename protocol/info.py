"""What the daemon tells about its sessions and their contexts. Pure data."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from protocol.messages import JsonObject

SessionState = Literal["idle", "running", "closed"]
WindowSource = Literal["config", "table", "provider", "learned", "fallback"]
Stage = Literal["normal", "soft", "trigger", "block"]


class SessionInfo(Struct, frozen=True, kw_only=True):
    """A session as hosts list it. `tools_builtin` is the word of the setting `tools.builtin`.

    `used` and `window` are tokens: the measured size of the next request, and the model's context size.
    """

    session_id: str
    title: str
    cwd: str
    model: str | None
    created_at: int
    updated_at: int
    state: SessionState
    turns: int
    agents: tuple[str, ...]
    tools_builtin: str
    used: int
    window: int


class PrefixShape(Struct, frozen=True):
    """Hashes of what stands before the messages, taken before each request.

    `log_rewrite_version` counts the changes of the context that were no appends.
    """

    system_hash: str
    tools_hash: str
    prefix_hash: str
    log_rewrite_version: int
    tool_schema_tokens: int


class CacheDiagnostics(Struct, frozen=True):
    """What the provider's prompt cache did for one request, and why it missed.

    `changed` holds `system`, `tools`; `reasons` holds `compaction`, `snip`, `prune`, `image_offload`, `undo`,
    `model`, `ttl`, `micro_compact`, `quarantine`, `clear`, `uncompact`, `host_revision`.
    """

    hit_tokens: int
    miss_tokens: int
    changed: tuple[str, ...]
    reasons: tuple[str, ...]
    shape: PrefixShape


class BreakerInfo(Struct, frozen=True):
    open: bool
    count: int


class RunningCompaction(Struct, frozen=True):
    compaction_id: str
    mode: Literal["background", "blocking"]
    trigger: Literal["auto", "manual", "overflow"]
    elapsed_ms: int


class LandingInfo(Struct, frozen=True):
    """The last compaction that landed; `line` is that of its `context.apply_compaction`."""

    compaction_id: str
    pre_tokens: int
    post_tokens: int
    line: int


class ContextInfo(Struct, frozen=True, kw_only=True):
    """The state of one agent's context, in tokens."""

    used: int
    window: int
    window_source: WindowSource
    soft_at: int
    trigger_at: int
    block_at: int
    stage: Stage
    policy: JsonObject
    breakers: dict[str, BreakerInfo]
    compaction: RunningCompaction | None
    last_landing: LandingInfo | None
    cache: CacheDiagnostics | None


class Recovered(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that opening a session after an unclean end had to mend or report."""

    kind: Literal[
        "torn_tail", "damaged_line", "open_calls", "open_turn", "open_compaction", "session_file", "checkpoint"
    ]
    detail: str
    line: int | None = None
