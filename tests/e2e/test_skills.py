"""Skills through the daemon's door: where they are found, what stands in the prefix, and how they come into use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol import events as e
from sidecar.client.errors import SidecarError
from tests.support.fake_llm import FakeLLM, Reply, call, sequence
from tests.support.running import Sidecar, running_sidecar
from tests.support.wire import of_type, prefix_bytes

pytestmark = pytest.mark.anyio

ALL = {"tools": {"builtin": "all"}}
SUMMARY = "SUMMARY of what was done so far, in enough words to be more than trivial for anybody who reads. " * 3


def skill(
    root: Path, name: str, body: str = "BODY", *, where: str = ".sidecar", flat: bool = False, **front: str
) -> None:
    folder = root / where / "skills"
    path = folder / f"{name}.md" if flat else folder / name / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    header = "".join(f"{k.replace('_', '-')}: {v}\n" for k, v in {"name": name, "description": "d", **front}.items())
    path.write_text(f"---\n{header}---\n{body}\n")


async def create(sidecar: Sidecar, **more: Any) -> str:
    made = await sidecar.client.sessions.create(cwd=str(sidecar.work), **{"config": ALL, **more})
    return made.session_id


def system_of(request: Any) -> str:
    return next((t for r, t in request.texts if r in ("system", "developer")), "")


def compacting(request: dict[str, Any]) -> bool:
    return "about to be compacted" in str(request["messages"][-1]["content"])


async def test_roots_precedence_links_and_problems() -> None:
    async with running_sidecar() as sidecar:
        work, home = sidecar.work, sidecar.home
        for where in (".sidecar", ".agents", ".agent", ".claude"):
            skill(work, f"p{where.strip('.')}", where=where)
            skill(home, f"h{where.strip('.')}", where=where)
        skill(work, "twice", description="of-the-project", where=".claude")
        skill(home, "twice", description="of-the-home")
        skill(work, "first", description="of-sidecar")
        skill(work, "first", description="of-claude", where=".claude")
        skill(work, "flat", flat=True, mode="subagent")
        skill(work, "forked", context="fork")
        skill(work, "ranas", runAs="subagent")
        (work / ".sidecar" / "skills" / "notes.md").write_text("# no skill at all\n")
        skill(work, "bad", mode="sideways")
        real = work / "elsewhere"
        skill(real, "linked")
        (work / ".sidecar" / "skills" / "linked").symlink_to(real / ".sidecar" / "skills" / "linked")
        (work / ".sidecar" / "skills" / "again").symlink_to(real / ".sidecar" / "skills" / "linked")
        (work / ".sidecar" / "skills" / "loop").symlink_to(work / ".sidecar" / "skills")
        sid = await create(sidecar)
        listed = await sidecar.client.skills.list(sid)
        names = [s.name for s in listed.skills]
        assert len(names) == len(set(names))
        assert set(names) == {
            "psidecar", "pagents", "pagent", "pclaude", "hsidecar", "hagents", "hagent", "hclaude",
            "twice", "first", "flat", "forked", "ranas", "linked",
        }  # fmt: skip
        by = {s.name: s for s in listed.skills}
        assert (by["twice"].description, by["twice"].source) == ("of-the-project", "project")
        assert by["first"].description == "of-sidecar"
        assert by["hclaude"].source == "home"
        assert [by[n].mode for n in ("flat", "forked", "ranas", "linked")] == ["subagent"] * 3 + ["inline"]
        assert any("bad" in p.path and "sideways" in p.message for p in listed.problems)
        assert not any(p.path.startswith("/") for p in listed.problems)


async def test_the_index_has_its_limits_and_no_bodies() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "one", "SECRET-BODY", description="x" * 500)
            sid = await create(sidecar)
            await sidecar.client.chat.run(sid, "go")
            system = system_of(llm.requests[0])
            line = next(x for x in system.splitlines() if x.startswith("- one"))
            assert len(line) <= 130
            assert "SECRET-BODY" not in llm.requests[0].body.decode()
            for i in range(150):
                skill(sidecar.work, f"skill-{i:03}", description="words " * 30)
            sid = await create(sidecar)
            await sidecar.client.chat.run(sid, "go")
            index = system_of(llm.requests[1])
            index = index[index.index("<skills>") :]
            assert len(index) <= 4_000
            assert all(f"skill-{i:03}" in index for i in range(150))
            assert "descriptions are left out" in index
            for i in range(150, 600):
                skill(sidecar.work, f"skill-{i:03}", description="words")
            sid = await create(sidecar)
            await sidecar.client.chat.run(sid, "go")
            index = system_of(llm.requests[2])
            index = index[index.index("<skills>") :]
            assert len(index) <= 4_000
            named = index.count("- skill-") + index.count("- one")
            assert f"{601 - named} more" in index


async def test_inline_is_a_result_and_pinned_verbatim_with_its_arguments() -> None:
    for preset in ("handoff", "span", "ladder", "default"):
        body = "Polish $ARGUMENTS.\n\n  - keep <tags> & spaces\n" + "\n".join(f"STEP-{i}" for i in range(40))

        def script(request: dict[str, Any], n: int) -> Reply:
            if compacting(request):
                return Reply(SUMMARY)
            if n == 0:
                return Reply(tool_calls=[call("run_skill", {"name": "shine", "arguments": "the shoes"}, "s1")])
            return Reply("word " * 800)

        with FakeLLM(script) as llm:
            async with running_sidecar(llm=llm) as sidecar:
                skill(sidecar.work, "shine", body)
                config = {**ALL, "compaction": {"preset": preset, "keep_last_messages": 2, "tail_tokens": 1_000}}
                sid = await create(sidecar, config=config)
                await sidecar.client.chat.run(sid, "please")
                shown = next(t for r, t in llm.requests[1].texts if r == "tool")
                whole = body.replace("$ARGUMENTS", "the shoes")
                assert whole in shown
                for text in ("more", "and more", "still more"):
                    await sidecar.client.chat.run(sid, text)
                for _ in range(2):
                    assert (await sidecar.client.chat.compact(sid)).outcome == "landed", preset
                    await sidecar.client.chat.run(sid, "after")
                    assert sum(whole in t for _, t in llm.requests[-1].texts) == 1, preset
                    await sidecar.client.chat.run(sid, "after that")
                (used,) = of_type(sidecar.records(sid), "skill.activate")
                assert (used["name"], used["trigger"], used["mode"]) == ("shine", "model", "inline")


async def test_a_skill_that_was_taken_back_is_not_in_use() -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        if compacting(request):
            return Reply(SUMMARY)
        last = request["messages"][-1]
        if last["role"] == "user" and str(last["content"]).startswith("polish "):
            arguments = {"name": "shine", "arguments": last["content"].removeprefix("polish ")}
            return Reply(tool_calls=[call("run_skill", arguments, f"s{n}")])
        return Reply("word " * 800)

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "shine", "Polish the $ARGUMENTS until they SHINE.")
            skill(sidecar.work, "sweep", "SWEEP the floor.")
            sid = await create(sidecar)
            chat = sidecar.client.chat
            for text in ("polish shoes", "polish boots"):
                await chat.run(sid, text)
            await chat.undo(sid)
            await sidecar.client.skills.run(sid, "sweep")
            await chat.run(sid, "and then")
            await chat.undo(sid, turns=2)
            for text in ("more", "and more"):
                await chat.run(sid, text)
            for _ in range(2):
                assert (await chat.compact(sid)).outcome == "landed"
                await chat.run(sid, "after")
                shown = "\n".join(t for _, t in llm.requests[-1].texts)
                assert shown.count("SHINE") == shown.count("Polish the shoes until they SHINE.") == 1
                assert "SWEEP" not in shown
                await chat.run(sid, "after that")


async def test_the_free_half_never_shortens_a_skill_in_use() -> None:
    body = "\n".join(f"STEP-{i} " + "x" * 60 for i in range(60))

    def script(request: dict[str, Any], n: int) -> Reply:
        if compacting(request):
            return Reply(SUMMARY)
        if n == 0:
            return Reply(tool_calls=[call("run_skill", {"name": "shine"}, "s1")])
        if n < 14 and request["messages"][-1]["role"] == "tool":
            return Reply("w", tool_calls=[call("read_file", {"path": "big.txt"}, f"r{n}")])
        return Reply("end")

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            (sidecar.work / "big.txt").write_text("\n".join(f"line {i} " + "y" * 80 for i in range(60)))
            skill(sidecar.work, "shine", body)
            config = {
                **ALL,
                "model": {"window": 16_000},
                "compaction": {"preset": "ladder", "snip_when": "always", "tail_tokens": 2_000},
            }
            sid = await create(sidecar, config=config)
            await sidecar.client.chat.run(sid, "please")
            assert of_type(sidecar.records(sid), "context.rewrite")
            assert any(body in t for _, t in llm.requests[-1].texts)


async def test_a_user_runs_a_skill() -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        return Reply(SUMMARY) if compacting(request) else Reply("word " * 500)

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "shine", "Polish <$ARGUMENTS> & more.")
            sid = await create(sidecar, config={**ALL, "compaction": {"preset": "handoff"}})
            with sidecar.client.events(sid) as events:
                run = await sidecar.client.skills.run(sid, "shine", "the floor")
                told = [x async for x in events.of_turn(run.turn_id)]
            assert isinstance(told[0].event, e.TurnStarted)
            assert isinstance(told[-1].event, e.TurnEnded)
            context = (await sidecar.client.sessions.messages(sid, view="context")).messages
            (mine,) = [m for m in context if m.origin and m.origin.kind == "skill_activation"]
            assert (mine.role, mine.origin.trigger) == ("user", "user_slash")
            assert "Polish <the floor> & more." in mine.text
            await sidecar.client.chat.run(sid, "more")
            assert (await sidecar.client.chat.compact(sid)).outcome == "landed"
            context = (await sidecar.client.sessions.messages(sid, view="context")).messages
            assert [m.text for m in context if m.origin and m.origin.kind == "skill_activation"] == [mine.text]
            assert sum("Polish <the floor>" in m.text for m in context) == 1
            for name in ("nope", "../shine"):
                with pytest.raises(SidecarError) as unknown:
                    await sidecar.client.skills.run(sid, name)
                assert (unknown.value.code, unknown.value.data["path"]) == (-32602, "name")
            with pytest.raises(SidecarError) as wrong:
                await sidecar.client.call("skill.run", {"session_id": sid, "name": "shine", "arguments": {"a": 1}})
            assert (wrong.value.code, wrong.value.data["path"]) == (-32602, "arguments")


async def test_tools_of_skills_and_their_errors() -> None:
    replies = sequence(
        Reply(tool_calls=[call("run_skill", {"name": "nope"}, "a"), call("read_skill", {"name": "nope"}, "b")]),
        Reply(tool_calls=[call("read_skill", {"name": "shine"}, "c"), call("run_skill", {}, "d")]),
        Reply(tool_calls=[call("run_skill", {"name": "shine"}, "e")]),
        Reply("end"),
    )
    with FakeLLM(replies) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "shine", "OLD-BODY", allowed_tools="[Read, Grep]")
            sid = await create(sidecar, config={**ALL, "approval": {"mode": "deny"}})
            skill(sidecar.work, "shine", "NEW-BODY", allowed_tools="[Read, Grep]")
            with sidecar.client.events(sid) as events:
                turn = await sidecar.client.chat.send(sid, "go")
                told = [x.event async for x in events.of_turn(turn.turn_id)]
            results = {x.tool_call_id: x for x in told if isinstance(x, e.ToolResult)}
            assert {k: r.is_error for k, r in results.items()} == {
                "a": True,
                "b": True,
                "c": False,
                "d": True,
                "e": False,
            }
            assert "shine" in str(results["a"].content)
            assert "NEW-BODY" in str(results["c"].content)
            assert "NEW-BODY" in str(results["e"].content)
            assert len(of_type(sidecar.records(sid), "skill.activate")) == 1
            assert len({prefix_bytes(r.body) for r in llm.requests}) == 1


async def test_the_words_offer_the_right_tools() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            ours = {"remember", "recall", "run_skill", "read_skill"}
            for word, wanted in (
                ("none", set()), ("read", {"recall", "read_skill"}), ("edit", {"recall", "read_skill"}), ("all", ours),
            ):  # fmt: skip
                sid = await create(sidecar, config={"tools": {"builtin": word}})
                listed = await sidecar.client.call("tool.list", {"session_id": sid})
                got = {t["name"] for t in listed["tools"]}
                assert got & ours == wanted, word


async def test_a_skill_that_runs_as_an_agent_is_run_so_for_the_user_too() -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        if any("TASK-BODY" in str(m["content"]) for m in request["messages"] if m["role"] == "user"):
            if request["messages"][-1]["role"] == "tool":
                return Reply("ANSWER FROM BELOW")
            return Reply("INNER", tool_calls=[call("list_dir", {}, f"i{n}")])
        return Reply("told the user")

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            skill(sidecar.work, "dig", "TASK-BODY $ARGUMENTS", mode="subagent")
            sid = await create(sidecar)
            with sidecar.client.events(sid) as events:
                run = await sidecar.client.skills.run(sid, "dig", "deep")
                told = [x async for x in events.of_turn(run.turn_id)]
            assert told[-1].event.stop_reason == "end_turn"
            agents = (await sidecar.client.sessions.get(sid)).agents
            assert len(agents) == 2
            context = (await sidecar.client.sessions.messages(sid, view="context")).messages
            assert any(m.origin and m.origin.kind == "skill_activation" for m in context)
            assert any("ANSWER FROM BELOW" in m.text for m in context)
            assert not any("INNER" in m.text or "TASK-BODY" in m.text for m in context)
