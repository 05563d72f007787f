"""Cut points: a tail never answers a call that it does not issue."""

from __future__ import annotations

import pytest

from protocol.messages import Origin
from record_store.fold import Landing
from sidecar.compaction import regions
from tests.unit.compaction.build import SIZES, assistant, entries, system, tool, user

REAL = [
    (None, True),
    (Origin("user"), True),
    (Origin("skill_activation", trigger="user_slash"), True),
    (Origin("skill_activation", trigger="model"), False),
    (Origin("skill_activation"), False),
    (Origin("plugin_command", trigger="user_slash"), True),
    (Origin("plugin_command", trigger="model"), False),
    *(
        (Origin(kind), False)  # type: ignore[arg-type]
        for kind in (
            "injection",
            "shell_command",
            "compaction_summary",
            "system_trigger",
            "task",
            "cron_job",
            "cron_missed",
            "hook_result",
            "retry",
        )
    ),
]


@pytest.mark.parametrize(("origin", "real"), REAL)
def test_real_user_input_goes_by_origin(origin: Origin | None, real: bool) -> None:
    assert regions.is_real_user_input(user("u", "hi", origin=origin)) is real


def test_other_roles_are_never_user_input() -> None:
    assert not regions.is_real_user_input(assistant("a", "hi"))
    assert not regions.is_real_user_input(system("s", "hi"))


CONVERSATION = [
    user("u1", "go"),
    assistant("a1", "", "c1", "c2"),
    tool("c1", "one"),
    tool("c2", "two"),
    assistant("a2", "", "c3"),
    tool("c3", "three"),
    assistant("a3", "done"),
]


def test_a_tail_widens_to_whole_pairs() -> None:
    assert regions.tail_by_messages(CONVERSATION, 1) == 6
    assert regions.tail_by_messages(CONVERSATION, 2) == 4
    assert regions.tail_by_messages(CONVERSATION, 4) == 1
    assert regions.tail_by_messages(CONVERSATION, 99) == 0


def test_interleaved_results_widen_further() -> None:
    crossed = [
        user("u", "x"),
        assistant("a1", "", "c1"),
        user("u2", "meanwhile"),
        assistant("a2", "", "c2"),
        tool("c2", "two"),
        tool("c1", "one"),
    ]
    assert regions.tail_by_messages(crossed, 2) == 1


def test_an_orphan_that_was_already_there_does_not_widen() -> None:
    orphaned = [user("u1", "go"), assistant("a1", "x"), tool("lost", "who asked?"), assistant("a2", "y")]
    assert regions.tail_by_messages(orphaned, 2) == 2


def test_a_result_that_stands_before_its_call_is_an_orphan() -> None:
    odd = [tool("c1", "early"), user("u", "x"), assistant("a", "", "c1")]
    assert regions.issuers(odd) == [None, None, None]
    assert all(regions.safe_starts(odd))


def test_a_tail_by_tokens_takes_what_fits() -> None:
    messages = [user(f"u{i}", "x" * 384) for i in range(10)]  # 100 tokens each
    assert regions.tail_by_tokens(messages, 350, SIZES) == 7
    assert regions.tail_by_tokens(messages, 10, SIZES) == 10
    assert regions.tail_by_tokens(messages, 10, SIZES, at_least=2) == 8
    assert regions.tail_by_tokens(messages, 10_000, SIZES) == 0
    assert regions.tail_by_tokens([], 10, SIZES) == 0


def test_safe_starts() -> None:
    assert regions.safe_starts(CONVERSATION) == [True, True, False, False, True, False, True, True]


def test_the_first_user_message_is_the_task() -> None:
    note = user("n", "date", origin=Origin("injection", variant="date"))
    job = user("j", "nightly", origin=Origin("cron_job"))
    assert regions.first_user([system("s", "x"), note, user("u", "task")]) == 2
    assert regions.first_user([note, job]) == 1
    assert regions.first_user([note, assistant("a", "x")]) is None


def test_windows_follow_each_other() -> None:
    context = entries(user("u1", "a"), user("u2", "b"), user("u3", "c"), first_line=4)
    assert regions.span_lines(context, None) == (4, 6)
    assert regions.span_lines(context, Landing("c", 1, 4, 9, 5, 5)) == (5, 6)
    assert regions.span_lines([], None) == (0, 0)
