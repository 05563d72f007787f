"""JSON Schemas of plain values: which they are, and what does not fit them. Pure.

These are objects, arrays and simple values with bounds, without references, combinations or patterns. On them this
module and `jsonschema` agree; a property test says so.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sidecar.tools.text import clip

MAX_DEPTH = 16

_NOTES = frozenset(("description", "title", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"))
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_MEASURED: dict[str, tuple[type[list[Any]] | type[str] | type[dict[str, Any]], str]] = {
    "Items": (list, "items"),
    "Length": (str, "characters"),
    "Properties": (dict, "properties"),
}
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")


@dataclass(frozen=True, slots=True)
class Problem:
    """`path` leads to the value (names and indices), `text` says what is wrong with it."""

    path: tuple[str | int, ...]
    text: str


def is_plain(schema: Any, depth: int = 0) -> bool:
    """Whether `problems` knows everything that this schema says."""
    if schema is True:
        return True
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return False
    return all(_is_plain_keyword(key, value, depth) for key, value in schema.items())


def _is_plain_keyword(key: str, value: Any, depth: int) -> bool:
    match key:
        case "type":
            kinds = value if isinstance(value, list) else [value]
            return bool(kinds) and all(k in _TYPES for k in kinds if isinstance(k, str)) and _all_text(kinds)
        case "properties":
            return isinstance(value, dict) and all(is_plain(v, depth + 1) for v in value.values())
        case "items":
            return is_plain(value, depth + 1)
        case "additionalProperties":
            return isinstance(value, bool) or is_plain(value, depth + 1)
        case "required":
            return isinstance(value, list) and _all_text(value)
        case "enum":
            return isinstance(value, list)
        case "const":
            return True
        case "uniqueItems":
            return value is False
    if key in _COUNTS:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if key in _BOUNDS:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return key in _NOTES


def _all_text(values: list[Any]) -> bool:
    return all(isinstance(v, str) for v in values)


def problems(schema: Any, value: Any, path: tuple[str | int, ...] = ()) -> Iterator[Problem]:
    """What of `value` does not fit a plain schema, in the order of the schema's keywords."""
    if schema is True:
        return
    for keyword, wanted in schema.items():
        for problem in problem_of(keyword, wanted, value, schema):
            yield Problem((*path, *problem.path), problem.text)
    if isinstance(value, dict):
        named = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        for name, inner in value.items():
            if name in named:
                yield from problems(named[name], inner, (*path, name))
            elif isinstance(others, dict):
                yield from problems(others, inner, (*path, name))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from problems(schema.get("items", True), inner, (*path, i))


def problem_of(keyword: str, wanted: Any, value: Any, schema: Any) -> Iterator[Problem]:
    """What one keyword of a schema finds wrong with a value, what is inside the value left aside; nothing for keywords
    that are not plain."""
    text: str | None = None
    match keyword:
        case "type":
            kinds = wanted if isinstance(wanted, list) else [wanted]
            if not any(_is_a(value, kind) for kind in kinds):
                text = f"must be {' or '.join(map(_with_article, kinds))}, got {shown(value)}"
        case "enum" if not any(same(value, one) for one in wanted):
            text = f"must be one of {clip(', '.join(map(as_json, wanted)), 300)}; got {shown(value)}"
        case "const" if not same(value, wanted):
            text = f"must be {as_json(wanted)}, got {shown(value)}"
        case "required" if isinstance(value, dict):
            yield from (Problem((name,), "is required and was not given") for name in wanted if name not in value)
        case "additionalProperties" if wanted is False and isinstance(value, dict):
            known = list(schema.get("properties", {})) if isinstance(schema, dict) else []
            matched = schema.get("patternProperties") if isinstance(schema, dict) else None
            if not matched:
                yield from (Problem((n,), _unknown(n, known)) for n in value if n not in known)
        case _:
            text = _out_of_bounds(keyword, wanted, value)
    if text is not None:
        yield Problem((), text)


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return "is not a parameter" + (f"; did you mean `{close[0]}`?" if close else "")


def _out_of_bounds(keyword: str, wanted: Any, value: Any) -> str | None:
    if keyword in _BOUNDS:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        match keyword:
            case "minimum" if value < wanted:
                return f"must be at least {wanted:g}, got {shown(value)}"
            case "maximum" if value > wanted:
                return f"must be at most {wanted:g}, got {shown(value)}"
            case "exclusiveMinimum" if value <= wanted:
                return f"must be over {wanted:g}, got {shown(value)}"
            case "exclusiveMaximum" if value >= wanted:
                return f"must be under {wanted:g}, got {shown(value)}"
        return None
    measured = _MEASURED.get(keyword[3:])
    if measured is None or not isinstance(value, measured[0]):
        return None
    if keyword.startswith("min") and len(value) < wanted:
        return f"must have at least {wanted} {measured[1]}, has {len(value)}"
    if keyword.startswith("max") and len(value) > wanted:
        return f"must have at most {wanted} {measured[1]}, has {len(value)}"
    return None


def _is_a(value: Any, kind: str) -> bool:
    match kind:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "integer":
            return (isinstance(value, int) and not isinstance(value, bool)) or (
                isinstance(value, float) and value.is_integer()
            )
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values: `1` is `1.0` and not `true`."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return bool(one == other)


def _with_article(kind: str) -> str:
    if kind == "null":
        return kind
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def shown(value: Any) -> str:
    """A value that does not fit, with its kind where that is not plain to see."""
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'an array'} {clip(as_json(value), 80)}"
    text = clip(as_json(value), 80)
    return f"the text {text}" if isinstance(value, str) else text


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
