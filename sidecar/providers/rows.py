"""What a configured provider's row has to be beyond its types: quirks of its dialect, sendable headers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from sidecar.errors import Fault
from sidecar.providers.quirks import chat_quirks, messages_quirks
from sidecar.settings import ProviderSettings

DialectName = Literal["openai", "anthropic", "scripted"]

USUAL: Mapping[str, DialectName] = {"openai": "openai", "anthropic": "anthropic", "scripted": "scripted"}
"""Dialects of the built-in names; any other name speaks chat completions."""


def dialect_of(name: str, row: ProviderSettings | None) -> DialectName:
    """The configured dialect, else the usual one of the name."""
    return (row.dialect if row is not None else None) or USUAL.get(name, "openai")


def check_rows(rows: Mapping[str, ProviderSettings]) -> None:
    """Raises `config_invalid` for the first quirk that its dialect does not know, or header that cannot be sent."""
    for name, row in rows.items():
        dialect = dialect_of(name, row)
        if dialect != "scripted":
            (messages_quirks if dialect == "anthropic" else chat_quirks)(name, row.base_url or "", row.quirks)
        check_headers(name, row.headers)


def check_headers(name: str, headers: Mapping[str, str]) -> None:
    for key, value in headers.items():
        if not _is_header(key, value):
            raise Fault(
                "config_invalid",
                f"providers.{name}.headers.{key} cannot be sent as an HTTP header",
                hint="use printable ASCII without line breaks",
                key=f"providers.{name}.headers",
            )


_CREDENTIAL = re.compile(
    r"authorization|cookie|token|secret|password|credential|api[-_]?key|auth[-_]?key", re.IGNORECASE
)

_CREDENTIAL_FIELD = re.compile(
    r"(.*[-_])?(api[-_]?key|authorization|(access|api|auth|bearer)[-_]?token|secret|password|credentials?)",
    re.IGNORECASE,
)
"""A field of a request's body: `max_tokens` and `eos_token` are none."""


def check_no_credentials(rows: Mapping[str, Any]) -> None:
    """Raises `config_invalid` for a credential in a session's own provider rows: they are kept in its log."""
    for name, row in rows.items():
        carried = [f"headers.{h}" for h in row.get("headers", ()) if _CREDENTIAL.search(h)]
        if secrets_in(row.get("base_url") or ""):
            carried.append("base_url")
        carried += [f"quirks.{place}" for place in _credential_fields(row.get("quirks", {}))]
        if carried:
            key = f"providers.{name}.{carried[0]}"
            raise Fault(
                "config_invalid",
                f"{key} holds a credential, which a session cannot: its configuration is kept in its log",
                hint="name a variable of the daemon's environment in api_key_env, or set it in config.toml",
                key=key,
            )


def _credential_fields(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if _CREDENTIAL_FIELD.fullmatch(name):
            yield name
        elif isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in _credential_fields(value))


def credentials_in(headers: Mapping[str, str]) -> list[str]:
    """Values of the headers that are named like credentials, whole and word by word (`Bearer` and `Basic` left out)."""
    values = [value for name, value in headers.items() if _CREDENTIAL.search(name)]
    words = [word for value in values for word in value.split() if word.lower() not in ("bearer", "basic")]
    return [*values, *words]


def secrets_in(url: str) -> list[str]:
    """Credentials that an address carries: its password, and what its query calls a key. As they stand, and plain."""
    try:
        parts = urlsplit(url)
    except ValueError:  # no address at all: told when it is to be used
        return []
    found = [] if parts.password is None else [parts.password]
    for pair in parts.query.split("&"):
        name, _, value = pair.partition("=")
        if value and (_CREDENTIAL.search(name) or name.lower() == "key"):
            found.append(value)
    return [*found, *(unquote(s) for s in found)]


def _is_header(key: str, value: str) -> bool:
    token = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return token and value.isascii() and value.isprintable()
