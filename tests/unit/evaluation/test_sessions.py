"""Whole sessions: the arms do what they are, the readings say so, and everything is the same every time."""

from __future__ import annotations

import pytest

from protocol.events import CompactionBlocked, CompactionDiscarded, CompactionLanded, CompactionStarted
from record_store import fold
from record_store import records as r
from scripts.evaluation import readings
from scripts.evaluation.arms import ARMS, Arm
from scripts.evaluation.readings import outcome_of
from scripts.evaluation.session import Played, play
from scripts.evaluation.studies import COST_ARM, variant
from scripts.evaluation.summaries import CARELESS, PERFECT
from scripts.evaluation.tasks import TASKS, make
from sidecar.compaction.audit import audit_lines
from tests.support.audited import lines_of


def played(task: str, arm: str | Arm, seed: int = 1) -> Played:
    return play(make(task, seed), ARMS[arm] if isinstance(arm, str) else arm, PERFECT)


def test_scripts_are_the_same_for_the_same_seed_and_as_large_as_they_say() -> None:
    for task in TASKS:
        script = make(task, 1)
        assert script == make(task, 1)
        assert script != make(task, 2)
        text = [t.text for t in script.turns] + [s.text for t in script.turns for s in t.steps]
        text += [c.result for t in script.turns for s in t.steps for c in s.calls]
        text += [s.steer for t in script.turns for s in t.steps if s.steer]
        assert sum(map(len, text)) / 4 > 1.8 * script.window
        whole = "\n".join(text)
        assert all(whole.count(f.value) >= 1 for f in script.facts)
        assert {f.place for f in script.facts} == {"user", "assistant", "tool"}
    assert any(f.void for f in make("chatty", 1).facts)
    assert any(t.taken_back for t in make("chatty", 1).turns)


def test_an_outcome_is_the_same_every_time() -> None:
    assert outcome_of("light", ARMS["default"], 1) == outcome_of("light", ARMS["default"], 1)


def test_nobody_dies_of_the_window_and_has_no_recall() -> None:
    outcome = outcome_of("light", ARMS["none"], 1)
    assert outcome.died
    assert (outcome.recall, outcome.recovered, outcome.paid) == (0, 0, 0)


def test_the_naive_arm_lives_and_forgets() -> None:
    outcome = outcome_of("light", ARMS["naive"], 1)
    assert not outcome.died
    assert outcome.recall < 0.4
    assert outcome.recovered == outcome.recall, "nothing in its context says that there is a log"


def test_folding_loses_results_from_the_context_but_not_from_the_log() -> None:
    outcome = outcome_of("light", ARMS["fold_only"], 1)
    assert not outcome.died
    assert outcome.paid == 0
    assert outcome.recall < 0.9
    assert outcome.recovered == 1.0


@pytest.mark.parametrize("task", ["light", "heavy", "chatty", "images"])
def test_the_default_forgets_nothing(task: str) -> None:
    outcome = outcome_of(task, ARMS["default"], 4)
    assert (outcome.died, outcome.recall, outcome.wrong, outcome.revived, outcome.forgotten) == (False, 1, 0, 0, 0)
    assert outcome.landed >= 2


def test_events_are_real_ones() -> None:
    """Waits at block, background landings beside steps, stale results: as the service tells them."""
    handoff, default = played("heavy", "handoff"), played("heavy", "default")
    assert sum(isinstance(e, CompactionBlocked) for e in handoff.agent.events) == handoff.course.stalled > 0
    starts = [e for e in default.agent.events if isinstance(e, CompactionStarted)]
    assert {e.mode for e in starts} >= {"background"}
    stale = [played("chatty", "default", seed) for seed in range(1, 5)]
    ends = [e for p in stale for e in p.agent.events if isinstance(e, CompactionDiscarded)]
    assert {e.reason for e in ends} == {"stale"}


def test_every_record_replays_to_the_same_state() -> None:
    agent = played("light", "default").agent
    state = fold.State()
    for line, record in enumerate(agent.log.records, 1):
        fold.apply(state, record, line)
    assert state == agent.state


@pytest.mark.parametrize("arm", ["handoff", "span", "ladder", "default"])
@pytest.mark.parametrize("task", ["light", "chatty"])
def test_the_logs_keep_the_rules_of_compaction(arm: str, task: str) -> None:
    agent = played(task, arm).agent
    assert sum(isinstance(e, CompactionLanded) for e in agent.events) >= 1 or arm == "span"
    assert audit_lines(lines_of(agent.log.records)) == []


def test_used_stays_true_to_what_the_provider_counts() -> None:
    """What the meter says before a request is what the provider then counts, whatever its tokens are."""
    agent = played("heavy", "default").agent
    told = [x for x in agent.log.records if isinstance(x, r.LlmUsage) and x.kind == "step"]
    ends = [x for x in agent.log.records if isinstance(x, r.StepEnd)]
    close = [abs(a.used - b.prompt_tokens) / b.prompt_tokens for a, b in zip(ends, told[1:], strict=False)]
    assert sorted(close)[len(close) // 2] < 0.02


def test_a_lossy_summariser_shows_and_the_log_brings_it_back() -> None:
    outcome = outcome_of("light", ARMS["default"], 2, CARELESS)
    assert outcome.recall < 0.9
    assert outcome.recovered > outcome.recall
    assert outcome.constraints == 1.0, "the user's own words do not depend on the summary"


def test_what_the_user_corrected_is_not_believed_any_more() -> None:
    right = outcome_of("chatty", ARMS["default"], 2)
    assert (right.corrections, right.stale) == (1.0, 0.0)
    lossy = outcome_of("chatty", ARMS["default"], 2, CARELESS)
    assert lossy.corrections < 1.0
    assert 0 < lossy.stale < 1 - lossy.corrections


def test_the_cheapest_trigger_is_used_where_the_objective_is_cost() -> None:
    plain, cheap = outcome_of("heavy", ARMS["default"], 1), outcome_of("heavy", COST_ARM, 1)
    assert cheap.trigger < 0.8 * plain.trigger
    assert cheap.cost() < plain.cost()
    assert cheap.landed > plain.landed


def test_variants_change_one_thing() -> None:
    pruned = outcome_of("light", variant("pruned", prune_at_trigger=True), 1)
    assert pruned.recall < 1.0
    assert pruned.rewrites > 0


def test_the_log_is_searched_only_by_one_who_can_and_knows_of_it() -> None:
    """Without the record tools a marker in the context is no help."""
    whole = played("light", "fold_only")
    before = readings.outcome(whole)
    assert before.recovered > before.recall
    whole.agent.state.builtin = ()
    after = readings.outcome(whole)
    assert after.recovered == after.recall == before.recall
