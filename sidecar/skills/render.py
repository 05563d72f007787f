"""A skill's text as it enters a conversation. Pure."""

from __future__ import annotations

from typing import Final

from sidecar.skills.definition import Skill

PLACEHOLDER: Final = "$ARGUMENTS"


def render(skill: Skill, arguments: str = "") -> str:
    """The body with its arguments: in the place of `$ARGUMENTS`, else after it, if there are any."""
    given = arguments.strip()
    if PLACEHOLDER in skill.body:
        text = skill.body.replace(PLACEHOLDER, given)
    else:
        text = f"{skill.body}\n\nArguments: {given}" if given else skill.body
    return f'<skill name="{skill.name}" file="{_attribute(skill.label)}">\n{text}\n</skill>'


def describe(skill: Skill) -> str:
    """What `read_skill` shows: all of a skill, without using it."""
    facts = [f"name: {skill.name}", f"description: {skill.description}", f"mode: {skill.mode}", f"file: {skill.label}"]
    if skill.allowed_tools is not None:
        facts.append(f"allowed-tools: {', '.join(skill.allowed_tools)}")
    return "\n".join([*facts, "", skill.body])


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
