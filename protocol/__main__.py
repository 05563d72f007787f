"""`python -m protocol` writes `schema.json` and `REFERENCE.md` beside this file, from the tables and types here."""

from __future__ import annotations

import json
import re
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from protocol import errors
from protocol.events import EVENTS, Event
from protocol.messages import Message, TurnResult
from protocol.methods import METHODS, Method
from protocol.version import PROTOCOL_VERSION

HERE = Path(__file__).resolve().parent


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of everything that crosses the pipe, by method and event."""
    kinds: list[Any] = [*EVENTS, Message, TurnResult]
    for method in METHODS:
        kinds += [k for k in (method.params, method.result, method.also) if k is not None]
    unique = list(dict.fromkeys(kinds))
    refs, components = msgspec.json.schema_components(unique, ref_template="#/$defs/{name}")
    by_kind = dict(zip(unique, refs, strict=True))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sidecar protocol",
        "version": PROTOCOL_VERSION,
        "methods": {
            m.name: {
                "direction": m.direction,
                "kind": m.kind,
                "description": m.summary,
                "params": by_kind[m.params],
                **({"result": by_kind[m.result]} if m.result is not None else {}),
                **({"also": by_kind[m.also]} if m.also is not None else {}),
                **({"errors": list(m.errors)} if m.errors else {}),
            }
            for m in METHODS
        },
        "events": {str(e.__struct_config__.tag): by_kind[e] for e in EVENTS},
        "errors": {reason: {"code": code} for reason, code in errors.CODES.items()},
        "$defs": components,
    }


# ---------------------------------------------------------------- the reference page


def type_text(kind: Any) -> str:
    """A type as the page shows it: `str`, `[Part]`, `"a" | "b"`, `{str: int}`."""
    if kind is None or kind is type(None):
        return "null"
    if kind is Any:
        return "any"
    origin = get_origin(kind)
    if origin is Annotated:
        return type_text(get_args(kind)[0])
    if origin is Literal:
        return " | ".join(json.dumps(a) for a in get_args(kind))
    if origin in (Union, types.UnionType) and get_args(kind) == EVENTS:
        return Event.__name__
    if origin in (Union, types.UnionType):
        return " | ".join(dict.fromkeys(type_text(a) for a in get_args(kind)))
    if origin is tuple:
        return f"[{type_text(get_args(kind)[0])}]"
    if origin is list:
        return f"[{type_text(get_args(kind)[0])}]"
    if origin is dict:
        key, value = get_args(kind)
        return "object" if value is Any else f"{{{type_text(key)}: {type_text(value)}}}"
    return str(getattr(kind, "__name__", kind))


def fields_text(kind: Any) -> str:
    """`{session_id: str, wait?: bool}`: a question mark where a field may be left out."""
    if kind is None:
        return "-"
    if not (isinstance(kind, type) and issubclass(kind, Struct)):
        return f"`{type_text(kind)}`"
    hints = get_type_hints(kind, include_extras=True)
    required = {f.encode_name for f in msgspec.structs.fields(kind) if f.required}
    parts = []
    tag = kind.__struct_config__
    if tag.tag_field is not None and not issubclass(kind, Event):
        parts.append(f"{tag.tag_field}: {json.dumps(tag.tag)}")
    for name in kind.__struct_fields__:
        text = type_text(hints[name])
        if name not in required:
            name += "?"
            text = re.sub(r" \| null$", "", text)
        parts.append(f"{name}: {text}")
    return "`{" + ", ".join(parts) + "}`"


def doc_of(kind: Any) -> str:
    doc = getattr(kind, "__doc__", None) or ""
    if kind is None or not isinstance(kind, type) or doc.startswith(f"{kind.__name__}("):
        return ""
    return " ".join(doc.split())


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def reference() -> str:
    out = [
        "# Protocol reference",
        "",
        "Written by `python -m protocol` from the types in this package; `schema.json` says the same for machines.",
        f"JSON-RPC 2.0, protocol version {PROTOCOL_VERSION}. "
        "Times are integer milliseconds since 1970, sizes are tokens unless said.",
    ]
    groups = (
        ("Host to daemon: requests", "to_daemon", "request"),
        ("Host to daemon: notifications", "to_daemon", "notification"),
        ("Daemon to host: requests", "to_host", "request"),
        ("Daemon to host: notifications", "to_host", "notification"),
    )
    for title, direction, kind in groups:
        out += ["", f"## {title}"]
        for method in METHODS:
            if (method.direction, method.kind) == (direction, kind):
                out += method_section(method)
    out += [
        "",
        "## Events",
        "",
        "The `event` of `agent.chat.event`; `type` is the name.",
        "",
        "| type | fields | |",
        "|---|---|---|",
    ]
    for event in EVENTS:
        out.append(f"| `{event.__struct_config__.tag}` | {cell(fields_text(event))} | {cell(doc_of(event))} |")
    out += ["", "## Types"]
    for shared in shared_types():
        out += ["", f"### {shared.__name__}", "", fields_text(shared)]
        if doc_of(shared):
            out += ["", doc_of(shared)]
    out += [
        "",
        "## Errors",
        "",
        "`data.reason` is the word; `data.hint` says what to do, where there is something.",
        "",
    ]
    out += ["| code | reason |", "|---|---|"]
    out += [f"| {code} | `{reason}` |" for reason, code in errors.CODES.items()]
    return "\n".join(out) + "\n"


def method_section(method: Method) -> list[str]:
    out = ["", f"### {method.name}", "", method.summary, "", f"- params: {fields_text(method.params)}"]
    if doc_of(method.params):
        out.append(f"  {doc_of(method.params)}")
    if method.kind == "request":
        out.append(f"- result: {fields_text(method.result)}")
        if doc_of(method.result):
            out.append(f"  {doc_of(method.result)}")
        if method.also is not None:
            out.append(f"- or: {fields_text(method.also)}")
    if method.errors:
        out.append("- errors: " + ", ".join(f"`{e}`" for e in method.errors))
    return out


def shared_types() -> list[type[Struct]]:
    """Structs that params, results and events are made of, by name."""
    roots = {m.params for m in METHODS} | {m.result for m in METHODS} | set(EVENTS)
    found: dict[str, type[Struct]] = {}

    def visit(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, Struct):
            if kind not in roots:
                if kind.__name__ in found:
                    return
                found[kind.__name__] = kind
            for hint in get_type_hints(kind, include_extras=True).values():
                visit(hint)
            return
        for arg in get_args(kind):
            visit(arg)

    for root in roots:
        visit(root)
    return [found[name] for name in sorted(found)]


def main() -> None:
    (HERE / "schema.json").write_text(
        json.dumps(schema(), indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8"
    )
    (HERE / "REFERENCE.md").write_text(reference(), "utf-8")


if __name__ == "__main__":
    main()
