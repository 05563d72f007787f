"""Whatever is done to the bytes of a log, it opens, keeps what is whole, and goes on."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from record_store import checkpoint, fold
from record_store.backend import Line
from record_store.checkpoint import Position
from record_store.conformance import config, message, metadata
from record_store.encoder import encode
from record_store.fold import State
from record_store.names import CHECKPOINT, LOG
from record_store.reader import stream
from record_store.records import StoreRepair
from record_store.recovery import Folding, OpenedLog, open_log
from record_store.replay import typed
from tests.support.store import canonical, full_conversation, lines_of

LINES = lines_of([metadata("one"), config(), *(message(n) for n in range(3, 9))])
LOG_BYTES = b"".join(LINES)
FULL_LINES = lines_of([metadata("one"), *full_conversation()])
FULL_BYTES = b"".join(FULL_LINES)
WRITTEN = {line[:-1] for line in (*LINES, *FULL_LINES)}
EXAMPLES = settings(max_examples=300, deadline=None)


@contextmanager
def a_directory() -> Iterator[Path]:
    """On a file system without a disk where there is one: thousands of repairs sync for nothing."""
    shared = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def opened(directory: Path) -> Iterator[OpenedLog]:
    log = open_log(directory / LOG, "one", "main")
    try:
        yield log
    finally:
        os.close(log.fd)


def fold_of(data: bytes) -> State:
    """By the plainest way there is."""
    state = State(session_id="one", agent_id="main")
    for line, record in typed(Line(n, raw) for n, raw in enumerate(data.split(b"\n")[:-1], 1)):
        fold.apply(state, record, line)
    return state


def kinds(log: OpenedLog) -> list[str]:
    return [x.kind for x in log.recovered]


def goes_on(directory: Path, before: State, line: int) -> None:
    """Appends a record, as the journal would, and opens again: nothing is left to mend."""
    added = encode(message(1_000), line + 1)
    with (directory / LOG).open("ab") as file:
        file.write(added)
    fold.apply(before, message(1_000), line + 1)
    with opened(directory) as log:
        assert log.end.seq == line + 1
        assert canonical(log.state) == canonical(before)
        assert "torn_tail" not in kinds(log)


# ---------------------------------------------------------------- cuts


@pytest.mark.parametrize("saved", [False, True], ids=["no checkpoint", "checkpoint"])
def test_cut_at_every_byte(saved: bool) -> None:
    with a_directory() as directory:
        at_line_4 = b"".join(LINES[:4])
        for cut in range(len(LOG_BYTES) + 1):
            for path in directory.iterdir():
                path.unlink()
            data = LOG_BYTES[:cut]
            (directory / LOG).write_bytes(data)
            if saved:
                write_checkpoint(directory, at_line_4)
            whole = data[: data.rfind(b"\n") + 1]
            torn = data[len(whole) :]
            with opened(directory) as log:
                if torn + b"\n" in LINES:
                    assert (kinds(log), log.state) == ([], fold_of(data + b"\n"))
                elif torn:
                    assert kinds(log) == ["torn_tail"]
                    assert (directory / "wire.jsonl.torn-1").read_bytes() == torn
                    last = list(stream(log.fd, len(whole), log.end.offset, 1))
                    (line,) = typed(last)
                    assert isinstance(line[1], StoreRepair)
                else:
                    assert (kinds(log), log.state) == ([] if whole else ["damaged_line"], fold_of(whole))
                state, end = log.state, log.end
            assert (directory / LOG).read_bytes().startswith(whole)
            assert canonical(fold_of((directory / LOG).read_bytes())) == canonical(state)
            if cut % 16 == 0:
                goes_on(directory, state, end.seq)


def write_checkpoint(directory: Path, data: bytes) -> None:
    lines = data.split(b"\n")[:-1]
    folding = Folding(State(session_id="one", agent_id="main"), Position(0, 0, 0, 0))
    folding.run((Line(n, raw) for n, raw in enumerate(lines, 1)), len(data))
    checkpoint.save(directory / CHECKPOINT, folding.state, folding.end)


# ---------------------------------------------------------------- flips and worse

positions = st.integers(0, len(FULL_BYTES) * 8 - 1)


@EXAMPLES
@given(st.lists(positions, min_size=1, max_size=6))
def test_flipped_bits_hurt_only_their_own_lines(flips: list[int]) -> None:
    data = bytearray(FULL_BYTES)
    for flip in flips:
        data[flip // 8] ^= 1 << flip % 8
    touched = {flip // 8 for flip in flips}
    untouched, at = [], 0
    for line in FULL_LINES:
        if not touched & set(range(max(0, at - 1), at + len(line))):
            untouched.append(line[:-1])
        at += len(line)
    check_damaged(bytes(data), untouched)


@EXAMPLES
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["insert", "delete", "zero", "repeat", "newline"]),
            st.integers(0, len(FULL_BYTES)),
            st.integers(0, 700),
            st.binary(max_size=30),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_edit_leaves_a_log_that_opens(edits: list[tuple[str, int, int, bytes]]) -> None:
    data = FULL_BYTES
    for what, at, size, junk in edits:
        head, middle, tail = data[:at], data[at : at + size], data[at + size :]
        match what:
            case "insert":
                data = head + junk + middle + tail
            case "delete":
                data = head + tail
            case "zero":
                data = head + bytes(size) + tail
            case "repeat":
                data = head + middle + middle + tail
            case _:
                data = head + b"\n" + middle + tail
    check_damaged(data, [])


@EXAMPLES
@given(st.binary(max_size=300), st.integers(0, len(FULL_LINES)))
def test_garbage_between_lines_costs_no_record(junk: bytes, at: int) -> None:
    data = b"".join([*FULL_LINES[:at], junk, b"\n", *FULL_LINES[at:]])
    check_damaged(data, [line[:-1] for line in FULL_LINES])


@EXAMPLES
@given(st.sets(st.integers(0, len(FULL_LINES) - 2)))
def test_lost_newlines_cost_no_record(lost: set[int]) -> None:
    data = b"".join(line[:-1] if n in lost else line for n, line in enumerate(FULL_LINES))
    check_damaged(data, [line[:-1] for line in FULL_LINES])


def check_damaged(data: bytes, must_be_read: list[bytes]) -> None:
    with a_directory() as directory:
        (directory / LOG).write_bytes(data)
        with opened(directory) as log:
            kept = (directory / LOG).read_bytes()
            assert log.end.offset == len(kept)
            assert log.end.seq == kept.count(b"\n")
            found = [record for _, record in typed(stream(log.fd, 0, len(kept), 1))]
            expected = [record for _, record in typed(Line(n, raw) for n, raw in enumerate(must_be_read, 1))]
            assert all(record in found for record in expected)
            foreign = [x for x in found if x not in ORIGINALS and not isinstance(x, StoreRepair)]
            assert foreign == []
            assert canonical(fold_of(kept)) == canonical(log.state)
            state, line = log.state, log.end.seq
        assert kept.startswith(data[: data.rfind(b"\n") + 1])
        goes_on(directory, state, line)


ORIGINALS = [record for _, record in typed(Line(n, raw) for n, raw in enumerate(WRITTEN, 1))]


@EXAMPLES
@given(st.binary(max_size=2_000), st.booleans())
def test_any_bytes_at_all_open(data: bytes, saved: bool) -> None:
    with a_directory() as directory:
        (directory / LOG).write_bytes(data)
        if saved:
            write_checkpoint(directory, LOG_BYTES)
        with opened(directory) as log:
            state, line = log.state, log.end.seq
        goes_on(directory, state, line)


@settings(max_examples=200, deadline=None)
@given(st.integers(0), st.integers(0, 7))
def test_a_flipped_bit_of_a_checkpoint_is_noticed(at: int, bit: int) -> None:
    data = bytearray(checkpoint.encode(fold_of(FULL_BYTES), Position(10, 2, 5, 7)))
    data[at % len(data)] ^= 1 << bit
    loaded = checkpoint.decode(bytes(data))
    assert (loaded.checkpoint, loaded.damaged) == (None, True)
