"""Slash commands: what is offered, and what a prompt that begins with one means. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from acp.schema import AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, UnstructuredCommandInput

from protocol.messages import Part, TextPart
from protocol.skills import SkillInfo

COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class Command:
    """`/name arguments`; the arguments are the rest of the text, trimmed."""

    name: str
    arguments: str


def parse(parts: Sequence[Part]) -> Command | None:
    """The command that a prompt is; None for any other prompt. A command is text alone."""
    if len(parts) != 1 or not isinstance(parts[0], TextPart):
        return None
    text = parts[0].text.strip()
    if not text.startswith("/"):
        return None
    name, _, rest = text[1:].partition(" ") if "\n" not in text.split(" ", 1)[0] else text[1:].partition("\n")
    return Command(name, rest.strip()) if name else None


def offered(skills: Iterable[SkillInfo]) -> Any:
    """The update that lists them: `/compact` first, then skills by name; a skill cannot take its place."""
    commands = [_command(COMPACT, "Summarise the conversation to free context", "what the summary must keep")]
    commands += [_command(s.name, s.description, "arguments") for s in skills if s.name != COMPACT]
    return AvailableCommandsUpdate(session_update="available_commands_update", available_commands=commands)


def _command(name: str, description: str, hint: str) -> Any:
    return AvailableCommand(
        name=name, description=description, input=AvailableCommandInput(root=UnstructuredCommandInput(hint=hint))
    )
