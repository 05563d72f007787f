"""An agent for compaction to serve, in simulated time: real records, real fold, a scripted model for summaries.

It keeps its log as bytes, so that every test can replay it, and it looks at each step's request as a provider would:
every call answered, every result behind its call, and no byte changed since the last request but by a rewrite.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup

from protocol.events import AnyEvent, CompactionDiscarded, CompactionFailed, CompactionLanded, CompactionStarted
from protocol.messages import ImagePart, Message, Origin, TextPart, ToolCall, Usage
from record_store import records as r
from record_store.fold import State, apply
from sidecar.compaction.free_half import SnipLimits
from sidecar.compaction.ports import SummaryReply, SummaryRequest, WindowView
from sidecar.compaction.service import CompactionService
from sidecar.errors import Fault
from sidecar.providers.errors import ProviderError
from sidecar.providers.port import ModelInfo, RetryPolicy
from sidecar.settings import CompactionSettings, LoopControl, Settings, ToolSettings

SUMMARY = "Summary: the user builds a parser in src/parse.py; tests pass; next step is the lexer. " * 3

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(r.AnyRecord).decode

Outcome = str | SummaryReply | Exception | Callable[[SummaryRequest], "str | SummaryReply"]


def settings(*, trigger: float | None = None, reserve: int | None = None, attempts: int = 5, record_access: bool = True,
             **compaction: Any) -> Settings:  # fmt: skip
    return Settings(
        loop_control=LoopControl(
            compaction_trigger_ratio=trigger, reserved_context_size=reserve, compaction_max_attempts=attempts
        ),
        compaction=CompactionSettings(**compaction),
        tools=ToolSettings(record_access=record_access),
    )


def text_tokens(text: str) -> int:
    return (len(text) + 3) // 4


def message_tokens(message: Message) -> int:
    images = sum(isinstance(p, ImagePart) for p in message.content)
    arguments = sum(len(c.arguments) + len(c.name) for c in message.tool_calls or ())
    return 4 + text_tokens(message.text) + (arguments + 3) // 4 + 500 * images


def words(tokens: int, word: str = "abc") -> str:
    """A text of exactly so many tokens."""
    return (word[:3] + " ") * tokens


class Crash(Exception):
    """The process is gone at this point."""


@dataclass
class FakeAgent:
    """The port, and the loop around it. `outcomes` are the summaries to come; when they run out, `SUMMARY`.

    `summary_ms` is how long a summary takes, `step_ms` how long a step takes.
    """

    settings: Settings = field(default_factory=settings)
    window_tokens: int = 10_000
    prefix: int = 100
    outcomes: deque[Outcome] = field(default_factory=deque)
    summary_ms: int = 0
    step_ms: int = 100
    tool_ms: int = 0
    sync_ms: int = 0
    landing_sync_ms: int = 0
    model: str = "fake/model"
    wire_path: str = "/data/sessions/s1/agents/main/wire.jsonl"
    factor: float = 1.0
    info: ModelInfo = field(default_factory=ModelInfo)
    lines: list[bytes] = field(default_factory=list)
    fail_appends: bool = False
    fail_syncs: bool = False
    checks: bool = True

    def __post_init__(self) -> None:
        self.state = State()
        self.clock = 1_000_000
        self.events: list[AnyEvent] = []
        self.summary_requests: list[SummaryRequest] = []
        self.step_requests: list[list[bytes]] = []
        self.reports: list[BaseException] = []
        self.checkpoints = 0
        self.record_access_lines: list[int] = []
        self.synced_lines = 0
        self.group: TaskGroup | None = None
        self.changed_prefix = False
        self.side_effects: set[str] = set()
        self.limits: dict[str, SnipLimits] = {}
        self._sleepers: list[tuple[int, anyio.Event]] = []
        self._sizes: dict[int, tuple[Message, int]] = {}
        self._last_rewrites = -1
        self._ids = 0
        self.crash_at: int | None = None
        self.foreign: set[str] = set()
        if self.lines:
            self.state = replay(self.lines)
            self._ids = len(self.lines) * 1000
        else:
            self.append(r.Metadata(self.clock, 1, "s1", "main", self.clock, "0"))
            self.append(r.ConfigUpdate(self.clock, model=self.model, window=self.window_tokens))

    # ------------------------------------------------------------ the port

    def model_info(self, model: str | None = None) -> ModelInfo:
        return self.info

    def retry_policy(self, model: str | None = None) -> RetryPolicy:
        return RetryPolicy(base_s=0.5)

    def window(self) -> WindowView:
        learned = self.state.learned_windows.get(self.model)
        if learned is not None and learned < self.window_tokens:
            return WindowView(learned, "learned")
        return WindowView(self.window_tokens, "config")

    def snip_limits(self, tool: str) -> SnipLimits | None:
        return self.limits.get(tool)

    def has_side_effects(self, tool: str) -> bool:
        return tool in self.side_effects

    def used(self) -> int:
        state = self.state
        if state.anchor_tokens is None:
            return self.prefix + sum(map(self.message_tokens, (e.message for e in state.entries)))
        added = (e.message for e in state.entries[state.anchor_count :])
        return state.anchor_tokens + sum(map(self.message_tokens, added))

    def message_tokens(self, message: Message) -> int:
        known = self._sizes.get(id(message))
        if known is None:
            known = self._sizes[id(message)] = (message, message_tokens(message))
        return known[1]

    def text_tokens(self, text: str) -> int:
        return text_tokens(text)

    def prefix_tokens(self) -> int:
        return self.prefix

    def prefix_changed(self) -> bool:
        return self.changed_prefix

    def append(self, *records: r.Record) -> tuple[int, ...]:
        if self.fail_appends:
            raise Fault("store_write_failed", "disk full")
        written = []
        for record in records:
            if self.crash_at is not None and len(self.lines) >= self.crash_at:
                raise Crash
            self.lines.append(_encode(record))
            written.append(len(self.lines))
            apply(self.state, record, len(self.lines))
        return tuple(written)

    async def sync(self) -> None:
        landing = b'"context.apply_compaction"' in self.lines[-1][:60]
        await self.sleep((self.landing_sync_ms if landing else self.sync_ms) / 1000)
        if self.fail_syncs:
            raise Fault("store_write_failed", "disk full")
        self.synced_lines = len(self.lines)

    def emit(self, event: AnyEvent) -> None:
        if isinstance(event, CompactionLanded):
            assert self.synced_lines >= event.line, "told before it was on disk"
        self.events.append(event)

    async def summarize(self, request: SummaryRequest) -> SummaryReply:
        start = next(i for i, line in enumerate(self.lines) if request.compaction_id.encode() in line) + 1
        assert self.synced_lines >= start, "asked before the start was on disk"
        assert request.entries, "an empty request"
        assert_paired([e.message for e in request.entries])
        self.summary_requests.append(request)
        if self.summary_ms:
            await self.sleep(self.summary_ms / 1000)
        outcome = self.outcomes.popleft() if self.outcomes else SUMMARY
        if isinstance(outcome, Exception):
            raise outcome
        if callable(outcome):
            outcome = outcome(request)
        if isinstance(outcome, str):
            outcome = SummaryReply(
                outcome, "stop", Usage(100, 90, text_tokens(outcome), 1), request.model or self.model
            )
        return outcome

    def spawn(self, run: Callable[[], Awaitable[None]], name: str) -> None:
        assert self.group is not None

        async def guarded() -> None:
            try:
                await run()
            except Crash:
                pass

        self.group.start_soon(guarded, name=name)

    def enable_record_access(self) -> None:
        if self.settings.tools.record_access and "record_search" not in self.state.builtin:
            lines = self.append(r.ToolsSnapshot(self.clock, self.state.tools, ("record_read", "record_search")))
            self.record_access_lines += lines

    def checkpoint(self) -> None:
        self.checkpoints += 1

    async def read_record(self, line: int) -> r.Record | None:
        await anyio.lowlevel.checkpoint()
        return _decode(self.lines[line - 1]) if 0 < line <= len(self.lines) else None

    async def state_before(self, line: int) -> State:
        await anyio.lowlevel.checkpoint()
        return replay(self.lines[: line - 1])

    def now_ms(self) -> int:
        return self.clock

    def random(self) -> float:
        return 0.5

    def report(self, error: BaseException, doing: str) -> None:
        self.reports.append(error)

    # ------------------------------------------------------------ simulated time

    async def sleep(self, seconds: float) -> None:
        due = self.clock + int(seconds * 1000)
        if due <= self.clock:
            await anyio.lowlevel.checkpoint()
            return
        event = anyio.Event()
        self._sleepers.append((due, event))
        await event.wait()

    async def advance(self, ms: int) -> None:
        """Lets time pass; whoever waits for a moment in it goes on, in order."""
        end = self.clock + ms
        await settle()
        while True:
            due = min((d for d, _ in self._sleepers), default=end + 1)
            if due > end:
                break
            self.clock = max(self.clock, due)
            for sleeper in [s for s in self._sleepers if s[0] <= due]:
                self._sleepers.remove(sleeper)
                sleeper[1].set()
            await settle()
        self.clock = max(self.clock, end)

    async def run_out(self, scope: Callable[[], bool]) -> None:
        """Lets time pass until `scope` says that what was waited for is over."""
        for _ in range(10_000):
            await settle()
            if scope():
                return
            await self.advance(self.step_ms)
        raise AssertionError("nothing ends")

    # ------------------------------------------------------------ the loop

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}{self._ids}"

    def say(self, text: str, origin: Origin | None = None, *parts: Any) -> Message:
        content = (TextPart(text), *parts) if text else tuple(parts)
        return Message(id=self.new_id("u"), role="user", content=content, time=self.clock, origin=origin)

    def add(self, message: Message) -> None:
        self.append(r.AppendMessage(self.clock, message))

    def add_exchange(self, result: str, *, calls: int = 1, answer: str = "", is_error: bool = False) -> None:
        """An assistant message with calls, and their results."""
        issued = tuple(ToolCall(self.new_id("c"), "read_file", "{}") for _ in range(calls))
        content = (TextPart(answer),) if answer else ()
        self.add(
            Message(id=self.new_id("a"), role="assistant", content=content, time=self.clock, tool_calls=issued or None)
        )
        for call in issued:
            self.add(
                Message(
                    id=self.new_id("t"),
                    role="tool",
                    content=(TextPart(result),),
                    time=self.clock,
                    tool_call_id=call.id,
                    name=call.name,
                    is_error=is_error,
                )
            )

    async def turn(
        self,
        service: CompactionService,
        text: str,
        results: Sequence[str],
        *,
        steers: dict[int, str] | None = None,
        errors: dict[int, list[ProviderError]] | None = None,
    ) -> None:
        """A turn with a step per result, and a last one without a call."""
        turn_id = self.new_id("turn")
        message = self.say(text)
        self.append(r.AppendMessage(self.clock, message, turn_id, "turn"))
        self.append(r.TurnBegin(self.clock, turn_id, (message.id,)))
        stop: Any = "end_turn"
        try:
            for step, result in enumerate([*results, None], 1):
                await self._step(service, turn_id, step, result, (steers or {}).get(step), (errors or {}).get(step, []))
        except Crash:
            raise
        except anyio.get_cancelled_exc_class():
            stop = "cancelled"
            raise
        except BaseException:
            stop = "error"
            raise
        finally:
            if self.crash_at is None:
                self.close_calls()
                self.append(r.TurnEnd(self.clock, turn_id, stop, Usage()))

    def close_calls(self) -> None:
        """Answers what a cancelled or crashed step left open."""
        answered = {m.tool_call_id for m in self.messages()}
        for message in self.messages():
            for call in message.tool_calls or ():
                if call.id not in answered:
                    text = (TextPart("cancelled"),)
                    id = self.new_id("t")
                    self.add(Message(id=id, role="tool", content=text, time=self.clock, tool_call_id=call.id))

    def repair(self) -> None:
        """What resume does before compaction settles: open calls, then the open turn."""
        self.close_calls()
        if self.state.open_turn is not None:
            self.append(r.TurnEnd(self.clock, self.state.open_turn, "error", Usage()))

    async def _step(
        self,
        service: CompactionService,
        turn_id: str,
        step: int,
        result: str | None,
        steer: str | None,
        errors: list[ProviderError],
    ) -> None:
        await service.on_will_begin_step(turn_id)
        steers: tuple[str, ...] = ()
        if steer is not None:
            message = self.say(steer)
            self.append(r.AppendMessage(self.clock, message, turn_id, "steer"))
            steers = (message.id,)
        self.append(r.StepBegin(self.clock, turn_id, step, steers))
        for error in errors:
            assert await service.on_request_error(turn_id, error)
        self._request()
        self.append(r.LlmRequest(self.clock, "step", self.model, "", "", "", len(self.state.entries), 1))
        await self.sleep(self.step_ms / 1000)
        prompt = self.prefix + sum(message_tokens(e.message) for e in self.state.entries)
        answer = Message(
            id=self.new_id("a"),
            role="assistant",
            content=(TextPart(f"answer {step}"),),
            time=self.clock,
            tool_calls=None if result is None else (ToolCall(self.new_id("c"), "read_file", "{}"),),
        )
        self.append(r.AppendMessage(self.clock, answer))
        self.append(r.LlmUsage(self.clock, "step", self.model, prompt, 0, message_tokens(answer)))
        if answer.tool_calls and self.tool_ms:
            await self.sleep(self.tool_ms / 1000)
        for call in answer.tool_calls or ():
            self.add(
                Message(
                    id=self.new_id("t"),
                    role="tool",
                    content=(TextPart(result or ""),),
                    time=self.clock,
                    tool_call_id=call.id,
                    name=call.name,
                )
            )
        used = self.used()
        self.append(r.StepEnd(self.clock, turn_id, step, used, service.breakers_after_step(used)))
        await service.on_did_finish_step(turn_id)

    def _request(self) -> None:
        """What the provider sees: well paired, and append-only between two rewrites."""
        messages = [e.message for e in self.state.entries]
        request = [_encode(m) for m in messages]
        if self.checks:
            assert_paired(messages)
            if self._last_rewrites == self.state.rewrites and self.step_requests:
                before = self.step_requests[-1]
                assert request[: len(before)] == before, "the prefix changed without a rewrite"
        self._last_rewrites = self.state.rewrites
        self.step_requests.append(request)

    # ------------------------------------------------------------ looking

    def of(self, *kinds: type) -> list[Any]:
        return [e for e in self.events if isinstance(e, kinds)]

    def ends(self) -> list[Any]:
        return self.of(CompactionLanded, CompactionDiscarded, CompactionFailed)

    def records(self, *kinds: type) -> list[Any]:
        found = [_decode(line) for line in self.lines]
        return [x for x in found if isinstance(x, kinds)]

    def messages(self) -> list[Message]:
        return [e.message for e in self.state.entries]

    def texts(self) -> list[str]:
        return [m.text for m in self.messages()]

    def assert_sound(self, *, running: bool = False) -> None:
        """What holds at any time: replay equals life, each start one end, landings shrink."""
        assert _encode(self.state) == _encode(replay(self.lines))
        started = [e.compaction_id for e in self.of(CompactionStarted)]
        ended = [e.compaction_id for e in self.ends()]
        assert len(set(ended)) == len(ended)
        assert set(ended) <= set(started) | self.foreign
        ended = [e for e in ended if e not in self.foreign]
        assert len(started) - len(ended) <= (1 if running else 0), (started, ended)
        for event in self.of(CompactionLanded):
            assert event.post_tokens < event.pre_tokens
        assert not self.reports, self.reports


def replay(lines: Sequence[bytes]) -> State:
    state = State()
    for number, line in enumerate(lines, 1):
        apply(state, _decode(line), number)
    return state


def assert_paired(messages: Sequence[Message]) -> None:
    """As a strict provider: results answer a call of the assistant message before them, every call is answered."""
    open_calls: set[str] = set()
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id in open_calls, f"{message.id} answers no call"
            open_calls.discard(message.tool_call_id or "")
            continue
        assert not open_calls, f"calls without a result before {message.id}"
        open_calls = {c.id for c in message.tool_calls or ()}
    assert not open_calls, "calls without a result at the end"


async def settle() -> None:
    """Until every task waits for something."""
    for _ in range(12):
        await anyio.lowlevel.checkpoint()


class Running:
    """`async with Running(agent) as service`: the session's task group around the agent."""

    def __init__(self, agent: FakeAgent, *, resumed: bool = False) -> None:
        self.agent = agent
        self._resumed = resumed

    async def __aenter__(self) -> CompactionService:
        self._group = anyio.create_task_group()
        self.agent.group = await self._group.__aenter__()
        return CompactionService(self.agent, resumed=self._resumed)

    async def __aexit__(self, *error: Any) -> None:
        self._group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await self.agent.advance(60_000)  # whoever may not be interrupted comes to an end
        await self._group.__aexit__(*error)


async def run_turn(
    agent: FakeAgent, service: CompactionService, text: str, results: Sequence[str], **more: Any
) -> None:
    """A turn in simulated time, to its end."""
    finished = False
    failure: BaseException | None = None

    async def work() -> None:
        nonlocal finished, failure
        try:
            await agent.turn(service, text, results, **more)
        except (Fault, Crash, AssertionError) as error:
            failure = error
        finally:
            finished = True

    assert agent.group is not None
    agent.group.start_soon(work)
    await agent.run_out(lambda: finished)
    if failure is not None:
        raise failure
