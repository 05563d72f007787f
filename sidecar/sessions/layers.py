"""The process's configuration, layer by layer, and what a session makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.messages import JsonObject
from protocol.resources import ConfigEntry, ConfigResult
from sidecar import settings as s
from sidecar.errors import Fault
from sidecar.providers.rows import check_no_credentials, check_rows


class Layers:
    """`file` and `environment` are fixed; `process` is what `config.set` without a session gave."""

    def __init__(self, file: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
        self._file = s.check(file, source="config.toml")
        self._environment = s.check(environment, source="environment")
        self._process: s.Layer = {}
        self._process_settings = s.effective(self._file, self._environment)
        check_rows(self._process_settings.providers)

    @property
    def process(self) -> s.Settings:
        """What holds where a session says nothing."""
        return self._process_settings

    def check(self, config: Mapping[str, Any]) -> s.Layer:
        """A session's configuration, valid by itself and with the others. Raises `config_invalid`."""
        layer = s.check(config, source="session config", session=True)
        check_no_credentials(layer.get("providers", {}))
        check_rows(self.settings(layer).providers)
        return layer

    def settings(self, session: Mapping[str, Any]) -> s.Settings:
        """What holds in a session with this stored configuration, as far as this version knows it."""
        try:
            return s.effective(self._file, self._environment, self._process, session)
        except msgspec.ValidationError:
            return s.effective(self._file, self._environment, self._process, s.known_part(session))

    def changed(self, stored: Mapping[str, Any], change: Mapping[str, Any]) -> s.Layer:
        """A session's stored configuration with a change, which must be valid. What another version wrote into it
        stays, unless it is changed. Raises `config_invalid`."""
        known = self.check(s.merge(s.known_part(stored), change))
        changed = s.merge(stored, change)
        changed.pop("mcp", None)  # its secrets are found where this version knows them to be
        return changed | ({"mcp": known["mcp"]} if "mcp" in known else {})

    def set_process(self, values: Mapping[str, Any]) -> None:
        """Adds to the process's own layer; all of it or nothing."""
        layer = s.check(s.merge(self._process, nested(values)), source="config.set")
        effective = s.effective(self._file, self._environment, layer)
        check_rows(effective.providers)
        self._process_settings, self._process = effective, layer

    def describe(self, session: Mapping[str, Any] | None, key: str | None) -> ConfigResult:
        """Effective values with the layer that each came from."""
        layers = {
            "file": self._file,
            "environment": self._environment,
            "process": self._process,
            "session": s.known_part(session or {}),
        }
        effective = self.settings(session or {})
        keys = [key] if key is not None else list(leaf_keys(msgspec.to_builtins(effective)))
        values = {k: ConfigEntry(s.get(effective, k), s.source_of(k, layers)) for k in keys}
        if key is None:
            return ConfigResult(values=values)
        return ConfigResult(values=values, value=values[key].value, source=values[key].source)


def leaf_keys(values: Mapping[str, Any], above: str = "") -> list[str]:
    """Dotted keys of everything that is no table; an empty table is a leaf too."""
    out: list[str] = []
    for name, value in values.items():
        part = f'"{name}"' if "." in name else name
        key = f"{above}.{part}" if above else part
        if isinstance(value, dict) and value:
            out += leaf_keys(value, key)
        else:
            out.append(key)
    return out


def nested(values: Mapping[str, Any]) -> JsonObject:
    """`{"compaction.soft_ratio": 0.4}` and `{"compaction": {"soft_ratio": 0.4}}` mean the same."""
    out: JsonObject = {}
    for key, value in values.items():
        parts = s.split_key(key)
        if not parts:
            raise Fault("config_invalid", "An empty configuration key", key=key)
        layer: Any = value
        for part in reversed(parts):
            layer = {part: layer}
        out = s.merge(out, layer)
    return out
