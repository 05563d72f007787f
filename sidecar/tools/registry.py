"""Which tools a session offers. Pure, but for the import of the built-in ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from protocol.messages import ToolSpec
from sidecar.tools.port import HostTool, Tool

BuiltinSet = Literal["none", "read", "edit", "all"]

RECORD_TOOLS = frozenset(("record_search", "record_read"))
_READ = RECORD_TOOLS | {"read_file", "list_dir", "glob", "grep", "todo_write", "recall", "read_skill"}
_EDIT = _READ | {"write_file", "edit_file"}
_ALL = _EDIT | {"run_command", "remember", "run_skill"}
_SETS: dict[BuiltinSet, frozenset[str]] = {
    "none": frozenset(),
    "read": frozenset(_READ),
    "edit": frozenset(_EDIT),
    "all": frozenset(_ALL),
}


def builtin_names(word: BuiltinSet, *, record_access: bool = True) -> frozenset[str]:
    """The names that a word of `tools.builtin` stands for; without record access those that read the log are out."""
    names = _SETS[word]
    return names if record_access else names - RECORD_TOOLS


def builtin_tools() -> tuple[Tool, ...]:
    """Every tool of this package."""
    from sidecar.tools.builtin import (
        edit_file,
        glob,
        grep,
        list_dir,
        read_file,
        record_read,
        record_search,
        run_command,
        todo_write,
        write_file,
    )

    modules = (
        *(edit_file, glob, grep, list_dir, read_file, record_read, record_search),
        *(run_command, todo_write, write_file),
    )
    return tuple(m.TOOL for m in modules)


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of one session, one for each name, sorted by name."""

    tools: tuple[Tool | HostTool, ...]

    @staticmethod
    def of(
        *,
        builtin: BuiltinSet = "none",
        host: Sequence[ToolSpec] = (),
        extra: Iterable[Tool] = (),
        mcp: Iterable[Tool] = (),
        joined: Collection[str] = (),
        record_access: bool = True,
    ) -> ToolSet:
        """`extra` are the daemon's tools from other packages: those whose names belong to a built-in set are offered
        with that set, others always. `joined` names built-in tools that are offered whatever the set (those that read
        the log, once something was taken out of the context); `record_access` false keeps these out either way.

        Where two have one name, a host's tool stands for a tool of the daemon, and that for one of an MCP server; of
        two host tools the later one counts.
        """
        wanted = builtin_names(builtin, record_access=record_access)
        wanted |= {n for n in joined if record_access or n not in RECORD_TOOLS}
        own = [t for t in (*builtin_tools(), *extra) if t.spec.name in wanted or t.spec.name not in _ALL]
        found: dict[str, Tool | HostTool] = {t.spec.name: t for t in mcp}
        found.update({t.spec.name: t for t in own})
        found.update({spec.name: HostTool(spec) for spec in host})
        return ToolSet(tuple(found[name] for name in sorted(found)))

    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told, in canonical order, schemas as given."""
        return tuple(t.spec for t in self.tools)

    def get(self, name: str) -> Tool | HostTool | None:
        return next((t for t in self.tools if t.spec.name == name), None)

    def own_names(self) -> tuple[str, ...]:
        """Names of the tools that the daemon itself runs, for the log."""
        return tuple(t.spec.name for t in self.tools if isinstance(t, Tool))

    def unknown(self, name: str) -> str:
        """What a model is told that called a tool which is not there."""
        import difflib

        names = [t.spec.name for t in self.tools]
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        if close:
            return f"There is no tool `{name}`. Did you mean {' or '.join(f'`{c}`' for c in close)}?"
        return f"There is no tool `{name}`. The tools are: {', '.join(names) or 'none'}."
