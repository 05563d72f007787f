"""An agent as its compaction service sees it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import anyio
import structlog

from protocol.events import AnyEvent
from protocol.messages import Message
from record_store.backend import Journal
from record_store.fold import State
from record_store.records import Record, ToolsSnapshot
from record_store.replay import state_at, typed
from sidecar import ids
from sidecar.agent.ports import HookBase
from sidecar.agent.runtime import Agent
from sidecar.agent.turn import Turn
from sidecar.compaction.ports import SnipLimits, SummaryReply, SummaryRequest, WindowView
from sidecar.compaction.service import CompactionService
from sidecar.errors import Fault
from sidecar.providers.errors import ProviderError
from sidecar.providers.port import ModelInfo, RetryPolicy
from sidecar.providers.registry import Registry
from sidecar.sessions.summary_requests import SummaryRequests
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
        requests: SummaryRequests,
        refresh: Callable[[], None],
    ) -> None:
        self._agent = agent
        self._journal = journal
        self._toolbox = toolbox
        self._registry = registry
        self._tasks = tasks
        self._requests = requests
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
        return self._requests.binding(model).provider.retry

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
        return await self._requests.send(request)

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
