"""`read_file` and `list_dir`: ranges, encodings, what is refused, what is huge."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

import pytest

from sidecar.settings import ToolSettings
from sidecar.tools.reading import slice_text
from tests.support.tools import bad, call, context_in, good, text_of


async def test_a_small_file_comes_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("one\n\n  two ÄÖ 漢字\n".encode())
    assert await good(context_in(tmp_path), "read_file", path="a.txt") == "one\n\n  two ÄÖ 漢字\n"
    assert await good(context_in(tmp_path), "read_file", path=str(tmp_path / "a.txt")) == "one\n\n  two ÄÖ 漢字\n"


async def test_ranges_say_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {i}\n" for i in range(1, 11)))
    context = context_in(tmp_path)
    assert await good(context, "read_file", path="a.txt", offset=3, limit=2) == (
        "line 3\nline 4\n[lines 3 to 4 of 10; continue with offset 5]"
    )
    assert (await good(context, "read_file", path="a.txt", offset=9)).endswith(
        "line 10\n[lines 9 to 10 of 10; the end of the file]"
    )
    assert "only 10 lines" in await bad(context, "read_file", path="a.txt", offset=11)
    assert "`offset`: must be at least 1" in await bad(context, "read_file", path="a.txt", offset=0)


async def test_a_whole_number_may_have_a_fraction_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3\n")
    context = context_in(tmp_path)
    text = await good(context, "read_file", path="a", offset=2.0, limit=1.0)
    assert text == "2\n[lines 2 to 2 of 3; continue with offset 3]"
    assert "past its end" in await bad(context, "read_file", path="a", offset=1e20)


async def test_a_last_line_without_an_end_counts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb")
    assert await good(context_in(tmp_path), "read_file", path="a.txt") == "a\nb"
    assert await good(context_in(tmp_path), "read_file", path="a.txt", offset=2) == (
        "b\n[lines 2 to 2 of 2; the end of the file]"
    )


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (codecs.BOM_UTF8 + b"a\nb\n", "UTF-8 with BOM, LF"),
        (codecs.BOM_UTF16_LE + "a\nb\n".encode("utf-16-le"), "UTF-16 LE, LF"),
        (codecs.BOM_UTF16_BE + "a\r\nb\r\n".encode("utf-16-be"), "UTF-16 BE, CRLF"),
        (b"a\r\nb\r\n", "UTF-8, CRLF"),
        (b"a\rb\r", "UTF-8, CR"),
    ],
)
async def test_encodings_and_line_ends_are_text_and_named(tmp_path: Path, data: bytes, note: str) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    text = await good(context_in(tmp_path), "read_file", path="a.txt")
    assert text.replace("\r", "\n").startswith("a\nb\n[")
    assert note in text


async def test_binary_is_refused_and_odd_bytes_are_shown(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "b.bin").write_bytes(codecs.BOM_UTF32_LE + "a".encode("utf-32-le"))
    (tmp_path / "latin").write_bytes("caf\xe9 au lait\n".encode("latin-1"))
    context = context_in(tmp_path)
    assert "binary file" in await bad(context, "read_file", path="a.bin")
    assert "binary file" in await bad(context, "read_file", path="b.bin")
    assert await good(context, "read_file", path="latin") == (
        "caf\ufffd au lait\n[bytes that are no text are shown as \ufffd]"
    )


async def test_nothing_and_white_space_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "blank").write_text("\n\n")
    context = context_in(tmp_path)
    assert await good(context, "read_file", path="empty") == "[empty is empty]"
    assert await good(context, "read_file", path="blank") == "\n\n[nothing but white space]"


async def test_a_missing_file_names_those_like_it(tmp_path: Path) -> None:
    (tmp_path / "main.py").touch()
    context = context_in(tmp_path)
    assert await bad(context, "read_file", path="mian.py") == "There is no `mian.py`. Did you mean `main.py`?"
    assert "nor a directory `src`" in await bad(context, "read_file", path="src/main.py")
    assert "not a directory" in await bad(context, "list_dir", path="main.py")


async def test_a_huge_file_is_read_in_ranges_without_being_loaded(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    size = 3 << 30
    with path.open("wb") as file:
        file.write(b"first\nsecond\n" + b"x" * 20_000 + b"\n")
        file.truncate(size)
    context = context_in(tmp_path)
    text = await good(context, "read_file", path="huge", limit=2)
    assert text == "first\nsecond\n[lines 1 to 2; continue with offset 3]"


async def test_a_result_stays_below_the_spill_limit(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{i:05} {'x' * 90}\n" for i in range(5000)))
    (tmp_path / "long").write_text("y" * 200_000 + "\nlast\n")
    settings = ToolSettings(spill_bytes=20_000)
    context = context_in(tmp_path, settings=settings)
    text = await good(context, "read_file", path="a.txt")
    assert 18_000 < len(text.encode()) <= 20_000
    assert text.splitlines()[-1] == "[lines 1 to 195 of 5,000; continue with offset 196]"
    text = await good(context, "read_file", path="long")
    assert len(text.encode()) <= 20_000
    assert "line 1 is too long and was cut here" in text
    assert "last" in await good(context, "read_file", path="long", offset=2)


def test_slices_agree_with_the_lines_of_the_text() -> None:
    text = "a\nbb\r\n\nccc"
    lines = ["a\n", "bb\n", "\n", "ccc"]
    for first in range(1, 5):
        for count in range(1, 5):
            part = slice_text(text, first=first, count=count, budget=1000)
            assert part.text == "".join(lines[first - 1 : first - 1 + count])
            assert (part.first, part.total) == (first, 4)
            assert part.is_whole == (first == 1 and count >= 4)


async def test_a_file_without_permission_says_so(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(0)
    assert "permission denied" in await bad(context_in(tmp_path), "read_file", path="a")


async def test_the_text_of_an_editor_comes_before_the_disk(tmp_path: Path) -> None:
    class Editor:
        async def read_text(self, path: Path) -> str | None:
            return "unsaved\n" if path.name == "open.txt" else None

        async def write_text(self, path: Path, text: str) -> bool:
            return False

    (tmp_path / "open.txt").write_text("saved\n")
    (tmp_path / "other.txt").write_text("saved\n")
    context = context_in(tmp_path, files=Editor())
    assert await good(context, "read_file", path="open.txt") == "unsaved\n"
    assert await good(context, "read_file", path="other.txt") == "saved\n"
    assert "outside" in await bad(context, "read_file", path="../open.txt")


async def test_a_directory_is_listed_in_order(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a.txt").write_text("12345")
    (tmp_path / "one").write_text("1")
    (tmp_path / ".hidden").touch()
    (tmp_path / "link").symlink_to("a.txt")
    (tmp_path / "new\nline").touch()
    os.mkfifo(tmp_path / "pipe")
    assert await good(context_in(tmp_path), "list_dir") == "\n".join(
        (
            ".hidden (0 bytes)",
            "a.txt (5 bytes)",
            "b/",
            "link -> a.txt",
            "new\\x0aline (0 bytes)",
            "one (1 byte)",
            "pipe (a fifo)",
        )
    )
    assert await good(context_in(tmp_path), "list_dir", path="b") == "[b is an empty directory]"


async def test_a_large_directory_is_bounded(tmp_path: Path) -> None:
    for i in range(1010):
        (tmp_path / f"{i:04}").touch()
    lines = (await good(context_in(tmp_path), "list_dir")).splitlines()
    assert len(lines) == 1001
    assert lines[-1] == "[10 more entries; use glob to narrow it down]"


async def test_names_that_are_no_text_break_nothing(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.txt"))).write_text("needle\n")
    context = context_in(tmp_path)
    assert await good(context, "list_dir") == "bad\\xff.txt (7 bytes)"
    assert await good(context, "glob", pattern="*") == "bad\\xff.txt"
    assert await good(context, "grep", pattern="needle") == "bad\\xff.txt:1:needle"
    outcome = await call(context, "read_file", path="bad\udcff.txt")
    assert text_of(outcome) == "needle\n"
    outcome.locations[0].encode()


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs Linux's /proc")
async def test_a_file_that_cannot_be_read_says_why() -> None:
    context = context_in(Path("/proc"))
    for name in ("read_file", "grep"):
        more = {"pattern": "x"} if name == "grep" else {}
        assert "`self/mem`: " in (await bad(context, name, path="self/mem", **more)).replace(str(os.getpid()), "self")
