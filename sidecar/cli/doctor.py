"""`sidecar doctor`: keys, vocabulary, store, sandbox, versions. Says what to do about what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from protocol.version import PROTOCOL_VERSION, VERSION
from sidecar import settings
from sidecar.app import layers_of
from sidecar.errors import Fault
from sidecar.providers.registry import BUILT_IN, Registry, default_reference
from sidecar.settings import Settings

PACKAGES = (
    "anyio", "httpx", "jsonrpcserver", "msgspec", "orjson", "structlog", "tiktoken", "agent-client-protocol", "mcp",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """`bad` makes the command fail, `note` does not."""

    state: Literal["ok", "note", "bad"]
    text: str


def check(config: str | None) -> int:
    """Prints every finding; 1 if something keeps the daemon from its work."""
    worst = 0
    for finding in _all(config):
        print(f"{finding.state:<5} {finding.text}")
        worst |= finding.state == "bad"
    return int(worst)


def _all(config: str | None) -> Iterator[Finding]:
    environment = settings.environment()
    yield Finding("ok", f"sidecar {VERSION}, protocol {PROTOCOL_VERSION}, Python {platform.python_version()}")
    yield from _packages()
    try:
        effective = layers_of(config, environment).process
    except Fault as fault:
        yield Finding("bad", f"configuration: {fault.message}")
        return
    file = Path(config) if config else settings.config_file(environment)
    yield Finding("ok", f"configuration is valid ({'' if file.exists() else 'there is no '}{file})")
    yield from _keys(effective)
    yield _model(effective)
    yield _store(settings.home_directory(environment))
    yield _vocabulary()
    yield _sandbox()


def _packages() -> Iterator[Finding]:
    for name in PACKAGES:
        try:
            yield Finding("ok", f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            yield Finding("bad", f"{name} is not installed")


def _keys(effective: Settings) -> Iterator[Finding]:
    """Whether there is a key, never what it is. Others than the built-in providers may need none."""
    environment = settings.environment()
    for name, built_in in BUILT_IN.items():
        row = effective.providers.get(name)
        variable = (row.api_key_env if row is not None else None) or built_in.key_env
        if environment.get(variable, "").strip():
            yield Finding("ok", f"key of {name}: {variable} is set")
        else:
            yield Finding("note", f"key of {name}: {variable} is not set")


def _model(effective: Settings) -> Finding:
    environment = settings.environment()
    reference = default_reference(effective, environment)
    try:
        binding = Registry(environment).resolve(reference, effective)
    except Fault as fault:
        return Finding("note", f"no model: {fault.message}; {fault.hint}")
    return Finding("ok", f"model {binding.reference}, window {binding.info.window} ({binding.info.window_source})")


def _store(home: Path) -> Finding:
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home) as probe:
            probe.write(b"x")
            os.fsync(probe.fileno())
    except OSError as error:
        return Finding("bad", f"store {home}: {error.strerror}")
    free = shutil.disk_usage(home).free
    return Finding("ok" if free > 100 << 20 else "note", f"store {home}, {free >> 20} MiB free")


def _vocabulary() -> Finding:
    from sidecar.tokens.vocabulary import from_environment

    if from_environment(settings.environment()).load():
        return Finding("ok", "vocabulary o200k_base is there")
    return Finding("note", "vocabulary o200k_base is missing: token counts are rough")


def _sandbox() -> Finding:
    from sidecar.tools.sandbox import status

    return Finding("ok", f"commands are confined by {status(settings.environment()).detail}")
