"""What the types of a configuration declare, by key: what a key takes, and what is wrong with a layer. Pure.

`root` is the type of the whole configuration: a struct of sections, which are structs or free tables. A path is a key
in its parts, e.g. `["compaction", "soft_ratio"]`.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from sidecar.errors import Fault


def type_at(root: type[Struct], path: Sequence[str]) -> Any:
    """The declared type of a key, annotations included; None if there is no such key."""
    kind: Any = root
    for part in path:
        kind = plain_type(kind)
        if isinstance(kind, type) and issubclass(kind, Struct):
            hints = get_type_hints(kind, include_extras=True)
            if part not in hints:
                return None
            kind = hints[part]
        elif get_origin(kind) in (dict, tuple):
            kind = get_args(kind)[1 if get_origin(kind) is dict else 0]
        else:
            return None
    return kind


def plain_type(kind: Any) -> Any:
    """Without annotations and `None`: `int` of `Annotated[int, ...] | None`."""
    while get_origin(kind) is Annotated or get_origin(kind) in (Union, types.UnionType):
        args = [a for a in get_args(kind) if a is not type(None)]
        kind = args[0]
    return kind


def known_keys(root: type[Struct], path: Sequence[str]) -> list[str]:
    """The keys of the section at `path`; none for a free table."""
    kind = plain_type(type_at(root, path))
    return list(kind.__struct_fields__) if isinstance(kind, type) and issubclass(kind, Struct) else []


def describe(root: type[Struct], path: Sequence[str]) -> str:
    """What a key takes, in words: `a number from 0.5 to 0.99`."""
    kind = type_at(root, path)
    if kind is None:
        return ""
    optional = get_origin(kind) in (Union, types.UnionType) and type(None) in get_args(kind)
    if optional:
        kind = next(a for a in get_args(kind) if a is not type(None))
    meta = next((m for m in getattr(kind, "__metadata__", ()) if isinstance(m, Meta)), None)
    base = plain_type(kind)
    if get_origin(base) is Literal:
        return "one of " + ", ".join(repr(a) for a in get_args(base))
    name = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}.get(base, "")
    if not name:
        name = "a list of texts" if get_origin(base) is tuple else "a table"
    if meta is not None:
        low = meta.ge if meta.ge is not None else meta.gt
        if low is not None and meta.le is not None:
            return f"{name} {'from' if meta.gt is None else 'over'} {low} to {meta.le}"
        if low is not None:
            return f"{name} of at least {low}"
    return name


def fits(root: type[Struct], path: Sequence[str], value: Any) -> bool:
    """Whether a value is allowed at a key, by itself."""
    for part in reversed(path):
        value = {part: value}
    try:
        msgspec.convert(value, root, strict=True)
    except msgspec.ValidationError:
        return False
    return True


def fault_of(
    error: msgspec.ValidationError,
    root: type[Struct],
    layer: Mapping[str, Any],
    source: str,
    may_be_secret: Callable[[Sequence[str], Any], bool],
) -> Fault:
    """`config_invalid` for a layer that is no `root`: it names key, value and range, but no value that `may_be_secret`
    says is private."""
    detail, _, where = str(error).partition(" - at `")
    path = _offender(root, layer, re.findall(r"\[\.\.\.\]|[^.\[\]]+", where.rstrip("`").lstrip("$")))
    unknown = re.match(r"Object contains unknown field `(.*)`", detail)
    if unknown:
        key = ".".join([*path, unknown.group(1)])
        return Fault(
            "config_invalid",
            f"Unknown configuration key {key!r} ({source})",
            hint=f"known keys here: {', '.join(known_keys(root, path)) or 'none'}",
            key=key,
        )
    key = ".".join(path)
    value: Any = layer
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, (list, tuple)) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
    wanted = describe(root, path) or detail
    private = may_be_secret(path, value)
    shown = isinstance(value, (int, float, bool, str)) and not private
    said = f"<{type(value).__name__}>" if private else _short(value)
    return Fault(
        "config_invalid",
        f"{key} = {said} is not allowed ({source}): wanted {wanted}",
        hint=f"set {key} to {wanted}",
        key=key,
        value=value if shown else None,
        range=wanted,
    )


def _offender(root: type[Struct], layer: Mapping[str, Any], path: list[str]) -> list[str]:
    """The whole path. msgspec writes keys of free dicts as `[...]`: the entry that fails alone is the one."""
    found: list[str] = []
    here: Any = layer
    for part in path:
        if part == "[...]":
            entries = here.items() if isinstance(here, Mapping) else ()
            part = next((name for name, value in entries if not fits(root, [*found, name], value)), "")
            if not part:
                break
        found.append(part)
        here = here.get(part) if isinstance(here, Mapping) else None
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
