"""What a reader of some messages believes, and what a summariser makes of it."""

from __future__ import annotations

from protocol.messages import Message, Origin, TextPart
from scripts.evaluation import facts
from scripts.evaluation.facts import Parser, asked, done, read, stated, stated_in
from scripts.evaluation.summaries import CARELESS, LONG_WINDED, PERFECT, Fidelity, Summarizer
from sidecar.compaction import regions


def said(*lines: str, role: str = "user", origin: Origin | None = None) -> Message:
    return Message(id="m", role=role, content=(TextPart("\n".join(lines)),), time=1, origin=origin)  # type: ignore[arg-type]


def summary(*lines: str) -> Message:
    return said(*lines, origin=Origin("compaction_summary"))


REMINDER = said("go on", origin=Origin("injection", variant=regions.CONTINUATION_VARIANT))


def believed(*messages: Message) -> dict[str, str]:
    return {key: belief.value for key, belief in read(messages, Parser()).beliefs.items()}


def test_later_counts_more_than_earlier_and_the_user_more_than_others() -> None:
    assert believed(said(stated("a.b", "OLD"), role="tool"), said(stated("a.b", "NEW"), role="assistant")) == {
        "a.b": "NEW"
    }
    assert believed(said(stated("a.b", "USER")), summary(stated("a.b", "OTHER"))) == {"a.b": "USER"}
    assert believed(said(stated("a.b", "ONE")), said(stated("a.b", "TWO"))) == {"a.b": "TWO"}


def test_what_was_taken_back_never_wins() -> None:
    correction = stated("a.b", "NEW", "OLD")
    assert believed(said(stated("a.b", "OLD")), said(correction)) == {"a.b": "NEW"}
    assert believed(said(stated("a.b", "OLD")), summary(correction)) == {"a.b": "NEW"}
    assert believed(said(correction), summary(stated("a.b", "OLD"))) == {"a.b": "NEW"}
    assert believed(said(stated("a.b", "OLD")), summary(stated("a.b", "OLD"))) == {"a.b": "OLD"}


def test_a_cut_statement_says_nothing() -> None:
    assert believed(said(stated("a.b", "VALUE")[:-2])) == {}


def open_jobs(*messages: Message) -> list[str]:
    return read(messages, Parser()).open_jobs


def test_jobs_are_open_until_they_are_done_or_a_reminder_says_so() -> None:
    first, second = said(asked("job-a")), said(asked("job-b"))
    assert open_jobs(first, second) == ["job-a", "job-b"]
    assert open_jobs(first, said(done("job-a"), role="assistant"), second) == ["job-b"]
    assert open_jobs(first, second, summary("words"), REMINDER) == ["job-b"], "the newest is the work in progress"
    assert open_jobs(first, second, summary(asked("job-a")), REMINDER) == ["job-a", "job-b"]
    assert open_jobs(said(asked("job-a", later=True)), second, summary("words"), REMINDER) == ["job-a", "job-b"]
    assert read((first, second, summary("words"), REMINDER), Parser()).seemingly_open == ["job-a", "job-b"]


def test_hits_of_a_search_are_read_by_the_same_rules() -> None:
    head = "line {}, context.append_message, {}, 2027-01-15 08:00:00Z: … {} …"

    def found(*hits: tuple[str, str]) -> str | None:
        lines = [head.format(9 - n, role, text) for n, (role, text) in enumerate(hits)]
        return stated_in("\n".join(lines), "a.b", Parser())

    assert found(("tool", stated("a.b", "NEW")), ("tool", stated("a.b", "OLD"))) == "NEW"
    assert found(("assistant", stated("a.b", "SAID")), ("user", stated("a.b", "MEANT"))) == "MEANT"
    assert found(("user", stated("a.b", "NEW", "OLD")), ("user", stated("a.b", "OLD"))) == "NEW"
    assert found(("user", stated("a.c", "NEW"))) is None
    assert stated_in("Nothing in the log matches `a.b`.", "a.b", Parser()) is None


SPAN = [
    said(stated("user.says", "AAAA"), asked("job-a")),
    said(stated("tool.says", "BBBB"), role="tool"),
    said(stated("user.says", "CCCC", "AAAA"), asked("job-b", later=True)),
    said(done("job-a"), role="assistant"),
]


def summarised(fidelity: Fidelity, seed: int = 1, span: list[Message] = SPAN) -> str:
    return Summarizer(fidelity, seed, Parser()).summarize(span, 10_000)


def test_a_perfect_summary_says_all_that_holds_and_nothing_else() -> None:
    reading = read([summary(summarised(PERFECT))], Parser())
    assert {k: b.value for k, b in reading.beliefs.items()} == {"user.says": "CCCC", "tool.says": "BBBB"}
    assert reading.beliefs["user.says"].void == "AAAA"
    assert list(reading.done) == ["job-a"]
    assert reading.open_jobs == ["job-b"]


def test_it_knows_only_what_it_is_shown() -> None:
    text = summarised(PERFECT, span=SPAN[1:2])
    assert "BBBB" in text
    assert not any(word in text for word in ("AAAA", "CCCC", "job-a", "job-b"))


def test_a_careless_one_loses_about_half_and_less_of_what_was_summarised_before() -> None:
    fresh = [said(*(stated(f"k{n}.x", f"V{n}") for n in range(400)), role="tool")]
    text = summarised(CARELESS, span=fresh)
    kept = len(read([summary(text)], Parser()).beliefs)
    assert 160 < kept < 240
    again = summarised(CARELESS, seed=2, span=[summary(*(stated(f"k{n}.x", f"V{n}") for n in range(400)))])
    assert 320 < len(read([summary(again)], Parser()).beliefs) < 380
    assert summarised(CARELESS, span=fresh) == text, "the same every time"
    assert summarised(CARELESS, seed=3, span=fresh) != text


def test_inventions_are_wrong_and_rambling_is_long() -> None:
    invented = read([summary(summarised(Fidelity("x", invents=1.0)))], Parser()).beliefs
    assert invented.keys() == {"user.says", "tool.says"}
    assert not {b.value for b in invented.values()} & {"AAAA", "BBBB", "CCCC"}
    assert len(summarised(LONG_WINDED)) > 4 * len(summarised(PERFECT))


def test_a_lost_correction_may_leave_the_old_value() -> None:
    told = {believed(summary(summarised(CARELESS, seed))).get("user.says") for seed in range(40)}
    assert told == {"CCCC", "AAAA", None}


def test_statements_have_a_form_that_is_read_back() -> None:
    (statement,) = Parser()(f"some words, {facts.stated('a.b.c', 'XYZ', 'OLD')}. More words.")
    assert (statement.key, statement.value, statement.void) == ("a.b.c", "XYZ", "OLD")
