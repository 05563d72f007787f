"""Which tools a session offers, which calls run at once, and what happens to long results."""

from __future__ import annotations

import hashlib

import pytest

from protocol.messages import ImagePart, TextPart, ToolSpec
from sidecar.tools.port import HostTool, Tool, ToolContext, ToolOutcome
from sidecar.tools.registry import ToolSet, builtin_names, builtin_tools
from sidecar.tools.scheduling import Planned, stages
from sidecar.tools.spill import blob_of, spill
from sidecar.tools.text import around, clean, clip, printable

READ = ("glob", "grep", "list_dir", "read_file", "record_read", "record_search", "todo_write")


def named(name: str) -> Tool:
    async def run(context: ToolContext, arguments: dict[str, object]) -> ToolOutcome:
        return ToolOutcome.text(name)

    return Tool(ToolSpec(name=name, parameters={}), run)


def names(tools: ToolSet) -> tuple[str, ...]:
    return tuple(spec.name for spec in tools.specs())


@pytest.mark.parametrize(
    ("word", "offered"),
    [
        ("none", ()),
        ("read", READ),
        ("edit", (*READ, "edit_file", "write_file")),
        ("all", (*READ, "edit_file", "run_command", "write_file")),
    ],
)
def test_sets(word: str, offered: tuple[str, ...]) -> None:
    assert names(ToolSet.of(builtin=word)) == tuple(sorted(offered))  # type: ignore[arg-type]


def test_tools_of_other_packages_come_with_their_set() -> None:
    extra = [named(n) for n in ("remember", "recall", "run_skill", "read_skill", "something_else")]
    assert set(names(ToolSet.of(builtin="none", extra=extra))) == {"something_else"}
    assert set(names(ToolSet.of(builtin="read", extra=extra))) == {*READ, "recall", "read_skill", "something_else"}
    assert set(names(ToolSet.of(builtin="edit", extra=extra))) == {
        *READ, "edit_file", "write_file", "recall", "read_skill", "something_else",
    }  # fmt: skip
    everything = set(names(ToolSet.of(builtin="all", extra=extra)))
    assert everything == {*builtin_names("all"), "something_else"}


def test_side_effects_are_those_of_the_three() -> None:
    assert {t.spec.name for t in builtin_tools() if t.side_effects} == {"write_file", "edit_file", "run_command"}
    assert {t.spec.name for t in builtin_tools() if t.is_edit} == {"write_file", "edit_file"}


def test_order_and_collisions() -> None:
    host = [ToolSpec(name="zeta", parameters={"x": 1}), ToolSpec(name="read_file", parameters={"host": True})]
    tools = ToolSet.of(builtin="read", host=host, mcp=[named("mcp__a__b"), named("glob")])
    assert list(names(tools)) == sorted({*READ, "zeta", "mcp__a__b"})
    assert isinstance(tools.get("read_file"), HostTool)
    assert tools.get("read_file").spec.parameters == {"host": True}  # type: ignore[union-attr]
    glob = tools.get("glob")
    assert isinstance(glob, Tool)
    assert glob.spec.description
    assert tools.get("nothing") is None
    assert "read_file" not in tools.own_names()
    assert "mcp__a__b" in tools.own_names()
    assert "Did you mean `glob`" in tools.unknown("globb")
    assert ToolSet(()).unknown("x") == "There is no tool `x`. The tools are: none."


def test_record_access_can_be_joined_and_refused() -> None:
    assert names(ToolSet.of(joined=("record_read", "record_search"))) == ("record_read", "record_search")
    assert names(ToolSet.of(joined=("record_read",), record_access=False)) == ()
    assert "record_read" not in names(ToolSet.of(builtin="all", record_access=False))


# ---------------------------------------------------------------- scheduling


def reads(key: str | None = None) -> Planned:
    return Planned(False, key)


def writes(key: str | None = None) -> Planned:
    return Planned(True, key)


HOST = Planned(free=True)


@pytest.mark.parametrize(
    ("calls", "groups"),
    [
        ([], []),
        ([reads("/a"), reads("/a"), reads("/b"), HOST], [[0, 1, 2, 3]]),
        ([HOST, HOST, HOST], [[0, 1, 2]]),
        ([writes("/a"), writes("/b"), writes("/c")], [[0], [1], [2]]),
        ([writes("/a"), reads("/a"), reads("/b")], [[0, 2], [1]]),
        ([reads("/a"), writes("/a"), reads("/b")], [[0, 2], [1]]),
        ([reads("/w"), writes("/w/src/a"), reads("/w/src")], [[0], [1], [2]]),
        ([writes("/w/a"), reads("/w/ab")], [[0, 1]]),
        ([writes("/"), reads("/w/a"), writes("/w/b")], [[0], [1, 2]]),
        ([reads("todos"), reads("todos"), reads("memory")], [[0, 2], [1]]),
        ([writes(None), reads("/a"), writes(None)], [[0, 1], [2]]),
        ([HOST, writes("/a"), HOST, writes("/a")], [[0, 1, 2], [3]]),
    ],
)
def test_stages(calls: list[Planned], groups: list[list[int]]) -> None:
    assert stages(calls) == groups


# ---------------------------------------------------------------- long results


def test_a_short_result_stays() -> None:
    assert spill((TextPart("x" * 50_000),), tool="t", line=7, spill_bytes=50_000) is None


def test_a_long_result_keeps_its_ends_and_says_where_the_rest_is() -> None:
    text = "".join(f"{i:07}\n" for i in range(10_000))
    image = ImagePart("image/png", data="AA==")
    spilled = spill((TextPart(text), image), tool="run_command", line=120, spill_bytes=50_000)
    assert spilled is not None
    assert spilled.stored == text.encode()
    assert spilled.blob == hashlib.sha256(spilled.stored).hexdigest()
    kept = spilled.content[0]
    assert isinstance(kept, TextPart)
    assert spilled.content[1] == image
    assert kept.text.startswith("0000000\n0000001\n")
    assert kept.text.endswith("0009999\n")
    assert len(kept.text) < 12_400
    assert "80000 bytes stored" in kept.text
    assert "record_read(line=120, offset=8000)" in kept.text
    assert blob_of(kept.text) == spilled.blob
    assert text[8000:].startswith("0001000")


def test_offsets_count_characters_and_no_character_is_split() -> None:
    text = "漢" * 30_000
    spilled = spill((TextPart(text),), tool="t", line=1, spill_bytes=50_000)
    assert spilled is not None
    kept = spilled.content[0]
    assert isinstance(kept, TextPart)
    assert "90000 bytes stored in 30000 characters" in kept.text
    assert "offset=2666)" in kept.text
    assert "\ufffd" not in kept.text


def test_what_only_looks_like_a_mark_is_none() -> None:
    assert blob_of("nothing") is None
    assert blob_of("[spilled tool result — t, 5 bytes stored in 5 characters; blob zz]") is None


# ---------------------------------------------------------------- text


def test_text() -> None:
    assert clean("a\0b\ud83dc\x1b\x07") == "a\ufffdb\ufffdc\x1b\x07"
    assert clean("fine 😀") == "fine 😀"
    assert printable("a\nb\x7f\udcff\u2028") == "a\\x0ab\\x7f\\xff\\u2028"
    assert clip("abcdef", 4) == "abc…"
    assert around("x" * 100 + "HIT" + "y" * 100, 100, 103, 13) == "…" + "x" * 5 + "HIT" + "y" * 5 + "…"
    assert around("short", 0, 1, 100) == "short"
