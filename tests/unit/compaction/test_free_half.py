"""Snip, prune, image offload: what they leave, what they never touch, and that doing it again changes nothing."""

from __future__ import annotations

import hashlib

import pytest
from msgspec.structs import replace

from protocol.messages import ImagePart, Message, TextPart
from record_store.fold import Entry
from record_store.records import Edit
from sidecar.compaction import free_half
from sidecar.compaction.free_half import (
    READ_ONLY_LIMITS,
    SIDE_EFFECT_LIMITS,
    micro_pass,
    offload,
    prune,
    prune_pass,
    snip,
    snip_pass,
)
from sidecar.compaction.ports import SnipLimits
from tests.unit.compaction.build import IMAGE, SIZES, assistant, entries, policy, tool, user


def lines(count: int, width: int = 20) -> str:
    return "\n".join(f"line {i:>4} ".ljust(width, ".") for i in range(1, count + 1))


def read_only(_: str) -> SnipLimits:
    return READ_ONLY_LIMITS


def side_effects(_: str) -> SnipLimits:
    return SIDE_EFFECT_LIMITS


def result(text: str, *, line: int = 7, name: str = "read_file", is_error: bool = False) -> Entry:
    return Entry(tool("c1", text, name=name, is_error=is_error), line)


def text_of(content: object) -> str:
    assert isinstance(content, tuple)
    return "".join(p.text for p in content if isinstance(p, TextPart))


def after(entry: Entry, content: object) -> Entry:
    assert isinstance(content, tuple)
    return Entry(replace(entry.message, content=content), entry.line)


# ---------------------------------------------------------------- snip


def test_a_snip_of_a_read_only_tool_keeps_80_and_12_lines() -> None:
    text = lines(200)
    short = text_of(snip(result(text), read_only)).split("\n")
    original = text.split("\n")
    assert short[:80] == original[:80]
    assert short[80] == (f"[snipped tool result — read_file, {len(text)} bytes, 108 lines omitted, original: record 7]")
    assert short[81:] == original[-12:]


def test_a_snip_of_a_tool_with_side_effects_keeps_40_and_40() -> None:
    text = lines(200)
    short = text_of(snip(result(text, name="run_command"), side_effects)).split("\n")
    assert short[:40] == text.split("\n")[:40]
    assert "run_command" in short[40]
    assert "120 lines omitted" in short[40]
    assert short[41:] == text.split("\n")[-40:]


def test_a_tool_may_say_otherwise() -> None:
    short = text_of(snip(result(lines(200)), lambda _: SnipLimits(1, 0, 100, 100))).split("\n")
    assert len(short) == 2
    assert short[0] == lines(1)


def test_long_lines_are_cut_by_characters() -> None:
    text = "x" * 50_000
    short = text_of(snip(result(text), read_only))
    head, marker, tail = short.split("\n")
    assert (len(head), len(tail)) == (10_000, 2_000)
    assert "50000 bytes, 1 lines omitted" in marker


@pytest.mark.parametrize("text", ["x" * 1_024, lines(92), lines(85, 15), ""])
def test_what_is_small_or_fits_is_not_snipped(text: str) -> None:
    assert snip(result(text), read_only) is None


def test_bytes_are_bytes() -> None:
    text = "界" * 20_000
    assert "60000 bytes" in text_of(snip(result(text), read_only))


def test_snipping_again_changes_nothing() -> None:
    entry = result(lines(500))
    once = after(entry, snip(entry, read_only))
    assert snip(once, read_only) is None
    assert snip(once, lambda _: SnipLimits(2, 2, 100, 100)) is None


def test_text_that_only_looks_snipped_is_snipped() -> None:
    quoted = "[snipped tool result — grep, 9 bytes, 3 lines omitted, original: record 99]\n" + lines(300)
    assert snip(result(quoted), read_only) is not None


def test_the_marker_holds_nothing_that_changes() -> None:
    entry = result(lines(300))
    assert snip(entry, read_only) == snip(entry, read_only)
    assert prune(entry, 160) == prune(entry, 160)


# ---------------------------------------------------------------- prune


def test_a_pruned_result_is_its_marker() -> None:
    text = lines(100)
    assert text_of(prune(result(text), 0)) == f"[elided tool result — read_file, {len(text)} bytes, original: record 7]"


def test_with_excerpts_of_head_and_tail() -> None:
    text = "HEAD" + "x" * 5_000 + "TAIL"
    marker, head, gap, tail = text_of(prune(result(text), 160)).split("\n")
    assert head == text[:160]
    assert gap == "…"
    assert tail == text[-160:]
    assert "5008 bytes" in marker


def test_a_prune_upgrades_a_snip_and_tells_the_original_size() -> None:
    text = lines(500, 30)
    entry = result(text)
    snipped = after(entry, snip(entry, read_only))
    short = text_of(prune(snipped, 50))
    assert short.startswith(f"[elided tool result — read_file, {len(text)} bytes, original: record 7]")
    assert "snipped" not in short
    assert text[:50] in short
    assert text[-50:] in short


def test_pruning_again_changes_nothing() -> None:
    entry = result(lines(500))
    once = after(entry, prune(entry, 4_000))
    assert prune(once, 4_000) is None
    assert prune(once, 0) is None
    assert snip(once, read_only) is None


def test_small_results_stay() -> None:
    assert prune(result("x" * 1_024), 0) is None
    assert prune(result("x" * 1_100), 4_000) is None


def test_images_of_a_pruned_result_stay() -> None:
    entry = Entry(tool("c1", "x" * 3_000, IMAGE), 7)
    content = prune(entry, 0)
    assert content is not None
    assert content[-1] is IMAGE


# ---------------------------------------------------------------- images


def test_an_image_becomes_a_pointer() -> None:
    digest = hashlib.sha256(b"hello").hexdigest()[:12]
    content = offload(Entry(user("u", "look", IMAGE), 9))
    assert content == (TextPart("look"), TextPart(f"[image offloaded: {digest}, image/png, record 9]"))


def test_a_blob_is_named_by_its_hash_and_bad_data_is_no_failure() -> None:
    blob = ImagePart("image/jpeg", blob="ab" * 32)
    assert free_half.pointer(blob, 4).text == "[image offloaded: abababababab, image/jpeg, record 4]"
    assert free_half.pointer(ImagePart("image/png", data="%%%"), 4).text.startswith("[image offloaded: ")


def test_offloading_again_changes_nothing() -> None:
    entry = Entry(user("u", "look", IMAGE), 9)
    assert offload(after(entry, offload(entry))) is None


def test_the_last_images_stay() -> None:
    context = entries(user("u1", "", IMAGE), user("u2", "", IMAGE), user("u3", "", IMAGE))
    assert [(e.message.id, kept) for e, kept in free_half.old_images(context, 3, 1)] == [("u1", 0), ("u2", 0)]
    assert [(e.message.id, kept) for e, kept in free_half.old_images(context, 1, 1)] == [("u1", 0)]
    assert len(free_half.old_images(context, 3, 0)) == 3


def test_the_last_images_are_counted_one_by_one() -> None:
    context = entries(user("u1", "", IMAGE, IMAGE), user("u2", "", IMAGE, IMAGE, IMAGE), user("u3", "", IMAGE))
    assert [(e.message.id, kept) for e, kept in free_half.old_images(context, 3, 2)] == [("u1", 0), ("u2", 1)]
    content = offload(context[1], 1)
    assert content is not None
    assert [part is IMAGE for part in content] == [False, False, True]
    assert offload(context[1], 3) is None


# ---------------------------------------------------------------- passes


def work(count: int, size: int = 4_000, *, errors: frozenset[int] = frozenset()) -> list[Entry]:
    messages: list[Message] = [user("u1", "go")]
    for i in range(count):
        messages.append(assistant(f"a{i}", f"step {i}", f"c{i}"))
        messages.append(tool(f"c{i}", f"{i} " + "x" * size, is_error=i in errors))
    return entries(*messages)


def edited(edits: tuple[Edit, ...]) -> list[str]:
    return [e.message_id for e in edits]


def test_a_pass_stops_as_soon_as_enough_is_freed_oldest_first() -> None:
    found = prune_pass(policy(), work(10), SIZES, before=21, enough=1_500)
    assert edited(found.results.edits) == ["r-c0", "r-c1"]
    assert found.gain >= 1_500


def test_errors_go_last() -> None:
    context = work(6, errors=frozenset({0, 1}))
    found = prune_pass(policy(), context, SIZES, before=13, enough=1_500)
    assert edited(found.results.edits) == ["r-c2", "r-c3"]
    everything = prune_pass(policy(), context, SIZES, before=13)
    assert edited(everything.results.edits) == ["r-c0", "r-c1", "r-c2", "r-c3"]


def test_nothing_behind_the_horizon_and_none_of_the_last_results() -> None:
    context = work(10)
    found = prune_pass(policy(), context, SIZES, before=9)
    assert edited(found.results.edits) == ["r-c0", "r-c1", "r-c2", "r-c3"]
    found = prune_pass(policy(keep_last_tool_results=8), context, SIZES, before=21)
    assert edited(found.results.edits) == ["r-c0", "r-c1"]


def test_images_go_before_results() -> None:
    context = [*entries(user("i1", "", IMAGE), user("i2", "", IMAGE), first_line=1), *work(5)]
    found = prune_pass(policy(), context, SIZES, before=len(context), enough=400)
    assert edited(found.images.edits) == ["i1"]
    assert not found.results
    off = prune_pass(policy(image_offload=False), context, SIZES, before=len(context))
    assert not off.images


def test_an_image_in_a_result_that_is_pruned_as_well() -> None:
    context = entries(
        user("u", "go"),
        assistant("a", "", "c1"),
        tool("c1", "x" * 4_000, IMAGE),
        assistant("b", "", "c2"),
        tool("c2", "y", IMAGE),
    )
    found = prune_pass(policy(keep_last_tool_results=1), context, SIZES, before=5)
    assert edited(found.images.edits) == ["r-c1"]
    assert edited(found.results.edits) == ["r-c1"]
    assert not any(isinstance(p, ImagePart) for p in found.results.edits[0].content)


@pytest.mark.parametrize("preset", ["default", "span", "ladder"])
def test_the_horizon_is_where_the_tail_begins(preset: str) -> None:
    messages = [e.message for e in work(30)]
    p = policy(40_000, preset=preset)
    at = free_half.horizon(p, messages, SIZES)
    expected = len(messages) - 6 if preset == "span" else None
    if expected is not None:
        assert at == expected
    else:
        assert sum(map(SIZES.message, messages[at:])) <= p.tail_tokens
        assert messages[at].role != "tool"


def test_snips_respect_horizon_and_last_results() -> None:
    context = work(6, 40_000)
    found = snip_pass(policy(100_000), context, SIZES, read_only, before=7)
    assert edited(found.results.edits) == ["r-c0", "r-c1", "r-c2"]


def test_micro_compaction_keeps_only_the_last_results() -> None:
    found = micro_pass(policy(keep_last_tool_results=2), work(5), SIZES)
    assert edited(found.edits) == ["r-c0", "r-c1", "r-c2"]


def test_the_last_pass_goes_as_far_as_it_must() -> None:
    context = work(4, 40_000)
    p = policy(30_000)
    mild = free_half.last_pass(p, context, SIZES, read_only, enough=10_000)
    assert edited(mild.results.edits) == ["r-c0", "r-c1"]
    more = free_half.last_pass(p, context, SIZES, read_only, enough=30_000)
    assert len(more.results.edits) == 4
    assert "snipped" in text_of(more.results.edits[-1].content)
    all_of_it = free_half.last_pass(p, context, SIZES, read_only, enough=39_000)
    assert "elided" in text_of(all_of_it.results.edits[-1].content)


def test_calls_answers_and_user_text_are_never_touched() -> None:
    context = entries(user("u", "x" * 9_000), assistant("a", "y" * 9_000, "c1"), tool("c1", "z" * 9_000))
    found = prune_pass(policy(keep_last_tool_results=0), context, SIZES, before=3)
    assert edited(found.results.edits) == ["r-c1"]
