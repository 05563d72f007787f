"""Where an endpoint differs from its dialect's standard: declared as data, chosen by address or name. Pure.

The order, later wins: the standard, the row of the provider's name, the row of its address, the setting
`providers.<name>.quirks`. Only a quirk makes a request carry a field that the dialect's standard does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from sidecar.errors import Fault

JsonFields = dict[str, Any]

DEFAULT_MAX_TOKENS = 8_192
"""Output limit of a model of the Messages dialect whose own is not known: the dialect requires one."""


class ChatQuirks(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of an endpoint that speaks chat completions."""

    stream_options: bool = True
    """Whether usage may be asked for with `stream_options`."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    system_role: Literal["system", "developer"] = "system"
    reasoning_replay: Literal["none", "tool_calls", "all"] = "none"
    """Which assistant messages carry `reasoning_content` back: none, those with calls (then always), or all."""
    parallel_tool_calls: bool | None = None
    """Sent as it is; None: not sent."""
    images: bool = True
    """Whether the endpoint takes images at all; else the model gets a text that names them."""
    tool_images: Literal["user", "inline", "none"] = "user"
    """Where images of a tool result go: a user message after the results, the result itself, nowhere."""
    string_content: bool = False
    """Whether text has to be one string even where it has several parts."""
    strict_names: bool = False
    """Whether names of called tools have to match `[A-Za-z0-9_-]{1,64}`, those of past calls too."""
    call_ids: Literal["any", "max_40", "alnum_9"] = "any"
    repair_arguments: bool = False
    """Whether arguments that are no JSON object have to be made one."""
    unsigned_calls: bool = False
    """Whether replayed calls have to say that their thought signatures were not kept (Gemini refuses them else)."""
    auth: Literal["bearer", "api-key", "x-api-key"] = "bearer"
    extra_body: JsonFields = field(default_factory=dict)
    """Further top-level fields of every request."""


class MessagesQuirks(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of an endpoint that speaks Messages."""

    cache_control: bool = True
    images: bool = True
    default_max_tokens: int = DEFAULT_MAX_TOKENS
    """`max_tokens` when neither the request nor the model table has one."""
    auth: Literal["x-api-key", "bearer"] = "x-api-key"
    extra_body: JsonFields = field(default_factory=dict)


Quirks = ChatQuirks | MessagesQuirks
Q = TypeVar("Q", ChatQuirks, MessagesQuirks)

RESERVED_FIELDS = frozenset({"model", "messages", "tools", "system", "stream", "stream_options", "max_tokens",
                             "max_completion_tokens", "n"})  # fmt: skip
"""Fields that `extra_body` may not set: the encoder owns them."""

_LOCAL = {"repair_arguments": True}
_CHAT: dict[str, JsonFields] = {
    "api.openai.com": {"max_tokens_field": "max_completion_tokens", "strict_names": True, "call_ids": "max_40"},
    "openai.azure.com": {
        "max_tokens_field": "max_completion_tokens", "strict_names": True, "call_ids": "max_40", "auth": "api-key",
    },
    "api.deepseek.com": {"reasoning_replay": "tool_calls", "string_content": True},
    "api.moonshot.ai": {"reasoning_replay": "all"},
    "api.moonshot.cn": {"reasoning_replay": "all"},
    "api.kimi.com": {"reasoning_replay": "all"},
    "api.mistral.ai": {"stream_options": False, "call_ids": "alnum_9"},
    "api.groq.com": {"max_tokens_field": "max_completion_tokens"},
    "api.cerebras.ai": {"max_tokens_field": "max_completion_tokens", "images": False},
    "generativelanguage.googleapis.com": {"unsigned_calls": True},
    "localhost:11434": _LOCAL,
    "localhost:1234": _LOCAL,
}  # fmt: skip
"""By host: the host itself or a domain that it ends in; loopback ones by their well-known port."""

_CHAT_NAMES: dict[str, JsonFields] = {
    "deepseek": _CHAT["api.deepseek.com"],
    "kimi": _CHAT["api.moonshot.ai"],
    "moonshot": _CHAT["api.moonshot.ai"],
    "mistral": _CHAT["api.mistral.ai"],
    "gemini": _CHAT["generativelanguage.googleapis.com"],
    "azure": _CHAT["openai.azure.com"],
    "ollama": _LOCAL,
    "lmstudio": _LOCAL,
    "vllm": _LOCAL,
    "llamacpp": _LOCAL,
}

_MESSAGES: dict[str, JsonFields] = {
    "api.deepseek.com": {"images": False},
    "openrouter.ai": {"auth": "bearer"},
}


def chat_quirks(name: str, base_url: str, overrides: Mapping[str, Any]) -> ChatQuirks:
    """Raises `config_invalid` when an override is unknown or wrong."""
    layers = {**_CHAT_NAMES.get(name, {}), **_by_host(_CHAT, base_url)}
    return _merge(ChatQuirks, name, layers, overrides)


def messages_quirks(name: str, base_url: str, overrides: Mapping[str, Any]) -> MessagesQuirks:
    """Raises `config_invalid` when an override is unknown or wrong."""
    return _merge(MessagesQuirks, name, _by_host(_MESSAGES, base_url), overrides)


def _by_host(table: Mapping[str, JsonFields], base_url: str) -> JsonFields:
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return {}
    if is_loopback(host):
        return table.get(f"localhost:{port}", {})
    while host:
        if host in table:
            return table[host]
        host = host.partition(".")[2]
    return {}


def is_loopback(host: str) -> bool:
    """Whether this host name can only be this machine."""
    return host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.") or host.endswith(".localhost")


def _merge(kind: type[Q], name: str, layers: JsonFields, overrides: Mapping[str, Any]) -> Q:
    key = f"providers.{name}.quirks"
    unknown = next((k for k in overrides if k not in kind.__struct_fields__), None)
    if unknown is not None:
        raise Fault(
            "config_invalid",
            f"Unknown configuration key '{key}.{unknown}'",
            hint=f"known keys here: {', '.join(kind.__struct_fields__)}",
            key=f"{key}.{unknown}",
        )
    extra = overrides.get("extra_body")
    taken = next((k for k in extra if k in RESERVED_FIELDS), None) if isinstance(extra, Mapping) else None
    if taken is not None:
        raise Fault(
            "config_invalid",
            f"{key}.extra_body cannot set {taken!r}: it is a field of every request",
            hint="remove it from extra_body",
            key=f"{key}.extra_body.{taken}",
        )
    try:
        return msgspec.convert({**layers, **overrides}, kind, strict=True)
    except msgspec.ValidationError as error:
        field_name = str(error).partition(" - at `$.")[2].rstrip("`")
        value = overrides.get(field_name)
        wanted = _wanted(kind, field_name)
        raise Fault(
            "config_invalid",
            f"{key}.{field_name} = {repr(value)[:80]} is not allowed: wanted {wanted}",
            hint=f"set {key}.{field_name} to {wanted}",
            key=f"{key}.{field_name}",
            range=wanted,
        ) from None


def _wanted(kind: type[Struct], field_name: str) -> str:
    """What a quirk takes, in words."""
    hint = get_type_hints(kind).get(field_name)
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(a) for a in get_args(hint))
    if hint is int:
        return "an integer"
    return "a table" if field_name == "extra_body" else "true or false"
