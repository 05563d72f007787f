"""The hook that takes images out which a provider refuses, so that one of them never ends a session."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from protocol.events import ContextRewritten
from protocol.messages import ImagePart, Part, TextPart
from record_store.fold import Entry, State
from record_store.records import Edit, Rewrite
from sidecar.agent.ports import HookBase
from sidecar.agent.turn import Turn
from sidecar.providers.errors import ProviderError

if TYPE_CHECKING:
    from sidecar.agent.runtime import Agent


IMAGE_STATUSES = frozenset({400, 404, 413, 415, 422})
"""Statuses that providers refuse an image with."""


def pointer(part: ImagePart, line: int) -> TextPart:
    """What stands in an image's place; it holds nothing that changes."""
    digest = part.blob or hashlib.sha256(base64.b64decode(part.data or "", validate=False)).hexdigest()
    return TextPart(f"[image withheld, the provider refused it: {digest[:12]}, {part.media_type}, record {line}]")


def without_images(entries: Sequence[Entry]) -> tuple[Edit, ...]:
    """Edits that put pointers in place of all images of these entries. Pure."""
    edits = []
    for entry in entries:
        if any(isinstance(p, ImagePart) for p in entry.message.content):
            content: tuple[Part, ...] = tuple(
                pointer(p, entry.line) if isinstance(p, ImagePart) else p for p in entry.message.content
            )
            edits.append(Edit(entry.message.id, content))
    return tuple(edits)


def newest_with_images(entries: Sequence[Entry], since: int) -> Sequence[Entry]:
    """The entries with images that came after the last answered request, else the last one that has any. Pure."""
    new = [e for e in entries[since:] if _has_image(e)]
    if new:
        return new
    return next(([e] for e in reversed(entries) if _has_image(e)), [])


def only_images_are_new(entries: Sequence[Entry], since: int) -> bool:
    """Whether everything that the user or a tool added since the last answered request is images. Pure."""
    parts = [p for e in entries[since:] if e.message.role != "assistant" for p in e.message.content]
    return bool(parts) and all(isinstance(p, ImagePart) for p in parts)


def refused_before(state: State, since: int) -> bool:
    """Whether the last turn was rejected with images that have never been part of an answered request. Pure.

    Nothing but an image may stand between such a session and its next answer, whatever the provider calls it.
    """
    last = next(reversed(state.outcomes.values()), None)
    rejected = last is not None and last.error is not None and last.error.reason == "provider_rejected"
    start = state.turn_marks[-1].start if state.turn_marks else 0
    return rejected and any(map(_has_image, state.entries[since:start]))


def _has_image(entry: Entry) -> bool:
    return any(isinstance(p, ImagePart) for p in entry.message.content)


class QuarantineHook(HookBase):
    """First the newest images go, then, should that not help, all of them."""

    def __init__(self, agent: Agent, on_changed: Callable[[], None]) -> None:
        """`on_changed` is called after the context was rewritten."""
        self._agent = agent
        self._on_changed = on_changed
        self._turn: tuple[str, int] | None = None
        self._tries = 0

    async def on_request_error(self, turn: Turn, error: ProviderError) -> bool:
        agent = self._agent
        state = agent.state
        if self._turn != (turn.turn_id, turn.step):
            self._turn, self._tries = (turn.turn_id, turn.step), 0
        if self._tries >= 2 or not self._suspects(error):
            return False
        self._tries += 1
        suspects = newest_with_images(state.entries, state.anchor_count) if self._tries == 1 else state.entries
        edits = without_images(suspects)
        if not edits:
            return False
        before = agent.used()
        after = max(0, before - agent.saved_by(edits))
        (line,) = agent.append(
            Rewrite(time=agent.clock.now_ms(), action="quarantine", pre_tokens=before, post_tokens=after, edits=edits)
        )
        agent.emit(ContextRewritten(action="quarantine", pre_tokens=before, post_tokens=after, line=line), turn.turn_id)
        self._on_changed()
        return True

    def _suspects(self, error: ProviderError) -> bool:
        if error.kind != "rejected":
            return False
        state = self._agent.state
        since = state.anchor_count
        if error.status in IMAGE_STATUSES and refused_before(state, since):
            return True
        if error.status == 413:
            return error.names_image or (error.too_large and self._agent.used() * 2 <= self._agent.window)
        if error.status != 400:
            return False
        return error.names_image or self._tries > 0 or only_images_are_new(state.entries, since)
