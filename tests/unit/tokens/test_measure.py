"""`used` is the provider's count plus what came since; sums follow the context and cost what was appended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from protocol.messages import Message, TextPart, ToolSpec, Usage
from record_store import records as r
from record_store.fold import State, apply
from sidecar.tokens.measure import ContextMeter

MODEL = "openai/gpt"


class Counting:
    """An estimator where a token is a character; it remembers which messages it was asked for."""

    def __init__(self) -> None:
        self.generation = 1
        self.asked: list[str] = []
        self.scale = 1

    def text_tokens(self, text: str) -> int:
        return len(text) * self.scale

    def message_tokens(self, message: Message) -> int:
        self.asked.append(message.id)
        return len(message.text) * self.scale

    def tools_tokens(self, tools: tuple[ToolSpec, ...]) -> int:
        self.asked.extend(t.name for t in tools)
        return 100 * len(tools) * self.scale

    async def warm(self, messages: Iterable[Message]) -> None:
        raise AssertionError("the meter itself waits for nothing")


class Factor:
    def __init__(self, factor: float = 1.0) -> None:
        self.value = factor

    def factor(self, model: str) -> float:
        return self.value if model == MODEL else 1.0

    def observe(self, model: str, *, estimated: int, observed: int) -> None:
        raise AssertionError("the meter only reads")


@dataclass(frozen=True)
class Prefix:
    system: str = "12345"
    tools: tuple[ToolSpec, ...] = ()


class Log:
    """A state that grows by records, as a session's does."""

    def __init__(self) -> None:
        self.state = State()
        self.line = 0

    def add(self, record: r.Record) -> None:
        self.line += 1
        apply(self.state, record, self.line)

    def say(self, size: int) -> None:
        message = Message(id=f"m{self.line}", role="user", content=(TextPart("x" * size),), time=0)
        self.add(r.AppendMessage(time=0, message=message))

    def report(self, prompt: int, completion: int, *, failed: bool = False) -> None:
        self.add(
            r.LlmUsage(
                time=0,
                kind="step",
                model=MODEL,
                prompt_tokens=prompt,
                cached_tokens=0,
                completion_tokens=completion,
                failed=failed,
            )
        )

    def compact(self, count: int, size: int) -> None:
        summary = Message(id=f"s{self.line}", role="user", content=(TextPart("s" * size),), time=0)
        self.add(
            r.CompactionStart(
                time=0, compaction_id="c", trigger="auto", mode="blocking", span=(1, 1), message_count=count,
                pre_tokens=0,
            )
        )  # fmt: skip
        self.add(r.CompactionSummary(0, "c", "", Usage(), 1, 0))
        self.add(
            r.ApplyCompaction(
                time=0, compaction_id="c", shape="handoff", summary_kind="model", message_count=count,
                replacement=(r.New(summary),), pre_tokens=0, post_tokens=0, replacement_count=1,
            )
        )  # fmt: skip


def test_used_is_estimated_then_reported_then_both_then_estimated_again() -> None:
    log, factor = Log(), Factor(1.5)
    meter = ContextMeter(Counting(), factor)
    tools = (ToolSpec(name="t", parameters={}),)
    prefix = Prefix(tools=tools)
    log.say(95)
    assert meter.used(log.state, prefix, MODEL) == round((5 + 100 + 95) * 1.5)
    assert meter.raw(log.state, prefix) == 200
    assert meter.used(log.state, prefix, "other/model") == 200

    log.say(10)
    log.report(1_000, 50)
    assert meter.used(log.state, prefix, MODEL) == 1_050, "the provider's own count, to the token"
    log.say(40)
    log.report(9_999, 9_999, failed=True)
    assert meter.used(log.state, prefix, MODEL) == 1_050 + 60, "a failed attempt measures nothing"

    log.compact(2, 30)
    assert meter.used(log.state, prefix, MODEL) == round((105 + 30 + 40) * 1.5)
    assert meter.messages_tokens(log.state) == 70
    assert meter.messages_tokens(log.state, 1) == 40
    assert meter.messages_tokens(log.state, -1, 0) == 0


def test_each_message_is_counted_once_over_appends_and_rewrites() -> None:
    log, estimator = Log(), Counting()
    meter = ContextMeter(estimator, Factor())
    for _ in range(20):
        log.say(10)
        assert [e.message.id for e in meter.unmeasured(log.state)] == [log.state.entries[-1].message.id]
        meter.used(log.state, Prefix(), MODEL)
        assert meter.unmeasured(log.state) == []
    assert len(estimator.asked) == 20
    estimator.asked.clear()
    log.compact(15, 7)
    assert [e.message.id[0] for e in meter.unmeasured(log.state)] == ["s"]
    meter.used(log.state, Prefix(), MODEL)
    assert len(estimator.asked) == 1, "messages that were kept are not counted again"
    estimator.asked.clear()
    log.add(r.Undo(time=0, turns=1, keep=3))
    meter.used(log.state, Prefix(), MODEL)
    assert estimator.asked == []


def test_a_message_of_the_context_is_looked_up_and_any_other_is_counted() -> None:
    log, estimator = Log(), Counting()
    meter = ContextMeter(estimator, Factor())
    for size in (10, 20, 30):
        log.say(size)
        meter.used(log.state, Prefix(), MODEL)
        assert [meter.message_tokens(m) for m in log.state.messages()] == [10, 20, 30][: len(log.state.entries)]
    assert len(estimator.asked) == 3
    stranger = Message(id="m1", role="user", content=(TextPart("xxxx"),), time=0)
    assert meter.message_tokens(stranger) == 4
    before = log.state.messages()
    log.compact(2, 7)
    assert [meter.message_tokens(m) for m in before] == [10, 20, 30], "still known until the meter has followed"
    meter.used(log.state, Prefix(), MODEL)
    assert [meter.message_tokens(m) for m in log.state.messages()] == [7, 30]
    assert [meter.message_tokens(m) for m in before] == [10, 20, 30]


def test_tools_are_counted_once_while_they_are_the_same() -> None:
    log, estimator = Log(), Counting()
    meter = ContextMeter(estimator, Factor())
    tools = (ToolSpec(name="t", parameters={}),)
    for _ in range(3):
        meter.used(log.state, Prefix(tools=tools), MODEL)
    assert estimator.asked == ["t"]


def test_a_new_vocabulary_makes_every_sum_anew() -> None:
    log, estimator = Log(), Counting()
    meter = ContextMeter(estimator, Factor())
    log.say(10)
    assert meter.used(log.state, Prefix(), MODEL) == 15
    assert meter.message_tokens(log.state.messages()[0]) == 10
    estimator.generation, estimator.scale = 2, 2
    assert len(meter.unmeasured(log.state)) == 1
    assert meter.message_tokens(log.state.messages()[0]) == 20
    assert meter.used(log.state, Prefix(), MODEL) == 30


def test_what_edits_would_save() -> None:
    log = Log()
    meter = ContextMeter(Counting(), Factor(2.0))
    log.say(100)
    log.say(50)
    first = log.state.entries[0].message.id
    edits = [r.Edit(first, (TextPart("x" * 30),)), r.Edit("unknown", ())]
    assert meter.saved_by(log.state, edits, MODEL) == 140
    assert meter.saved_by(log.state, [], MODEL) == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(1, 50)),
        st.tuples(st.just("report"), st.integers(1, 500)),
        st.tuples(st.just("compact"), st.integers(1, 5)),
        st.tuples(st.just("undo"), st.integers(0, 5)),
        st.tuples(st.just("edit"), st.integers(0, 9)),
        st.tuples(st.just("look"), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_a_meter_that_followed_equals_a_fresh_one(steps: list[tuple[str, int]]) -> None:
    log = Log()
    followed = ContextMeter(Counting(), Factor(1.25))
    for what, n in steps:
        entries = log.state.entries
        if what == "say":
            log.say(n)
        elif what == "report":
            log.report(n, 1)
        elif what == "compact" and len(entries) >= n:
            log.compact(n, n)
        elif what == "undo":
            log.add(r.Undo(time=0, turns=1, keep=min(n, len(entries))))
        elif what == "edit" and entries:
            edit = r.Edit(entries[n % len(entries)].message.id, (TextPart("y" * n),))
            log.add(r.Rewrite(time=0, action="snip", pre_tokens=0, post_tokens=0, edits=(edit,)))
        elif what == "look":
            followed.used(log.state, Prefix(), MODEL)
    fresh = ContextMeter(Counting(), Factor(1.25))
    assert followed.used(log.state, Prefix(), MODEL) == fresh.used(log.state, Prefix(), MODEL)
    for start in range(len(log.state.entries) + 1):
        assert followed.messages_tokens(log.state, start) == fresh.messages_tokens(log.state, start)
