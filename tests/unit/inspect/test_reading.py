"""From records to the report: every figure of the page comes from the log, and a damaged log still gives a page."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.info import CacheDiagnostics, PrefixShape
from record_store import records as r
from sidecar.inspect import build
from sidecar.inspect.report import AgentReport, Tokens
from tests.unit.inspect.sample import PREFIX, WINDOW, Session, reviewer, thirty_compactions


def main(session: Session, **more: Any) -> AgentReport:
    return build([("main", session.log())], **more).agents[0]


def test_a_long_session_is_read_whole() -> None:
    session = thirty_compactions()
    agent = main(session)
    usages = [x for x in session.records if isinstance(x, r.LlmUsage)]
    assert agent.lines == len(session.records)
    assert agent.landed == 30
    assert [c.number for c in agent.compactions] == list(range(1, len(agent.compactions) + 1))
    assert {c.reason for c in agent.compactions if c.outcome == "cancelled"} == {"provider_unavailable", "cancelled"}
    assert agent.total.prompt == sum(u.prompt_tokens for u in usages)
    assert agent.total.requests == len(usages)
    assert agent.failed_requests == sum(u.failed for u in usages) == 1
    assert agent.step_tokens.cached == sum(u.cached_tokens for u in usages if u.kind == "step")
    assert agent.steps == sum(u.kind == "step" for u in usages)
    assert agent.used == session.used
    assert agent.model == "openai/gpt-5"
    assert sum(t.paid.prompt for t in agent.turns) == agent.total.prompt
    assert sum(1 for q in agent.requests if q.unexplained) == 1
    assert [t.stop_reason for t in agent.turns].count("error") == 1
    assert agent.points == tuple(sorted(agent.points, key=lambda p: p.x)), "the curve goes forward only"


def test_limits_are_the_policys_own() -> None:
    session = Session()
    session.a_step()
    session._add(r.WindowLearned, model=session.model, window=40_000, source="named")
    first, second = main(session).limits
    assert (first.x, first.window, first.soft, first.trigger, first.block) == (0, WINDOW, 64_000, 96_000, 108_800)
    assert (second.x, second.window, second.trigger) == (1.5, 40_000, 30_000)


def test_limits_follow_configuration_from_both_sides() -> None:
    session = Session()
    session._add(r.ConfigUpdate, config={"loop_control": {"compaction_trigger_ratio": 0.6}})
    limits = main(session, configuration={"compaction": {"soft_ratio": 0.3}}).limits[-1]
    assert (limits.soft, limits.trigger) == (38_400, 76_800)
    session._add(r.ConfigUpdate, config={"compaction": {"soft_ratio": "broken"}})
    limits = main(session, configuration={"compaction": {"soft_ratio": 0.3}}).limits[-1]
    assert (limits.soft, limits.trigger) == (38_400, 96_000), "what is not valid any more is left out"


def test_limits_that_a_compaction_recorded_stand_over_the_configuration() -> None:
    session = Session()
    session.a_step()
    session._add(
        r.CompactionStart, compaction_id="c", trigger="auto", mode="background", span=(1, 2), message_count=1,
        pre_tokens=1, limits=r.Limits(window=WINDOW, trigger_at=40_000, block_at=108_800, margin=1, max_attempts=5),
    )  # fmt: skip
    last = main(session).limits[-1]
    assert (last.x, last.soft, last.snip, last.trigger, last.block) == (1.5, 40_000, 40_000, 40_000, 108_800)


def test_a_bracket_that_landed() -> None:
    session = Session()
    session.begin_turn("Do it.")
    session.a_step(result_tokens=1_000)
    compaction = session.start_compaction(instruction="Keep names.")
    before = session.used
    session.pay(compaction)
    session.a_step(result_tokens=500)
    session.land(compaction)
    (found,) = main(session).compactions
    assert (found.outcome, found.start_x, found.end_x) == ("landed", 1.5, 2.5)
    assert (found.trigger, found.mode, found.shape, found.summary_kind) == ("auto", "background", "handoff", "model")
    assert found.post_tokens == session.used
    assert found.pre_tokens > before
    assert found.paid.requests == 1
    assert found.paid.completion == 1_150
    assert found.duration_ms > 0
    assert found.summary.startswith("## Goal")
    assert found.instruction == "Keep names."
    assert [e.who for e in found.span] == ["user", "assistant", "tool · read_file"]
    assert max(e.line for e in found.span) <= found.last_line < found.start_line


def test_the_next_span_holds_only_what_is_new() -> None:
    session = Session()
    for n in range(2):
        session.begin_turn(f"wish {n}")
        session.a_step()
        compaction = session.start_compaction()
        session.pay(compaction)
        session.land(compaction)
    first, second = main(session).compactions
    assert [e.text for e in first.span if e.who == "user"] == ["wish 0"]
    assert [e.text for e in second.span if e.who == "user"] == ["wish 1"]


def test_a_span_is_bounded_and_says_what_it_left_out() -> None:
    session = Session()
    for n in range(500):
        session.say("user", f"message {n} " + "x" * 5_000, 10)
    compaction = session.start_compaction()
    session.land(compaction)
    (found,) = main(session).compactions
    assert len(found.span) + found.left_out == 500
    assert len(found.span) == 200
    assert found.span[0].text.startswith("message 0 ")
    assert found.span[-1].text.startswith("message 499 ")
    assert all(len(e.text) < 700 for e in found.span)
    assert found.span[0].chars == 5_010


def test_brackets_that_did_not_land() -> None:
    session = Session()
    session.cancel(session.start_compaction("manual", "blocking"), "no_gain")
    session.start_compaction()
    session.start_compaction()
    outcomes = [(c.outcome, c.reason, c.post_tokens) for c in main(session).compactions]
    assert outcomes == [("cancelled", "no_gain", None), ("cancelled", "unfinished", None), ("open", "", None)]


def test_an_excerpt_shows_the_summary_that_landed() -> None:
    session = Session()
    session.land(session.start_compaction(), "excerpt")
    (found,) = main(session).compactions
    assert found.summary_kind == "excerpt"
    assert found.summary.startswith("Summary of the work so far")


def test_rewrites_and_what_has_no_figures() -> None:
    session = Session()
    session.used = 50_000
    session.prune("snip")
    session._add(r.Undo, turns=1, keep=0)
    session._add(r.Clear)
    agent = main(session)
    post = PREFIX + int((50_000 - PREFIX) * 0.7)
    assert [(x.action, x.pre_tokens, x.post_tokens, x.messages) for x in agent.rewrites] == [
        ("snip", 50_000, post, 7),
        ("undo", None, None, 0),
        ("clear", None, None, 0),
    ]
    assert agent.used == 0


@pytest.mark.parametrize(
    ("changed", "reasons", "unexplained"),
    [((), (), True), ((), ("ttl",), False), (("tools",), (), False)],
)
def test_a_loss_of_cache_has_its_reason(changed: tuple[str, ...], reasons: tuple[str, ...], unexplained: bool) -> None:
    session = Session()
    shape = PrefixShape("s", "t", "p", 0, 0)
    session.request("step", 50_000, 40_000, 10)
    session.request("step", 60_000, 10_000, 10, cache=CacheDiagnostics(10_000, 50_000, changed, reasons, shape))
    session.request("step", 61_000, 9_700, 10)
    session.request("step", 61_000, 7_700, 10)
    found = main(session).requests
    assert [q.lost for q in found] == [0, 30_000, 0, 0]
    assert found[1].unexplained == unexplained


def test_cost_counts_cached_and_written_tokens_by_their_price() -> None:
    session = Session()
    session.model = "local/unknown"
    session.request("step", 1_000, 400, 10)
    assert main(session).total == Tokens(1_000, 400, 10, 1, 40.0, 50.0)
    assert main(session).total.cost == 600 + 40 + 50
    prices = {"models": {session.model: {"input_price": 2.0, "cached_price": 1.0, "output_price": 8.0}}}
    assert main(session, configuration=prices).total.cost == 600 + 200 + 40


def test_sub_agents_come_after_the_main_one_with_their_purpose() -> None:
    report = build([("reviewer", reviewer().log()), ("main", thirty_compactions().log())])
    assert [a.agent_id for a in report.agents] == ["main", "reviewer"]
    assert report.agents[1].purpose == "Review the diff"
    assert report.title == "Uploads over 80 MB"
    assert report.total.prompt == sum(a.total.prompt for a in report.agents)


def test_nothing_at_all_is_a_report_too() -> None:
    report = build([])
    assert report.agents[0].points == ()
    assert report.agents[0].used == report.agents[0].peak == report.agents[0].window == 0


JUNK: list[Any] = [None, True, -5, 1e300, "text", [], [1, {}], {}, {"type": 3}, {"message": {"content": 7}}]


def test_a_damaged_log_is_read_around_the_damage() -> None:
    """Every field of every record is replaced by junk in turn; the reader takes what is left."""
    session = thirty_compactions()
    sample = [msgspec.json.decode(line) for line in list(session.lines())[:220]]
    for index, raw in enumerate(sample[:60]):
        for key in raw:
            if key in ("type",):
                continue
            for junk in JUNK:
                broken = [*sample[max(0, index - 3) : index], {**raw, key: junk}, *sample[index + 1 : index + 4]]
                build([("main", enumerate(broken, 1))])
    damaged = build([("main", ((n, None if n % 7 == 0 else raw) for n, raw in enumerate(sample, 1)))]).agents[0]
    assert damaged.damaged == 220 // 7
    assert damaged.steps > 0
