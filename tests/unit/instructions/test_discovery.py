"""Which files are read, in what order, and what is refused."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from sidecar.instructions.discovery import MAX_FILE_BYTES, MAX_TOTAL_CHARS, Watched, load
from sidecar.instructions.standing import Standing
from sidecar.workspace import workspace_root


@dataclass
class Tree:
    base: Path

    def __post_init__(self) -> None:
        self.home = self.base / "home"
        self.root = self.base / "work"
        self.cwd = self.root / "a" / "b"
        (self.root / ".git").mkdir(parents=True)
        self.cwd.mkdir(parents=True)
        self.home.mkdir()

    def write(self, path: str, text: str) -> Path:
        file = self.base / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def load(self, cwd: Path | None = None) -> Standing:
        return load(cwd or self.cwd, self.home)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_without_files_there_is_no_text(tree: Tree) -> None:
    assert tree.load() == Standing("", {}, ())


def test_home_then_root_down_to_cwd_with_the_local_files_last(tree: Tree) -> None:
    for place in ("work/a/b", "home", "work", "work/a", "", "work/elsewhere"):
        for name in ("CLAUDE.local.md", "AGENTS.md", "AGENTS.local.md", "CLAUDE.md"):
            tree.write(f"{place}/{name}", f"{place} {name}")
    names = ["AGENTS.md", "CLAUDE.md", "AGENTS.local.md", "CLAUDE.local.md"]
    standing = tree.load()
    assert list(standing.files) == [f"{place}{name}" for place in ("~/", "", "a/", "a/b/") for name in names]
    assert (
        standing.text.index("home AGENTS.md") < standing.text.index("work AGENTS.md") < standing.text.index("work/a/b")
    )
    assert standing.notices == ()


def test_a_workspace_without_git_is_the_directory_itself(tree: Tree) -> None:
    (tree.base / "plain" / "sub").mkdir(parents=True)
    tree.write("plain/AGENTS.md", "above")
    tree.write("plain/sub/AGENTS.md", "here")
    assert tree.load(tree.base / "plain" / "sub").files == {"AGENTS.md": "here"}


def test_a_worktree_has_git_as_a_file(tree: Tree) -> None:
    tree.write("tree/.git", "gitdir: elsewhere")
    (tree.base / "tree" / "sub").mkdir()
    assert workspace_root(tree.base / "tree" / "sub") == (tree.base / "tree").resolve()


def test_equal_text_stands_once_where_it_is_last(tree: Tree) -> None:
    tree.write("home/AGENTS.md", "same\n")
    tree.write("work/AGENTS.md", "other")
    tree.write("work/CLAUDE.md", "\nsame")
    standing = tree.load()
    assert standing.files == {"AGENTS.md": "other", "CLAUDE.md": "same"}
    assert standing.text.count("same") == 1


def test_the_bytes_do_not_depend_on_where_the_tree_is(tmp_path: Path) -> None:
    texts = set()
    for name in ("one", "another"):
        tree = Tree(tmp_path / name)
        tree.write("home/AGENTS.md", "at home")
        tree.write("work/AGENTS.md", "see @docs/style.md")
        tree.write("work/docs/style.md", "style\r\nguide\n")
        texts.add(tree.load().text)
    assert len(texts) == 1


# ---------------------------------------------------------------- imports


def test_imports_stand_before_the_file_that_imports_them(tree: Tree) -> None:
    tree.write("work/AGENTS.md", "rules: @docs/a.md and @docs/b.md")
    tree.write("work/docs/a.md", "a needs @c.md")
    tree.write("work/docs/b.md", "b")
    tree.write("work/docs/c.md", "c")
    assert list(tree.load().files) == ["docs/c.md", "docs/a.md", "docs/b.md", "AGENTS.md"]


def test_an_import_of_a_file_that_is_found_anyway_adds_nothing(tree: Tree) -> None:
    tree.write("work/AGENTS.md", "the rules")
    tree.write("work/CLAUDE.md", "@AGENTS.md")
    standing = tree.load()
    assert list(standing.files) == ["AGENTS.md", "CLAUDE.md"]
    assert standing.text.count("the rules") == 1


def test_five_levels_of_imports_and_no_more(tree: Tree) -> None:
    tree.write("work/AGENTS.md", "level 0 @l1.md")
    for n in range(1, 8):
        tree.write(f"work/l{n}.md", f"level {n} @l{n + 1}.md")
    standing = tree.load()
    assert list(standing.files) == ["l5.md", "l4.md", "l3.md", "l2.md", "l1.md", "AGENTS.md"]
    assert standing.notices == ("l5.md: @l6.md: is deeper than 5 levels of imports",)


def test_a_file_met_deep_first_is_followed_when_it_is_met_higher(tree: Tree) -> None:
    tree.write("work/AGENTS.md", "@l1.md then @l5.md")
    for n in range(1, 6):
        tree.write(f"work/l{n}.md", f"level {n} @l{n + 1}.md")
    tree.write("work/l6.md", "level 6")
    assert "l6.md" in tree.load().files


def test_circles_end_with_a_notice(tree: Tree) -> None:
    tree.write("work/AGENTS.md", "@b.md")
    tree.write("work/b.md", "@AGENTS.md @b.md")
    standing = tree.load()
    assert list(standing.files) == ["b.md", "AGENTS.md"]
    assert standing.notices == (
        "AGENTS.md: is imported in a circle, by b.md",
        "b.md: is imported in a circle, by b.md",
    )


def test_many_ways_to_the_same_files_cost_no_more_than_one(tree: Tree) -> None:
    for n in range(6):
        tree.write(f"work/l{n}.md", " ".join(f"@l{n + 1}.md @x{n}_{k}.md" for k in range(8)))
        for k in range(8):
            tree.write(f"work/x{n}_{k}.md", f"@l{n + 1}.md {n} {k}")
    tree.write("work/AGENTS.md", "@l0.md")
    assert "l0.md" in tree.load().files


@pytest.mark.parametrize(
    ("target", "notice"),
    [
        ("missing.md", "there is no such file"),
        ("/etc/hosts.txt", "an import is relative to the file that it stands in"),
        ("~/x.md", "an import is relative to the file that it stands in"),
    ],
)
def test_what_cannot_be_imported_is_a_notice(tree: Tree, target: str, notice: str) -> None:
    tree.write("work/AGENTS.md", f"@{target}")
    assert tree.load().notices == (f"AGENTS.md: @{target}: {notice}",)


def test_mentions_that_are_no_files_are_left_alone(tree: Tree) -> None:
    (tree.root / "docs").mkdir()
    tree.write("work/AGENTS.md", "ask @alice about @types/node and @docs")
    assert tree.load().notices == ()


# ---------------------------------------------------------------- confinement


def test_an_import_after_many_mentions_is_followed(tree: Tree) -> None:
    tree.write("work/style.md", "STYLE")
    tree.write("work/AGENTS.md", " ".join(f"@person{n}" for n in range(900)) + "\n@style.md\n")
    found = tree.load()
    assert "STYLE" in found.text
    assert found.notices == ()
    tree.write("work/AGENTS.md", " ".join(f"@person{n}" for n in range(1_000)) + "\n@style.md\n")
    found = tree.load()
    assert "STYLE" not in found.text
    assert found.notices == ("AGENTS.md: only its first 1000 imports are followed",)


def test_nothing_outside_the_workspace_is_read_by_any_way(tree: Tree) -> None:
    tree.write("secret.md", "outside")
    tree.write("work-secret/s.md", "a neighbour with the same beginning")
    (tree.root / "link.md").symlink_to(tree.base / "secret.md")
    (tree.root / "folder").symlink_to(tree.base)
    (tree.root / "CLAUDE.md").symlink_to(tree.base / "secret.md")
    tree.write("work/AGENTS.md", "@../secret.md @link.md @folder/secret.md @../work-secret/s.md")
    standing = tree.load()
    assert list(standing.files) == ["AGENTS.md"]
    assert "outside" not in standing.text.replace("lies outside", "")
    assert sum("lies outside of the workspace" in n for n in standing.notices) == 5
    assert str(tree.base) not in "".join(standing.notices)


def test_home_files_reach_their_own_folder_and_not_the_workspace(tree: Tree) -> None:
    tree.write("home/AGENTS.md", "@more.md @../work/w.md")
    tree.write("home/more.md", "more")
    tree.write("work/w.md", "work")
    standing = tree.load()
    assert list(standing.files) == ["~/more.md", "~/AGENTS.md"]
    assert len(standing.notices) == 1
    assert "lies outside of the home directory" in standing.notices[0]


def test_links_inside_the_workspace_are_followed(tree: Tree) -> None:
    tree.write("work/AGENTS.md", "rules")
    (tree.root / "CLAUDE.md").symlink_to("AGENTS.md")
    tree.write("work/a/real.md", "real @near.md")
    tree.write("work/a/near.md", "near")
    (tree.cwd / "AGENTS.md").symlink_to("../real.md")
    assert tree.load().files == {"CLAUDE.md": "rules", "a/near.md": "near", "a/b/AGENTS.md": "real @near.md"}


# ---------------------------------------------------------------- sizes and damage


def test_large_files_are_cut_at_a_line_and_say_so(tree: Tree) -> None:
    tree.write("work/AGENTS.md", "line\n" * (MAX_FILE_BYTES // 5 + 100))
    standing = tree.load()
    assert len(standing.files["AGENTS.md"]) <= MAX_FILE_BYTES
    assert standing.files["AGENTS.md"].endswith("line")
    assert standing.notices == ("AGENTS.md: cut, only the first 64 KiB of a file are read",)


def test_all_together_are_bounded_and_the_nearest_stay(tree: Tree) -> None:
    tree.write("home/AGENTS.md", "from home")
    for n in range(6):
        tree.write(f"work/f{n}.md", f"{n}" * (MAX_FILE_BYTES - 10))
    tree.write("work/AGENTS.md", " ".join(f"@f{n}.md" for n in range(6)))
    tree.write("work/a/b/AGENTS.md", "nearest")
    standing = tree.load()
    assert len(standing.text) < MAX_TOTAL_CHARS + 4_000
    assert {"a/b/AGENTS.md", "AGENTS.md", "f5.md"} <= standing.files.keys()
    assert "f0.md" not in standing.files
    assert any(n.startswith("f0.md: left out") for n in standing.notices)


def test_what_is_no_text_is_a_notice_and_never_an_error(tree: Tree) -> None:
    (tree.root / "AGENTS.md").write_bytes(b"\x00\x01")
    (tree.root / "CLAUDE.md").mkdir()
    (tree.root / "AGENTS.local.md").write_bytes(b"\xef\xbb\xbfgood \xff bad")
    (tree.root / "CLAUDE.local.md").symlink_to("nowhere")
    os.mkfifo(tree.cwd / "AGENTS.md")
    standing = tree.load()
    assert standing.files == {"AGENTS.local.md": "good \ufffd bad"}
    assert standing.notices == (
        "AGENTS.md: is no text file",
        "CLAUDE.md: is no regular file",
        "AGENTS.local.md: has bytes that are no UTF-8",
        "CLAUDE.local.md: is a link that leads nowhere",
        "a/b/AGENTS.md: is no regular file",
    )


def test_watched_instructions_are_read_again_only_when_a_file_may_have_changed(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (work / "AGENTS.md").write_text("one @more.md @later.md\n")
    (work / "more.md").write_text("two\n")
    past = 1_600_000_000
    for path in (work / "AGENTS.md", work / "more.md"):
        os.utime(path, (past, past))
    watched = Watched(work, home)
    assert watched.load().text == load(work, home).text
    # What changed just now is not trusted to stay, whatever its mtime says.
    (work / "more.md").write_text("new\n")
    os.utime(work / "more.md", (past, past))
    assert watched.load().text == load(work, home).text
    for name, text in (("later.md", "three"), ("CLAUDE.md", "four")):
        (work / name).write_text(text)
        assert text in watched.load().text
    (work / "CLAUDE.md").unlink()
    (home / "AGENTS.md").write_text("five")
    assert watched.load().text == load(work, home).text
    assert "five" in watched.load().text
