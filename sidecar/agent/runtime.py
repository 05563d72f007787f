"""One agent: its log, its model, its tools, measured. The loop and the hooks act through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from protocol.events import AnyEvent, SteerApplied, StepStarted
from protocol.info import CacheDiagnostics, WindowSource
from record_store import seen
from record_store.errors import StoreError
from record_store.fold import State
from record_store.records import Breakers, Edit, LlmRequest, Record, StepBegin, StepEnd
from sidecar.agent.billing import usage_event, usage_of, usage_record
from sidecar.agent.model import ModelLink
from sidecar.agent.ports import Events, HookChain, Log, ToolRunner
from sidecar.agent.turn import Turn
from sidecar.cache_shape import compare, unexplained
from sidecar.clock import Clock
from sidecar.compaction.policy import DEFAULTS
from sidecar.providers.errors import ProviderError
from sidecar.providers.port import EncodedRequest, Prefix, TokenUsage
from sidecar.settings import Settings
from sidecar.store_errors import store_fault
from sidecar.tokens.measure import ContextMeter
from sidecar.tokens.port import Calibration, Estimator


@dataclass(slots=True)
class Measuring:
    """`estimator` is the session's (it sees its blobs), `calibration` the process's."""

    estimator: Estimator
    calibration: Calibration


class Agent:
    """The parts are public: hooks need them. What changes state goes through `append`."""

    def __init__(
        self,
        *,
        log: Log,
        events: Events,
        model: ModelLink,
        tools: ToolRunner,
        settings: Settings,
        measuring: Measuring,
        clock: Clock,
    ) -> None:
        self.log = log
        self.events = events
        self.model = model
        self.tools = tools
        self.settings = settings
        self.measuring = measuring
        self.clock = clock
        self.hooks = HookChain(())
        self.breakers_after_step: Callable[[int], Breakers | None] = lambda used: None
        self.prefix = Prefix("")
        self.meter = ContextMeter(measuring.estimator, measuring.calibration)
        self.call_ids: Callable[[], Iterable[bytearray]] = lambda: (self.state.call_ids,)
        self.last_cache: CacheDiagnostics | None = (
            log.state.last_usage.cache if log.state.last_usage is not None else None
        )
        self._estimate_sent = 0
        self._estimate_teaches = False
        self._idle_ms: int | None = None

    # -- what hooks and the loop use all the time

    @property
    def state(self) -> State:
        return self.log.state

    @property
    def window(self) -> int:
        return self.window_and_source()[0]

    def window_and_source(self) -> tuple[int, WindowSource]:
        return self.model.window(self.reference, self.state, self.settings)

    def is_call(self, call_id: str) -> bool:
        """Whether a call of the session has, or may have, this id."""
        return any(seen.holds(ids, call_id) for ids in self.call_ids())

    def append(self, *records: Record) -> list[int]:
        """Appends and folds, at once. Raises `Fault` (`store_write_failed`) with nothing changed."""
        try:
            return self.log.append(*records)
        except StoreError as error:
            raise store_fault(error) from error

    async def sync(self) -> None:
        """On return what was appended is on disk. Raises `Fault` (`store_write_failed`)."""
        try:
            await self.log.sync()
        except StoreError as error:
            raise store_fault(error) from error

    def emit(self, event: AnyEvent, turn_id: str | None = None) -> None:
        self.events.emit(event, turn_id)

    async def writable(self) -> None:
        await self.events.writable()

    def used(self) -> int:
        """Tokens of the next request, as measured."""
        return self.meter.used(self.state, self.prefix, self.reference)

    @property
    def reference(self) -> str:
        """`provider/model` that is or would be asked; empty if none is known."""
        return self.state.model or self.model.reference or self.model.default(self.settings) or ""

    def saved_by(self, edits: Iterable[Edit]) -> int:
        """Tokens that these edits take out of the context."""
        return self.meter.saved_by(self.state, edits, self.reference)

    # -- steps

    def begin_step(self, turn: Turn) -> None:
        """The step's boundary is passed: waiting steering enters the context."""
        steers = tuple(p.entry.message.id for p in self.state.pending if p.kind == "steer")
        self.append(StepBegin(time=self.clock.now_ms(), turn_id=turn.turn_id, step=turn.step, steers=steers))
        self.emit(StepStarted(step=turn.step), turn.turn_id)
        for message_id in steers:
            self.emit(SteerApplied(message_id=message_id), turn.turn_id)

    def end_step(self, turn: Turn) -> None:
        used = self.used()
        self.append(
            StepEnd(
                time=self.clock.now_ms(),
                turn_id=turn.turn_id,
                step=turn.step,
                used=used,
                breakers=self.breakers_after_step(used),
            )
        )

    # -- requests

    async def prepare_request(self, turn: Turn) -> EncodedRequest:
        """The bytes of the next request, written down as `llm.request`."""
        state = self.state
        self.model.bind(state.model, self.settings)
        self.model.sync(self.prefix, state)
        used = self.used()
        request = self.model.request(self.model.output_limit(self.window, used, self.settings))
        self._estimate_sent = self.meter.raw(state, self.prefix)
        # A count made without the vocabulary says nothing about how the model's tokens relate to ours.
        self._estimate_teaches = self.measuring.estimator.generation > 0
        self._idle_ms = self.clock.now_ms() - state.last_request_at if state.last_request_at else None
        shape = self.model.shape(state.rewrites)
        self.append(
            LlmRequest(
                time=self.clock.now_ms(),
                kind="step",
                model=self.model.binding.reference,
                system_hash=shape.system_hash,
                tools_hash=shape.tools_hash,
                prefix_hash=shape.prefix_hash,
                message_count=request.message_count,
                attempt=turn.attempts,
                messages_bytes=request.messages_bytes,
                messages_hash=request.messages_hash,
            )
        )
        return request

    def record_usage(self, turn: Turn, usage: TokenUsage | None) -> None:
        """Writes down and tells what a step's request cost. Without a report the estimate is told and nothing is
        measured by it."""
        now = self.clock.now_ms()
        reference = self.model.binding.reference
        if usage is None:
            answered = self.meter.raw(self.state, self.prefix) - self._estimate_sent
            told = TokenUsage(self._estimate_sent, 0, max(0, answered))
            cache = None
        else:
            told = usage
            cache = self._diagnose(turn, usage)
            self.append(usage_record(usage, time=now, kind="step", model=reference, cache=cache))
            if self._estimate_teaches:
                self.measuring.calibration.observe(
                    reference, estimated=self._estimate_sent, observed=usage.prompt_tokens
                )
        self._bill(turn, told, cache)

    def record_failed_attempt(self, turn: Turn, error: ProviderError) -> None:
        """Writes down and tells what an attempt cost that came to nothing, where the provider had said so: it is paid
        for, and measures nothing."""
        usage = error.usage
        if usage is None:
            return
        model = self.model.binding.reference
        self.append(usage_record(usage, time=self.clock.now_ms(), kind="step", model=model, failed=True))
        self._bill(turn, usage, None)

    def _bill(self, turn: Turn, told: TokenUsage, cache: CacheDiagnostics | None) -> None:
        turn.usage = turn.usage.plus(usage_of(told))
        self.emit(usage_event(told, kind="step", cache=cache), turn.turn_id)

    def _diagnose(self, turn: Turn, usage: TokenUsage) -> CacheDiagnostics:
        state = self.state
        cache = compare(
            self.last_cache,
            self.model.shape(state.rewrites),
            usage,
            reasons=tuple(state.rewrite_reasons),
            idle_ms=self._idle_ms,
            ttl_ms=int(self.cache_ttl_s * 1000),
        )
        notice = unexplained(self.last_cache, cache)
        if notice is not None:
            self.emit(notice, turn.turn_id)
        self.last_cache = cache
        return cache

    @property
    def cache_ttl_s(self) -> float:
        ttl = self.settings.compaction.cache_ttl_s
        return float(DEFAULTS["cache_ttl_s"]) if ttl is None else ttl
