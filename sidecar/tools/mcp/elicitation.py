"""What a server wants to know from the user in the middle of a call: a form becomes questions, answers a form.

A form has a few plain fields. Each is one question to the user; nobody to ask, or an answer that does not fit, and the
server is told that the user gave none. Requests to open an address are declined: no host shows one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from anyio import to_thread

from protocol.messages import JsonObject
from sidecar.tools.text import clean, clip

MAX_FIELDS = 10
MAX_TEXT = 2_000

Ask = Callable[[str, tuple[str, ...] | None], Awaitable[str | None]]
"""Asks the user a question, with the answers to choose from if these are all; None: there is no answer."""

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a form. `options` are all answers that there are, or None for a free one."""

    name: str
    question: str
    kind: str
    options: tuple[str, ...] | None
    required: bool


def fields_of(message: str, schema: Mapping[str, Any]) -> list[Field]:
    """The form's fields as questions. A form without fields is a question of yes or no, and has none."""
    properties = schema.get("properties")
    required = schema.get("required") or ()
    found: list[Field] = []
    for name, field in list(properties.items())[:MAX_FIELDS] if isinstance(properties, Mapping) else ():
        if not isinstance(field, Mapping):
            continue
        label = str(field.get("title") or field.get("description") or name)
        question = message if len(properties or ()) == 1 else f"{message}\n{label}"
        kind = str(field.get("type") or "string")
        options = ("yes", "no") if kind == "boolean" else _choices(field)
        found.append(Field(str(name), clip(clean(question), MAX_TEXT), kind, options, name in required))
    return found


def _choices(field: Mapping[str, Any]) -> tuple[str, ...] | None:
    choices = field.get("enum")
    if not isinstance(choices, list):
        choices = [c.get("const") for c in field.get("oneOf") or () if isinstance(c, Mapping)]
    texts = tuple(c for c in choices if isinstance(c, str))
    return texts or None


def value_of(field: Field, answer: str) -> Value | None:
    """The answer as the field wants it; None if it does not fit."""
    text = answer.strip()
    match field.kind:
        case "boolean":
            return {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}.get(text.lower())
        case "integer" | "number":
            try:
                return int(text) if field.kind == "integer" else float(text)
            except ValueError:
                return None
        case "string":
            return text if field.options is None or text in field.options else None
        case _:
            return None


async def fill(message: str, schema: Mapping[str, Any], ask: Ask) -> JsonObject | None:
    """The filled form; None if the user did not, or could not, fill it."""
    fields = fields_of(message, schema)
    if not fields:
        answer = await ask(clip(clean(message), MAX_TEXT), ("yes", "no"))
        return {} if answer is not None and answer.strip().lower() in ("yes", "y") else None
    content: JsonObject = {}
    for field in fields:
        answer = await ask(field.question, field.options)
        value = None if answer is None else value_of(field, answer)
        if value is not None:
            content[field.name] = value
        elif field.required:
            return None
    return content or None


async def callback(ask: Ask) -> Any:
    """The function that the `mcp` package calls for a server's request. Imports it in a thread."""
    types = await to_thread.run_sync(import_module, "mcp_types")

    async def elicit(_context: Any, params: Any) -> Any:
        if getattr(params, "mode", "form") != "form":
            return types.ElicitResult(action="decline")
        schema = params.requested_schema
        plain = schema if isinstance(schema, Mapping) else schema.model_dump(by_alias=True, exclude_none=True)
        content = await fill(params.message, plain, ask)
        return (
            types.ElicitResult(action="decline")
            if content is None
            else types.ElicitResult(action="accept", content=content)
        )

    return elicit
