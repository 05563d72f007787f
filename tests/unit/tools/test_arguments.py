"""Arguments against schemas, in words for a model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.messages import ToolSpec
from sidecar.tools.plain_schema import is_plain
from sidecar.tools.registry import builtin_tools
from sidecar.tools.schema import defect, mismatch


async def check(schema: dict[str, Any], arguments: dict[str, Any]) -> str | None:
    return await mismatch(ToolSpec(name="t", parameters=schema), arguments)


PLAIN = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 10},
        "todos": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"status": {"type": "string", "enum": ["pending", "done"]}},
                "required": ["status"],
            },
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({}, "- `path`: is required and was not given"),
        ({"path": 3}, "- `path`: must be a string, got 3"),
        ({"path": None}, "- `path`: must be a string, got null"),
        ({"path": "x", "limit": "3"}, '- `limit`: must be an integer, got the text "3"'),
        ({"path": "x", "limit": True}, "- `limit`: must be an integer, got true"),
        ({"path": "x", "limit": 0}, "- `limit`: must be at least 1, got 0"),
        ({"path": "x", "limit": 11}, "- `limit`: must be at most 10, got 11"),
        ({"path": "x", "pth": "y"}, "- `pth`: is not a parameter; did you mean `path`?"),
        (
            {"path": "x", "todos": [{"status": "done"}, {"status": "doing"}]},
            '- `todos[1].status`: must be one of "pending", "done"; got the text "doing"',
        ),
        ({"path": "x", "todos": [{}]}, "- `todos[0].status`: is required and was not given"),
        ({"path": "x", "todos": {}}, "- `todos`: must be an array, got an object {}"),
    ],
)
async def test_a_mismatch_names_the_place_and_the_fix(arguments: dict[str, Any], line: str) -> None:
    for schema in (PLAIN, {**PLAIN, "$schema": "https://json-schema.org/draft/2020-12/schema", "allOf": [{}]}):
        text = await check(schema, arguments)
        assert text is not None
        assert text.splitlines()[0] == "The arguments of `t` do not fit its parameters:"
        assert line in text.splitlines()
        assert "Parameters: path (required), limit, todos." in text
        assert "Nothing was run" in text
    assert is_plain(PLAIN)


async def test_what_fits_passes(tmp_path: Path) -> None:
    for arguments in (
        {"path": "x"},
        {"path": "x", "limit": 10},
        {"path": "x", "limit": 3.0, "todos": [{"status": "done"}]},
    ):
        assert await check(PLAIN, arguments) is None
        assert await check({**PLAIN, "allOf": [{}]}, arguments) is None


async def test_schemas_that_are_not_plain() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"type": "string", "pattern": "^x"}, {"type": "integer"}]},
            "b": {"$ref": "#/$defs/b"},
        },
        "$defs": {"b": {"type": "array", "items": {"type": "number"}}},
    }
    assert not is_plain(schema)
    assert await check(schema, {"a": "xy", "b": [1, 2.5]}) is None
    text = await check(schema, {"a": "y"})
    assert text is not None
    assert "`a`" in text
    text = await check(schema, {"b": ["no"]})
    assert text is not None
    assert '`b[0]`: must be a number, got the text "no"' in text


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"type": "object", "properties": []},
        {"type": 5},
        {"$ref": "https://example.invalid/schema.json"},
        {"$ref": "#/nowhere"},
        {"properties": {"a": {"$ref": "#"}}, "$ref": "#"},
        {"properties": {"a": {"pattern": "("}}},
        {"minimum": "x"},
        {"$schema": "urn:unknown", "type": "object"},
    ],
)
async def test_a_schema_that_is_none_breaks_no_call(schema: dict[str, Any]) -> None:
    assert await check(schema, {"a": "b"}) is None


async def test_a_defect_is_told_to_the_host() -> None:
    assert await defect(PLAIN) is None
    assert await defect({"anyOf": [{"type": "string"}]}) is None
    assert "nonsense" in (await defect({"type": "nonsense"}) or "")


async def test_a_pattern_that_never_ends_lets_the_call_through() -> None:
    schema = {"properties": {"a": {"type": "string", "pattern": "^(a|aa)+$"}}}
    assert await check(schema, {"a": "a" * 60 + "b"}) is None
    assert await check(schema, {"a": "b"}) is not None


async def test_long_values_are_shortened() -> None:
    text = await check(PLAIN, {"path": {"x": "y" * 10_000}})
    assert text is not None
    assert len(text) < 400


def test_the_daemons_own_schemas_need_no_library() -> None:
    for tool in builtin_tools():
        assert is_plain(tool.spec.parameters), tool.spec.name
        assert tool.spec.parameters["additionalProperties"] is False
    code = (
        "import anyio, sys\n"
        "from sidecar.tools.registry import builtin_tools\n"
        "from sidecar.tools.schema import mismatch\n"
        "for t in builtin_tools(): anyio.run(mismatch, t.spec, {'path': 1})\n"
        "print([m for m in ('jsonschema', 'regex', 'mcp') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.stdout == "[]\n", done.stderr
