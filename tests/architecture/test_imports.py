"""Imports go one way: protocol, record_store, and the layers inside the program."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest

from tests.architecture.source import PACKAGES, Module, modules

LAYERS: tuple[tuple[str, ...], ...] = (
    ("settings", "errors", "clock", "ids", "logs"),
    ("providers", "tokens"),
    ("compaction", "tools", "memory", "skills", "instructions"),
    ("approvals",),
    ("agent",),
    ("sessions",),
    ("rpc", "acp", "inspect"),
    ("app",),
    ("headless", "demo"),
    ("cli",),
    ("__main__",),
)
"""From the ground up; a part imports itself and what stands on lower layers.

Ways in that hold a whole daemon in their process (`sidecar run`, the demo) stand on the composition root.
"""

COMPOSITION = {"sidecar.rpc.command"}
"""Modules that only put parts together, wherever they lie."""

LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}
LEVEL |= {m.path.stem: 0 for m in modules("sidecar") if len(m.path.parts) == 2 and m.path.stem not in LEVEL}
"""Single modules beside the packages are of the ground unless they are named above."""

PORTS = {"sidecar.tools.port", "sidecar.rpc.port", "sidecar.providers.port", "sidecar.tokens.port"}
"""Pure descriptions of what one part asks of another: neighbours on the same layer may import them."""

CLIENT_MAY_IMPORT = {"protocol", "anyio", "msgspec", "orjson"}
"""Beside the standard library."""

PURE = {"protocol": {"protocol", "msgspec"}, "record_store": {"protocol", "record_store"}}


def part_of(name: str) -> str:
    """`tools` of `sidecar.tools.files`; empty for the package itself."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def ours(name: str) -> str | None:
    head = name.split(".")[0]
    return head if head in ("protocol", "record_store", "sidecar", "tests", "scripts") else None


@pytest.mark.parametrize("package", sorted(PURE))
def test_packages_below_the_program_import_nothing_above(package: str) -> None:
    wrong = [
        f"{m.path}:{line} imports {name}"
        for m in modules(package)
        for name, line in m.imports()
        if ours(name) is not None and ours(name) not in PURE[package]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_program_never_imports_tests_or_scripts() -> None:
    wrong = [
        f"{m.path}:{line} imports {name}"
        for m in modules()
        for name, line in m.imports()
        if ours(name) in ("tests", "scripts")
    ]
    assert not wrong, "\n".join(wrong)


def violations(module: Module) -> list[str]:
    own = part_of(module.name)
    wrong: list[str] = []
    if module.name in COMPOSITION:
        return wrong
    for name, line in module.imports():
        if not name.startswith("sidecar."):
            continue
        target = part_of(name)
        if target in ("", own) or own == "":
            continue
        if target == "client" or own == "client":
            continue
        port = any(name == p or name.startswith(p + ".") for p in PORTS)
        if LEVEL[target] > LEVEL[own] or (LEVEL[target] == LEVEL[own] and LEVEL[own] and not port):
            wrong.append(f"{module.path}:{line} ({own}) imports {name}")
    return wrong


def test_every_part_of_the_program_has_a_layer() -> None:
    unknown = {part_of(m.name) for m in modules("sidecar")} - LEVEL.keys() - {"", "client"}
    assert not unknown, f"place it in LAYERS: {sorted(unknown)}"


def test_layers_import_downwards_only() -> None:
    wrong = [v for m in modules("sidecar") for v in violations(m)]
    assert not wrong, "\n".join(wrong)


POSIX_ONLY = {"fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}


def for_any_system(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when a module is imported, wherever: neither what functions do nor branches for one system."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "sys.platform" in ast.unparse(child.test):
            continue
        yield child
        yield from for_any_system(child)


def test_modules_import_nothing_that_windows_lacks() -> None:
    wrong = [
        f"{m.path}:{node.lineno} imports {name} on every system"
        for m in modules(*PACKAGES)
        for node in for_any_system(m.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        if name in POSIX_ONLY
    ]
    assert not wrong, "\n".join(wrong)


def test_only_edges_use_the_client() -> None:
    wrong = [
        f"{m.path}:{line}"
        for m in modules("sidecar")
        if part_of(m.name) not in ("client", "acp", "headless", "cli", "demo")
        for name, line in m.imports()
        if name.startswith("sidecar.client")
    ]
    assert not wrong, "\n".join(wrong)


def test_the_client_stands_on_the_protocol_alone() -> None:
    wrong = [
        f"{m.path}:{line} imports {name}"
        for m in modules("sidecar")
        if part_of(m.name) == "client"
        for name, line in m.imports()
        if not name.startswith("sidecar.client")
        and name.split(".")[0] not in CLIENT_MAY_IMPORT | set(sys.stdlib_module_names)
    ]
    assert not wrong, "\n".join(wrong)


def test_heavy_packages_are_loaded_only_where_they_are_used() -> None:
    """What costs start-up time is imported inside functions, or in modules that are themselves loaded late."""
    heavy = {"acp": "sidecar.acp", "mcp": "sidecar.tools.mcp", "yaml": "", "tiktoken": "sidecar.tokens"}
    wrong = []
    for m in modules("sidecar"):
        top = {node.lineno for node in m.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))}
        for name, line in m.imports():
            home = heavy.get(name.split(".")[0])
            if line in top and home is not None and not (home and m.name.startswith(home)):
                wrong.append(f"{m.path}:{line} imports {name} at module level")
    assert not wrong, "\n".join(wrong)
