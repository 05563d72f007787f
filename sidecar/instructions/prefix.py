"""How the fixed part of every request is put together. Pure; the same parts give the same bytes."""

from __future__ import annotations


def join(*parts: str) -> str:
    """The parts that are not blank, a blank line between them. `join(a, join(b, c)) == join(a, b, c)`."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip())


def compose(system_prompt: str, standing: str, facts_section: str, skills_index: str) -> str:
    """The system prompt that is sent: the host's own, then what is frozen with the session. Equal to
    `join(system_prompt, join(standing, facts_section, skills_index))`, whose inner part the session's log keeps."""
    return join(system_prompt, standing, facts_section, skills_index)
