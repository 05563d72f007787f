"""A summary without a model: bounded, newest in most detail, the earlier summary carried on."""

from __future__ import annotations

import pytest

from protocol.messages import Message, Origin
from sidecar.compaction import summary_prompt as words
from sidecar.compaction.excerpt import HEADER, excerpt
from tests.unit.compaction.build import IMAGE, SIZES, assistant, entries, tool, user


def conversation(steps: int) -> list[Message]:
    messages: list[Message] = [user("u1", "build a parser", IMAGE)]
    for i in range(steps):
        messages.append(assistant(f"a{i}", f"step {i} " + "word " * 60, f"c{i}"))
        messages.append(tool(f"c{i}", f"result {i} " + "y" * 900))
    return messages


def test_a_line_per_message() -> None:
    text = excerpt(entries(*conversation(1)), 100_000, SIZES)
    lines = text.split("\n")
    assert lines[0] == HEADER
    assert lines[2] == "- user: build a parser; [1 images]"
    assert lines[3].startswith("- assistant: step 0 word")
    assert lines[3].endswith("calls read_file({})")
    assert lines[4].startswith("- tool read_file: result 0 yyy")
    assert len(lines[4]) < 270


@pytest.mark.parametrize("window", [2_000, 20_000, 100_000])
def test_it_is_bounded_and_thins_the_oldest_first(window: int) -> None:
    text = excerpt(entries(*conversation(400)), window, SIZES)
    assert SIZES.text(text) <= 0.05 * window
    assert SIZES.text(text) >= 0.025 * window
    assert "result 399" in text
    assert "earlier messages left out)" in text
    lines = [line for line in text.split("\n") if line.startswith("- tool")]
    if len(lines) > 4:
        assert len(lines[0]) < len(lines[-1])


def test_an_earlier_summary_is_carried_on_without_its_frame() -> None:
    frame = words.summary_message(
        "The port is 8081.", tagged=True, wire_path="/w", windows=[(1, 2)], record_access=True, todos=()
    )
    earlier = user("s", frame, origin=Origin("compaction_summary"))
    text = excerpt(entries(earlier, *conversation(3)), 40_000, SIZES)
    assert "The port is 8081." in text
    assert "Context Recovery" not in text
    assert words.SUMMARY_PREFIX not in text


def test_a_giant_earlier_summary_leaves_room_for_the_rest() -> None:
    frame = words.summary_message(
        "z" * 90_000, tagged=False, wire_path="/w", windows=[(1, 2)], record_access=True, todos=()
    )
    text = excerpt(entries(user("s", frame, origin=Origin("compaction_summary")), *conversation(50)), 40_000, SIZES)
    assert SIZES.text(text) <= 2_000
    assert "result 49" in text
