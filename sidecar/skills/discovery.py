"""Finds the skills of a workspace and of the user. Blocking: for a thread. Never raises for what it finds."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from protocol.skills import SkillProblem, SkillSource
from sidecar.regular_files import read_regular
from sidecar.skills.definition import InvalidSkill, NotASkill, Skill, parse
from sidecar.workspace import label, workspace_root

ROOTS: Final = (".sidecar", ".agents", ".agent", ".claude")
"""Folders whose `skills` folder is searched, in this order."""

SKILL_FILE: Final = "SKILL.md"
MAX_SKILL_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 4
"""Levels of folders below `skills` in which a skill's own folder may lie."""

MAX_ENTRIES: Final = 2_000
MAX_PROBLEMS: Final = 100


@dataclass(frozen=True, slots=True)
class Catalog:
    """`skills`: the project's first, each group by name, every name once. `problems`: files that are not followed."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[SkillProblem, ...] = ()

    def get(self, name: str) -> Skill | None:
        return next((skill for skill in self.skills if skill.name == name), None)


def discover(cwd: Path, home: Path) -> Catalog:
    """The skills for work in `cwd` of a user whose home is `home`.

    Searched are the folders of `ROOTS` in `cwd`, then in the workspace root, then in the home directory; of two
    skills with one name the first found holds. Links are followed; every folder and file is read once.
    """
    root, home = workspace_root(cwd), home.resolve()
    places: dict[Path, SkillSource] = {cwd.resolve(): "project", root: "project"}
    places.setdefault(home, "home")
    search = _Search(root, home)
    for place, source in places.items():
        for name in ROOTS:
            search.folder(place / name / "skills", source, 0)
    ordered = sorted(search.found.values(), key=lambda s: (s.source != "project", s.name))
    return Catalog(tuple(ordered), tuple(search.problems))


@dataclass(slots=True)
class _Search:
    root: Path
    home: Path
    found: dict[str, Skill] = field(default_factory=dict)
    problems: list[SkillProblem] = field(default_factory=list)
    _seen: set[Path] = field(default_factory=set)
    _entries: int = 0

    def folder(self, path: Path, source: SkillSource, depth: int) -> None:
        """Takes in what a folder holds: skills in folders of their own, and, at the top, flat files."""
        if not self._first_time(path):
            return
        for name in self._names(path):
            entry = path / name
            if entry.is_dir():
                if (entry / SKILL_FILE).is_file():
                    if self._first_time(entry):
                        self._take(entry / SKILL_FILE, name, source, flat=False)
                elif depth + 1 < MAX_DEPTH:
                    self.folder(entry, source, depth + 1)
            elif entry.is_symlink() and not entry.exists():
                self._problem(entry, "is a link that leads nowhere")
            elif depth == 0 and name.lower().endswith(".md"):
                self._take(entry, name[:-3], source, flat=True)

    def _names(self, path: Path) -> list[str]:
        try:
            names = sorted(n for n in os.listdir(path) if not n.startswith("."))
        except NotADirectoryError:
            return []
        except OSError:
            self._problem(path, "cannot be read; check its permissions")
            return []
        self._entries += len(names)
        if self._entries > MAX_ENTRIES:
            self._problem(path, f"left out, there are more than {MAX_ENTRIES} entries in all")
            return []
        return names

    def _first_time(self, path: Path) -> bool:
        """Whether this is there and was not met before, by whatever way."""
        try:
            real = path.resolve(strict=True)
        except FileNotFoundError:
            return False
        except (OSError, RuntimeError):
            self._problem(path, "is a link that leads in a circle")
            return False
        if real in self._seen:
            return False
        self._seen.add(real)
        return True

    def _take(self, path: Path, name: str, source: SkillSource, *, flat: bool) -> None:
        if not self._first_time(path):
            return
        named = self._label(path)
        try:
            skill = parse(
                _read(path), default_name=name, flat=flat, source=source, directory=path.resolve().parent, label=named
            )
        except NotASkill:
            return
        except InvalidSkill as error:
            self._problem(path, str(error))
            return
        except OSError:
            self._problem(path, "cannot be read; check its permissions")
            return
        for warning in skill.warnings:
            self._problem(path, warning)
        self.found.setdefault(skill.name, skill)

    def _problem(self, path: Path, message: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(SkillProblem(self._label(path), message))

    def _label(self, path: Path) -> str:
        return label(path, self.root, self.home)


_UNCLEAN = re.compile("[\x00\ud800-\udfff]")


def _read(path: Path) -> str:
    found = read_regular(path, MAX_SKILL_BYTES + 1, follow=True)
    if found is None:
        raise InvalidSkill("is no regular file")
    if len(found[0]) > MAX_SKILL_BYTES:
        raise InvalidSkill(f"is longer than {MAX_SKILL_BYTES >> 10} KiB")
    try:
        return _UNCLEAN.sub("\ufffd", found[0].decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InvalidSkill("is not UTF-8 text") from None
