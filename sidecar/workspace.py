"""Where a project begins, and how its paths are told to a model."""

from __future__ import annotations

from pathlib import Path


def workspace_root(cwd: Path) -> Path:
    """The nearest directory from `cwd` upwards that holds `.git` (a folder, or the file of a worktree), else `cwd`.
    Resolved; asks the disk, at most once a level."""
    start = cwd.resolve()
    for directory in (start, *start.parents):
        try:
            if (directory / ".git").exists():
                return directory
        except OSError:
            continue
    return start


def directories_down(root: Path, cwd: Path) -> tuple[Path, ...]:
    """`root`, and each directory below it on the way to `cwd`; both resolved, `cwd` inside `root`."""
    below = cwd.relative_to(root).parts
    return tuple(root.joinpath(*below[:n]) for n in range(len(below) + 1))


def label(path: Path, root: Path, home: Path) -> str:
    """A path as people and models read it: relative to the workspace root, else with `~`, else its name alone.
    The same on every machine, so that prompts built from it are."""
    if path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    if path.is_relative_to(home):
        return "~/" + path.relative_to(home).as_posix()
    return path.name
