"""Facts on disk: revisions, archive, people's edits, damage, other processes."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from sidecar.errors import Fault
from sidecar.memory import facts
from sidecar.memory.facts import parse, serialise
from sidecar.memory.folder import LOOKS_PER_TURN
from sidecar.memory.store import FactStore
from tests.support.memory import NOW, StillClock, fact, given


@pytest.fixture
def store(tmp_path: Path) -> FactStore:
    return FactStore(tmp_path / "global", "global", StillClock())


def again(store: FactStore) -> FactStore:
    """What another process, or this one after a restart, knows of it."""
    other = FactStore(store.folder, store.scope, StillClock(), store.root)
    other.view.refresh()
    return other


def edit(store: FactStore, fact_id: str, old: str, new: str, *, age_s: float = 0) -> None:
    """A person's editor writes in place."""
    path = store.view.directory / f"{fact_id}.md"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    if age_s:
        moment = time.time() - age_s
        os.utime(path, (moment, moment))


def test_nothing_is_made_before_the_first_write(store: FactStore) -> None:
    store.view.refresh()
    assert not store.folder.exists()


def test_a_fact_survives_a_restart_and_is_private(store: FactStore) -> None:
    made = store.create(given(body="中文"))
    assert again(store).catalogue.facts == {made.id: made}
    path = store.view.directory / f"{made.id}.md"
    assert path.read_text(encoding="utf-8") == serialise(made)
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_an_update_keeps_the_revision_before(store: FactStore) -> None:
    first = store.create(given())
    second = store.update(first.id, given(body="Run ninja."), 1)
    assert (second.revision, second.body) == (2, "Run ninja.")
    kept = (store.folder / "revisions" / first.id / "1.md").read_text(encoding="utf-8")
    assert parse(kept, fact_id=first.id, scope="global", modified_ms=0).fact == first
    assert again(store).catalogue.facts == {first.id: second}


def test_a_stale_update_says_the_true_revision_and_writes_nothing(store: FactStore) -> None:
    first = store.create(given())
    second = store.update(first.id, given(body="two"), 1)
    with pytest.raises(Fault) as caught:
        store.update(first.id, given(body="three"), 1)
    assert caught.value.as_error()["code"] == -32033
    assert caught.value.data == {"current": 2}
    assert again(store).catalogue.facts[first.id] == second


def test_forgetting_archives(store: FactStore) -> None:
    made = store.create(given())
    with pytest.raises(Fault, match="stale_revision"):
        store.archive(made.id, 7)
    store.archive(made.id, 1)
    assert (store.folder / "archive" / f"{made.id}.1.md").read_text(encoding="utf-8") == serialise(made)
    assert again(store).catalogue.facts == {}
    assert len(store.catalogue.index) == 0
    with pytest.raises(Fault, match="invalid_params"):
        store.archive(made.id)


def test_a_persons_edit_becomes_a_revision_that_nobody_overwrites_unseen(store: FactStore) -> None:
    made = store.create(given())
    edit(store, made.id, "Run make.", "Run just.")
    with pytest.raises(Fault) as caught:
        store.update(made.id, given(body="Run ninja."), 1)
    assert caught.value.data == {"current": 2}
    now = store.get(made.id)
    assert now is not None
    assert (now.revision, now.body, now.created_at) == (2, "Run just.", made.created_at)
    assert (store.folder / "revisions" / made.id / "1.md").exists()
    assert again(store).catalogue.facts[made.id] == now


def test_a_file_that_a_person_adds_is_completed(store: FactStore) -> None:
    store.create(given())
    path = store.view.directory / "wiki-page.md"
    path.write_text("---\ntype: reference\ndescription: the ops wiki\n---\nSee the wiki.\n", encoding="utf-8")
    store.view.refresh()
    added = store.catalogue.facts["wiki-page"]
    assert (added.name, added.scope, added.revision) == ("wiki-page", "global", 1)
    assert path.read_text(encoding="utf-8") == serialise(added)
    path.unlink()
    store.view.refresh()
    assert "wiki-page" not in store.catalogue.facts


THEIRS = "# why: see the wiki\nowner:\n  - ann\n  - bob\ntags: [a, b]\nnested:\n  type: not ours\n\n  x: 1\n"


def test_keys_and_comments_of_people_stay_through_every_write(store: FactStore) -> None:
    seed = store.create(given())
    path = store.view.directory / "mine.md"
    path.write_text(f"---\ntype: reference\ndescription: by hand\n{THEIRS}---\nBody\n")
    store.view.refresh()
    adopted = store.catalogue.facts["mine"]
    assert f"keywords: []\n{THEIRS}---\n\nBody\n" in path.read_text()
    assert again(store).catalogue.facts["mine"] == adopted
    store.update("mine", given(body="By a host."), 1)
    edit(store, "mine", "tags: [a, b]", "tags: [c]", age_s=5)
    edit(store, "mine", "By a host.", "By hand again.", age_s=5)
    edited = store.get("mine")
    assert edited is not None
    assert (edited.revision, edited.body) == (3, "By hand again.")
    theirs_now = THEIRS.replace("[a, b]", "[c]")
    assert theirs_now in path.read_text()
    revisions = {n: (store.folder / "revisions" / "mine" / f"{n}.md").read_text() for n in (1, 2)}
    assert all(THEIRS in text for text in revisions.values())
    other = again(store)
    other.update("mine", given(body="After a restart."), 3)
    assert theirs_now in path.read_text()
    other.archive("mine")
    assert theirs_now in (store.folder / "archive" / "mine.4.md").read_text()
    assert "owner" not in (store.view.directory / f"{seed.id}.md").read_text()


def test_a_line_that_would_spoil_the_file_is_not_kept(store: FactStore) -> None:
    store.create(given())
    path = store.view.directory / "mine.md"
    path.write_text("---\ntype: &kind reference\ndescription: by hand\nalso: *kind\n---\nBody\n")
    store.view.refresh()
    assert "also" not in path.read_text()
    assert again(store).catalogue.facts["mine"].description == "by hand"


def test_damage_is_reported_left_alone_and_mended_by_people(store: FactStore) -> None:
    good, bad = store.create(given(name="good")), store.create(given(name="bad"))
    edit(store, bad.id, "type: project", "type: rumour")
    (store.view.directory / "binary.md").write_bytes(b"\xff\xfe\x00")
    (store.view.directory / "folder.md").mkdir()
    (store.view.directory / "no id!.md").write_text(serialise(fact()), encoding="utf-8")
    (store.view.directory / "link.md").symlink_to(store.view.directory / f"{good.id}.md")
    store.view.refresh()
    assert set(store.catalogue.facts) == {good.id}
    assert set(store.view.problems) == {f"{bad.id}.md", "binary.md", "folder.md", "no id!.md", "link.md"}
    assert store.view.problems[f"{bad.id}.md"] == "type: must be one of user, feedback, project, reference"
    assert "rumour" in (store.view.directory / f"{bad.id}.md").read_text(encoding="utf-8")

    edit(store, bad.id, "type: rumour", "type: user")
    store.view.refresh()
    assert store.catalogue.facts[bad.id].revision == 2
    assert f"{bad.id}.md" not in store.view.problems


def test_unchanged_files_are_not_read_again(store: FactStore) -> None:
    made = store.create(given(body="old"))
    path = store.view.directory / f"{made.id}.md"
    os.utime(path, (1_000_000, 1_000_000))
    store.view.refresh()
    hidden = path.read_text(encoding="utf-8").replace("old", "new")
    with path.open("r+", encoding="utf-8") as file:
        file.write(hidden)
    os.utime(path, (1_000_000, 1_000_000))
    store.view.refresh()
    assert store.catalogue.facts[made.id].body == "old"
    os.utime(path, (1_000_001, 1_000_001))
    store.view.refresh()
    assert store.catalogue.facts[made.id].body == "new"


def test_a_quick_look_finds_all_that_is_new_and_every_edit_in_the_end(store: FactStore) -> None:
    count = 2 * LOOKS_PER_TURN + 10
    store.view.directory.mkdir(parents=True)
    for n in range(count):
        one = facts.created(f"f{n:04d}", given(name=f"n{n}", scope="global"), NOW)
        path = store.view.directory / f"{one.id}.md"
        path.write_text(serialise(one), encoding="utf-8")
        os.utime(path, (1_000_000, 1_000_000))
    os.utime(store.view.directory, (1_000_000, 1_000_000))
    store.view.refresh(quick=True)
    assert len(store.catalogue.facts) == count

    edit(store, f"f{count - 1:04d}", "Run make.", "Run just.", age_s=60)
    for _ in range(4):
        store.view.refresh(quick=True)
    assert store.catalogue.facts[f"f{count - 1:04d}"].body == "Run just."


def test_two_processes_see_each_others_writes_and_never_overwrite(store: FactStore) -> None:
    other = again(store)
    made = store.create(given())
    assert other.get(made.id) == made
    second = other.update(made.id, given(body="two"), 1)
    with pytest.raises(Fault, match="stale_revision"):
        store.update(made.id, given(body="three"), 1)
    assert store.get(made.id) == second


def test_a_failing_disk_is_a_fault_without_its_path(tmp_path: Path) -> None:
    (tmp_path / "global").write_text("no folder", encoding="utf-8")
    store = FactStore(tmp_path / "global", "global", StillClock())
    with pytest.raises(Fault) as caught:
        store.create(given())
    assert caught.value.reason == "store_write_failed"
    assert str(tmp_path) not in str(caught.value.as_error())


def test_a_project_folder_knows_its_workspace(tmp_path: Path) -> None:
    store = FactStore(tmp_path / "p", "project", StillClock(), root=tmp_path / "work")
    assert store.is_of(tmp_path / "work")
    store.create(given())
    assert store.is_of(tmp_path / "work")
    assert not store.is_of(tmp_path / "other")
    (store.folder / "root").write_text("/somewhere/else\n", encoding="utf-8")
    assert not store.is_of(tmp_path / "work")
