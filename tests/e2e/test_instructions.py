"""Standing instructions in the bytes that a model gets: what stands in the prefix, and what comes in the tail."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from protocol import events as e
from protocol.memory import FactInput
from tests.support.fake_llm import FakeLLM, Reply
from tests.support.running import Sidecar, running_sidecar
from tests.support.wire import prefix_bytes

pytestmark = pytest.mark.anyio


def system_of(request: Any) -> str:
    return next((t for r, t in request.texts if r in ("system", "developer")), "")


def notes(request: Any) -> list[str]:
    return [t for r, t in request.texts if r == "user" and "<instructions-changed" in t]


async def create(sidecar: Sidecar, cwd: Path | None = None, **more: Any) -> str:
    made = await sidecar.client.sessions.create(cwd=str(cwd or sidecar.work), **more)
    return made.session_id


async def test_order_dedup_and_home() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            root, inner = sidecar.work, sidecar.work / "a" / "b"
            inner.mkdir(parents=True)
            (root / ".git").mkdir()
            places = [sidecar.home, root, root / "a", inner]
            names = ["AGENTS.md", "CLAUDE.md", "AGENTS.local.md", "CLAUDE.local.md"]
            for i, place in enumerate(places):
                for j, name in enumerate(names):
                    (place / name).write_text(f"RULE-{i}-{j}\n")
            (root / "AGENTS.md").write_text("SAME TEXT\n")
            (inner / "CLAUDE.md").write_text("\nSAME TEXT\n\n")
            (root / "c").mkdir()
            (root / "c" / "AGENTS.md").write_text("NOT ON THE WAY")
            (root.parent / "AGENTS.md").write_text("ABOVE THE ROOT")
            sid = await create(sidecar, inner, system_prompt="HOST")
            await sidecar.client.chat.run(sid, "x")
            system = system_of(llm.requests[0])
            found = re.findall(r"RULE-\d-\d|SAME TEXT", system)
            wanted = [f"RULE-{i}-{j}" for i in range(4) for j in range(4)]
            wanted.remove("RULE-1-0")
            wanted[wanted.index("RULE-3-1")] = "SAME TEXT"
            assert found == wanted
            assert "NOT ON THE WAY" not in system
            assert "ABOVE THE ROOT" not in system
            assert system.startswith("HOST")


async def test_without_a_repository_the_root_is_the_directory() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            inner = sidecar.work / "a"
            inner.mkdir()
            (sidecar.work / "AGENTS.md").write_text("ABOVE")
            (inner / "AGENTS.md").write_text("HERE @../AGENTS.md")
            sid = await create(sidecar, inner)
            await sidecar.client.chat.run(sid, "x")
            assert "HERE" in system_of(llm.requests[0])
            assert "ABOVE" not in llm.requests[0].body.decode()


async def test_imports_are_bounded_and_confined_and_problems_are_notices() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            work = sidecar.work
            (work / ".git").mkdir()
            (work / "AGENTS.md").write_text(
                "LEVEL-0 @docs/1.md\n@loop.md @missing.md @../out.md @link.md @/etc/hostname\n`@code.md`\n"
            )
            (work / "docs").mkdir()
            for i in range(1, 8):
                (work / "docs" / f"{i}.md").write_text(f"LEVEL-{i} @{i + 1}.md\n")
            (work / "loop.md").write_text("LOOP @loop.md\n")
            (work / "code.md").write_text("IN CODE")
            (work.parent / "out.md").write_text("OUTSIDE")
            (work / "link.md").symlink_to(work.parent / "out.md")
            (sidecar.home / "AGENTS.md").write_text(f"HOME-RULE @mine.md @{work}/code.md\n")
            (sidecar.home / "mine.md").write_text("HOME-IMPORT")
            with sidecar.client.events() as events:
                sid = await create(sidecar)
                turn = await sidecar.client.chat.send(sid, "x")
                told = []
                async for x in events:
                    told.append(x)
                    if isinstance(x.event, e.TurnEnded):
                        break
            assert turn.turn_id
            system = system_of(llm.requests[0])
            assert [f"LEVEL-{i}" in system for i in range(8)] == [True] * 6 + [False] * 2
            assert system.count("LOOP") == 1
            assert "OUTSIDE" not in llm.requests[0].body.decode()
            assert "IN CODE" not in system
            assert "HOME-IMPORT" in system
            said = [x.event.message for x in told if isinstance(x.event, e.Notice) and x.event.kind == "instructions"]
            for word in ("5", "circle", "missing.md", "out.md", "link.md", "/etc/hostname"):
                assert any(word in s for s in said), (word, said)
            assert str(work) not in "\n".join(said).replace(f"@{work}/code.md", "")


async def test_a_problem_that_comes_with_an_edit_is_a_notice_once() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            rules = sidecar.work / "AGENTS.md"
            rules.write_text("RULE-1 @docs/gone.md\n")
            sid = await create(sidecar)
            said: list[list[str]] = []
            for text in ("RULE-1 @docs/gone.md\n", "RULE-2 @docs/gone.md @../out.md @docs/new.md\n", "", "RULE-3\n"):
                if text:
                    rules.write_text(text)
                with sidecar.client.events(sid) as events:
                    await sidecar.client.chat.send(sid, "and now?")
                    said.append([])
                    async for x in events:
                        if isinstance(x.event, e.Notice) and x.event.kind == "instructions":
                            said[-1].append(x.event.message)
                        if isinstance(x.event, e.TurnEnded):
                            break
            assert [len(s) for s in said] == [0, 2, 0, 0]
            assert "new.md" in "".join(said[1])
            assert "RULE-2" in notes(llm.requests[1])[-1]


async def test_the_prefix_is_frozen_over_edits_and_restarts() -> None:
    with FakeLLM(lambda r, n: Reply("ok")) as llm, tempfile.TemporaryDirectory() as home:
        async with running_sidecar(llm=llm, home=Path(home)) as sidecar:
            work = Path(home) / "project"
            (work / ".git").mkdir(parents=True)
            (work / "AGENTS.md").write_text("RULE-A\nRULE-B\n")
            sid = await create(sidecar, work, system_prompt="HOST")
            await sidecar.client.chat.run(sid, "first question")
            for i in range(50):
                await sidecar.client.memory.save(
                    FactInput(name=f"fact {i}", description=f"about {i}", type="user", scope="global", body="B"),
                    session_id=sid,
                )
            (work / "AGENTS.md").write_text("RULE-A\nRULE-C\n")
            (work / ".sidecar" / "skills").mkdir(parents=True)
            (work / ".sidecar" / "skills" / "s.md").write_text("---\nname: s\ndescription: d\n---\nx\n")
            await sidecar.client.chat.run(sid, "second question")
        async with running_sidecar(llm=llm, home=Path(home)) as sidecar:
            await sidecar.client.sessions.resume(sid)
            await sidecar.client.chat.run(sid, "third question")
            assert {prefix_bytes(r.body) for r in llm.requests} == {prefix_bytes(llm.requests[0].body)}
            assert system_of(llm.requests[2]) == system_of(llm.requests[0])
            assert len(notes(llm.requests[2])) == 1
            new = await create(sidecar, work)
            await sidecar.client.chat.run(new, "fourth question")
            assert "RULE-C" in system_of(llm.requests[3])
            assert "fact 49" in system_of(llm.requests[3])
            assert not notes(llm.requests[3])


async def test_each_edit_is_told_once_with_the_changed_part_only() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            rules = sidecar.work / "AGENTS.md"
            old = [f"RULE-{i:03}" for i in range(200)]
            rules.write_text("\n".join(old))
            sid = await create(sidecar)

            async def turn() -> list[str]:
                await sidecar.client.chat.run(sid, "go")
                return notes(llm.requests[-1])

            assert await turn() == []
            one = [*old[:50], "NEW-ONE", *old[50:]]
            rules.write_text("\n".join(one))
            assert len(told := await turn()) == 1
            assert "NEW-ONE" in told[0]
            assert "RULE-" not in told[0]
            two = [*one, "NEW-TWO"]
            rules.write_text("\n".join(two))
            assert len(told := await turn()) == 2
            assert "NEW-TWO" in told[1]
            assert "NEW-ONE" not in told[1]
            assert len(await turn()) == 2
            rules.write_text("\n".join(two + ["LONG " + "x" * 90] * 100))
            told = await turn()
            assert len(told) == 3
            assert len(told[2]) <= 2_000
            rules.unlink()
            told = await turn()
            assert len(told) == 4
            assert "removed" in told[3]
            rules.write_text("\n".join(old))
            told = await turn()
            assert len(told) == 5
            assert "RULE-" not in told[4]
            assert len(await turn()) == 5
            bodies = [r.body for r in llm.requests]
            assert len({prefix_bytes(b) for b in bodies}) == 1


async def test_the_date_comes_once_in_the_tail() -> None:
    with FakeLLM() as llm:
        async with running_sidecar(llm=llm) as sidecar:
            sid = await create(sidecar)
            await sidecar.client.chat.run(sid, "one")
            await sidecar.client.chat.run(sid, "two")
            dated = [t for r, t in llm.requests[-1].texts if re.search(r"\b20\d\d-\d\d-\d\d\b", t)]
            assert len(dated) == 1
            assert not re.search(r"\b20\d\d-\d\d-\d\d\b", system_of(llm.requests[-1]))
            assert next(t for r, t in llm.requests[-1].texts if r == "user") == dated[0]
            context = (await sidecar.client.sessions.messages(sid, view="context")).messages
            assert [(m.origin.kind, m.origin.variant) for m in context if m.origin] == [("injection", "date")]


async def test_a_note_survives_a_compaction_or_is_told_again() -> None:
    def script(request: dict[str, Any], n: int) -> Reply:
        if "about to be compacted" in str(request["messages"][-1]["content"]):
            return Reply("SUMMARY of what was done so far, in enough words to be more than trivial for anybody. " * 3)
        return Reply("word " * 300)

    with FakeLLM(script) as llm:
        async with running_sidecar(llm=llm) as sidecar:
            rules = sidecar.work / "AGENTS.md"
            rules.write_text("RULE-A\n")
            sid = await create(sidecar)
            await sidecar.client.chat.run(sid, "one")
            rules.write_text("RULE-A\nNEW-ONE\n")
            await sidecar.client.chat.run(sid, "two")
            rules.write_text("RULE-A\nNEW-ONE\nNEW-TWO\n")
            await sidecar.client.chat.run(sid, "three")
            assert (await sidecar.client.chat.compact(sid)).outcome == "landed"
            await sidecar.client.chat.run(sid, "four")
            whole = "\n".join(notes(llm.requests[-1]))
            assert "NEW-ONE" in whole
            assert "NEW-TWO" in whole
            assert sum("<current-date>" in t for _, t in llm.requests[-1].texts) == 1
