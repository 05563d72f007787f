"""What every strict stand-in asks of a request's JSON. Pure; standard library only."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Refused(Exception):
    """The request is wrong; the text says how."""


def need(condition: object, why: str) -> None:
    if not condition:
        raise Refused(why)


def parse(body: bytes) -> dict[str, Any]:
    """The body as one JSON object: strict UTF-8, no key twice, no NaN, no lone surrogate."""
    try:
        value = json.loads(body.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise Refused("the body is no UTF-8") from None
    except ValueError as error:
        raise Refused(f"the body is no JSON: {error}") from None
    need(isinstance(value, dict), "the body is no object")
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refused("a text has a lone surrogate") from None
    assert isinstance(value, dict)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [k for k, _ in pairs]
    need(len(keys) == len(set(keys)), f"a key stands twice in {keys}")
    return dict(pairs)


def _no_constant(name: str) -> None:
    raise Refused(f"{name} is no JSON")


def fields(value: Any, where: str, required: set[str], optional: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    need(isinstance(value, dict), f"{where} is no object")
    missing, unknown = required - set(value), set(value) - required - optional
    need(not missing, f"{where} lacks {sorted(missing)}")
    need(not unknown, f"{where} has unknown fields {sorted(unknown)}")


def text(value: Any, where: str) -> None:
    need(isinstance(value, str) and value, f"{where} is no text, or an empty one")


def image_data(value: Any, where: str) -> None:
    need(isinstance(value, str) and value, f"{where} has no data")
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Refused(f"{where} is no base64") from None
