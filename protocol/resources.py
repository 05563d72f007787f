"""`agent.context.*`, `tool.*`, `model.*`, `record.*`, `config.*`. Pure data."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from protocol.common import AgentParams, Cursor, Id, Limit, Line, Params, Result
from protocol.info import WindowSource
from protocol.messages import JsonObject, ToolSpec


class ToolListResult(Result, frozen=True):
    """The tools that the model is offered, sorted by name."""

    tools: tuple[ToolSpec, ...]


class ModelEntry(Struct, frozen=True):
    """`name` is `provider/model`; `source` says where the window is known from."""

    name: str
    provider: str
    window: int
    max_output: int | None
    source: WindowSource


class ModelListResult(Result, frozen=True):
    models: tuple[ModelEntry, ...]


class QueryParams(AgentParams, frozen=True):
    """Both ends inclusive. `grep` is a plain substring, case folded, or a pattern with `regex`."""

    from_line: Line | None = None
    to_line: Line | None = None
    types: tuple[str, ...] | None = None
    grep: Annotated[str, Meta(max_length=10_000)] | None = None
    regex: bool = False
    limit: Limit = 100
    cursor: Cursor | None = None


class RecordRow(Struct, frozen=True):
    """`record` is the line's object as stored, `seq` and `crc` included."""

    line: int
    record: JsonObject


class QueryResult(Result, frozen=True):
    records: tuple[RecordRow, ...]
    next_cursor: str | None = None


class Problem(Struct, frozen=True):
    line: int
    kind: str
    detail: str


class AgentReport(Struct, frozen=True):
    agent_id: str
    lines: int
    problems: tuple[Problem, ...]


class VerifyResult(Result, frozen=True):
    ok: bool
    agents: tuple[AgentReport, ...]


class ConfigGetParams(Params, frozen=True):
    """`key` is dotted, e.g. `compaction.soft_ratio`; without it, everything."""

    session_id: Id | None = None
    key: str | None = None


class ConfigSetParams(Params, frozen=True):
    """`values` are settings by section, or dotted keys with their values."""

    values: JsonObject
    session_id: Id | None = None


class ConfigEntry(Struct, frozen=True):
    """`source` is `default`, `file`, `environment`, `process` or `session`."""

    value: Any
    source: str


class ConfigResult(Result, frozen=True):
    """With `key`, `value` and `source` are that key's."""

    values: dict[str, ConfigEntry]
    value: Any = None
    source: str | None = None
