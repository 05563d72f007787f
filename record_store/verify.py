"""Is a log what it should be? Reads it whole, changes nothing.

    kind                               what is wrong with the line
    empty, nul, utf8, json, crc        it cannot be read
    glued                              several whole records stand on it; all are read
    seq                                from here on, `seq` is not the number of the line
    torn_tail                          bytes after the last newline: what a crash left; opening the session mends it
    metadata                           the first line is not `metadata`, is of another session, or a later one is;
                                       `main` has no line at all
    bracket                            a compaction or a turn is closed that was not open, opened while one is open, or
                                       landed without making the context smaller
    pairing                            a tool result of a turn that answers no open call

What depends on lines that cannot be read is not held against those that can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import anyio

from record_store import decoder
from record_store import records as r
from record_store.backend import MAIN_AGENT, Line, LogReader, StoredSession
from record_store.decoder import Unknown
from record_store.threads import blocking

MAX_PROBLEMS = 1_000
"""Problems that one agent's report names; of more it tells the number, on the last line."""

_BEING_WRITTEN_S = 0.05
"""A tail without newline that is still the same after this long is torn."""


@dataclass(frozen=True, slots=True)
class Problem:
    line: int
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class AgentReport:
    """`lines` counts whole lines; problems come in the order of lines."""

    agent_id: str
    lines: int
    problems: tuple[Problem, ...]


async def verify(session: StoredSession) -> tuple[AgentReport, ...]:
    """A report for every agent that has a log, `main` first. Raises `StoreReadError`."""
    return tuple([await _verify_agent(session, agent_id) for agent_id in await session.agents()])


async def _verify_agent(session: StoredSession, agent_id: str) -> AgentReport:
    log = await session.log(agent_id)
    report = await blocking(verify_log, log)
    if log.unfinished:
        await anyio.sleep(_BEING_WRITTEN_S)
        again = await session.log(agent_id)
        if (again.last_line, again.unfinished) == (log.last_line, log.unfinished):
            torn = Problem(log.last_line + 1, "torn_tail", f"{log.unfinished} bytes without a newline")
            return AgentReport(agent_id, report.lines, (*report.problems, torn))
    return report


def verify_log(log: LogReader) -> AgentReport:
    """The whole lines of one log. Blocking."""
    problems: list[Problem] = []
    more = 0
    for problem in _problems(log.iterate(), log.session_id, log.agent_id):
        if len(problems) < MAX_PROBLEMS:
            problems.append(problem)
        else:
            more += 1
    if not log.last_line and not log.unfinished and log.agent_id == MAIN_AGENT:
        problems.append(Problem(1, "metadata", "the log is empty"))
    if more:
        problems.append(Problem(log.last_line, "more", f"and {more} more problems"))
    return AgentReport(log.agent_id, log.last_line, tuple(problems))


def _problems(lines: Iterator[Line], session_id: str, agent_id: str) -> Iterator[Problem]:
    structure = _Structure(session_id, agent_id)
    shift = 0
    for line, raw in lines:
        decoded = decoder.decode_line(raw, line)
        if decoded.damage is not None:
            yield Problem(line, decoded.damage.kind, decoded.damage.detail)
            if decoded.damage.lost:
                structure.forget()
        for whole in decoded.records:
            if whole.seq - line not in (0, shift):
                yield Problem(line, "seq", f"seq {whole.seq} on line {line}")
            shift = whole.seq - line
            if not isinstance(whole.record, Unknown):
                for kind, detail in structure.check(whole.record, line):
                    yield Problem(line, kind, detail)


class _Structure:
    """What follows from the records before. None stands for: not known, after damage."""

    def __init__(self, session_id: str, agent_id: str) -> None:
        self._owner = (session_id, agent_id)
        self._first = True
        self._fork_line = 0
        self._bracket: str | None = ""
        self._left: str | None = ""
        self._turn: str | None = ""
        self._calls: set[str] | None = set()

    def forget(self) -> None:
        """A line was lost: whatever it may have opened or closed."""
        self._first = False
        self._bracket = self._turn = self._calls = None

    def check(self, record: r.Record, line: int) -> Iterator[tuple[str, str]]:
        if 0 < self._fork_line < line:
            # What the source had open, the fork closes; forks that leave it as it is are whole too.
            self._fork_line, self._left, self._bracket = 0, self._bracket, ""
        if self._first and not isinstance(record, r.Metadata):
            yield "metadata", "the log does not begin with it"
        match record:
            case r.Metadata():
                yield from self._metadata(record, line)
            case r.CompactionStart() | r.CompactionSummary() | r.ApplyCompaction() | r.CompactionCancel():
                yield from self._compaction(record)
            case r.TurnBegin() | r.TurnEnd():
                yield from self._turns(record)
            case r.AppendMessage(turn_id=str()):
                yield from self._pairing(record)
        self._first = False

    def _metadata(self, record: r.Metadata, line: int) -> Iterator[tuple[str, str]]:
        self._fork_line = record.fork_line or 0
        if not self._first:
            yield "metadata", "not on the first line"
        elif (record.session_id, record.agent_id) != self._owner:
            yield "metadata", f"of agent {record.agent_id} of session {record.session_id}"

    def _compaction(
        self, record: r.CompactionStart | r.CompactionSummary | r.ApplyCompaction | r.CompactionCancel
    ) -> Iterator[tuple[str, str]]:
        open_one, own = self._bracket, record.compaction_id
        if isinstance(record, r.CompactionStart):
            self._bracket = own
            if open_one:
                yield "bracket", f"{own} starts while {open_one} is open"
            return
        left, self._left = self._left, ""
        closes_left = isinstance(record, r.CompactionCancel) and not open_one and own == left
        if open_one is not None and open_one != own and not closes_left:
            yield "bracket", f"{own} is not open"
        self._bracket = own if isinstance(record, r.CompactionSummary) else ""
        if isinstance(record, r.ApplyCompaction) and record.post_tokens >= record.pre_tokens:
            yield "bracket", f"{own} landed {record.pre_tokens} tokens as {record.post_tokens}"

    def _turns(self, record: r.TurnBegin | r.TurnEnd) -> Iterator[tuple[str, str]]:
        open_one = self._turn
        if isinstance(record, r.TurnBegin):
            self._turn = record.turn_id
            if open_one:
                yield "bracket", f"turn {record.turn_id} begins while {open_one} is open"
        else:
            self._turn = ""
            if open_one is not None and open_one != record.turn_id:
                yield "bracket", f"turn {record.turn_id} is not open"

    def _pairing(self, record: r.AppendMessage) -> Iterator[tuple[str, str]]:
        message, calls = record.message, self._calls
        if calls is None:
            return
        if message.role == "assistant":
            calls.update(call.id for call in message.tool_calls or ())
        elif message.role == "tool" and message.tool_call_id is not None:
            if message.tool_call_id not in calls:
                yield "pairing", f"a result for {message.tool_call_id}, which is no open call"
            calls.discard(message.tool_call_id)
