"""Opening a log: mend its end, take the checkpoint if it fits, fold the lines after it. Blocking: for threads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from protocol.info import Recovered
from record_store import checkpoint, decoder, failpoints, files, fold, repair
from record_store.backend import MAIN_AGENT, Line
from record_store.checkpoint import Position
from record_store.encoder import encode
from record_store.fold import State
from record_store.names import CHECKPOINT
from record_store.reader import stream
from record_store.records import Record, StoreRepair

MAX_REPORTED = 200
"""Damaged lines that one opening names; of more it tells the number."""


@dataclass(slots=True)
class Folding:
    """Lines folded into a state one after the other."""

    state: State
    end: Position
    damaged: list[Recovered] = field(default_factory=list)
    more_damaged: int = 0
    last: Record | None = None

    def run(self, lines: Iterable[Line], end: int) -> None:
        """Folds whole lines that follow each other up to the offset `end`."""
        decode, apply, state = decoder.decode, fold.apply, self.state
        last_raw, number = None, self.end.seq
        for number, raw in lines:
            last_raw = raw
            record = decode(raw)
            if record is not None:
                apply(state, record, number)
                self.last = record
            else:
                self._unusual(number, raw)
        if last_raw is not None:
            self.end = Position(end, number, len(last_raw) + 1, crc32(b"\n", crc32(last_raw)))

    def _unusual(self, line: int, raw: bytes) -> None:
        decoded = decoder.decode_line(raw, line)
        for whole in decoded.records:
            if not isinstance(whole.record, decoder.Unknown):
                fold.apply(self.state, whole.record, line)
        if decoded.damage is None or not decoded.damage.lost:
            return
        if len(self.damaged) < MAX_REPORTED:
            text = f"{decoded.damage.kind}: {decoded.damage.detail}"
            self.damaged.append(Recovered(kind="damaged_line", line=line, detail=text))
        else:
            self.more_damaged += 1

    def report(self) -> list[Recovered]:
        if not self.more_damaged:
            return self.damaged
        return [*self.damaged, Recovered(kind="damaged_line", detail=f"and {self.more_damaged} more lines")]


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A log that is ready for its writer. `saved` is the line that the checkpoint holds, 0 without one."""

    fd: int
    state: State
    end: Position
    saved: int
    recovered: list[Recovered]


def open_log(path: Path, session_id: str, agent_id: str) -> OpenedLog:
    """Opens the log for writing and mends it; makes it if it is not there. For the holder of the lock.
    Raises `OSError`."""
    if failpoints.on:
        failpoints.hit("log.open")
    directory = path.parent
    made = not path.exists()
    files.make_directory(directory)
    files.remove_leftovers(directory)
    fd = files.open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        if made:
            for place in (directory, directory.parent):
                files.sync_directory(place)
        size, cuts = repair.settle_tail(fd, directory)
        folding, loaded = fold_log(fd, directory / CHECKPOINT, size, session_id, agent_id)
        recovered = folding.report()
        if not size and not cuts and agent_id == MAIN_AGENT:
            recovered.append(Recovered(kind="damaged_line", line=1, detail="the log is empty: what it held is lost"))
        saved = loaded.checkpoint.position.seq if loaded.checkpoint is not None else 0
        for cut in cuts:
            recovered.append(_record_cut(fd, directory, folding, cut))
        if loaded.damaged:
            recovered.append(Recovered(kind="checkpoint", detail="damaged; the log was read from its beginning"))
    except BaseException:
        os.close(fd)
        raise
    return OpenedLog(fd, folding.state, folding.end, saved, recovered)


def fold_log(fd: int, saved: Path, size: int, session_id: str, agent_id: str) -> tuple[Folding, checkpoint.Loaded]:
    """The fold of the first `size` bytes, which end in a newline, from the checkpoint on if it fits."""
    loaded = checkpoint.load(saved, fd, size)
    if loaded.checkpoint is not None:
        folding = Folding(loaded.checkpoint.state, loaded.checkpoint.position)
    else:
        folding = Folding(State(session_id=session_id, agent_id=agent_id), Position(0, 0, 0, 0))
    folding.run(stream(fd, folding.end.offset, size, folding.end.seq + 1), size)
    return folding, loaded


def _record_cut(fd: int, directory: Path, folding: Folding, cut: repair.Cut) -> Recovered:
    last = folding.last
    if not (isinstance(last, StoreRepair) and last.saved_as == cut.saved_as):
        record = StoreRepair(time.time_ns() // 1_000_000, "torn_tail", cut.bytes, cut.saved_as)
        line = encode(record, folding.end.seq + 1)
        files.write_all(fd, line, "log.write")
        files.sync_data(fd)
        folding.run([Line(folding.end.seq + 1, line[:-1])], folding.end.offset + len(line))
    repair.finish(directory, cut)
    detail = f"{cut.bytes} bytes were cut and kept in {cut.saved_as}"
    return Recovered(kind="torn_tail", line=folding.end.seq, detail=detail)
