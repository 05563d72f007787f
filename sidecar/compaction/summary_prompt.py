"""The words of compaction: what the model is asked for, and what frames a summary. Pure.

Every text here is fixed or built from values that stay the same when nothing happened (no time of day, no random id):
equal inputs give equal bytes, so provider caches survive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.events import TodoItem
from record_store.pins import PinnedSkill

INSTRUCTION: Final = """\
<system-reminder>
The conversation is about to be compacted: everything above will be replaced by the summary that you write now, and \
whoever continues will know only that summary. Write it as a handover to a capable colleague who takes over mid-task.

Answer with the summary alone, as plain text. Do not call any tool. Do not continue the task.

Cover, under short headings, whatever of this applies:
1. Goal and constraints: what the user wants, with every requirement, preference, limit and prohibition in the user's \
own words. Where the user corrected something, give the value that holds now and say that the old one is void.
2. Decisions: what was decided or ruled out, and why.
3. Files and identifiers: exact paths, names, signatures, ids, ports, versions, URLs, with what was done to each or \
learned from it.
4. Commands and outcomes: what was run and what came of it, with the figures and messages that matter.
5. Errors and fixes: what went wrong, the cause, how it was solved or that it is still open.
6. State: what is finished (say so plainly, so that it is not done again) and what is pending.
7. Next step: the single thing that was in progress, precise enough to go on from.

Be exact and complete about facts, brief about everything else. Copy names, numbers and quotes literally. Write \
nothing that is not above: if something is unknown or was never checked, say that. An earlier summary above is part \
of what you summarise: carry over what still matters.
</system-reminder>"""

SUMMARY_PREFIX: Final = (
    "This is a summary of the earlier part of this conversation, written when it was compacted to save space. "
    "It is background, not a new request: what the user said and still sees takes precedence over it."
)
"""How every summary message begins. Never changed without a reason: hosts and models recognise a summary by it."""

SUMMARY_OPEN: Final = "<compaction-summary>"
SUMMARY_CLOSE: Final = "</compaction-summary>"
RECOVERY_HEADING: Final = "## Context Recovery"
TODO_HEADING: Final = "## TODO List"

CONTINUATION: Final = """\
<system-reminder>
Context compaction is complete. Continue the work that was in progress when it began, from the point that the summary \
gives as the next step. Do not start over, repeat finished work or comment on the compaction. The user's earlier \
messages are kept for what they say: take up a request in them only if it was put off until later or the summary calls \
it pending; the others were dealt with when they came. If nothing was in progress, wait for the user's next message.
</system-reminder>"""

THRASHING: Final = """\
<system-reminder>
The context was compacted several times within a few steps: it fills up again as fast as it is emptied. Automatic \
compaction is paused. Work in smaller pieces: read only the lines that you need, limit the output of commands, and do \
not read again what the summary already holds.
</system-reminder>"""

MAX_LISTED_WINDOWS: Final = 40
"""Older windows than the last so many are listed as one range, to bound the summary's size."""


def instruction(extra: str | None) -> str:
    """The final user message of a summary request, with what the caller wants emphasised."""
    extra = (extra or "").strip()
    if not extra:
        return INSTRUCTION
    return f"{INSTRUCTION}\n\nThe user adds about this summary:\n{extra}"


def elision(tokens: int) -> str:
    """Stands between kept user messages; `tokens` counts what was left out so far, over all compactions."""
    return (
        f"<system-reminder>\nAbout {tokens} tokens of user messages between the ones above and the ones below were "
        "left out to save space. The summary covers what they said.\n</system-reminder>"
    )


def summary_message(
    summary: str,
    *,
    tagged: bool,
    wire_path: str,
    windows: Sequence[tuple[int, int]],
    record_access: bool,
    todos: Sequence[TodoItem],
) -> str:
    """The whole text of a summary message: prefix, summary, how to look things up, the list of tasks."""
    sections = [_untagged(summary.strip()), recovery(wire_path, windows, record_access)]
    if todos:
        sections.append(todo_list(todos))
    body = "\n\n".join(section for section in sections if section)
    if tagged:
        body = f"{SUMMARY_OPEN}\n{body}\n{SUMMARY_CLOSE}"
    return f"{SUMMARY_PREFIX}\n\n{body}"


def summary_body(text: str) -> str:
    """The summary alone, out of a summary message."""
    body = text.removeprefix(SUMMARY_PREFIX).strip()
    body = body.removeprefix(SUMMARY_OPEN).removesuffix(SUMMARY_CLOSE)
    return body.partition(f"\n\n{RECOVERY_HEADING}\n")[0].strip()


def _untagged(summary: str) -> str:
    """A summary cannot close our tag, nor end before its end for `summary_body`."""
    summary = summary.replace(SUMMARY_OPEN, "").replace(SUMMARY_CLOSE, "")
    return summary.replace(RECOVERY_HEADING, "### Context Recovery").strip()


def recovery(wire_path: str, windows: Sequence[tuple[int, int]], record_access: bool) -> str:
    """Where the originals are and how to read them. `windows` are the line ranges, oldest first, one a compaction."""
    how = (
        '`record_search {"query": "words"}` finds lines, `record_read {"line": N}` reads one.'
        if record_access
        else "`grep -n 'words' FILE | cut -c1-300` finds lines, `sed -n 'Np' FILE` reads one."
    )
    return (
        f"{RECOVERY_HEADING}\n"
        "Everything compacted so far is still on disk, unchanged, in this agent's event log "
        f"(append-only, one JSON record per line):\n{wire_path}\n"
        f"Compacted lines: {_ranges(windows)}\n"
        "Messages are records of type `context.append_message`; earlier summaries are in `context.apply_compaction`.\n"
        f"{how} When you need exact output, code or words, look them up instead of guessing."
    )


def _ranges(windows: Sequence[tuple[int, int]]) -> str:
    old, recent = windows[:-MAX_LISTED_WINDOWS], windows[-MAX_LISTED_WINDOWS:]
    listed = [f"{first}-{last} (window {i})" for i, (first, last) in enumerate(recent, len(old) + 1)]
    if old:
        listed.insert(0, f"{old[0][0]}-{old[-1][1]} (windows 1-{len(old)})")
    return ", ".join(listed)


_MARKS = {"pending": " ", "in_progress": "~", "done": "x"}


def todo_list(todos: Sequence[TodoItem]) -> str:
    """The list as it stands, `[ ]` pending, `[~]` in progress, `[x]` done."""
    return "\n".join([TODO_HEADING, *(f"- [{_MARKS[todo.status]}] {todo.content}" for todo in todos)])


def pinned_skill(skill: PinnedSkill) -> str:
    """A skill in use, verbatim."""
    return f'<system-reminder>\nThe skill "{skill.name}" is in use. Its text:\n\n{skill.body}\n</system-reminder>'
