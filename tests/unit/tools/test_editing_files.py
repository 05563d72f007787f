"""`write_file` and `edit_file`: each rule of an exact edit, and what a file keeps."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import ClassVar

import anyio
import pytest

from sidecar.tools import files
from sidecar.tools.confine import Confinement
from sidecar.tools.files import Stop, Stopped
from sidecar.tools.refusal import Refused
from tests.support.tools import TOOLS, bad, call, context_in, good


async def test_an_edit_replaces_the_one_passage(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    return 1\n\ndef g():\n    return 2\n")
    context = context_in(tmp_path)
    outcome = await call(context, "edit_file", path="a.py", old_text="return 1", new_text="return 10")
    assert (tmp_path / "a.py").read_text() == "def f():\n    return 10\n\ndef g():\n    return 2\n"
    assert outcome.locations == (str(tmp_path / "a.py"),)
    assert outcome.diff == {
        "path": str(tmp_path / "a.py"),
        "old_text": "def f():\n    return 1\n\ndef g():\n    return 2\n",
        "new_text": "def f():\n    return 10\n\ndef g():\n    return 2\n",
    }
    assert outcome.content[0].text == "Edited a.py: 1 replacement (line 2)."  # type: ignore[union-attr]


async def test_a_passage_that_occurs_twice_is_refused_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x = 1\ny = 2\nx = 1\n")
    context = context_in(tmp_path)
    text = await bad(context, "edit_file", path="a", old_text="x = 1", new_text="x = 3")
    assert "occurs 2 times in `a` (lines 1, 3)" in text
    assert "replace_all" in text
    assert (tmp_path / "a").read_text() == "x = 1\ny = 2\nx = 1\n"
    assert await good(context, "edit_file", path="a", old_text="x = 1", new_text="z", replace_all=True) == (
        "Edited a: 2 replacements (lines 1, 3)."
    )
    assert (tmp_path / "a").read_text() == "z\ny = 2\nz\n"


async def test_overlapping_occurrences_are_not_unique(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("ababa")
    assert "occurs 2 times" in await bad(context_in(tmp_path), "edit_file", path="a", old_text="aba", new_text="x")


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("    return  2", "different white space"),
        ("1\tdef f():\n2\t    return 1", "numbers that are not in the file"),
        ("def f():\n    return 7", "Its first line stands on line 1"),
        ("nothing like it", "Read the file again"),
    ],
)
async def test_a_passage_that_is_not_there_comes_with_a_hint(tmp_path: Path, old: str, hint: str) -> None:
    (tmp_path / "a.py").write_text("def f():\n    return 1\n\treturn 2\n")
    text = await bad(context_in(tmp_path), "edit_file", path="a.py", old_text=old, new_text="x")
    assert "was not found in `a.py`" in text
    assert hint in text


async def test_empty_and_equal_texts_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    context = context_in(tmp_path)
    assert "`old_text` is empty" in await bad(context, "edit_file", path="a", old_text="", new_text="x")
    assert "nothing to change" in await bad(context, "edit_file", path="a", old_text="x", new_text="x")
    assert "There is no `b`" in await bad(context, "edit_file", path="b", old_text="x", new_text="y")


@pytest.mark.parametrize("bom", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
async def test_line_ends_and_bom_stay(tmp_path: Path, bom: bytes, end: str) -> None:
    (tmp_path / "a").write_bytes(bom + f"one{end}two{end}three".encode())
    await good(context_in(tmp_path), "edit_file", path="a", old_text="one\ntwo\n", new_text="1\n2\n2b\n")
    assert (tmp_path / "a").read_bytes() == bom + f"1{end}2{end}2b{end}three".encode()


@pytest.mark.parametrize(("codec", "bom"), [("utf-16-le", codecs.BOM_UTF16_LE), ("utf-16-be", codecs.BOM_UTF16_BE)])
async def test_utf16_stays(tmp_path: Path, codec: str, bom: bytes) -> None:
    (tmp_path / "a").write_bytes(bom + "größe\r\n漢字\r\n".encode(codec))
    context = context_in(tmp_path)
    await good(context, "edit_file", path="a", old_text="größe\n漢", new_text="size\n汉")
    assert (tmp_path / "a").read_bytes() == bom + "size\r\n汉字\r\n".encode(codec)
    for content in ("new\n", "\ufeffnew\n"):
        await good(context, "write_file", path="a", content=content)
        assert (tmp_path / "a").read_bytes() == bom + "new\r\n".encode(codec)


async def test_mixed_line_ends_are_matched_and_kept_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\r\nb\nc\r\nd\ne\r\n")
    await good(context_in(tmp_path), "edit_file", path="a", old_text="b\nc\nd", new_text="B\nC\nD")
    assert (tmp_path / "a").read_bytes() == b"a\r\nB\nC\nD\ne\r\n"


async def test_bytes_that_are_no_text_survive_an_edit_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"caf\xe9\nolder\n")
    await good(context_in(tmp_path), "edit_file", path="a", old_text="older", new_text="newer")
    assert (tmp_path / "a").read_bytes() == b"caf\xe9\nnewer\n"


async def test_mode_stays_and_new_files_get_the_usual_one(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("echo 1\n")
    (tmp_path / "run.sh").chmod(0o751)
    context = context_in(tmp_path)
    await good(context, "edit_file", path="run.sh", old_text="1", new_text="2")
    assert (tmp_path / "run.sh").stat().st_mode & 0o7777 == 0o751
    await good(context, "write_file", path="run.sh", content="echo 3\n")
    assert (tmp_path / "run.sh").stat().st_mode & 0o7777 == 0o751
    await good(context, "write_file", path="deep/er/new.txt", content="x")
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "deep/er/new.txt").stat().st_mode & 0o777 == 0o666 & ~umask


async def test_write_file_says_what_it_did(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    outcome = await call(context, "write_file", path="a.txt", content="one\ntwo")
    assert outcome.content[0].text == "Created a.txt (2 lines)."  # type: ignore[union-attr]
    assert outcome.diff == {"path": str(tmp_path / "a.txt"), "old_text": None, "new_text": "one\ntwo"}
    outcome = await call(context, "write_file", path="a.txt", content="three\n")
    assert outcome.content[0].text == "Replaced a.txt (1 line)."  # type: ignore[union-attr]
    assert outcome.diff == {"path": str(tmp_path / "a.txt"), "old_text": "one\ntwo", "new_text": "three\n"}


async def test_write_file_keeps_line_ends_that_are_all_alike(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    for before, content, after in (
        (b"a\r\nb\r\n", "x\ny\n", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "x\r\ny\n", b"x\r\ny\r\n"),
        (b"a\nb\n", "x\r\ny\r\n", b"x\r\ny\r\n"),
        (b"a\r\nb\n", "x\ny\n", b"x\ny\n"),
        (b"", "x\ny\n", b"x\ny\n"),
    ):
        (tmp_path / "a").write_bytes(before)
        await good(context, "write_file", path="a", content=content)
        assert (tmp_path / "a").read_bytes() == after


async def test_binary_files_are_neither_edited_nor_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\0\0data")
    context = context_in(tmp_path)
    assert "binary" in await bad(context, "edit_file", path="a.png", old_text="data", new_text="x")
    assert "binary" in await bad(context, "write_file", path="a.png", content="x")
    assert (tmp_path / "a.png").read_bytes() == b"\x89PNG\0\0data"


async def test_a_file_in_the_way_of_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    assert "`a` is not a directory" in await bad(context_in(tmp_path), "write_file", path="a/b.txt", content="x")


async def test_a_read_only_file_is_left_alone(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(0o444)
    assert "read-only" in await bad(context_in(tmp_path), "write_file", path="a", content="y")


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    place = Confinement.of(os.path.realpath(tmp_path))
    path = place.resolve("a")
    (tmp_path / "a").write_text("one")
    before = files.snapshot(place, path)
    (tmp_path / "a").write_text("someone else's")
    with pytest.raises(Refused, match="changed by something else"):
        files.replace(place, path, b"mine", before, Stop())
    with pytest.raises(Refused, match="changed by something else"):
        files.replace(place, path, b"mine", None, Stop())
    assert (tmp_path / "a").read_text() == "someone else's"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_work_that_nobody_waits_for_changes_nothing(tmp_path: Path) -> None:
    place = Confinement.of(os.path.realpath(tmp_path))
    stop = Stop()
    stop.set()
    with pytest.raises(Stopped):
        files.replace(place, place.resolve("a"), b"mine", None, stop)
    assert list(tmp_path.iterdir()) == []


async def test_readers_see_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    one, two = "1" * 300_000, "2" * 300_000
    (tmp_path / "a").write_text(one)
    context = context_in(tmp_path)
    seen: set[str] = set()

    async def look() -> None:
        while True:
            seen.add(await anyio.to_thread.run_sync((tmp_path / "a").read_text))

    async with anyio.create_task_group() as group:
        group.start_soon(look)
        for i in range(20):
            await good(context, "write_file", path="a", content=two if i % 2 == 0 else one)
        group.cancel_scope.cancel()
    assert seen <= {one, two}


async def test_an_editor_writes_what_it_has_open(tmp_path: Path) -> None:
    class Editor:
        def __init__(self) -> None:
            self.texts = {"open.txt": "unsaved one\r\n"}

        async def read_text(self, path: Path) -> str | None:
            return self.texts.get(path.name)

        async def write_text(self, path: Path, text: str) -> bool:
            if path.name in self.texts:
                self.texts[path.name] = text
            return path.name in self.texts

    (tmp_path / "open.txt").write_text("saved\n")
    (tmp_path / "other.txt").write_text("one\n")
    editor = Editor()
    context = context_in(tmp_path, files=editor)
    await good(context, "edit_file", path="open.txt", old_text="one\n", new_text="two\n")
    assert editor.texts["open.txt"] == "unsaved two\r\n"
    assert (tmp_path / "open.txt").read_text() == "saved\n"
    await good(context, "edit_file", path="other.txt", old_text="one", new_text="two")
    assert (tmp_path / "other.txt").read_text() == "two\n"


async def test_what_an_editor_writes_keeps_the_line_ends_too(tmp_path: Path) -> None:
    class Editor:
        written: ClassVar[list[str]] = []

        async def read_text(self, path: Path) -> str | None:
            return "unsaved\r\n" if path.name == "open.txt" else None

        async def write_text(self, path: Path, text: str) -> bool:
            self.written.append(text)
            return True

    (tmp_path / "closed.txt").write_bytes(b"saved\r\n")
    context = context_in(tmp_path, files=Editor())
    for name in ("open.txt", "closed.txt", "new.txt"):
        await good(context, "write_file", path=name, content="one\ntwo\n")
    assert Editor.written == ["one\r\ntwo\r\n", "one\r\ntwo\r\n", "one\ntwo\n"]


async def test_a_preview_shows_what_would_change_in_the_editor(tmp_path: Path) -> None:
    class Editor:
        async def read_text(self, path: Path) -> str | None:
            return "unsaved one\n"

        async def write_text(self, path: Path, text: str) -> bool:
            return True

    (tmp_path / "a").write_text("saved\n")
    context = context_in(tmp_path, files=Editor())
    for name, more in (
        ("edit_file", {"old_text": "one", "new_text": "two"}),
        ("write_file", {"content": "unsaved two\n"}),
    ):
        preview = TOOLS[name].preview
        assert preview is not None
        shown = await preview(context, {"path": "a", **more}) or ""
        assert "-unsaved one\n+unsaved two" in shown, shown


async def test_an_editor_is_not_asked_for_what_is_no_text(tmp_path: Path) -> None:
    class Editor:
        async def read_text(self, path: Path) -> str | None:
            raise AssertionError(path)

        async def write_text(self, path: Path, text: str) -> bool:
            raise AssertionError(path)

    (tmp_path / "binary").write_bytes(b"\0\1\2" * 100)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    context = context_in(tmp_path, files=Editor())
    for path, why in (("binary", "is a binary file"), ("fifo", "is a fifo"), ("folder", "is a directory")):
        assert why in await bad(context, "read_file", path=path)
        assert why in await bad(context, "write_file", path=path, content="x")
        assert why in await bad(context, "edit_file", path=path, old_text="a", new_text="b")


async def test_previews_show_what_would_change(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    context = context_in(tmp_path)
    preview = TOOLS["edit_file"].preview
    assert preview is not None
    shown = await preview(context, {"path": "a", "old_text": "two", "new_text": "three"})
    assert shown is not None
    assert "-two\n+three" in shown
    assert await preview(context, {"path": "../a", "old_text": "two", "new_text": "three"}) is not None
    preview = TOOLS["write_file"].preview
    assert preview is not None
    shown = await preview(context, {"path": "new", "content": "x\n"})
    assert shown is not None
    assert "+x" in shown
    assert (tmp_path / "a").read_text() == "one\ntwo\n"
