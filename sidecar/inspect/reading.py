"""Logs to a report, in one pass. Pure: the caller reads the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from protocol.messages import JsonObject
from sidecar.inspect.fields import items, message_text, number, shortened, table, text, who, words
from sidecar.inspect.limit_lines import LimitLines
from sidecar.inspect.open_bracket import OpenBracket, SpanText
from sidecar.inspect.report import AgentReport, Compaction, Point, Report, Request, Rewrite, Tokens, Turn
from sidecar.settings import Layer

NOISE_TOKENS, NOISE_SHARE = 2_000, 0.95
"""A cache hit that fell by no more than this is not shown as a loss (as in the daemon's own diagnostics)."""

Log = Iterable[tuple[int, JsonObject | None]]
"""Lines with their records as plain objects; None for one that cannot be read."""


def build(logs: Iterable[tuple[str, Log]], *, configuration: Layer | None = None) -> Report:
    """The report of a session. `logs` are its agents' (`agent_id`, log), `main` among them.

    `configuration` is what holds besides the session's own (file and environment); the policy's lines come from both.
    Costs a few microseconds a record; holds one excerpt a message until its span has landed.
    """
    readers = {agent_id: _read(agent_id, log, configuration or {}) for agent_id, log in logs}
    main = readers.get("main") or next(iter(readers.values()), None) or _Reader("main", {})
    spawned = {agent_id: purpose for r in readers.values() for agent_id, purpose in r.spawned.items()}
    rest = [r for r in readers.values() if r is not main]
    rest.sort(key=lambda r: (r.first_time, r.agent_id))
    agents = tuple(r.report(spawned.get(r.agent_id, "")) for r in (main, *rest))
    return Report(
        session_id=main.session_id,
        title=main.title,
        cwd=main.cwd,
        created_at=main.created_at,
        forked_from=main.forked_from,
        fork_line=main.fork_line,
        agents=agents,
    )


def _read(agent_id: str, log: Log, configuration: Layer) -> _Reader:
    reader = _Reader(agent_id, configuration)
    for line, raw in log:
        reader.take(line, raw)
    return reader


class _OpenTurn:
    def __init__(self, number: int, turn_id: str, x: float, begin: int) -> None:
        self.number, self.turn_id, self.x, self.begin = number, turn_id, x, begin
        self.steps = 0
        self.paid = Tokens()
        self.text = ""

    def closed(self, end: int | None, stop_reason: str, error: str) -> Turn:
        return Turn(
            self.number, self.turn_id, self.x, self.begin, end, self.steps, self.paid, stop_reason, error, self.text
        )


class _Reader:
    """One agent's log. `take` is called for every line in order; `report` at the end."""

    def __init__(self, agent_id: str, configuration: Layer) -> None:
        self.agent_id = agent_id
        self.session_id = self.title = self.cwd = self.forked_from = ""
        self.created_at = self.fork_line = self.first_time = self.last_time = 0
        self.spawned: dict[str, str] = {}
        self._limits = LimitLines(configuration)
        self._lines = self._damaged = self._steps = self._failed = 0
        self._points: list[Point] = []
        self._requests: list[Request] = []
        self._compactions: list[Compaction] = []
        self._rewrites: list[Rewrite] = []
        self._turns: list[Turn] = []
        self._turn: _OpenTurn | None = None
        self._bracket: OpenBracket | None = None
        self._span = SpanText()
        self._step_tokens = self._summary_tokens = Tokens()
        self._queued: dict[str, str] = {}

    def take(self, line: int, raw: JsonObject | None) -> None:
        self._lines += 1
        if raw is None:
            self._damaged += 1
            return
        time = number(raw, "time")
        if time > 0:
            self.first_time = self.first_time or time
            self.last_time = max(self.last_time, time)
        handler = _HANDLERS.get(text(raw, "type"))
        if handler is not None:
            handler(self, line, time, raw)

    def report(self, purpose: str) -> AgentReport:
        turns = list(self._turns)
        if self._turn is not None:
            turns.append(self._turn.closed(None, "running", ""))
        compactions = list(self._compactions)
        if self._bracket is not None:
            compactions.append(self._bracket.still_open(self._between, self.last_time))
        return AgentReport(
            agent_id=self.agent_id,
            purpose=purpose,
            model=self._limits.model,
            lines=self._lines,
            damaged=self._damaged,
            steps=self._steps,
            begin=self.first_time,
            end=self.last_time,
            points=tuple(self._points),
            limits=tuple(self._limits.drawn),
            requests=tuple(self._requests),
            compactions=tuple(compactions),
            rewrites=tuple(self._rewrites),
            turns=tuple(turns),
            step_tokens=self._step_tokens,
            summary_tokens=self._summary_tokens,
            failed_requests=self._failed,
        )

    # ---------------------------------------------------------------- what holds

    @property
    def _between(self) -> float:
        return self._steps + 0.5

    @property
    def _from_here(self) -> float:
        """Where something begins that holds on: what is told before the first step holds from the axis's beginning."""
        return self._between if self._steps else 0.0

    def metadata(self, line: int, time: int, raw: JsonObject) -> None:
        self.session_id = text(raw, "session_id")
        self.created_at = number(raw, "created_at") or time
        self.forked_from, self.fork_line = text(raw, "forked_from"), number(raw, "fork_line")

    def configured(self, line: int, time: int, raw: JsonObject) -> None:
        self.title = text(raw, "title") or self.title
        self.cwd = text(raw, "cwd") or self.cwd
        self._limits.configured(self._from_here, raw)

    def window_learned(self, line: int, time: int, raw: JsonObject) -> None:
        self._limits.window_learned(self._from_here, raw)

    # ---------------------------------------------------------------- turns and messages

    def turn_begun(self, line: int, time: int, raw: JsonObject) -> None:
        count = len(self._turns) + 1
        self._turn = _OpenTurn(count, text(raw, "turn_id"), self._between, time)
        for message_id in words(raw, "queued"):
            self._turn.text = self._turn.text or self._queued.pop(message_id, "")
        self._queued.clear()

    def turn_ended(self, line: int, time: int, raw: JsonObject) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        error = table(raw, "error")
        words_of_error = ": ".join(w for w in (text(error, "reason"), text(error, "message")) if w)
        self._turns.append(turn.closed(time, text(raw, "stop_reason"), words_of_error))

    def step_ended(self, line: int, time: int, raw: JsonObject) -> None:
        self._measured(Point(self._steps, time, number(raw, "used")))
        if self._turn is not None:
            self._turn.steps += 1

    def message(self, line: int, time: int, raw: JsonObject) -> None:
        message = table(raw, "message")
        body = message_text(message)
        self._span.add(line, who(message), body)
        if text(message, "role") != "user" or text(table(message, "origin"), "kind") not in ("", "user"):
            return
        if self._turn is not None:
            self._turn.text = self._turn.text or shortened(body, 200, 0)
        elif len(self._queued) < 256:
            self._queued[text(message, "id")] = shortened(body, 200, 0)

    # ---------------------------------------------------------------- requests

    def requested(self, line: int, time: int, raw: JsonObject) -> None:
        if raw.get("kind") == "step":
            self._limits.asked(self._from_here, text(raw, "model"))

    def usage(self, line: int, time: int, raw: JsonObject) -> None:
        tokens = self._tokens(raw)
        if self._turn is not None:
            self._turn.paid = self._turn.paid.plus(tokens)
        if raw.get("failed") is True:
            self._failed += 1
        if raw.get("kind") == "compaction":
            self._summary_tokens = self._summary_tokens.plus(tokens)
            if self._bracket is not None:
                self._bracket.paid = self._bracket.paid.plus(tokens)
            return
        self._step_tokens = self._step_tokens.plus(tokens)
        if raw.get("failed") is True:
            return
        self._steps += 1
        cache = table(raw, "cache")
        before = self._requests[-1].tokens.cached if self._requests else 0
        lost = before - tokens.cached
        lost = lost if lost > NOISE_TOKENS and tokens.cached < NOISE_SHARE * before else 0
        self._requests.append(
            Request(
                self._steps,
                time,
                line,
                text(raw, "model"),
                tokens,
                lost,
                words(cache, "changed"),
                words(cache, "reasons"),
            )
        )
        self._measured(Point(self._steps, time, tokens.prompt + tokens.completion))

    def _tokens(self, raw: JsonObject) -> Tokens:
        prompt, completion = number(raw, "prompt_tokens"), number(raw, "completion_tokens")
        cached = min(prompt, number(raw, "cached_tokens"))
        prices = self._limits.prices(text(raw, "model"))
        return Tokens(prompt, cached, completion, 1, prices.cached * cached, prices.output * completion)

    def _measured(self, point: Point) -> None:
        if self._points and self._points[-1].x == point.x and point.x == int(point.x):
            self._points[-1] = point
        else:
            self._points.append(point)

    # ---------------------------------------------------------------- changes of the context

    def compaction_started(self, line: int, time: int, raw: JsonObject) -> None:
        if self._bracket is not None:
            self._close(self._bracket.cancelled(self._between, time, None, "unfinished"))
        self._bracket = OpenBracket(len(self._compactions) + 1, self._between, time, line, raw)
        self._limits.compaction_started(self._from_here, table(raw, "limits"))

    def compaction_summarised(self, line: int, time: int, raw: JsonObject) -> None:
        if self._bracket is not None:
            self._bracket.answered(raw)

    def compaction_landed(self, line: int, time: int, raw: JsonObject) -> None:
        bracket = self._bracket or OpenBracket(len(self._compactions) + 1, self._between, time, line, raw)
        landed = bracket.landed(self._between, time, line, raw, self._span)
        self._points.append(Point(self._between, time, number(raw, "pre_tokens")))
        self._points.append(Point(self._between, time, number(raw, "post_tokens")))
        self._close(landed)

    def compaction_cancelled(self, line: int, time: int, raw: JsonObject) -> None:
        if self._bracket is not None:
            self._close(self._bracket.cancelled(self._between, time, line, text(raw, "reason")))

    def _close(self, compaction: Compaction) -> None:
        self._compactions.append(compaction)
        self._bracket = None

    def rewritten(self, line: int, time: int, raw: JsonObject) -> None:
        pre, post = number(raw, "pre_tokens"), number(raw, "post_tokens")
        self._points += (Point(self._between, time, pre), Point(self._between, time, post))
        messages = len(items(raw, "edits")) or number(raw, "message_count")
        self._rewrites.append(Rewrite(self._between, time, line, text(raw, "action"), pre, post, messages))

    def undone(self, line: int, time: int, raw: JsonObject) -> None:
        self._rewrites.append(Rewrite(self._between, time, line, "undo", None, None, 0))

    def cleared(self, line: int, time: int, raw: JsonObject) -> None:
        self._span = SpanText()
        self._points.append(Point(self._between, time, 0))
        self._rewrites.append(Rewrite(self._between, time, line, "clear", None, None, 0))

    def revised(self, line: int, time: int, raw: JsonObject) -> None:
        for message in items(raw, "messages"):
            if isinstance(message, dict):
                self._span.add(line, who(message), message_text(message))
        count = len(items(raw, "messages"))
        self._rewrites.append(Rewrite(self._between, time, line, "host_revision", None, None, count))

    def agent_spawned(self, line: int, time: int, raw: JsonObject) -> None:
        self.spawned[text(raw, "agent_id")] = shortened(text(raw, "purpose"), 200, 0)


_HANDLERS: dict[str, Callable[[_Reader, int, int, JsonObject], None]] = {
    "metadata": _Reader.metadata,
    "config.update": _Reader.configured,
    "model.window_learned": _Reader.window_learned,
    "turn.begin": _Reader.turn_begun,
    "turn.end": _Reader.turn_ended,
    "step.end": _Reader.step_ended,
    "context.append_message": _Reader.message,
    "llm.request": _Reader.requested,
    "llm.usage": _Reader.usage,
    "compaction.start": _Reader.compaction_started,
    "compaction.summary": _Reader.compaction_summarised,
    "context.apply_compaction": _Reader.compaction_landed,
    "compaction.cancel": _Reader.compaction_cancelled,
    "context.rewrite": _Reader.rewritten,
    "context.undo": _Reader.undone,
    "context.clear": _Reader.cleared,
    "context.host_revision": _Reader.revised,
    "agent.spawn": _Reader.agent_spawned,
}
