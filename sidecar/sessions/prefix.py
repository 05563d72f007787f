"""The frozen part of the prefix, made once per session, and the notes that tell the model what has changed since."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from protocol.events import Notice
from sidecar.sessions.assembly import Desk
from sidecar.sessions.notes import NoNotes, TailNotes
from sidecar.sessions.services import Services
from sidecar.settings import Settings


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands in the prefix after the host's system prompt; problems that were met."""

    text: str
    notices: tuple[Notice, ...] = ()


class PrefixMaker:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def standing(self, cwd: Path, settings: Settings) -> Standing:
        return Standing("")

    def notes(self, desk: Desk) -> TailNotes:
        return NoNotes()
