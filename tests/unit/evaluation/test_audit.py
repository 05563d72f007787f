"""A log held against compaction's own rules: one small log that keeps them all, and one change for each rule."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.messages import ImagePart, Message, Origin, TextPart, ToolCall, Usage
from record_store import records as r
from record_store.backend import Line
from record_store.encoder import encode
from sidecar.compaction.audit import audit_lines

LIMITS = r.Limits(10_000, 7_500, 8_500, 1_000, 5)
Log = list[r.Record]


def said(id: str, role: str = "user", text: str = "words", **more: object) -> r.AppendMessage:
    return r.AppendMessage(1, Message(id=id, role=role, content=(TextPart(text),), time=1, **more))  # type: ignore[arg-type]


def asked(kind: str, count: int, *, hash: str | None = None, attempt: int = 1, cid: str | None = None,
          prefix: str = "p", size: int | None = None) -> r.LlmRequest:  # fmt: skip
    return r.LlmRequest(
        1, kind, "m/m", "s", "t", prefix, count, attempt,  # type: ignore[arg-type]
        messages_bytes=100 * count if size is None else size, messages_hash=hash or f"h{count}", compaction_id=cid,
    )  # fmt: skip


def step(n: int, count: int) -> Log:
    """A step that sends `count` messages and adds a call and its result."""
    call = (ToolCall(f"c{n}", "page", "{}"),)
    return [
        r.StepBegin(1, "t1", n),
        asked("step", count),
        said(f"a{n}", "assistant", tool_calls=call),
        r.LlmUsage(1, "step", "m/m", 5_000, 0, 10),
        said(f"r{n}", "tool", tool_call_id=f"c{n}", name="page"),
        r.StepEnd(1, "t1", n, 5_100),
    ]


def start(cid: str, count: int, pre: int = 7_600, **more: object) -> r.CompactionStart:
    fields = {"trigger": "auto", "mode": "background", "span": (3, 9), "limits": LIMITS, **more}
    return r.CompactionStart(1, cid, message_count=count, pre_tokens=pre, **fields)  # type: ignore[arg-type]


def summary_of(cid: str) -> Message:
    origin = Origin("compaction_summary")
    return Message(id=f"{cid}.summary", role="user", content=(TextPart("all"),), time=1, origin=origin)


def landed(cid: str, count: int, pre: int = 7_700, post: int = 2_000, **more: object) -> r.ApplyCompaction:
    replacement = (r.Kept("u1"), r.New(summary_of(cid)))
    fields = {"shape": "handoff", "summary_kind": "model", "replacement": replacement, **more}
    count_after = len(fields["replacement"])  # type: ignore[arg-type]
    return r.ApplyCompaction(
        1, cid, message_count=count, pre_tokens=pre, post_tokens=post, replacement_count=count_after, **fields  # type: ignore[arg-type]
    )  # fmt: skip


def sound() -> Log:
    """Two compactions; the first lands while the turn goes on. Positions of note are found by `at`."""
    return [
        r.Metadata(1, 1, "s", "main", 1, "0"),
        r.ConfigUpdate(1, model="m/m"),
        said("u1"),
        r.TurnBegin(1, "t1"),
        *step(1, 1),
        start("A", 3),
        asked("compaction", 3, cid="A"),
        *step(2, 3),
        r.CompactionSummary(1, "A", "all", Usage(), 1, 0),
        landed("A", 3),
        *step(3, 4),
        start("B", 6, trigger="manual"),
        asked("compaction", 6, cid="B"),
        r.CompactionCancel(1, "B", "cancelled"),
        r.TurnEnd(1, "t1", "end_turn", Usage()),
    ]


def at(log: Log, type: type, n: int = 0, /, **fields: object) -> int:
    """The position of the `n`-th record of a type with these fields."""
    found = (i for i, x in enumerate(log) if isinstance(x, type) and all(getattr(x, k) == fields[k] for k in fields))
    return list(found)[n]


def findings(log: Log) -> list[tuple[int, str]]:
    found = audit_lines(Line(n, encode(record, n)[:-1]) for n, record in enumerate(log, 1))
    return [(f.line, f.kind) for f in found]


def test_a_sound_log_has_no_findings() -> None:
    assert findings(sound()) == []


def test_a_handoff_keeps_the_users_words_and_edits_of_the_instructions() -> None:
    for variant, expected in (("instructions_changed", []), ("date", ["shape"])):
        log = sound()
        log.insert(at(log, r.TurnBegin), said("n1", origin=Origin("injection", variant=variant)))
        log[at(log, r.CompactionStart)] = start("A", 4)
        kept = (r.Kept("u1"), r.New(summary_of("A")), r.Kept("n1"))
        log[at(log, r.ApplyCompaction)] = landed("A", 4, replacement=kept)
        assert [kind for _, kind in findings(log) if kind == "shape"] == expected


def test_a_compaction_that_is_still_open_is_no_finding() -> None:
    log = sound()
    assert findings(log[: at(log, r.CompactionSummary)]) == []


# Each takes the sound log, breaks one rule, and says on which line that is to be seen.


def below_the_trigger(log: Log) -> int:
    log[i := at(log, r.CompactionStart)] = start("A", 3, pre=7_499)
    return i


def with_a_circuit_open(log: Log) -> int:
    i = at(log, r.CompactionStart)
    log.insert(i, r.ConfigUpdate(1, breakers=r.Breakers(failures=3, failures_open=True)))
    return i + 1


def too_soon_after_a_failure(log: Log) -> int:
    i = at(log, r.CompactionStart)
    log.insert(i, r.ConfigUpdate(1, breakers=r.Breakers(failed_at=7_000)))
    return i + 1


def inside_the_margin(log: Log) -> int:
    log[at(log, r.ApplyCompaction)] = landed("A", 3, post=7_000)
    log[i := at(log, r.CompactionStart, 1)] = start("B", 6, pre=7_999, trigger="auto")
    return i


def twice_at_once(log: Log) -> int:
    i = at(log, r.CompactionSummary)
    log.insert(i, start("C", 5, trigger="manual"))
    return i


def never_started(log: Log) -> int:
    del log[at(log, r.CompactionStart, 1)]
    return at(log, r.CompactionCancel)


def no_end(log: Log) -> int:
    del log[at(log, r.ApplyCompaction)]
    return at(log, r.CompactionStart, 1)


def without_its_summary(log: Log) -> int:
    del log[at(log, r.CompactionSummary)]
    return at(log, r.ApplyCompaction)


def summary_out_of_nowhere(log: Log) -> int:
    del log[at(log, r.LlmRequest, kind="compaction")]
    return at(log, r.CompactionSummary)


def no_gain(log: Log) -> int:
    log[i := at(log, r.ApplyCompaction)] = landed("A", 3, post=7_700)
    return i


def wrong_count_of_messages(log: Log) -> int:
    i = at(log, r.ApplyCompaction)
    log[i] = r.ApplyCompaction(1, "A", "handoff", "model", 3, (r.New(summary_of("A")),), 7_700, 2_000, 5)
    return i


def changed_meanwhile(log: Log) -> int:
    i = at(log, r.ApplyCompaction)
    edit = r.Edit("r1", (TextPart("short"),))
    log.insert(i, r.Rewrite(1, "quarantine", 7_700, 7_600, edits=(edit,)))
    return i + 1


def another_span(log: Log) -> int:
    log[i := at(log, r.ApplyCompaction)] = landed("A", 4)
    return i


def rewritten_meanwhile(log: Log) -> int:
    i = at(log, r.CompactionSummary)
    edit = r.Edit("r2", (TextPart("short"),))
    log.insert(i, r.Rewrite(1, "prune", 7_700, 7_600, edits=(edit,)))
    return i


def in_the_middle_of_a_step(log: Log) -> int:
    i = at(log, r.StepEnd, 1)
    landing = log.pop(at(log, r.ApplyCompaction))
    summary = log.pop(at(log, r.CompactionSummary))
    log[i - 3 : i - 3] = [summary, landing]
    return i - 2


def before_the_result(log: Log) -> int:
    i = at(log, r.StepEnd, 1)
    landing = log.pop(at(log, r.ApplyCompaction))
    summary = log.pop(at(log, r.CompactionSummary))
    log[i - 1 : i - 1] = [summary, landing]
    return i


def stacked(log: Log) -> int:
    two = (r.Kept("u1"), r.New(summary_of("A")), r.New(summary_of("X")))
    log[i := at(log, r.ApplyCompaction)] = landed("A", 3, replacement=two)
    return i


def keeps_a_result(log: Log) -> int:
    kept = (r.Kept("u1"), r.New(summary_of("A")), r.Kept("a1"), r.Kept("r1"))
    log[i := at(log, r.ApplyCompaction)] = landed("A", 3, replacement=kept)
    return i


def keeps_an_orphan(log: Log) -> int:
    kept = (r.Kept("u1"), r.New(summary_of("A")), r.Kept("r1"))
    log[i := at(log, r.ApplyCompaction)] = landed("A", 3, replacement=kept, shape="span")
    return i


def keeps_what_was_not_there(log: Log) -> int:
    kept = (r.Kept("u9"), r.New(summary_of("A")))
    log[i := at(log, r.ApplyCompaction)] = landed("A", 3, replacement=kept)
    return i


def summary_of_other_bytes(log: Log) -> int:
    log[at(log, r.LlmRequest, kind="compaction")] = asked("compaction", 3, cid="A", hash="other")
    return at(log, r.LlmRequest, 1, kind="step")


def summary_of_fewer_messages(log: Log) -> int:
    i = at(log, r.CompactionStart)
    log[i:i] = step(9, 3)
    log[i + 6] = start("A", 5)
    landing = at(log, r.ApplyCompaction)
    log[landing] = landed("A", 5)
    log[at(log, r.LlmRequest, 2, kind="step")] = asked("step", 5)
    log[i := at(log, r.LlmRequest, kind="compaction")] = asked("compaction", 1, cid="A")
    return i


def summary_with_more_messages_in_fewer_bytes(log: Log) -> int:
    log[i := at(log, r.LlmRequest, kind="compaction")] = asked("compaction", 3, cid="A", size=50)
    return i


def summary_with_other_tools(log: Log) -> int:
    log[i := at(log, r.LlmRequest, kind="compaction")] = asked("compaction", 3, cid="A", prefix="other")
    return i


def step_of_other_bytes(log: Log) -> int:
    log[at(log, r.LlmRequest, 1, kind="step")] = asked("step", 4, size=60)
    return at(log, r.LlmRequest, 1, kind="step")


def too_many_attempts(log: Log) -> int:
    i = at(log, r.LlmRequest, kind="compaction")
    log[i + 1 : i + 1] = [asked("compaction", 3, cid="A", attempt=n) for n in range(2, 7)]
    return i + 5


@pytest.mark.parametrize(
    ("breaks", "kind"),
    [
        (below_the_trigger, "trigger"),
        (with_a_circuit_open, "trigger"),
        (too_soon_after_a_failure, "trigger"),
        (twice_at_once, "bracket"),
        (never_started, "bracket"),
        (no_end, "bracket"),
        (summary_out_of_nowhere, "bracket"),
        (without_its_summary, "unpaid"),
        (no_gain, "gain"),
        (wrong_count_of_messages, "gain"),
        (changed_meanwhile, "stale"),
        (another_span, "stale"),
        (rewritten_meanwhile, "rewrite"),
        (in_the_middle_of_a_step, "boundary"),
        (before_the_result, "boundary"),
        (stacked, "shape"),
        (keeps_a_result, "shape"),
        (keeps_what_was_not_there, "shape"),
        (keeps_an_orphan, "pairing"),
        (summary_of_other_bytes, "append_only"),
        (summary_of_fewer_messages, "prefix"),
        (summary_with_more_messages_in_fewer_bytes, "prefix"),
        (summary_with_other_tools, "prefix"),
        (step_of_other_bytes, "append_only"),
        (too_many_attempts, "attempts"),
    ],
)
def test_a_broken_rule_is_found_where_it_was_broken(breaks: Callable[[Log], int], kind: str) -> None:
    log = sound()
    line = breaks(log) + 1
    assert (line, kind) in findings(log)


def test_the_margin_counts_from_what_the_last_landing_left() -> None:
    log = sound()
    line = inside_the_margin(log) + 1
    assert findings(log) == [(line, "margin")]
    log[line - 1] = start("B", 6, pre=8_000, trigger="auto")
    assert findings(log) == []
    log[line - 1] = start("B", 6, pre=100, trigger="manual")
    assert findings(log) == [], "a manual one needs neither trigger nor margin"


def test_an_older_log_is_held_against_the_sessions_configuration() -> None:
    log = sound()
    log[i := at(log, r.CompactionStart)] = start("A", 3, limits=None)
    assert findings(log) == []
    log[1] = r.ConfigUpdate(1, model="m/m", config={"model": {"window": 12_000}})
    assert findings(log) == [(i + 1, "trigger")]
    log[1] = r.ConfigUpdate(1, model="m/m", config={"models": {"m/m": {"window": 12_000}}, "nonsense": 1})
    assert findings(log) == [(i + 1, "trigger")], "what another version wrote leaves the rest as it is"
    log[1] = r.ConfigUpdate(1, model="m/m", config={"models": {"m/m": {"window": "wide"}}, "nonsense": 1})
    assert findings(log) == [], "what cannot be read decides nothing"


def test_images_and_full_windows_excuse_a_summary_request() -> None:
    log = sound()
    i = at(log, r.LlmRequest, kind="compaction")
    log[i] = asked("compaction", 1, cid="A", hash="other")
    assert (i + 1, "prefix") in findings(log)
    full = [*log]
    full[at(log, r.CompactionStart)] = start("A", 3, pre=9_500)
    assert (i + 1, "prefix") not in findings(full)
    image = Message(id="u1", role="user", content=(ImagePart("image/png", "AAAA"),), time=1)
    log[2] = r.AppendMessage(1, image)
    assert (i + 1, "prefix") not in findings(log)


def test_what_follows_lost_lines_is_judged_again_after_a_landing() -> None:
    log = sound()
    lines = [Line(n, encode(record, n)[:-1]) for n, record in enumerate(log, 1)]
    lost = at(log, r.CompactionStart)
    lines[lost] = Line(lost + 1, b"\x00" * 40)
    assert audit_lines(lines) == []
    log[at(log, r.CompactionStart, 1)] = start("B", 6, pre=2_999, trigger="auto")
    lines[lost + 1 :] = [Line(n, encode(x, n)[:-1]) for n, x in enumerate(log[lost + 1 :], lost + 2)]
    assert [f.kind for f in audit_lines(lines)] == ["trigger"]


def test_an_overflow_may_land_inside_a_step() -> None:
    log = sound()
    i = at(log, r.StepBegin, 2)
    overflow = [start("O", 4, trigger="overflow"), asked("compaction", 4, cid="O")]
    overflow += [r.CompactionSummary(1, "O", "all", Usage(), 1, 0), landed("O", 4)]
    log[i + 2 : i + 2] = [*overflow, asked("step", 2, attempt=2)]
    del log[at(log, r.CompactionStart, 2) :]
    assert findings(log) == []
