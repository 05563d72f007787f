"""Where skills are found, which of two holds, and that links end."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from sidecar.skills.discovery import MAX_SKILL_BYTES, Catalog, discover


@dataclass
class Tree:
    base: Path

    def __post_init__(self) -> None:
        self.home = self.base / "home"
        self.root = self.base / "work"
        self.cwd = self.root / "sub"
        (self.root / ".git").mkdir(parents=True)
        self.cwd.mkdir()
        self.home.mkdir()

    def skill(self, path: str, description: str = "d", header: str = "") -> Path:
        file = self.base / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"---\ndescription: {description}\n{header}---\nbody of {path}\n", encoding="utf-8")
        return file

    def discover(self) -> Catalog:
        return discover(self.cwd, self.home)

    def names(self) -> list[str]:
        return [skill.name for skill in self.discover().skills]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_nothing_there(tree: Tree) -> None:
    assert tree.discover() == Catalog()


def test_every_root_in_the_project_and_at_home(tree: Tree) -> None:
    for place in ("work", "home", "work/sub"):
        for root in (".sidecar", ".agents", ".agent", ".claude"):
            tree.skill(f"{place}/{root}/skills/{place.replace('/', '_')}{root}/SKILL.md")
    tree.skill("work/.other/skills/no/SKILL.md")
    tree.skill("outside/.claude/skills/no/SKILL.md")
    catalog = tree.discover()
    assert catalog.problems == ()
    assert [(s.name, s.source) for s in catalog.skills] == [
        (f"{place}{root}", source)
        for source, places in (("project", ("work", "work_sub")), ("home", ("home",)))
        for place in places
        for root in (".agent", ".agents", ".claude", ".sidecar")
    ]


def test_the_project_wins_over_home_and_the_roots_in_their_order(tree: Tree) -> None:
    tree.skill("home/.sidecar/skills/review/SKILL.md", "at home")
    tree.skill("work/.claude/skills/review/SKILL.md", "last root")
    tree.skill("work/.agents/skills/review/SKILL.md", "earlier root")
    (found,) = tree.discover().skills
    assert (found.description, found.source, found.label) == (
        "earlier root", "project", ".agents/skills/review/SKILL.md"
    )  # fmt: skip
    tree.skill("work/sub/.claude/skills/review/SKILL.md", "nearest")
    assert tree.discover().skills[0].description == "nearest"


def test_flat_files_only_with_front_matter_and_only_at_the_top(tree: Tree) -> None:
    tree.skill("work/.claude/skills/flat.md")
    (tree.root / ".claude/skills/README.md").write_text("# not a skill", encoding="utf-8")
    tree.skill("work/.claude/skills/review/SKILL.md")
    tree.skill("work/.claude/skills/review/reference.md")
    tree.skill("work/.claude/skills/group/deep/SKILL.md")
    tree.skill("work/.claude/skills/group/loose.md")
    assert tree.names() == ["deep", "flat", "review"]
    assert tree.discover().problems == ()


def test_links_are_followed_once_and_circles_end(tree: Tree) -> None:
    real = tree.skill("elsewhere/review/SKILL.md").parent
    skills = tree.root / ".claude" / "skills"
    skills.mkdir(parents=True)
    (skills / "linked").symlink_to(real)
    (skills / "linked-again").symlink_to(real)
    (skills / "circle").symlink_to(skills)
    (skills / "up").symlink_to(tree.root)
    (skills / "self").symlink_to("self")
    (skills / "broken.md").symlink_to("nowhere.md")
    (tree.home / ".claude").symlink_to(tree.root / ".claude")
    catalog = tree.discover()
    assert [(s.name, s.source) for s in catalog.skills] == [("linked", "project")]
    assert catalog.skills[0].directory == real.resolve()
    assert [(p.path, p.message) for p in catalog.problems] == [
        (".claude/skills/broken.md", "is a link that leads nowhere"),
        (".claude/skills/self", "is a link that leads nowhere"),
    ]


def test_problems_are_listed_and_harm_no_other_skill(tree: Tree) -> None:
    skills = tree.root / ".sidecar" / "skills"
    tree.skill("work/.sidecar/skills/good/SKILL.md")
    tree.skill("work/.sidecar/skills/colon/SKILL.md", "Use when: always")
    for name, data in (("bytes", b"\xff\xfe"), ("large", b"x" * (MAX_SKILL_BYTES + 1)), ("bare", b"# no header")):
        (skills / name).mkdir()
        (skills / name / "SKILL.md").write_bytes(data)
    tree.skill("work/.sidecar/skills/model/SKILL.md", header="model: opus\n")
    os.mkfifo(skills / "pipe.md")
    catalog = tree.discover()
    assert [s.name for s in catalog.skills] == ["good", "model"]
    assert [p.path.split("/")[2] for p in catalog.problems] == ["bare", "bytes", "colon", "large", "model", "pipe.md"]
    assert all(str(tree.base) not in p.path + p.message for p in catalog.problems)


def test_an_edit_is_seen_at_the_next_look(tree: Tree) -> None:
    tree.skill("work/.sidecar/skills/review/SKILL.md", "before")
    assert tree.discover().skills[0].description == "before"
    tree.skill("work/.sidecar/skills/review/SKILL.md", "after")
    found = tree.discover().get("review")
    assert found is not None
    assert found.description == "after"
    assert tree.discover().get("nobody") is None
