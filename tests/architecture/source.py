"""The project's own source as syntax trees, for checks of its structure."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("protocol", "record_store", "sidecar")


@dataclass(frozen=True)
class Module:
    """One file; `name` is dotted, `path` relative to the root."""

    name: str
    path: Path
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def imports(self) -> tuple[tuple[str, int], ...]:
        """Every absolute name that is imported when it runs, and the line: `from a import b` gives `a.b`."""
        return self._imports

    @functools.cached_property
    def _imports(self) -> tuple[tuple[str, int], ...]:
        return tuple(self._imported())

    def _imported(self) -> Iterator[tuple[str, int]]:
        for node in self._running(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name, node.lineno
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    yield f"{self._origin(node)}.{alias.name}", node.lineno

    def _running(self, node: ast.AST) -> Iterator[ast.AST]:
        """All nodes but those that only type checkers look at."""
        yield node
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
                continue
            yield from self._running(child)

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        if self.path.name != "__init__.py":
            parts = parts[:-1]
        parts = parts[: len(parts) - node.level + 1]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def comments(self) -> Iterator[tuple[str, int]]:
        """Comments and docstrings, with their lines."""
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string, token.start[0]
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield node.value.value, node.lineno


@functools.cache
def modules(*packages: str) -> tuple[Module, ...]:
    """All modules of these packages, by default the three that are installed."""
    found = []
    for package in packages or PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if "__pycache__" in relative.parts or "third_party" in relative.parts:
                continue
            parts = relative.with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found.append(Module(name, relative, path.read_text(encoding="utf-8")))
    return tuple(found)
