"""What the inspector found in a session's logs. Frozen values only.

`x` is a place on the axis of steps: n for the end of step n of the agent's life, n + 0.5 for what happened between
steps n and n + 1. Times are milliseconds since 1970, tokens are integers; `cost` is in uncached prompt tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Point:
    """The measured size of the context."""

    x: float
    time: int
    used: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The policy's lines from `x` on, in tokens. `window` 0: not known."""

    x: float
    window: int
    soft: int
    snip: int
    trigger: int
    block: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """What requests took. `prompt` includes the cached ones."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    requests: int = 0
    cost_of_cached: float = 0.0
    cost_of_output: float = 0.0

    def plus(self, other: Tokens) -> Tokens:
        return Tokens(
            self.prompt + other.prompt,
            self.cached + other.cached,
            self.completion + other.completion,
            self.requests + other.requests,
            self.cost_of_cached + other.cost_of_cached,
            self.cost_of_output + other.cost_of_output,
        )

    @property
    def cost(self) -> float:
        return self.prompt - self.cached + self.cost_of_cached + self.cost_of_output

    @property
    def hit_ratio(self) -> float:
        return self.cached / self.prompt if self.prompt else 0.0


@dataclass(frozen=True, slots=True)
class Request:
    """One answered request of a step. `lost` is by how much its cache hit fell short of the last one's, where that
    is more than the usual noise (else 0); `changed` and `reasons` are those of its diagnostics."""

    x: float
    time: int
    line: int
    model: str
    tokens: Tokens
    lost: int
    changed: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def unexplained(self) -> bool:
        return self.lost > 0 and not self.changed and not self.reasons


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning and end of a message, and how long all of it is."""

    line: int
    who: str
    text: str
    chars: int


Outcome = Literal["landed", "cancelled", "open"]


@dataclass(frozen=True, slots=True)
class Compaction:
    """A bracket. `reason` says why it did not land; `post_tokens` is there when it did. `paid` is its own requests.

    `span` holds what this landing took out of the context and no earlier one had (`left_out` more were not kept for
    the page); a compaction that did not land took out nothing.
    """

    compaction_id: str
    number: int
    trigger: str
    mode: str
    start_x: float
    end_x: float
    start_time: int
    end_time: int
    start_line: int
    end_line: int | None
    first_line: int
    last_line: int
    message_count: int
    pre_tokens: int
    post_tokens: int | None
    outcome: Outcome
    reason: str
    shape: str
    summary_kind: str
    attempts: int
    dropped_messages: int
    instruction: str
    summary: str
    paid: Tokens
    span: tuple[Excerpt, ...]
    left_out: int

    @property
    def duration_ms(self) -> int:
        return max(0, self.end_time - self.start_time)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A change of the context that asked no model: the free half, undo, clear. Tokens are None where not recorded."""

    x: float
    time: int
    line: int
    action: str
    pre_tokens: int | None
    post_tokens: int | None
    messages: int


@dataclass(frozen=True, slots=True)
class Turn:
    """`paid` is everything that was asked for while it ran, summaries included."""

    number: int
    turn_id: str
    x: float
    begin: int
    end: int | None
    steps: int
    paid: Tokens
    stop_reason: str
    error: str
    text: str


@dataclass(frozen=True, slots=True)
class AgentReport:
    agent_id: str
    purpose: str
    model: str
    lines: int
    damaged: int
    steps: int
    begin: int
    end: int
    points: tuple[Point, ...]
    limits: tuple[Limits, ...]
    requests: tuple[Request, ...]
    compactions: tuple[Compaction, ...]
    rewrites: tuple[Rewrite, ...]
    turns: tuple[Turn, ...]
    step_tokens: Tokens
    summary_tokens: Tokens
    failed_requests: int

    @property
    def used(self) -> int:
        return self.points[-1].used if self.points else 0

    @property
    def peak(self) -> int:
        return max((p.used for p in self.points), default=0)

    @property
    def window(self) -> int:
        return self.limits[-1].window if self.limits else 0

    @property
    def total(self) -> Tokens:
        return self.step_tokens.plus(self.summary_tokens)

    @property
    def landed(self) -> int:
        return sum(1 for c in self.compactions if c.outcome == "landed")


@dataclass(frozen=True, slots=True)
class Report:
    """A session: its main agent first, then its sub-agents in the order in which they were spawned.

    `forked_from` is the session that it was forked from, with the last line that it took over; else empty.
    """

    session_id: str
    title: str
    cwd: str
    created_at: int
    forked_from: str
    fork_line: int
    agents: tuple[AgentReport, ...]

    @property
    def total(self) -> Tokens:
        total = Tokens()
        for agent in self.agents:
            total = total.plus(agent.total)
        return total
