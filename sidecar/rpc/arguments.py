"""The command line of `sidecar serve`, read by hand: argparse would delay the first reply. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sidecar.logs import LEVELS, Level

USAGE = """\
usage: sidecar serve [--stdio] [--socket PATH] [--tcp HOST:PORT] [options]

Serves JSON-RPC 2.0. Without a transport, --stdio is meant; several may be given at once.

  --stdio            frames on stdin and stdout; logs go to stderr
  --socket PATH      a Unix socket, for this user only
  --tcp HOST:PORT    loopback unless --allow-remote; clients need a token
  --token-file FILE  the token for --tcp, on one line; without it a fresh one is made
  --allow-remote     lets --tcp listen on addresses that other machines can reach
  --config FILE      read this config.toml instead of the default one
  --log-file FILE    write logs there instead of stderr
  --log-level LEVEL  debug, info (the default), warning or error
"""


class UsageError(Exception):
    """What is wrong with the command line."""


@dataclass(frozen=True, slots=True)
class ServeArguments:
    stdio: bool
    sockets: tuple[str, ...]
    tcp: tuple[str, ...]
    token_file: str | None
    allow_remote: bool
    config: str | None
    log_file: str | None
    log_level: Level


def parse_serve(arguments: Sequence[str]) -> ServeArguments:
    """`--flag value` and `--flag=value`. Raises `UsageError`."""
    switches = {"--stdio": False, "--allow-remote": False}
    values: dict[str, list[str]] = {
        name: [] for name in ("--socket", "--tcp", "--token-file", "--config", "--log-file", "--log-level")
    }
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in switches and not equals:
            switches[name] = True
        elif name in values:
            if not equals:
                if not rest or rest[0].startswith("--"):
                    raise UsageError(f"{name} needs a value")
                value = rest.pop(0)
            if not value:
                raise UsageError(f"{name} needs a value")
            values[name].append(value)
        else:
            raise UsageError(f"unknown argument {name}")
    for name in ("--token-file", "--config", "--log-file", "--log-level"):
        if len(values[name]) > 1:
            raise UsageError(f"{name} was given twice")
    return ServeArguments(
        stdio=switches["--stdio"] or not (values["--socket"] or values["--tcp"]),
        sockets=tuple(values["--socket"]),
        tcp=tuple(_address(text) for text in values["--tcp"]),
        token_file=_last(values["--token-file"]),
        allow_remote=switches["--allow-remote"],
        config=_last(values["--config"]),
        log_file=_last(values["--log-file"]),
        log_level=_level(_last(values["--log-level"]) or "info"),
    )


def split_address(text: str) -> tuple[str, int]:
    """`HOST:PORT` or `[V6]:PORT`. Raises `ValueError`."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not bare or not port.isdecimal() or int(port) > 65535 or (":" in bare and bare == host):
        raise ValueError(text)
    return bare, int(port)


def _address(text: str) -> str:
    try:
        split_address(text)
    except ValueError:
        raise UsageError(f"--tcp wants HOST:PORT, e.g. 127.0.0.1:0, not {text}") from None
    return text


def _last(values: list[str]) -> str | None:
    return values[-1] if values else None


def _level(text: str) -> Level:
    for level in LEVELS:
        if text == level:
            return level
    raise UsageError(f"--log-level wants one of {', '.join(LEVELS)}, not {text}")
