"""One agent in the simulation: its log, its meter, its world, as `CompactionService` sees them through its port.

Log and context are the real ones: typed records, folded by the one reducer. Requests are the context's messages, in
order; a provider refuses one that is not well paired, so this does too.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from protocol.events import AnyEvent
from protocol.messages import Message, ToolSpec, Usage
from record_store import records as r
from record_store.fold import State, apply
from scripts.evaluation.model import Answer, Estimator, Piece, Provider
from scripts.evaluation.summaries import Summarizer
from sidecar.compaction.ports import SnipLimits, SummaryReply, SummaryRequest, WindowView
from sidecar.errors import Fault
from sidecar.providers.port import ModelInfo, Prefix, RetryPolicy
from sidecar.settings import Settings
from sidecar.tokens.calibration import Factor, smoothed
from sidecar.tokens.measure import ContextMeter

MODEL = "simulated/model"
EPOCH_MS = 1_800_000_000_000

RECORD_TOOLS = ("record_read", "record_search")
SIDE_EFFECTS = frozenset({"run_command"})


def _tools(names: Sequence[str], described: str) -> tuple[ToolSpec, ...]:
    """Tools whose descriptions have the usual length."""
    schema = {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}}
    return tuple(ToolSpec(name=name, description=described, parameters=schema) for name in names)


@dataclass(slots=True)
class Spent:
    """What was paid for, in the provider's tokens. `output` counts summaries only: steps answer the same everywhere."""

    prompt: int = 0
    cached: int = 0
    output: int = 0

    def add(self, answer: Answer, output: int = 0) -> None:
        self.prompt += answer.prompt
        self.cached += answer.cached
        self.output += output

    def cost(self, cached_price: float, output_price: float) -> float:
        """In uncached prompt tokens."""
        return self.prompt - self.cached + cached_price * self.cached + output_price * self.output


class Calibration:
    """The daemon's smoothing of observed over estimated tokens, in memory."""

    def __init__(self) -> None:
        self._known: Factor | None = None

    def factor(self, model: str) -> float:
        return self._known.factor if self._known is not None else 1.0

    def observe(self, model: str, *, estimated: int, observed: int) -> None:
        self._known = smoothed(self._known, estimated, observed)


@dataclass(slots=True)
class World:
    """What is outside of the agent."""

    provider: Provider
    summarizer: Summarizer
    group: TaskGroup
    rng: random.Random
    description: str


@dataclass(slots=True)
class Log:
    """The records, and their fold."""

    records: list[r.Record] = field(default_factory=list)
    state: State = field(default_factory=State)

    def append(self, *records: r.Record) -> tuple[int, ...]:
        first = len(self.records) + 1
        for line, record in enumerate(records, first):
            self.records.append(record)
            apply(self.state, record, line)
        return tuple(range(first, first + len(records)))


class SimulatedAgent:
    """Implements `sidecar.compaction.ports.AgentPort`."""

    wire_path = "/home/user/.local/share/sidecar/sessions/ses_1/agents/main/wire.jsonl"
    model = MODEL

    def __init__(self, world: World, settings: Settings, system: str, tools: Sequence[str]) -> None:
        self.world = world
        self.settings = settings
        self.log = Log()
        self.events: list[AnyEvent] = []
        self.spent = Spent()
        self.summaries_paid = 0
        self.failures: list[BaseException] = []
        self._calibration = Calibration()
        self._meter = ContextMeter(Estimator(), self._calibration)
        self._prefix = Prefix(system, _tools(sorted(tools), world.description))
        self._sent_prefix = self._prefix
        self._wire = _Wire(world.provider)
        self.append(
            r.Metadata(self.now_ms(), 1, "ses_1", "main", self.now_ms(), "0"),
            r.ConfigUpdate(self.now_ms(), model=MODEL, system_prompt=system, window=world.provider.window),
            r.ToolsSnapshot(self.now_ms(), self._prefix.tools),
        )

    # ------------------------------------------------------------ facts

    @property
    def state(self) -> State:
        return self.log.state

    def model_info(self, model: str | None = None) -> ModelInfo:
        window = self.world.provider.window
        return ModelInfo(window, "table", input_price=1.0, cached_price=0.1, output_price=5.0)

    def retry_policy(self, model: str | None = None) -> RetryPolicy:
        return RetryPolicy()

    def window(self) -> WindowView:
        known = self.world.provider.window
        learned = self.state.learned_windows.get(MODEL, known)
        return WindowView(learned, "learned") if learned < known else WindowView(known, "table")

    def snip_limits(self, tool: str) -> SnipLimits | None:
        return None

    def has_side_effects(self, tool: str) -> bool:
        return tool in SIDE_EFFECTS

    # ------------------------------------------------------------ measuring

    def used(self) -> int:
        return self._meter.used(self.state, self._prefix, MODEL)

    @property
    def factor(self) -> float:
        return self._calibration.factor(MODEL)

    def message_tokens(self, message: Message) -> int:
        return self._meter.message_tokens(message)

    def text_tokens(self, text: str) -> int:
        return Estimator().text_tokens(text)

    def prefix_tokens(self) -> int:
        return self._meter.prefix_tokens(self._prefix)

    def prefix_changed(self) -> bool:
        return self.state.last_request is not None and self._sent_prefix is not self._prefix

    # ------------------------------------------------------------ acting

    def append(self, *records: r.Record) -> tuple[int, ...]:
        return self.log.append(*records)

    async def sync(self) -> None:
        await anyio.lowlevel.checkpoint()

    def emit(self, event: AnyEvent) -> None:
        self.events.append(event)

    def spawn(self, run: Callable[[], Awaitable[None]], name: str) -> None:
        async def work() -> None:
            await run()

        self.world.group.start_soon(work, name=name)

    def enable_record_access(self) -> None:
        if set(RECORD_TOOLS) <= {t.name for t in self._prefix.tools}:
            return
        tools = (*self._prefix.tools, *_tools(RECORD_TOOLS, self.world.description))
        self._prefix = Prefix(self._prefix.system, tuple(sorted(tools, key=lambda t: t.name)))
        self.append(r.ToolsSnapshot(self.now_ms(), self.state.tools, RECORD_TOOLS))

    def checkpoint(self) -> None:
        """Nothing is kept here."""

    async def read_record(self, line: int) -> r.Record | None:
        return self.log.records[line - 1] if 0 < line <= len(self.log.records) else None

    async def state_before(self, line: int) -> State:
        past = Log()
        past.append(*self.log.records[: line - 1])
        return past.state

    def now_ms(self) -> int:
        return EPOCH_MS + int(anyio.current_time() * 1000)

    def random(self) -> float:
        return self.world.rng.random()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    def report(self, error: BaseException, doing: str) -> None:
        self.failures.append(error)

    # ------------------------------------------------------------ requests

    async def summarize(self, request: SummaryRequest) -> SummaryReply:
        """Answers after as long as reading and writing take; an answer over its limit is cut."""
        messages = [entry.message for entry in request.entries]
        pieces = [*self._wire.of(messages, self._prefix), self.world.provider.piece(request.instruction)]
        shown = sum(piece.tokens for piece in pieces)
        text = self.world.summarizer.summarize(messages, shown)
        output = self.world.provider.text_tokens(text)
        limit = request.max_output_tokens
        cut = output > limit
        answer = self.world.provider.ask(pieces, min(output, limit), anyio.current_time(), uncached=1)
        self.append(
            r.LlmRequest(
                self.now_ms(), "compaction", MODEL, "", "", "", len(messages), request.attempt,
                suffix_count=1, compaction_id=request.compaction_id,
            )
        )  # fmt: skip
        await anyio.sleep(answer.seconds)
        self.spent.add(answer, min(output, limit))
        self.summaries_paid += 1
        usage = Usage(answer.prompt, answer.cached, min(output, limit), 1)
        text = text[: len(text) * limit // output] if cut else text
        return SummaryReply(text, "length" if cut else "stop", usage, MODEL)

    def request(self, output: int) -> Answer:
        """A step's request, written down and sent. Raises an overflow `ProviderError`."""
        raw = self._meter.raw(self.state, self._prefix)
        self.append(r.LlmRequest(self.now_ms(), "step", MODEL, "", "", "", len(self.state.entries), 1))
        answer = self.world.provider.ask(self._wire.pieces(self.state, self._prefix), output, anyio.current_time())
        self._sent_prefix = self._prefix
        self._calibration.observe(MODEL, estimated=raw, observed=answer.prompt)
        self.spent.add(answer)
        return answer

    def usage(self, answer: Answer) -> None:
        self.append(r.LlmUsage(self.now_ms(), "step", MODEL, answer.prompt, answer.cached, answer.output))


class _Wire:
    """The context as pieces of a request; costs what is new while nothing is rewritten."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._rewrites = -1
        self._pieces: list[Piece] = []
        self._prefix: tuple[Prefix, Piece] | None = None

    def pieces(self, state: State, prefix: Prefix) -> list[Piece]:
        """Those of the next step's request: the same list, grown, until something is rewritten."""
        first = self._of_prefix(prefix)
        if state.rewrites != self._rewrites or self._pieces[0] is not first:
            self._rewrites, self._pieces = state.rewrites, [first]
        new = [entry.message for entry in state.entries[len(self._pieces) - 1 :]]
        assert_paired(new)
        self._pieces += map(self._provider.piece, new)
        return self._pieces

    def of(self, messages: Sequence[Message], prefix: Prefix) -> list[Piece]:
        """Those of a request for a summary of some messages."""
        return [self._of_prefix(prefix), *map(self._provider.piece, messages)]

    def _of_prefix(self, prefix: Prefix) -> Piece:
        if self._prefix is None or self._prefix[0] is not prefix:
            self._prefix = (prefix, self._provider.prefix(prefix.system, prefix.tools))
        return self._prefix[1]


def assert_paired(messages: Sequence[Message]) -> None:
    """As a strict provider: every call is answered right behind it, every result answers a call."""
    open_calls: set[str] = set()
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                raise Fault("internal", f"{message.id} answers no call")
            open_calls.discard(message.tool_call_id or "")
            continue
        if open_calls:
            raise Fault("internal", f"calls without a result before {message.id}")
        if message.tool_calls:
            open_calls = {c.id for c in message.tool_calls}
    if open_calls:
        raise Fault("internal", "calls without a result at the end")
