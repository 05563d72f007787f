"""Frozen instructions give their files back, and a note about a change is bounded."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.instructions.standing import MAX_NOTE_CHARS, SourceFile, changes, compose_standing, files_in

PATHS = st.sampled_from(["AGENTS.md", "CLAUDE.md", "~/AGENTS.md", "docs/a.md"])
CONTENT = st.lists(
    st.sampled_from(["</instructions>", '<instructions path="x">', "rule", "", "</standing-instructions>"])
    | st.text(max_size=20),
    max_size=6,
).map("\n".join)
SOURCES = st.dictionaries(PATHS, CONTENT, max_size=4)


@given(SOURCES)
@settings(max_examples=200)
def test_frozen_instructions_give_back_their_files(sources: dict[str, str]) -> None:
    standing = compose_standing(SourceFile(p, t.replace("\r", "")) for p, t in sources.items())
    assert files_in(f"a host's prompt\n\n{standing.text}\n\n<skills>") == dict(standing.files)
    assert changes(standing.files, files_in(standing.text)) is None


@given(SOURCES, SOURCES)
@settings(max_examples=200)
def test_a_note_is_bounded_and_there_exactly_when_something_changed(
    before: dict[str, str], now: dict[str, str]
) -> None:
    old, new = (compose_standing(SourceFile(p, t) for p, t in files.items()) for files in (before, now))
    note = changes(old.files, new.files)
    assert (note is None) == (list(old.files.items()) == list(new.files.items()))
    assert note is None or (len(note) <= MAX_NOTE_CHARS and note.endswith("\n</instructions-changed>"))
