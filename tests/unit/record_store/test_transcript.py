"""The raw conversation, and states of the past."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from protocol.messages import ImagePart, Message, Origin, Part, TextPart, Usage
from record_store import records as r
from record_store.conformance import metadata
from record_store.encoder import encode
from record_store.memory import MemoryReader
from record_store.replay import state_at
from record_store.transcript import Transcript, fingerprint, follow, read_messages, read_transcript
from tests.support.store import canonical, create

pytestmark = pytest.mark.anyio


def say(message_id: str, text: str = "", role: str = "user", **more: object) -> Message:
    return Message(id=message_id, role=role, content=(TextPart(text or message_id),), time=1, **more)  # type: ignore[arg-type]


def enter(*ids: str) -> list[r.Record]:
    return [r.AppendMessage(1, say(message_id)) for message_id in ids]


def landing(count: int, *replacement: r.Replacement) -> r.ApplyCompaction:
    return r.ApplyCompaction(1, "c", "handoff", "model", count, replacement, 100, 10, len(replacement))


def log_of(*records: r.Record) -> MemoryReader:
    return MemoryReader("one", "main", [encode(x, n)[:-1] for n, x in enumerate((metadata("one"), *records), 1)])


async def ids(*records: r.Record) -> list[str]:
    log = log_of(*records)
    read = [m.id for m in await read_transcript(log)]
    transcript = Transcript()
    await follow(transcript, log)
    assert [ref.message_id for ref in transcript.refs()] == read
    return read


SUMMARY = r.New(say("summary", origin=Origin("compaction_summary")))


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (enter("a", "b"), ["a", "b"]),
        ([*enter("a", "b", "c"), landing(2, SUMMARY), *enter("d")], ["a", "b", "c", "d"]),
        ([*enter("a", "b"), landing(2, r.Kept("a"), SUMMARY), *enter("c"), landing(3, SUMMARY)], ["a", "b", "c"]),
        ([*enter("a", "b", "c"), r.Undo(1, 1, 1), *enter("d")], ["a", "d"]),
        ([*enter("a", "b"), landing(1, SUMMARY), *enter("c", "d"), r.Undo(1, 1, 2)], ["a", "b"]),
        ([*enter("a"), r.Clear(1), *enter("b")], ["a", "b"]),
        ([*enter("a"), r.Clear(1), *enter("b"), r.Undo(1, 1, 0)], ["a"]),
        ([*enter("a", "b", "c"), r.HostRevision(1, 1, 1, (say("x"), say("y"))), *enter("z")], ["a", "x", "y", "z"]),
        (
            [
                *enter("a", "b", "c"),
                landing(2, SUMMARY),
                r.Rewrite(1, "uncompact", 1, 2, message_count=1, replacement=(r.New(say("a")), r.New(say("b")))),
                *enter("d"),
                r.Undo(1, 1, 1),
            ],
            ["a"],
        ),
        (
            [
                *enter("a", "b"),
                landing(2, SUMMARY),
                r.Rewrite(1, "uncompact", 1, 2, message_count=1, replacement=(r.New(say("b")), r.New(say("a")))),
                r.Undo(1, 1, 1),
            ],
            ["b"],
        ),
        (
            [
                r.AppendMessage(1, say("later"), "t2", "turn"),
                *enter("a"),
                r.AppendMessage(1, say("steer"), "t1", "steer"),
                r.StepBegin(1, "t1", 2, ("steer", "unknown")),
                r.TurnEnd(1, "t1", "end_turn", Usage()),
                r.TurnBegin(1, "t2", ("later",)),
            ],
            ["a", "steer", "later"],
        ),
        ([r.AppendMessage(1, say("waiting"), "t", "turn")], []),
        ([r.Undo(1, 1, 5), landing(9, r.Kept("no"), SUMMARY), r.HostRevision(1, 9, 9, ())], []),
    ],
)
async def test_what_entered_stays_and_what_was_undone_is_out(records: list[r.Record], expected: list[str]) -> None:
    assert await ids(*records) == expected


async def test_messages_keep_the_content_that_they_entered_with() -> None:
    edit = r.Rewrite(1, "prune", 9, 5, (r.Edit("a", (TextPart("elided"),)),))
    (message,) = await read_transcript(log_of(*enter("a"), edit))
    assert message.text == "a"
    assert state_at(log_of(*enter("a"), edit)).entries[0].message.text == "elided"


async def test_inputs_that_waited_in_a_source_do_not_enter_its_fork() -> None:
    waiting = r.AppendMessage(1, say("waiting"), "t", "turn")
    records = [r.Metadata(1, 1, "two", "main", 1, "0", forked_from="one", fork_line=2), waiting, *enter("a"),
               r.TurnBegin(1, "t", ("waiting",))]  # fmt: skip
    log = MemoryReader("two", "main", [encode(x, n)[:-1] for n, x in enumerate(records, 1)])
    assert [m.id for m in await read_transcript(log)] == ["a"]
    assert [e.message.id for e in state_at(log).entries] == ["a"]


async def test_records_glued_on_one_line_are_told_apart() -> None:
    lines = list(log_of(*enter("a", "b", "c")).iterate())
    log = MemoryReader("one", "main", [lines[0].raw, lines[1].raw + lines[2].raw, lines[3].raw])
    assert [m.id for m in await read_transcript(log)] == ["a", "b", "c"]


async def test_it_is_built_along_a_live_log(tmp_path: Path) -> None:
    session, journal = await create(tmp_path)
    transcript, live = Transcript(), Transcript()
    for n in range(300):
        records = enter(f"m{n}") if n % 10 else [r.Undo(1, 1, max(0, len(journal.state.entries) - 3))]
        for line, record in zip(journal.append(*records), records, strict=True):
            live.apply(record, line)
        if n % 37 == 0:
            await follow(transcript, journal)
    await follow(transcript, journal)
    expected = [entry.message.id for entry in journal.state.entries]
    assert [ref.message_id for ref in transcript.refs()] == expected
    assert [ref.message_id for ref in live.refs()] == expected
    assert [m.id for m in await read_messages(transcript, journal, 5, 9)] == expected[5:9]
    assert await read_messages(transcript, journal, 10_000) == []
    assert len(transcript) == len(expected)
    await session.close()


async def test_a_long_one_is_read_in_order() -> None:
    log = log_of(*enter(*(f"m{n}" for n in range(500))), *(r.Clear(1) for _ in range(200)), *enter("last"))
    transcript = Transcript()
    await follow(transcript, log)
    read = await read_messages(transcript, log)
    assert [m.id for m in read] == [*(f"m{n}" for n in range(500)), "last"]
    assert [fingerprint(m) for m in read] == [ref.fingerprint for ref in transcript.refs()]


def test_fingerprints_are_of_role_and_content_alone() -> None:
    one = say("a", "text")
    same = say("b", "text", name="x", partial=True)
    assert fingerprint(one) == fingerprint(same)
    assert fingerprint(one) != fingerprint(say("a", "text", role="assistant"))
    assert fingerprint(one) != fingerprint(say("a", "texT"))
    split = Message(id="a", role="user", content=(TextPart("te"), TextPart("xt")), time=1)
    assert fingerprint(one) != fingerprint(split)
    raw = b"\x89PNG" * 2_000
    data, blob = base64.b64encode(raw).decode(), hashlib.sha256(raw).hexdigest()

    def image(part: Part) -> bytes:
        return fingerprint(Message(id="a", role="user", content=(part,), time=1))

    assert image(ImagePart("image/png", data=data)) == image(ImagePart("image/png", blob=blob))
    assert image(ImagePart("image/png", data="no base64!")) != image(ImagePart("image/png", blob=blob))
    assert image(TextPart("i" + blob)) != image(ImagePart("image/png", blob=blob))


async def test_a_past_state_is_the_fold_up_to_its_line() -> None:
    log = log_of(*enter("a", "b", "c"), landing(2, SUMMARY), *enter("d"))
    assert [e.message.id for e in state_at(log, 4).entries] == ["a", "b", "c"]
    assert [e.message.id for e in state_at(log, 5).entries] == ["summary", "c"]
    assert canonical(state_at(log)) == canonical(state_at(log, 99))
