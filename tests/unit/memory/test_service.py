"""`memory.*`, recall before a turn, and writes with a grant, over a real folder."""

from __future__ import annotations

import os
import time

import msgspec
import pytest

from protocol.memory import FactInput
from sidecar.errors import Fault
from sidecar.instructions.prefix import compose
from sidecar.memory.facts import serialise
from sidecar.memory.folder import LOOKS_PER_TURN
from sidecar.memory.library import Taken
from sidecar.memory.section import entries_in
from sidecar.memory.service import Grant, GrantSpent, Question, Writer
from sidecar.memory.times import to_iso
from tests.support.memory import NOW, World, fact, given

pytestmark = pytest.mark.anyio


def writer(world: World, **change: object) -> Writer:
    plain = {"main_agent": True, "cwd": world.work, "session_cwd": world.work}
    return Writer(**{**plain, **change})  # type: ignore[arg-type]


# ---------------------------------------------------------------- memory.*


async def test_saved_listed_and_got(world: World) -> None:
    made = await world.save(keywords=("make",), expires_at="2030-01-01T00:00:00Z")
    assert (made.revision, made.scope, made.body) == (1, "project", "Run make.")
    below = world.work / "sub"
    below.mkdir()
    listed = (await world.service.list(below)).facts
    assert [f.id for f in listed] == [made.id]
    plain = msgspec.to_builtins(listed[0])
    assert "body" not in plain
    assert plain["created_at"] == "2026-09-21T14:13:20Z"
    assert (await world.service.get(world.work, made.id)).fact == made
    assert (await world.open().get(world.work, made.id)).fact == made


async def test_projects_are_apart_and_global_facts_everywhere(world: World) -> None:
    here = await world.save()
    there = await world.save(world.other)
    everywhere = await world.save(scope="global", type="user")
    assert {f.id for f in (await world.service.list(world.work)).facts} == {here.id, everywhere.id}
    assert {f.id for f in (await world.service.list(world.other)).facts} == {there.id, everywhere.id}
    assert [f.id for f in (await world.service.list(world.work, scope="global")).facts] == [everywhere.id]
    assert [f.id for f in (await world.service.list(world.work, type="project")).facts] == [here.id]
    with pytest.raises(Fault, match="invalid_params"):
        await world.service.get(world.work, there.id)


async def test_lists_are_newest_first(world: World) -> None:
    ids = []
    for n in range(3):
        world.clock.now += 1
        ids.append((await world.save(name=f"n{n}")).id)
    assert [f.id for f in (await world.service.list(world.work)).facts] == ids[::-1]


async def test_updates(world: World) -> None:
    made = await world.save()
    world.clock.now += 1000
    saved = (await world.service.save(world.work, given(body="two"), fact_id=made.id, expected_revision=1)).fact
    assert (saved.id, saved.revision, saved.body) == (made.id, 2, "two")
    with pytest.raises(Fault) as stale:
        await world.service.save(world.work, given(), fact_id=made.id, expected_revision=1)
    assert (stale.value.reason, stale.value.data["current"]) == ("stale_revision", 2)


@pytest.mark.parametrize(
    ("fields", "options", "path"),
    [
        ({"name": " "}, {}, "fact.name"),
        ({"expires_at": "soon"}, {}, "fact.expires_at"),
        ({}, {"fact_id": "f"}, "expected_revision"),
        ({}, {"expected_revision": 1}, "id"),
        ({}, {"fact_id": "nobody", "expected_revision": 1}, "id"),
        ({}, {"fact_id": "../x", "expected_revision": 1}, "id"),
    ],
)
async def test_wrong_params_name_their_path(
    world: World, fields: dict[str, str], options: dict[str, object], path: str
) -> None:
    plain = {"name": "n", "description": "d", "type": "project", "body": "b"}
    with pytest.raises(Fault) as caught:
        await world.service.save(world.work, FactInput(**{**plain, **fields}), **options)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.data["path"]) == (-32602, path)


async def test_a_fact_moves_with_its_scope_and_keeps_its_id(world: World) -> None:
    made = await world.save()
    moved = (await world.service.save(world.work, given(scope="global"), fact_id=made.id, expected_revision=1)).fact
    assert (moved.id, moved.revision, moved.scope) == (made.id, 2, "global")
    assert [f.id for f in (await world.service.list(world.other)).facts] == [made.id]
    assert [f.scope for f in (await world.open().list(world.work)).facts] == ["global"]
    with pytest.raises(Fault, match="stale_revision"):
        await world.service.save(world.work, given(scope="project"), fact_id=made.id, expected_revision=1)


async def test_forgetting(world: World) -> None:
    made = await world.save()
    with pytest.raises(Fault, match="stale_revision"):
        await world.service.forget(world.work, made.id, expected_revision=2)
    assert (await world.service.forget(world.work, made.id, expected_revision=1)).archived
    assert (await world.service.list(world.work)).facts == ()
    with pytest.raises(Fault, match="invalid_params"):
        await world.service.forget(world.work, made.id)


async def test_damage_is_listed_without_our_paths(world: World) -> None:
    made = await world.save()
    world.file_of(made).write_text("damage", encoding="utf-8")
    result = await world.service.list(world.work)
    assert result.facts == ()
    assert [p.message for p in result.problems] == ["file: does not begin with front matter between two `---` lines"]
    assert result.problems[0].file.startswith("projects/work-")
    assert "problems" not in msgspec.to_builtins(await world.service.list(world.other))


# ---------------------------------------------------------------- overrides and recall


async def test_a_project_fact_overrides_the_equal_global_one_and_both_stay_listed(world: World) -> None:
    common = await world.save(scope="global", type="reference", name="Deploy window", body="Mondays")
    own = await world.save(name="deploy-window", body="Fridays", description="here")
    listed = {f.id: f for f in (await world.service.list(world.work)).facts}
    assert (listed[own.id].overrides, listed[common.id].overridden_by) == (common.id, own.id)
    result = await world.service.recall(world.work, "when is the deploy window")
    assert [hit.fact.id for hit in result.hits] == [own.id]
    assert [(o.id, o.reason) for o in result.omitted] == [(common.id, f"overridden_by: {own.id}")]
    elsewhere = await world.service.recall(world.other, "when is the deploy window")
    assert [hit.fact.id for hit in elsewhere.hits] == [common.id]


async def test_an_expired_project_fact_overrides_nothing(world: World) -> None:
    common = await world.save(scope="global", type="reference", name="Deploy window")
    await world.save(name="deploy-window", description="x", expires_at=to_iso(NOW))
    result = await world.service.recall(world.work, "when is the deploy window")
    assert [hit.fact.id for hit in result.hits] == [common.id]
    assert all(f.overrides is None and f.overridden_by is None for f in (await world.service.list(world.work)).facts)


async def test_a_turn_is_told_and_traced(world: World) -> None:
    made = await world.save(name="Staging port", description="Where it listens", body=f"5433, see {world.home}/notes")
    told = await world.service.recall_for_turn(world.work, "which port does staging use?")
    assert "5433, see <local-home>/notes" in told.text
    assert str(world.base) not in told.text
    assert [h.id for h in told.event.hits] == [made.id]
    assert (told.event.query, told.event.suppressed) == ("which port does staging use?", None)
    assert told.event.hits[0].freshness == "fresh"


@pytest.mark.parametrize(
    ("text", "why"), [("continue", "generic_turn"), ("好的！", "generic_turn"), ("what about it", "no_terms")]
)
async def test_a_turn_that_is_told_nothing_says_why(world: World, text: str, why: str) -> None:
    await world.save(name="continue", body="what about it")
    told = await world.service.recall_for_turn(world.work, text)
    assert (told.text, told.event.hits, told.event.suppressed) == ("", (), why)
    assert (await world.service.recall(world.work, text)).hits == ()


async def test_facts_of_the_prefix_are_not_told_again(world: World) -> None:
    first = await world.save(scope="global", type="user", name="Indentation spaces")
    frozen = await world.service.section(world.work)
    later = await world.save(scope="global", type="user", name="Indentation tabs", description="other")
    told = await world.service.recall_for_turn(world.work, "indentation", entries_in(frozen))
    assert [h.id for h in told.event.hits] == [later.id]
    assert [(o.id, o.reason) for o in told.event.omitted] == [(first.id, "in_prefix")]


async def test_a_fact_of_the_prefix_that_says_something_else_now_is_told(world: World) -> None:
    made = await world.save(scope="global", type="user", name="Indentation", body="Spaces.")
    told = entries_in(await world.service.section(world.work))
    changed = given(scope="global", type="user", name="Indentation", body="Tabs.")
    await world.service.save(world.work, changed, fact_id=made.id, expected_revision=1)
    assert "Tabs." in (await world.service.recall_for_turn(world.work, "indentation", told)).text
    answer = await world.service.answer(world.work, "indentation", limit=4, max_chars=2_400, in_prefix=told)
    assert "Tabs." in answer


async def test_an_edit_in_place_is_told_in_the_next_turn(world: World) -> None:
    made = await world.save(name="Staging port", body="5433")
    await world.service.recall_for_turn(world.work, "staging port")
    path = world.file_of(made)
    path.write_text(path.read_text(encoding="utf-8").replace("5433", "6000"), encoding="utf-8")
    moment = time.time() - 5
    os.utime(path, (moment, moment))
    assert "6000" in (await world.service.recall_for_turn(world.work, "staging port")).text


async def test_in_a_large_store_what_is_told_is_as_it_is_on_disk(world: World) -> None:
    """Only a few files are looked at per turn, but those that are told always."""
    folder = world.file_of(await world.save(name="first")).parent
    for n in range(3 * LOOKS_PER_TURN):
        (folder / f"z{n:04d}.md").write_text(serialise(fact(f"z{n:04d}", name=f"item{n}")), encoding="utf-8")
    await world.service.warm(world.work)
    last = folder / f"z{3 * LOOKS_PER_TURN - 1:04d}.md"
    edited = last.read_text(encoding="utf-8").replace("Run make.", "Run just.")
    last.write_text(edited, encoding="utf-8")
    moment = time.time() - 5
    for path in (last, folder):
        os.utime(path, (moment, moment))
    told = await world.service.recall_for_turn(world.work, f"item{3 * LOOKS_PER_TURN - 1}")
    assert [hit.id for hit in told.event.hits] == [last.stem]
    assert "Run just." in told.text


async def test_the_prefix_has_the_same_bytes_with_0_and_1000_facts(world: World) -> None:
    async def prefix() -> str:
        return compose("You are a host.", "", await world.open().section(world.work), "")

    assert await prefix() == "You are a host."
    await world.save(scope="global", type="user", name="Shell", body="fish")
    before = await prefix()
    project = world.service._library.project(world.work.resolve())
    for n in range(1_000):
        project.create(given(name=f"fact {n}", description=f"number {n}", type="user" if n % 2 else "reference"))
    await world.save(scope="global", type="reference", name="Registry")
    assert await prefix() == before
    assert "fish" in before


# ---------------------------------------------------------------- writing by the model


async def test_one_grant_is_one_write(world: World) -> None:
    grant = await world.service.propose(writer(world), given())
    assert isinstance(grant, Grant)
    made = await world.service.create_granted(writer(world), grant, given())
    assert (await world.service.get(world.work, made.id)).fact == made
    with pytest.raises(GrantSpent):
        await world.service.create_granted(writer(world), grant, given())
    assert len((await world.service.list(world.work)).facts) == 1


async def test_a_grant_is_for_the_fact_that_was_proposed(world: World) -> None:
    grant = await world.service.propose(writer(world), given())
    assert isinstance(grant, Grant)
    with pytest.raises(GrantSpent):
        await world.service.create_granted(writer(world), grant, given(body="password: hunter2"))
    with pytest.raises(GrantSpent):
        await world.service.create_granted(writer(world), grant, given())
    with pytest.raises(GrantSpent):
        await world.service.create_granted(writer(world), Grant("made up"), given())
    assert (await world.service.list(world.work)).facts == ()


@pytest.mark.parametrize("scope", ["project", "global"])
async def test_the_store_refuses_what_became_equal_meanwhile(world: World, scope: str) -> None:
    """Another daemon writes between the grant and its use."""
    grant = await world.service.propose(writer(world), given())
    assert isinstance(grant, Grant)
    await world.open().save(world.work, given(scope=scope, name="build TOOL", description="x"))
    with pytest.raises(Taken):
        await world.service.create_granted(writer(world), grant, given())
    assert len((await world.service.list(world.work)).facts) == 1


async def test_what_is_equal_is_asked_about_and_replaces_the_fact_of_that_name(world: World) -> None:
    made = await world.save()
    verdict = await world.service.propose(writer(world), given(name="build_tool", body="two", description="x"))
    assert isinstance(verdict, Question)
    assert verdict.replaces == made
    written = await world.service.write_approved(writer(world), given(name="build_tool", body="two"), verdict)
    assert (written.id, written.revision, written.body) == (made.id, 2, "two")

    other = await world.service.propose(writer(world), given(name="something else"))
    assert isinstance(other, Question)
    assert other.replaces is None


async def test_an_approval_for_a_revision_that_is_gone_writes_nothing(world: World) -> None:
    made = await world.save()
    verdict = await world.service.propose(writer(world), given(body="two"))
    assert isinstance(verdict, Question)
    await world.service.save(world.work, given(body="meanwhile"), fact_id=made.id, expected_revision=1)
    with pytest.raises(Fault, match="stale_revision"):
        await world.service.write_approved(writer(world), given(body="two"), verdict)
