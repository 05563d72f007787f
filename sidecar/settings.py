"""Configuration: every key, its type, range, default and meaning, and how the layers are put together.

Layers, later wins: `config.toml`, the environment (`SIDECAR_<SECTION>_<KEY>`), the session's own `config`.
Every layer is checked whole before anything of it applies; an error names the key, the value and the range.
This is the only module that reads the environment.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

import msgspec
from msgspec import Meta, Struct, field

from sidecar.config_keys import fault_of, fits, known_keys, plain_type, type_at
from sidecar.errors import Fault

Ratio = Annotated[float, Meta(ge=0.0, le=1.0)]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Positive = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the sections: unknown keys are errors."""


class Server(Section, frozen=True):
    """The process. Not settable per session."""

    max_frame_bytes: Annotated[int, Meta(ge=1024, le=1 << 31)] = 32 << 20
    idle_unload_s: Annotated[float, Meta(ge=0, le=31_536_000)] = 900
    max_loaded_sessions: Annotated[int, Meta(ge=1, le=100_000)] = 512
    max_queued_inputs: Annotated[int, Meta(ge=1, le=100_000)] = 256
    outbox_soft_bytes: Annotated[int, Meta(ge=4096, le=1 << 31)] = 1 << 20
    outbox_hard_bytes: Annotated[int, Meta(ge=65536, le=1 << 31)] = 16 << 20


class LoopControl(Section, frozen=True):
    compaction_trigger_ratio: Annotated[float, Meta(ge=0.5, le=0.99)] | None = None
    reserved_context_size: Count | None = None
    max_steps: Annotated[int, Meta(ge=1, le=1_000_000)] = 200
    compaction_max_attempts: Annotated[int, Meta(ge=1, le=100)] = 5
    max_parallel_tools: Annotated[int, Meta(ge=1, le=256)] = 16


class CompactionSettings(Section, frozen=True):
    """None means: the preset or the window decides (`resolve_compaction_policy`)."""

    block_ratio: Annotated[float, Meta(ge=0.5, le=0.99)] | None = None
    auto: bool = True
    objective: Literal["window", "cost"] = "window"
    model: str | None = None
    preset: Literal["default", "handoff", "span", "ladder", "excerpt"] = "default"
    landing: Literal["rebase", "strict"] = "rebase"
    soft_ratio: Ratio | None = None
    snip_ratio: Ratio | None = None
    snip_when: Literal["cold", "always", "never"] | None = None
    force_ratio: Ratio | None = None
    target_ratio: Ratio | None = None
    tail_tokens: Count | None = None
    keep_last_messages: Positive | None = None
    keep_last_tool_results: Count | None = None
    fold_excerpt_chars: Count | None = None
    image_offload: bool | None = None
    keep_last_images: Count | None = None
    recompact_margin_ratio: Ratio | None = None
    micro_compact_interval_steps: Count | None = None
    cache_ttl_s: Annotated[float, Meta(ge=0, le=31_536_000)] | None = None
    max_consecutive_failures: Positive | None = None
    rapid_refill_window_steps: Positive | None = None
    max_rapid_refills: Positive | None = None
    max_overflow_attempts: Positive | None = None
    user_message_max_tokens: Count | None = None
    user_message_head_tokens: Count | None = None
    summary_max_output_tokens: Positive | None = None


class ToolSettings(Section, frozen=True):
    builtin: Literal["none", "read", "edit", "all"] = "none"
    host_wait_s: Annotated[float, Meta(ge=0, le=86_400)] = 30
    record_access: bool = True
    spill_bytes: Annotated[int, Meta(ge=1024, le=1 << 30)] = 50_000
    roots: tuple[str, ...] = ()
    sandbox: Literal["auto", "off", "required"] = "auto"
    sandbox_network: bool = True
    command_timeout_s: Seconds = 120


class ApprovalSettings(Section, frozen=True):
    mode: Literal["ask", "auto_edit", "auto", "deny"] = "ask"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    host_tools: bool = False
    wait_s: Annotated[float, Meta(ge=0, le=31_536_000)] = 300


NOT_STORED = "<not stored>"
"""Stands in a stored configuration where a secret was that only the process knew which was told it."""


class McpServer(Section, frozen=True):
    """`command` starts a server over stdio, `url` reaches one over streamable HTTP. Secrets of one that a session
    itself names are never stored: its host gives them again after a restart."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    timeout_s: Seconds = 60
    trust_hints: bool = False


class Mcp(Section, frozen=True):
    servers: dict[str, McpServer] = field(default_factory=dict)


class ModelSettings(Section, frozen=True):
    """The session's model: `name` is `provider/model`."""

    name: str | None = None
    window: Annotated[int, Meta(ge=256, le=100_000_000)] | None = None
    max_output: Positive | None = None


class ModelRow(Section, frozen=True):
    """One model of the model table; prices are per million tokens, in any currency, the same for all."""

    window: Annotated[int, Meta(ge=256, le=100_000_000)] | None = None
    max_output: Positive | None = None
    input_price: Annotated[float, Meta(ge=0)] | None = None
    cached_price: Annotated[float, Meta(ge=0)] | None = None
    output_price: Annotated[float, Meta(ge=0)] | None = None


class ProviderSettings(Section, frozen=True):
    """None means: the built-in provider's own value, else the documented default."""

    dialect: Literal["openai", "anthropic", "scripted"] | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    connect_timeout_s: Seconds = 10
    idle_timeout_s: Seconds = 120
    max_retries: Annotated[int, Meta(ge=0, le=100)] = 5
    retry_base_s: Annotated[float, Meta(ge=0, le=600)] = 0.5
    quirks: dict[str, Any] = field(default_factory=dict)


class MemorySettings(Section, frozen=True):
    recall: bool = True
    auto_write: bool = True


class SkillSettings(Section, frozen=True):
    enabled: bool = True
    max_agents: Annotated[int, Meta(ge=0, le=256)] = 8
    max_depth: Annotated[int, Meta(ge=0, le=8)] = 2


class InstructionSettings(Section, frozen=True):
    enabled: bool = True


class Settings(Section, frozen=True):
    """All of it, effective."""

    server: Server = Server()
    loop_control: LoopControl = LoopControl()
    compaction: CompactionSettings = CompactionSettings()
    tools: ToolSettings = ToolSettings()
    approval: ApprovalSettings = ApprovalSettings()
    mcp: Mcp = Mcp()
    model: ModelSettings = ModelSettings()
    models: dict[str, ModelRow] = field(default_factory=dict)
    providers: dict[str, ProviderSettings] = field(default_factory=dict)
    memory: MemorySettings = MemorySettings()
    skills: SkillSettings = SkillSettings()
    instructions: InstructionSettings = InstructionSettings()


Layer = dict[str, Any]
"""One layer as nested plain values, e.g. `{"tools": {"builtin": "read"}}`."""

PROCESS_ONLY = ("server",)


# ---------------------------------------------------------------- checking


def check(layer: Mapping[str, Any], *, source: str, session: bool = False) -> Layer:
    """Returns the layer if all of it is valid, else raises `config_invalid` naming key, value and range."""
    if session:
        for name in PROCESS_ONLY:
            if name in layer:
                raise Fault(
                    "config_invalid",
                    f"{name}.* cannot be set per session ({source})",
                    hint=f"set [{name}] in config.toml",
                    key=name,
                )
    try:
        msgspec.convert(layer, Settings, strict=True)
    except msgspec.ValidationError as error:
        raise fault_of(error, Settings, layer, source, _may_be_secret) from None
    return dict(layer)


def known_part(layer: Mapping[str, Any], above: Sequence[str] = ()) -> Layer:
    """The entries of a stored layer that are valid here. What another version wrote and this one does not know or allow
    is left out, each by itself."""
    out: Layer = {}
    for name, value in layer.items():
        path = [*above, name]
        if fits(Settings, path, value):
            out[name] = value
        elif isinstance(value, Mapping):
            inner = known_part(value, path)
            if inner and fits(Settings, path, inner):
                out[name] = inner
    return out


def _may_be_secret(path: Sequence[str], value: Any) -> bool:
    """Headers and environments hold credentials, wherever in a provider's or server's row they were put."""
    if not path or path[0] not in ("providers", "mcp"):
        return False
    return bool({"headers", "env"}.intersection(path)) or isinstance(value, (Mapping, list, tuple))


# ---------------------------------------------------------------- layers


def read_file(path: Path) -> Layer:
    """A checked `config.toml`. Raises `config_invalid` when it cannot be read or is wrong."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise Fault(
            "config_invalid",
            f"The configuration file {path} cannot be read: {error.strerror}",
            hint="check that path, or name another file with --config",
        ) from None
    try:
        layer = tomllib.loads(raw.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Fault("config_invalid", f"{path} is not valid TOML: {error}") from None
    return check(layer, source=path.name)


def read_env(env: Mapping[str, str]) -> Layer:
    """`SIDECAR_COMPACTION_SOFT_RATIO=0.4` sets `compaction.soft_ratio`; `SIDECAR_MODEL` sets `model.name`.

    Variables of no section are left alone: other programs of the user may own them. Raises `config_invalid` for one
    that starts like a section and names no key of it.
    """
    layer: Layer = {}
    if env.get("SIDECAR_MODEL"):
        layer["model"] = {"name": env["SIDECAR_MODEL"]}
    for section in known_keys(Settings, []):
        prefix = f"SIDECAR_{section}_".upper()
        keys = {prefix + key.upper(): key for key in known_keys(Settings, [section])}
        if not keys:
            continue  # a free table: names of its rows are no variables
        for name in sorted(n for n in env if n.startswith(prefix) and env[n] != ""):
            if name not in keys:
                raise Fault(
                    "config_invalid",
                    f"Unknown configuration key {name!r} (environment)",
                    hint=f"unset it; known here: {', '.join(keys)}",
                    key=name,
                )
            layer.setdefault(section, {})[keys[name]] = _parse(env[name], type_at(Settings, [section, keys[name]]))
    return check(layer, source="environment")


def _parse(text: str, kind: Any) -> Any:
    base = plain_type(kind)
    if base is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if base in (int, float):
        try:
            return base(text)
        except ValueError:
            return text
    if get_origin(base) is tuple:
        return [t.strip() for t in text.split(",") if t.strip()]
    return text


def merge(*layers: Mapping[str, Any]) -> Layer:
    """Nested merge; tables are joined, everything else is replaced."""
    out: Layer = {}
    for layer in layers:
        for key, value in layer.items():
            if isinstance(value, Mapping) and isinstance(out.get(key), dict):
                out[key] = merge(out[key], value)
            else:
                out[key] = merge(value) if isinstance(value, Mapping) else value
    return out


def effective(*layers: Mapping[str, Any]) -> Settings:
    """The settings that these checked layers give together, later layers winning."""
    return msgspec.convert(merge(*layers), Settings, strict=True)


def get(settings: Settings, key: str) -> Any:
    """The plain value of a dotted key; a whole section for a section's name. `config_invalid` if there is none."""
    value: Any = msgspec.to_builtins(settings)
    for part in split_key(key):
        if not isinstance(value, dict) or part not in value:
            raise Fault("config_invalid", f"Unknown configuration key {key!r}", key=key)
        value = value[part]
    return value


def split_key(key: str) -> list[str]:
    """`models."openai/x.y".window` has three parts: quotes keep dots together."""
    return [p.strip('"') for p in re.findall(r'"[^"]*"|[^.]+', key)]


def source_of(key: str, layers: Mapping[str, Mapping[str, Any]]) -> str:
    """The name of the last layer that has this key, else `default`."""
    found = "default"
    for name, layer in layers.items():
        value: Any = layer
        for part in split_key(key):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            found = name
    return found


# ---------------------------------------------------------------- places


def home_directory(env: Mapping[str, str] | None = None) -> Path:
    """`$SIDECAR_HOME`, else the platform's user data directory."""
    env = os.environ if env is None else env
    if env.get("SIDECAR_HOME"):
        return Path(os.path.expanduser(env["SIDECAR_HOME"]))
    return _user_dir(env, "XDG_DATA_HOME", ".local/share", "LOCALAPPDATA") / "sidecar"


def config_file(env: Mapping[str, str] | None = None) -> Path:
    """Where `config.toml` is looked for when `--config` is not given."""
    env = os.environ if env is None else env
    return _user_dir(env, "XDG_CONFIG_HOME", ".config", "APPDATA") / "sidecar" / "config.toml"


def user_home(env: Mapping[str, str]) -> Path:
    """The user's home directory; one that is not there for a user who has none, as in a bare container."""
    home = env.get("HOME") or os.path.expanduser("~")
    return Path(home) if home != "~" else Path("/nonexistent")


def _user_dir(env: Mapping[str, str], xdg: str, unix: str, windows: str) -> Path:
    home = user_home(env)
    if sys.platform == "win32":
        return Path(env.get(windows) or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    return Path(env.get(xdg) or home / unix)


def environment() -> Mapping[str, str]:
    """The process's environment, for those who hand it on (child processes, provider keys)."""
    return os.environ
