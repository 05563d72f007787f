"""The text of standing instructions, and what is told when a file changes later. Pure.

The text is frozen in the session's log; `files_in` reads the single files back from it, so that a later edit can be
told also after a restart. Same files, same bytes, on every machine: paths are relative.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

MAX_NOTE_CHARS: Final = 2_000
MAX_DIFFED_LINES: Final = 400
"""A changed region longer than this is told as a whole: comparing it line by line would take too long."""

_OPEN: Final = (
    "<standing-instructions>\n"
    "These hold for the whole session. They were written by the user or the project, from general to special: where "
    "two of them disagree, the later one holds."
)
_CLOSE: Final = "</standing-instructions>"
_FILE: Final = re.compile(r'^<instructions path="([^"\n]*)">\n(.*?)\n</instructions>$', re.DOTALL | re.MULTILINE)
_CHANGED: Final = re.compile(r'<instructions-changed state="([0-9a-f]+)"(?: since="([0-9a-f]+)")?>')
_INSIDE: Final = re.compile(r"<standing-instructions>\n.*?\n</standing-instructions>", re.DOTALL)
_OWN_TAG: Final = re.compile(r"<(/?)(standing-instructions|instructions)(?=[\s>])")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was read: `path` is its label (`AGENTS.md`, `docs/style.md`, `~/CLAUDE.md`), `text` is clean."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Standing:
    """`text` for the prefix, empty without instructions; `files` in order, the last wins; `notices` for people."""

    text: str
    files: Mapping[str, str]
    notices: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Of all files: equal digests, equal instructions."""
        return digest_of(self.files)


def compose_standing(found: Iterable[SourceFile], notices: Iterable[str] = ()) -> Standing:
    """The files in order, blank ones left out. Of equal texts the last stays: that is where it holds."""
    last: dict[str, SourceFile] = {}
    for file in found:
        text = _quiet(file.text.strip("\n")).rstrip()
        if text.strip():
            key = text.strip()
            last.pop(key, None)
            last[key] = SourceFile(file.path, text)
    files = {file.path: file.text for file in last.values()}
    return Standing(render(files), files, tuple(notices))


def _quiet(text: str) -> str:
    """Our own tags inside a file would end it early."""
    return _OWN_TAG.sub(r"&lt;\1\2", text)


def render(files: Mapping[str, str]) -> str:
    """The text for these files. `files_in(render(files)) == files`."""
    if not files:
        return ""
    parts = [f'<instructions path="{path}">\n{text}\n</instructions>' for path, text in files.items()]
    return "\n\n".join([_OPEN, *parts, _CLOSE])


def files_in(prefix: str) -> dict[str, str]:
    """The files of a frozen text; `prefix` may hold more than the instructions."""
    inside = _INSIDE.search(prefix)
    return {} if inside is None else dict(_FILE.findall(inside.group()))


def digest_of(files: Mapping[str, str]) -> str:
    state = hashlib.sha256()
    for path, text in files.items():
        for part in (path, text):
            raw = part.encode("utf-8", "surrogatepass")
            state.update(f"{len(raw)}:".encode() + raw)
    return state.hexdigest()[:16]


# ---------------------------------------------------------------- changes


def changes(before: Mapping[str, str], now: Mapping[str, str], *, later: bool = False) -> str | None:
    """A note for the tail about what differs between two states of the files, at most `MAX_NOTE_CHARS` long; None if
    nothing does. It carries the digest of the new state (`told_state` reads it back), and if `before` is not the
    frozen state but one that was told `later`, the digest of that too."""
    if digest_of(before) == digest_of(now):
        return None
    parts = [f"{path}: removed, it no longer holds." for path in before if path not in now]
    for path, text in now.items():
        if path not in before:
            parts.append(f"{path}: new:\n{text}")
        elif before[path] != text:
            parts.append(f"{path}: changed:\n{changed_part(before[path], text)}")
    if not parts:
        parts.append(f"The order changed; the last wins: {', '.join(now)}")
    since = f' since="{digest_of(before)}"' if later else ""
    head = (
        f'<instructions-changed state="{digest_of(now)}"{since}>\n'
        "The standing instructions were edited after this session began. This holds now (- old line, + new line):"
    )
    tail = "</instructions-changed>"
    room = MAX_NOTE_CHARS - len(head) - len(tail) - 2
    return f"{head}\n{_cut(_quiet_note(chr(10).join(parts)), room)}\n{tail}"


def told_state(note: str) -> str | None:
    """The digest that a note of `changes` carries."""
    found = _CHANGED.match(note)
    return found.group(1) if found else None


def is_unbroken(notes: Sequence[str]) -> bool:
    """Whether the last of these notes tells, with those before it that it builds on, all that changed."""
    for i in range(len(notes) - 1, -1, -1):
        found = _CHANGED.match(notes[i])
        since = found.group(2) if found else None
        if since is None:
            return True
        if i == 0 or told_state(notes[i - 1]) != since:
            return False
    return True


def _quiet_note(text: str) -> str:
    return text.replace("</instructions-changed", "&lt;/instructions-changed")


def changed_part(before: str, now: str) -> str:
    """The lines that differ, old ones with `- `, new ones with `+ `; linear outside of the changed region."""
    old, new = before.split("\n"), now.split("\n")
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if len(old) + len(new) > MAX_DIFFED_LINES:
        return "\n".join([f"+ {line}" for line in new] + [f"- {line}" for line in old])
    lines: list[str] = []
    for _, old_from, old_to, new_from, new_to in _differing(old, new):
        lines += [f"- {line}" for line in old[old_from:old_to]]
        lines += [f"+ {line}" for line in new[new_from:new_to]]
    return "\n".join(lines)


def _differing(old: list[str], new: list[str]) -> list[tuple[str, int, int, int, int]]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [code for code in matcher.get_opcodes() if code[0] != "equal"]


def _cut(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    mark = "\n… [cut: read the file for the rest]"
    return text[: room - len(mark)] + mark


# ---------------------------------------------------------------- the date

_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def date_note(today: date, told: date | None) -> str | None:
    """A note for the tail that says the date; None while the date that was told last still holds."""
    if today == told:
        return None
    return f"<current-date>{today.isoformat()} ({_WEEKDAYS[today.weekday()]})</current-date>"


def told_date(note: str) -> date | None:
    """The date that a note of `date_note` told."""
    found = re.match(r"<current-date>(\d{4}-\d\d-\d\d)", note)
    return date.fromisoformat(found.group(1)) if found else None
