"""What a skill is, read from the text of its file. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.skills import SkillInfo, SkillMode, SkillSource
from sidecar import frontmatter
from sidecar.frontmatter import FrontMatterError, Header

_NAME = re.compile(r"\w[\w.:-]{0,63}")
MAX_DESCRIPTION_CHARS: Final = 2_000

TOOL_ALIASES: Final = {
    "read": "read_file",
    "ls": "list_dir",
    "glob": "glob",
    "grep": "grep",
    "write": "write_file",
    "edit": "edit_file",
    "multiedit": "edit_file",
    "bash": "run_command",
    "todowrite": "todo_write",
    "skill": "run_skill",
}
"""Names that other programs give to tools like ours, lower case: skills written for them work as they are."""


class NotASkill(Exception):
    """A flat Markdown file without a skill's front matter: some other text, nothing to report."""


class InvalidSkill(ValueError):
    """A skill that cannot be used; the text says what to mend."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A playbook.

    `allowed_tools` are the tools that a sub-agent for it may use, by our names; None: all that its parent has.
    `model` is `provider/model`; None: the session's. `directory` is where relative paths of the body begin, `label`
    the file as people know it. `warnings` name what in the front matter is not followed.
    """

    name: str
    description: str
    mode: SkillMode
    source: SkillSource
    body: str
    directory: Path
    label: str
    allowed_tools: tuple[str, ...] | None = None
    model: str | None = None
    warnings: tuple[str, ...] = ()

    def info(self) -> SkillInfo:
        return SkillInfo(self.name, self.description, self.mode, self.source)


def parse(text: str, *, default_name: str, flat: bool, source: SkillSource, directory: Path, label: str) -> Skill:
    """The skill in a file. Raises `NotASkill` (flat files only) and `InvalidSkill`.

    A flat file is a skill only if its front matter has a `description`; in a folder of its own everything else is a
    mistake of the author.
    """
    parts = frontmatter.split(text)
    if parts is None:
        if flat:
            raise NotASkill
        raise InvalidSkill("does not begin with front matter (`name`, `description`) between two `---` lines")
    try:
        header = frontmatter.read(parts[0])
    except FrontMatterError as error:
        raise InvalidSkill(str(error)) from None
    description = " ".join(_text(header, "description").split())
    if not description:
        if flat:
            raise NotASkill
        raise InvalidSkill("has no `description` in its front matter")
    name = _text(header, "name").strip() or default_name
    if not _NAME.fullmatch(name):
        raise InvalidSkill(f"the name {name[:80]!r} must be letters, digits, `_`, `.`, `:` or `-`, at most 64")
    model, warnings = _model(header)
    return Skill(
        name=name,
        description=description[:MAX_DESCRIPTION_CHARS],
        mode=_mode(header),
        source=source,
        body=parts[1].replace("\r\n", "\n").strip("\n"),
        directory=directory,
        label=label,
        allowed_tools=_allowed_tools(header),
        model=model,
        warnings=warnings,
    )


def _text(header: Header, key: str) -> str:
    value = header.get(key, "")
    if isinstance(value, list):
        raise InvalidSkill(f"`{key}` must be one text, not a list")
    return value


def _first(header: Header, *keys: str) -> str:
    return next((text for key in keys if (text := _text(header, key).strip())), "")


def _mode(header: Header) -> SkillMode:
    """`mode`, else `runAs`, else `context: fork`, as other programs write it."""
    word = _first(header, "mode", "runAs", "run-as", "run_as").casefold()
    match word:
        case "inline":
            return "inline"
        case "subagent" | "sub-agent":
            return "subagent"
        case "":
            return "subagent" if _text(header, "context").strip().casefold() == "fork" else "inline"
        case _:
            raise InvalidSkill(f"the mode {word[:40]!r} must be inline or subagent")


def _allowed_tools(header: Header) -> tuple[str, ...] | None:
    """Names only: `Bash(git:*)` is `run_command`, whose calls are approved one by one anyway."""
    key = next((k for k in ("allowed-tools", "allowed_tools", "allowedTools") if k in header), None)
    if key is None:
        return None
    names = (item.partition("(")[0].strip() for item in frontmatter.texts(header[key]))
    return tuple(dict.fromkeys(TOOL_ALIASES.get(name.casefold(), name) for name in names if name))


def _model(header: Header) -> tuple[str | None, tuple[str, ...]]:
    model = _text(header, "model").strip()
    if not model or model.casefold() in ("inherit", "default"):
        return None, ()
    if "/" in model:
        return model, ()
    return None, (f"the model {model[:80]!r} is not `provider/model`: the session's model is used",)
