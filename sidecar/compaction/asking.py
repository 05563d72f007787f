"""Asks a model for a summary: sends what the failure ladder says until it accepts or gives up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import anyio.lowlevel

from protocol.events import RetryScheduled
from protocol.messages import Message, Origin, TextPart, Usage
from record_store.fold import Entry
from sidecar.compaction import material, summarizer, summary_prompt
from sidecar.compaction.gauge import Gauge
from sidecar.compaction.policy import Policy
from sidecar.compaction.ports import AgentPort, SummaryReply, SummaryRequest
from sidecar.providers.errors import ProviderError


@dataclass(frozen=True, slots=True)
class Summary:
    """What a summary came to. `attempts` and `dropped` are 0 for an excerpt, which nobody was asked for."""

    text: str
    kind: Literal["model", "excerpt"]
    usage: Usage = field(default_factory=Usage)
    attempts: int = 0
    dropped: int = 0
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no summary: the one word, and how many requests were made."""

    reason: str
    attempts: int


class Asker:
    """One summary: the span, its instruction, and the requests made so far."""

    def __init__(
        self,
        port: AgentPort,
        gauge: Gauge,
        policy: Policy,
        compaction_id: str,
        entries: Sequence[Entry],
        used: int,
        extra: str | None,
    ) -> None:
        self._port = port
        self._gauge = gauge
        self._policy = policy
        self._compaction_id = compaction_id
        self._original = entries
        self._entries = material.without_images(entries)
        self._sizes = gauge.sizes()
        self._instruction = Message(
            id=f"{compaction_id}.instruction",
            role="user",
            content=(TextPart(summary_prompt.instruction(extra)),),
            time=port.now_ms(),
            origin=Origin("injection", variant="compaction_instruction"),
        )
        self._material = material.material_of(self._entries, self._sizes, policy.compaction_max_attempts)
        self._around = max(0, used - sum(self._material.tokens)) + self._sizes.message(self._instruction)
        self._usage = Usage()

    async def ask(self) -> Summary | Failure:
        """Runs the ladder. Cancelling it ends the request under way."""
        window = self._gauge.window_of(self._policy.model)
        room = window - self._around - summarizer.MIN_SUMMARY_ROOM
        progress, ask = summarizer.first_attempt(self._material, room)
        while True:
            if ask.wait_s > 0:
                await self._port.sleep(ask.wait_s)
            # What was awaited until here may not have been one to interrupt: once ended, nothing is asked or logged.
            await anyio.lowlevel.checkpoint_if_cancelled()
            outcome = await self._send(ask, progress.attempts + 1)
            progress, action = self._next(progress, ask, outcome)
            match action:
                case summarizer.GiveUp(reason):
                    return Failure(reason, progress.attempts)
                case summarizer.Accept(text):
                    assert isinstance(outcome, SummaryReply)
                    dropped = self._material.dropped(progress.first)
                    return Summary(text, "model", self._usage, progress.attempts, dropped, outcome.model)
                case summarizer.Ask():
                    ask = action
                    self._announce_wait(ask, outcome, progress.attempts)

    async def _send(self, ask: summarizer.Ask, attempt: int) -> SummaryReply | ProviderError:
        port, policy = self._port, self._policy
        shown = material.shown(self._entries, ask.first, ask.cut, self._sizes)
        limit = summarizer.output_limit(
            policy.summary_max_output_tokens,
            self._gauge.window_of(policy.model),
            self._input_tokens(ask),
            port.model_info(policy.model).max_output,
        )
        exact = len(shown) == len(self._original) and all(a is b for a, b in zip(shown, self._original, strict=True))
        request = SummaryRequest(self._compaction_id, attempt, shown, exact, self._instruction, limit, policy.model)
        try:
            reply = await port.summarize(request)
        except ProviderError as error:
            return error
        self._usage = self._usage.plus(reply.usage)
        return reply

    def _next(
        self, progress: summarizer.Progress, ask: summarizer.Ask, outcome: SummaryReply | ProviderError
    ) -> tuple[summarizer.Progress, summarizer.Action]:
        policy, tokens, overflow = self._policy, 0, False
        if isinstance(outcome, ProviderError):
            overflow = outcome.kind == "overflow" or outcome.too_large
            if overflow:
                self._gauge.teach(outcome, self._input_tokens(ask), policy.model)
        else:
            tokens = self._sizes.text(outcome.text)
        return summarizer.next_attempt(
            progress,
            outcome,
            self._material,
            reply_tokens=tokens,
            overflow=overflow,
            retry=self._port.retry_policy(policy.model),
            jitter=self._port.random(),
        )

    def _input_tokens(self, ask: summarizer.Ask) -> int:
        shown = self._material.shown(ask.first)
        return self._around + (shown if ask.cut is None else min(shown, ask.cut))

    def _announce_wait(self, ask: summarizer.Ask, outcome: SummaryReply | ProviderError, attempts: int) -> None:
        if isinstance(outcome, ProviderError) and ask.wait_s > 0:
            self._port.emit(
                RetryScheduled(
                    attempt=attempts + 1,
                    delay_ms=int(ask.wait_s * 1000),
                    reason=outcome.reason,
                    status=outcome.status,
                )
            )
