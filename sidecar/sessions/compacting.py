"""An agent as its compaction service sees it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from operator import is_

import anyio
import structlog

from protocol.events import AnyEvent, UsageEvent
from protocol.messages import Message, Usage
from record_store.backend import Journal
from record_store.fold import State
from record_store.records import LlmRequest, LlmUsage, Record, ToolsSnapshot
from record_store.replay import state_at, typed
from sidecar import ids
from sidecar.agent.ports import HookBase
from sidecar.agent.runtime import Agent
from sidecar.agent.turn import Turn
from sidecar.agent.view import WellFormed
from sidecar.compaction.ports import SnipLimits, SummaryReply, SummaryRequest, WindowView
from sidecar.compaction.service import CompactionService
from sidecar.errors import Fault
from sidecar.providers.errors import ProviderError
from sidecar.providers.port import (
    Binding,
    BlobReader,
    EncodedRequest,
    Finished,
    ModelInfo,
    PrefixHashes,
    RetryPolicy,
    TextChunk,
    TokenUsage,
)
from sidecar.providers.registry import Registry
from sidecar.sessions.tasks import Tasks
from sidecar.sessions.toolbox import Toolbox
from sidecar.settings import Settings
from sidecar.tools.registry import RECORD_TOOLS

_log = structlog.get_logger("sidecar.compaction")


class CompactionPort:
    """Implements `sidecar.compaction.ports.AgentPort`."""

    def __init__(
        self,
        agent: Agent,
        journal: Journal,
        toolbox: Toolbox,
        registry: Registry,
        tasks: Tasks,
        blobs: BlobReader,
        refresh: Callable[[], None],
    ) -> None:
        self._agent = agent
        self._journal = journal
        self._toolbox = toolbox
        self._registry = registry
        self._tasks = tasks
        self._blobs = blobs
        self._refresh = refresh

    # -- facts

    @property
    def state(self) -> State:
        return self._agent.state

    @property
    def settings(self) -> Settings:
        return self._agent.settings

    @property
    def model(self) -> str:
        return self._agent.reference

    @property
    def wire_path(self) -> str:
        return self._journal.location

    def model_info(self, model: str | None = None) -> ModelInfo:
        reference = model or self.model
        return self._registry.info(reference, self.settings) if reference else ModelInfo()

    def retry_policy(self, model: str | None = None) -> RetryPolicy:
        return self._binding(model).provider.retry

    def window(self) -> WindowView:
        return WindowView(*self._agent.window_and_source())

    def snip_limits(self, tool: str) -> SnipLimits | None:
        return None

    def has_side_effects(self, tool: str) -> bool:
        return self._toolbox.has_side_effects(tool)

    # -- measuring

    def used(self) -> int:
        return self._agent.used()

    @property
    def factor(self) -> float:
        return self._agent.measuring.calibration.factor(self.model)

    def message_tokens(self, message: Message) -> int:
        return self._agent.meter.message_tokens(message)

    def text_tokens(self, text: str) -> int:
        return self._agent.measuring.estimator.text_tokens(text)

    def prefix_tokens(self) -> int:
        return self._agent.meter.prefix_tokens(self._agent.prefix)

    def prefix_changed(self) -> bool:
        agent = self._agent
        last = agent.state.last_request
        if last is None:
            return False
        try:
            agent.model.bind(agent.state.model, agent.settings)
        except Fault:
            return False
        agent.model.sync(agent.prefix, agent.state)
        shape = agent.model.shape(agent.state.rewrites)
        now = (agent.model.binding.reference, shape.system_hash, shape.tools_hash)
        return now != (last.model, last.system_hash, last.tools_hash)

    # -- acting

    def append(self, *records: Record) -> tuple[int, ...]:
        return tuple(self._agent.append(*records))

    async def sync(self) -> None:
        await self._agent.sync()

    def emit(self, event: AnyEvent) -> None:
        self._agent.emit(event, self._agent.state.open_turn)

    def spawn(self, run: Callable[[], Awaitable[None]], name: str) -> None:
        self._tasks.spawn(run, name)

    def enable_record_access(self) -> None:
        if self._toolbox.lacks_record_access():
            state = self._agent.state
            joined = tuple(sorted({*state.builtin, *RECORD_TOOLS}))
            self._agent.append(ToolsSnapshot(time=self.now_ms(), tools=state.tools, builtin=joined))
            self._refresh()

    def checkpoint(self) -> None:
        self._tasks.spawn(self._journal.checkpoint, "checkpoint")

    async def read_record(self, line: int) -> Record | None:
        return next((record for _, record in typed(self._journal.iterate(line, line))), None)

    async def state_before(self, line: int) -> State:
        return await anyio.to_thread.run_sync(state_at, self._journal, line - 1)

    async def summarize(self, request: SummaryRequest) -> SummaryReply:
        """One attempt: the bytes of the next step, or of a shortened list, and the instruction."""
        binding = self._binding(request.model)
        hashes, encoded = self._encoded(binding, request)
        self._agent.append(
            LlmRequest(
                time=self.now_ms(),
                kind="compaction",
                model=binding.reference,
                system_hash=hashes.system,
                tools_hash=hashes.tools,
                prefix_hash=hashes.prefix,
                message_count=encoded.message_count,
                attempt=request.attempt,
                suffix_count=1,
                messages_bytes=encoded.messages_bytes,
                messages_hash=encoded.messages_hash,
                compaction_id=request.compaction_id,
            )
        )
        try:
            text, finished = await _collect(binding, encoded)
        except ProviderError as error:
            self._paid(request, binding, error.usage, failed=True)
            raise
        return SummaryReply(text, finished.reason, self._paid(request, binding, finished.usage), binding.reference)

    def _encoded(self, binding: Binding, request: SummaryRequest) -> tuple[PrefixHashes, EncodedRequest]:
        """The context as it stands goes out as the bytes that the next step would send, cache marks included, without
        being serialised again; a shortened list, or another model's, is serialised for this request alone."""
        agent = self._agent
        entries = agent.state.entries
        if request.model is None and len(request.entries) == len(entries) and all(map(is_, request.entries, entries)):
            agent.model.sync(agent.prefix, agent.state)
            shape = agent.model.shape(agent.state.rewrites)
            hashes = PrefixHashes(shape.system_hash, shape.tools_hash, shape.prefix_hash)
            encoder = agent.model.encoder
        else:
            encoder = binding.provider.encoder(binding.model, self._blobs)
            hashes = encoder.sync(agent.prefix, WellFormed().follow(State(entries=list(request.entries))), 0)
        return hashes, encoder.request(max_output_tokens=request.max_output_tokens, suffix=request.instruction)

    def _paid(
        self, request: SummaryRequest, binding: Binding, told: TokenUsage | None, *, failed: bool = False
    ) -> Usage:
        if told is None:
            return Usage(0, 0, 0, 1)
        self._agent.append(
            LlmUsage(
                time=self.now_ms(),
                kind="compaction",
                model=binding.reference,
                prompt_tokens=told.prompt_tokens,
                cached_tokens=told.cached_tokens,
                completion_tokens=told.completion_tokens,
                failed=failed,
                compaction_id=request.compaction_id,
            )
        )
        self.emit(
            UsageEvent(
                kind="compaction",
                prompt_tokens=told.prompt_tokens,
                cached_tokens=told.cached_tokens,
                completion_tokens=told.completion_tokens,
                cache=None,
            )
        )
        return Usage(told.prompt_tokens, told.cached_tokens, told.completion_tokens, 1)

    def _binding(self, model: str | None) -> Binding:
        if model is not None:
            return self._registry.resolve(model, self.settings)
        return self._agent.model.bind(self._agent.state.model, self.settings)

    # -- the world

    def now_ms(self) -> int:
        return self._agent.clock.now_ms()

    def random(self) -> float:
        return random.random()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    def report(self, error: BaseException, doing: str) -> None:
        _log.error("compaction_failed_unexpectedly", doing=doing, reference=ids.new("err"), exc_info=error)


class CompactionHook(HookBase):
    """The compaction service, attached to the loop."""

    def __init__(self, service: CompactionService) -> None:
        self._service = service

    async def on_will_begin_step(self, turn: Turn) -> None:
        await self._service.on_will_begin_step(turn.turn_id)

    async def on_did_finish_step(self, turn: Turn) -> None:
        await self._service.on_did_finish_step(turn.turn_id)

    async def on_request_error(self, turn: Turn, error: ProviderError) -> bool:
        return await self._service.on_request_error(turn.turn_id, error)


async def _collect(binding: Binding, encoded: EncodedRequest) -> tuple[str, Finished]:
    """Streams an answer to its end. Raises `ProviderError` for one that is cut."""
    pieces: list[str] = []
    async with binding.provider.stream(binding.model, encoded) as stream:
        async for event in stream:
            match event:
                case TextChunk(text):
                    pieces.append(text)
                case Finished():
                    return "".join(pieces), event
                case _:
                    pass
    raise ProviderError("unavailable", "The provider's answer ended before it was complete.")
