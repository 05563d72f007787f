"""The notes that the model was told: found once, while the context grows, and anew when it was rewritten."""

from __future__ import annotations

from protocol.messages import Origin
from record_store.fold import Entry
from sidecar.sessions.prefix import ToldNotes
from tests.support.conversation import state_of, user


def note(text: str, variant: str = "date") -> Entry:
    return Entry(user(text, origin=Origin("injection", variant=variant)), 1)


def test_the_last_one_of_a_kind_holds() -> None:
    state, told = state_of(user("a")), ToldNotes()
    assert told.last(state, "date") is None
    state.entries += [note("monday"), note("rules", "instructions_changed"), Entry(user("date"), 1)]
    assert told.last(state, "date") == "monday"
    state.entries.append(note("tuesday"))
    assert (told.last(state, "date"), told.last(state, "instructions_changed")) == ("tuesday", "rules")


def test_what_is_no_longer_in_the_context_was_not_told() -> None:
    state, told = state_of(user("a")), ToldNotes()
    state.entries.append(note("monday"))
    assert told.last(state, "date") == "monday"
    del state.entries[1:]
    state.rewrites += 1
    assert told.last(state, "date") is None
    state.entries.append(note("friday"))
    assert told.last(state, "date") == "friday"
