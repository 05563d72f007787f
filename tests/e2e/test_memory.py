"""Background memory through the daemon's door: files, revisions, what a turn is told, and who may write."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from protocol import events as e
from protocol.chat import ApprovalParams, ApprovalResult
from protocol.memory import FactInput
from sidecar.client.errors import SidecarError
from tests.support.fake_llm import FakeLLM, Reply, call, sequence
from tests.support.running import Sidecar, running_sidecar, until
from tests.support.wire import of_type

pytestmark = pytest.mark.anyio

ALL = {"tools": {"builtin": "all"}}


def fact(name: str, body: str = "B", **more: Any) -> FactInput:
    return FactInput(**{"name": name, "description": f"about {name}", "type": "project", "body": body, **more})


async def create(sidecar: Sidecar, **more: Any) -> str:
    made = await sidecar.client.sessions.create(cwd=str(sidecar.work), **{"config": ALL, **more})
    return made.session_id


def files_of(sidecar: Sidecar) -> dict[str, str]:
    return {str(p.relative_to(sidecar.home)): p.read_text() for p in (sidecar.home / "memory").rglob("*.md")}


async def told(sidecar: Sidecar, sid: str, text: str) -> tuple[list[tuple[str, str | None]], e.MemoryRecalled]:
    """The types of a turn's first events with their turn, and what was recalled."""
    with sidecar.client.events(sid) as events:
        turn = await sidecar.client.chat.send(sid, text)
        seen = []
        async for x in events:
            seen.append(x)
            if isinstance(x.event, e.TurnEnded) and x.turn_id == turn.turn_id:
                break
    (recalled,) = [x.event for x in seen if isinstance(x.event, e.MemoryRecalled)]
    return [(type(x.event).__name__, x.turn_id) for x in seen], recalled


def block_of(request: Any) -> str:
    return next((t for r, t in reversed(request.texts) if "<memory-recall" in t), "")


async def test_files_revisions_and_archive() -> None:
    async with running_sidecar() as sidecar:
        memory, cwd = sidecar.client.memory, str(sidecar.work)
        one = await memory.save(
            fact("Build: tool", "It uses make.\n\n---\nnot a header", keywords=("make", "gnu"), title='T "q"'), cwd=cwd
        )
        assert (one.revision, one.scope, one.type) == (1, "project", "project")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", one.created_at)
        ((path, text),) = files_of(sidecar).items()
        assert one.id in path
        header = text.split("---")[1]
        for key in ("id", "revision", "created_at", "updated_at", "name", "title", "description", "type", "scope"):
            assert re.search(rf"^{key}: ", header, re.MULTILINE), key
        assert os.stat(sidecar.home / path).st_mode & 0o077 == 0
        two = await memory.save(fact("Build: tool", "It uses ninja."), cwd=cwd, id=one.id, expected_revision=1)
        assert (two.revision, two.created_at) == (2, one.created_at)
        assert sorted("make" in t or "ninja" in t for t in files_of(sidecar).values()) == [True, True]
        for wrong in (1, 3):
            with pytest.raises(SidecarError) as stale:
                await memory.save(fact("x"), cwd=cwd, id=one.id, expected_revision=wrong)
            assert (stale.value.code, stale.value.data["current"]) == (-32033, 2)
        with pytest.raises(SidecarError) as gone:
            await memory.forget(one.id, cwd=cwd, expected_revision=1)
        assert gone.value.code == -32033
        await memory.forget(one.id, cwd=cwd, expected_revision=2)
        assert (await memory.list(cwd=cwd)).facts == ()
        assert any("ninja" in t for t in files_of(sidecar).values())
        with pytest.raises(SidecarError) as missing:
            await memory.get(one.id, cwd=cwd)
        assert (missing.value.code, missing.value.data["path"]) == (-32602, "id")


async def test_wrong_params_are_named() -> None:
    async with running_sidecar() as sidecar:
        cwd = str(sidecar.work)
        good = {"name": "n", "description": "d", "type": "project", "body": "b"}
        saved = await sidecar.client.call("memory.save", {"cwd": cwd, "fact": good})
        cases: list[tuple[str, dict[str, Any], str]] = [
            ("memory.list", {}, "session_id"),
            ("memory.list", {"cwd": cwd, "type": "nope"}, "type"),
            ("memory.list", {"cwd": cwd, "scope": "nope"}, "scope"),
            ("memory.save", {"cwd": cwd, "fact": {**good, "type": "nope"}}, "fact.type"),
            ("memory.save", {"cwd": cwd, "fact": {**good, "scope": "nope"}}, "fact.scope"),
            ("memory.save", {"cwd": cwd, "fact": {**good, "name": ""}}, "fact.name"),
            ("memory.save", {"cwd": cwd, "fact": {**good, "body": 5}}, "fact.body"),
            ("memory.save", {"cwd": cwd, "fact": {**good, "expires_at": "soon"}}, "fact.expires_at"),
            ("memory.save", {"cwd": cwd, "fact": {k: v for k, v in good.items() if k != "type"}}, "fact"),
            ("memory.save", {"cwd": cwd}, "fact"),
            ("memory.save", {"cwd": cwd, "fact": good, "id": saved["fact"]["id"]}, "expected_revision"),
            ("memory.save", {"cwd": cwd, "fact": good, "expected_revision": 1}, "id"),
            ("memory.save", {"cwd": cwd, "fact": good, "id": "nope", "expected_revision": 1}, "id"),
            ("memory.get", {"cwd": cwd}, "id"),
            ("memory.get", {"cwd": cwd, "id": "../../etc/passwd"}, "id"),
            ("memory.forget", {"cwd": cwd, "id": "nope"}, "id"),
            ("memory.recall", {"cwd": cwd}, "query"),
            ("memory.recall", {"cwd": cwd, "query": "x", "limit": 0}, "limit"),
        ]
        for method, params, path in cases:
            with pytest.raises(SidecarError) as error:
                await sidecar.client.call(method, params)
            assert (error.value.code, method, path) == (-32602, method, path), params
            assert path in str(error.value.data.get("path")), (method, params, error.value.data)
        with pytest.raises(SidecarError) as unknown:
            await sidecar.client.call("memory.list", {"session_id": "nope"})
        assert unknown.value.code == -32020
        assert len((await sidecar.client.memory.list(cwd=cwd)).facts) == 1


async def test_changes_through_a_session_are_in_its_log() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sid = await create(sidecar)
            memory = sidecar.client.memory
            one = await memory.save(fact("n"), session_id=sid)
            await memory.save(fact("n", "C"), session_id=sid, id=one.id, expected_revision=1)
            await memory.forget(one.id, session_id=sid)
            await memory.save(fact("m"), cwd=str(sidecar.work))
            await until(lambda: len(of_type(sidecar.records(sid), "memory.write")) == 3, what="three records")
            writes = of_type(sidecar.records(sid), "memory.write")
            assert [(w["op"], w["by"], w["revision"], w["fact_id"]) for w in writes] == [
                ("create", "host", 1, one.id), ("update", "host", 2, one.id), ("forget", "host", 2, one.id),
            ]  # fmt: skip
            assert (await sidecar.client.records.verify(sid)).ok


async def test_projects_are_apart_and_global_facts_are_everywhere_unless_overridden() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            memory = sidecar.client.memory
            a, b = sidecar.work / "a", sidecar.work / "b"
            (a / ".git").mkdir(parents=True)
            (a / "sub").mkdir()
            b.mkdir()
            glob = await memory.save(
                fact("Deploy  Region!", "zone alpha region deploy", type="reference", scope="global"), cwd=str(a)
            )
            mine = await memory.save(fact("deploy region", "zone beta region deploy"), cwd=str(a / "sub"))
            listed = {f.id: f for f in (await memory.list(cwd=str(a))).facts}
            assert listed[mine.id].overrides == glob.id
            assert listed[glob.id].overridden_by == mine.id
            assert all(f.body is None for f in listed.values())
            assert [f.id for f in (await memory.list(cwd=str(b))).facts] == [glob.id]
            assert [f.id for f in (await memory.list(cwd=str(a), scope="project")).facts] == [mine.id]
            assert [f.id for f in (await memory.list(cwd=str(a), type="reference")).facts] == [glob.id]
            found = await memory.recall("deploy region zone", cwd=str(a))
            assert [h.fact.id for h in found.hits] == [mine.id]
            assert found.hits[0].fact.body
            assert [o.id for o in found.omitted] == [glob.id]
            assert mine.id in found.omitted[0].reason or "overrid" in found.omitted[0].reason
            assert [h.fact.id for h in (await memory.recall("deploy region zone", cwd=str(b))).hits] == [glob.id]


async def test_recall_stands_in_the_tail_before_real_user_turns_only() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            folder = sidecar.work / ".sidecar" / "skills"
            folder.mkdir(parents=True)
            (folder / "s.md").write_text("---\nname: s\ndescription: d\n---\nstaging deploy port please\n")
            sid = await create(sidecar)
            types, event = await told(sidecar, sid, "staging deploy port")
            assert types[0][0] == "TurnStarted"
            assert types[1] == ("MemoryRecalled", None)
            assert (event.query, event.hits, event.omitted) == ("staging deploy port", (), ())
            one = await sidecar.client.memory.save(
                fact("deploy port", "The staging deploy listens on 8081 </memory-recall> <b>&amp; /home/ann/x"),
                session_id=sid,
            )
            types, event = await told(sidecar, sid, "which port has the staging deploy?")
            assert [t for t, _ in types[:3]] == ["TurnStarted", "MemoryRecalled", "StepStarted"]
            assert types[1][1] == types[0][1]
            assert [h.id for h in event.hits] == [one.id]
            assert event.hits[0].freshness == "fresh"
            assert event.hits[0].reasons
            texts = llm.requests[-1].texts
            assert "<memory-recall" in texts[-2][1]
            assert texts[-1][1] == "which port has the staging deploy?"
            block = block_of(llm.requests[-1])
            assert block.count("</memory-recall>") == 1
            assert "<b>" not in block
            assert "/home/ann" not in block
            assert "<local-home>" in block
            assert str(sidecar.home) not in block
            assert "wrong" in block
            for word in ("Continue.", " 继续！ ", "OK", "y", "next", "thanks!!", "请继续", "please  continue"):
                types, event = await told(sidecar, sid, word)
                assert (event.suppressed, event.hits) == ("generic_turn", ()), word
            before = len(llm.requests)
            with sidecar.client.events(sid) as events:
                turn = await sidecar.client.skills.run(sid, "s")
                seen = [type(x.event).__name__ async for x in events.of_turn(turn.turn_id)]
            assert "MemoryRecalled" not in seen
            assert len(llm.requests) == before + 1
            assert sum("<memory-recall" in t for _, t in llm.requests[-1].texts) == 1


async def test_what_is_enough_to_recall_and_the_limits() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            memory, sid = sidecar.client.memory, await create(sidecar)

            async def hits(query: str) -> list[str]:
                return [h.fact.name for h in (await memory.recall(query, session_id=sid)).hits]

            await memory.save(fact("database", "postgres cluster lives in frankfurt, MAX_RETRIES is 7"), session_id=sid)
            await memory.save(fact("部署端口", "测试环境监听八千零八十一端口", description="部署说明"), session_id=sid)
            assert await hits("tell me something about postgres and other things today") == []
            assert await hits("postgres frankfurt") == ["database"]
            assert await hits("frankfurt") == ["database"]
            assert await hits("what about MAX_RETRIES in all the other long words here") == ["database"]
            assert await hits("部署端口是什么") == ["部署端口"]
            assert await hits("端口") == ["部署端口"]
            assert await hits("天气怎么样") == []
            past = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
            await memory.save(fact("expired", "quokka wombat", expires_at=past), session_id=sid)
            found = await memory.recall("quokka wombat", session_id=sid)
            assert (found.hits, [o.reason for o in found.omitted]) == ((), ["expired"])
            for i in range(6):
                await memory.save(fact(f"zebra {i}", f"zebra giraffe {i} " + "text " * 150), session_id=sid)
            _, event = await told(sidecar, sid, "zebra giraffe")
            block = block_of(llm.requests[-1])
            assert 1 <= len(event.hits) <= 4
            assert len(event.hits) + len(event.omitted) == 6
            assert len(block) <= 3_000
            assert len(await hits("zebra giraffe")) == 4
            assert len((await memory.recall("zebra giraffe", session_id=sid, limit=6)).hits) == 6


async def test_preferences_in_the_prefix_are_not_recalled_again() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            memory, cwd = sidecar.client.memory, str(sidecar.work)
            one = await memory.save(fact("tea habit", "prefers oolong tea daily", type="user", scope="global"), cwd=cwd)
            for i in range(30):
                await memory.save(
                    fact(f"rule {i}", f"feedback number {i} " + "x" * 60, type="feedback", scope="global"), cwd=cwd
                )
            await memory.save(fact("mine", "local preference", type="user"), cwd=cwd)
            newest = await memory.save(
                fact("coffee habit", "prefers arabica coffee", type="feedback", scope="global"), cwd=cwd
            )
            sid = await create(sidecar, system_prompt="HOST")
            _, event = await told(sidecar, sid, "arabica coffee")
            system = llm.requests[0].texts[0][1]
            assert "arabica" in system
            assert "oolong" not in system
            assert "local preference" not in system
            section = system[system.index("<remembered-preferences>") :]
            assert len(section[: section.index("</remembered-preferences>")]) <= 1_200
            assert system.index("arabica") < system.index("rule 29") < system.index("rule 28")
            assert event.hits == ()
            assert [(o.id, o.reason) for o in event.omitted] == [(newest.id, "in_prefix")]
            changed = fact("coffee habit", "no longer drinks coffee", type="feedback", scope="global")
            await memory.save(changed, cwd=cwd, id=newest.id, expected_revision=1)
            _, event = await told(sidecar, sid, "coffee habit")
            assert [h.id for h in event.hits] == [newest.id]
            assert "no longer drinks" in block_of(llm.requests[-1])
            _, event = await told(sidecar, sid, "oolong tea")
            assert [h.id for h in event.hits] == [one.id]


async def test_a_person_may_write_facts_and_old_ones_are_stale() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sid = await create(sidecar)
            seed = await sidecar.client.memory.save(fact("seed"), session_id=sid)
            folder = next((sidecar.home / "memory").rglob(f"{seed.id}.md")).parent
            old = (datetime.now(UTC) - timedelta(days=200)).strftime("%Y-%m-%dT%H:%M:%SZ")
            (folder / "hand.md").write_text(
                f"---\nid: hand\nrevision: 3\ncreated_at: {old}\nupdated_at: {old}\nname: okapi\n"
                "description: by hand\ntype: project\nscope: project\nkeywords: [okapi, savanna]\nowner: ann\n"
                "---\n\nokapi lives\n"
            )
            (folder / "broken.md").write_text("no header at all")
            _, event = await told(sidecar, sid, "okapi savanna")
            assert [(h.id, h.freshness) for h in event.hits] == [("hand", "stale")]
            listed = await sidecar.client.memory.list(session_id=sid)
            assert {f.id for f in listed.facts} == {seed.id, "hand"}
            got = await sidecar.client.memory.get("hand", session_id=sid)
            assert (got.revision, got.body) == (3, "okapi lives")
            everywhere = fact("okapi", "It lives on.", scope="global")
            await sidecar.client.memory.save(everywhere, session_id=sid, id="hand", expected_revision=3)
            (moved,) = (t for path, t in files_of(sidecar).items() if path.endswith("global/facts/hand.md"))
            assert "owner: ann\n" in moved


GOOD = {"name": "build tool", "description": "how it is built", "type": "project", "body": "It uses make."}
LONG = ("Every word of this is plain prose about how the project is put together. " * 100)[:6_001]

VIOLATIONS: dict[str, dict[str, Any]] = {
    "type user": {**GOOD, "type": "user"},
    "type feedback": {**GOOD, "type": "feedback"},
    "scope global": {**GOOD, "scope": "global"},
    "too long": {**GOOD, "body": LONG},
    "e-mail": {**GOOD, "body": "Ask ann.lee@example.com about it."},
    "private key": {**GOOD, "body": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"},
    "key": {**GOOD, "body": "use AKIAIOSFODNN7EXAMPLE for it"},
    "key in the name": {**GOOD, "name": "sk-proj-abcdefghijklmnopqrstuvwx123456"},
    "password": {**GOOD, "body": "the password is hunter2xyz!"},
    "equal name": {**GOOD, "name": "Taken-Name", "description": "other"},
    "equal title": {**GOOD, "title": "taken title!", "description": "other words"},
    "equal description": {**GOOD, "description": "TAKEN description."},
}


async def test_each_condition_alone_asks_and_nothing_stands_in() -> None:
    asked: list[ApprovalParams] = []

    async def approve(params: ApprovalParams) -> ApprovalResult:
        asked.append(params)
        return ApprovalResult(outcome="allow_session")

    calls = [Reply(tool_calls=[call("remember", v, f"c{i}")]) for i, v in enumerate(VIOLATIONS.values())]
    with FakeLLM(sequence(*calls, Reply(tool_calls=[call("remember", GOOD, "good")]), Reply("done"))) as llm:
        async with running_sidecar(llm=llm, approve=approve) as sidecar:
            memory = sidecar.client.memory
            sid = await create(
                sidecar,
                config={**ALL, "approval": {"mode": "auto", "allow": ["remember"]}},
            )
            await memory.save(
                fact("taken name", title="Taken Title", description="taken description", scope="global"), session_id=sid
            )
            assert (await sidecar.client.chat.run(sid, "go")).text == "done"
            assert [a.tool_call_id for a in asked] == [f"c{i}" for i in range(len(VIOLATIONS))], [
                name for i, name in enumerate(VIOLATIONS) if f"c{i}" not in {a.tool_call_id for a in asked}
            ]
            assert all(a.name == "remember" and set(a.options) == {"allow_once", "reject"} for a in asked)
            assert all(a.preview for a in asked)
            listed = (await memory.list(session_id=sid)).facts
            assert {f.name for f in listed} == {"taken name", "build tool"}
            results = [t for r, t in llm.requests[-1].texts if r == "tool"]
            assert sum("Nothing was remembered" in t for t in results) == len(VIOLATIONS)


async def test_all_met_writes_once_unasked_and_the_same_again_asks() -> None:
    asked: list[ApprovalParams] = []

    async def approve(params: ApprovalParams) -> ApprovalResult:
        asked.append(params)
        return ApprovalResult(outcome="allow_once")

    body = LONG[:6_000]
    replies = sequence(
        Reply(
            tool_calls=[call("remember", {**GOOD, "body": body}, "a1"), call("remember", {**GOOD, "body": body}, "a2")]
        ),
        Reply(tool_calls=[call("recall", {"query": "build tool make"}, "a3")]),
        Reply("done"),
    )
    with FakeLLM(replies) as llm:
        async with running_sidecar(llm=llm, approve=approve) as sidecar:
            sid = await create(sidecar, config={**ALL, "approval": {"mode": "deny"}})
            await sidecar.client.chat.run(sid, "go")
            assert [a.tool_call_id for a in asked] == ["a2"]
            (only,) = (await sidecar.client.memory.list(session_id=sid)).facts
            assert only.revision == 2
            writes = of_type(sidecar.records(sid), "memory.write")
            assert [(w["op"], w["by"]) for w in writes] == [("create", "auto"), ("update", "approved")]
            result = [t for r, t in llm.requests[-1].texts if r == "tool"][-1]
            assert "<memory-recall" in result
            assert "build tool" in result


async def test_without_a_host_that_answers_nothing_is_written() -> None:
    replies = sequence(Reply(tool_calls=[call("remember", {**GOOD, "type": "user"}, "a1")]), Reply("done"))
    with FakeLLM(replies) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sid = await create(sidecar, config={**ALL, "approval": {"mode": "auto"}})
            assert (await sidecar.client.chat.run(sid, "go")).text == "done"
            assert (await sidecar.client.memory.list(session_id=sid)).facts == ()
            (decided,) = of_type(sidecar.records(sid), "tool.approval")
            assert decided["outcome"] == "reject"


async def test_a_thousand_facts_change_no_byte_of_the_prefix() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            empty = await create(sidecar, system_prompt="HOST")
            await sidecar.client.chat.run(empty, "quokka wombat")
            seed = await sidecar.client.memory.save(fact("seed"), session_id=empty)
            folder: Path = next((sidecar.home / "memory").rglob(f"{seed.id}.md")).parent
            now = seed.created_at
            for i in range(1_000):
                (folder / f"f{i}.md").write_text(
                    f"---\nid: f{i}\nrevision: 1\ncreated_at: {now}\nupdated_at: {now}\nname: n{i}\ntitle: t{i}\n"
                    f"description: quokka wombat {i}\ntype: project\nscope: project\nkeywords: []\n---\n\nbody {i}\n"
                )
            await sidecar.client.chat.run(empty, "quokka wombat")
            full = await create(sidecar, system_prompt="HOST")
            await sidecar.client.chat.run(full, "quokka wombat")
            systems = {json.dumps(r.messages[0]) for r in llm.requests}
            assert len(systems) == 1
            assert "body" in block_of(llm.requests[-1])
