"""Live state, replayed state and state from a checkpoint are one and the same, byte for byte."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.messages import Message, TextPart, Usage
from record_store import records as r
from record_store.backend import MAIN_AGENT
from record_store.conformance import info, metadata
from record_store.local import LocalStore
from record_store.replay import state_at
from record_store.transcript import Transcript, follow
from tests.support.store import canonical, full_conversation

ids = st.sampled_from([f"m{n}" for n in range(12)])
small = st.integers(0, 8)
text = st.text(st.characters(codec="utf-8"), max_size=12)
messages = st.builds(
    lambda i, role, said: Message(id=i, role=role, content=(TextPart(said),), time=1),
    ids,
    st.sampled_from(["user", "assistant", "tool"]),
    text,
)
replacements = st.lists(st.one_of(st.builds(r.New, messages), st.builds(r.Kept, ids)), max_size=4).map(tuple)
waiting = st.lists(ids, max_size=3).map(tuple)


def _landing(time: int, count: int, new: tuple[r.Replacement, ...], after: int) -> r.ApplyCompaction:
    return r.ApplyCompaction(time, "c", "span", "model", count, new, 9, after, len(new))


def _uncompact(time: int, count: int, new: tuple[r.Replacement, ...]) -> r.Rewrite:
    return r.Rewrite(time, "uncompact", 1, 2, message_count=count, replacement=new, compaction_id="c")


def _snip(time: int, message_id: str, said: str) -> r.Rewrite:
    return r.Rewrite(time, "snip", 2, 1, (r.Edit(message_id, (TextPart(said),)),))


records: st.SearchStrategy[r.Record] = st.one_of(
    st.builds(r.AppendMessage, small, messages),
    st.builds(r.AppendMessage, small, messages, st.just("t1"), st.sampled_from(["turn", "steer"]), ids),
    st.builds(r.TurnBegin, small, st.just("t1"), waiting, ids),
    st.builds(r.StepBegin, small, st.just("t1"), small, waiting),
    st.builds(r.TurnEnd, small, st.just("t1"), st.just("end_turn"), st.builds(Usage, small)),
    st.builds(r.Undo, small, small, small),
    st.builds(r.Clear, small),
    st.builds(r.HostRevision, small, small, small, st.lists(messages, max_size=3).map(tuple)),
    st.builds(_landing, small, small, replacements, small),
    st.builds(_uncompact, small, small, replacements),
    st.builds(_snip, small, ids, text),
    st.sampled_from(full_conversation()),
)

steps = st.lists(st.one_of(records, st.sampled_from(["checkpoint", "crash", "close"])), max_size=40)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_one_state(steps: list[r.Record | str]) -> None:
    with tempfile.TemporaryDirectory() as home:
        anyio.run(_run, Path(home), steps)


async def _run(home: Path, steps: list[r.Record | str]) -> None:
    store = LocalStore(home)
    session = await store.create("one", info("one"), metadata("one"))
    journal, _ = await session.open_agent(MAIN_AGENT)
    along = Transcript()
    for step in steps:
        match step:
            case r.Record():
                journal.append(step)
            case "checkpoint":
                await journal.checkpoint()
            case _:
                live = canonical(journal.state)
                await journal.sync()
                if step == "crash":
                    session.abandon()
                else:
                    await session.close()
                session = await store.open("one")
                journal, recovered = await session.open_agent(MAIN_AGENT)
                assert recovered == []
                assert canonical(journal.state) == live
        assert canonical(state_at(journal)) == canonical(journal.state)
        await follow(along, journal)
    fresh = Transcript()
    await follow(fresh, journal)
    assert [x.message_id for x in fresh.refs()] == [x.message_id for x in along.refs()]
    live = canonical(journal.state)
    await session.close()
    for path in home.rglob("checkpoint.json"):
        path.unlink()
    assert canonical(await (await store.read("one")).state()) == live
