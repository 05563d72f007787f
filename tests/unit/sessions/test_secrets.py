"""What of a session's MCP servers is stored, and what only this process keeps."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sidecar.sessions.secrets import Secrets, secrets_of
from sidecar.settings import NOT_STORED, Mcp

VALUE = "zq9-hidden-value"

SECRET: list[dict[str, Any]] = [
    {"env": {"API_KEY": VALUE}},
    {"env": {"GITHUB_PAT": VALUE}},
    {"env": {"BEARER": VALUE}},
    {"env": {"MYSQL_PASS": VALUE}},
    {"env": {"SLACK_WEBHOOK": f"https://x/{VALUE}"}},
    {"env": {"DATABASE": f"postgres://u:{VALUE}@h/db"}},
    {"env": {"SENTRY": f"https://{VALUE}@o1.example/1"}},
    {"env": {"MCP_HEADERS": json.dumps({"Authorization": f"Bearer {VALUE}"})}},
    {"args": ["--token", VALUE]},
    {"args": ["--token", f"-{VALUE}"]},
    {"args": [f"--token={VALUE}"]},
    {"args": ["run", "-e", f"API_KEY={VALUE}"]},
    {"args": ["run", f"--env=API_KEY={VALUE}"]},
    {"args": ["run", f"-eAPI_KEY={VALUE}"]},
    {"args": ["-c", f"export A=1; TOKEN={VALUE} server"]},
    {"args": ["--header", f"X-Api-Key:{VALUE}"]},
    {"args": [f"--header=Authorization:{VALUE}"]},
    {"args": ["--config", json.dumps({"credentials": {"x": VALUE}})]},
    {"args": [f"https://h/x?a=1&key={VALUE}"]},
    {"url": f"https://h/mcp?key={VALUE}"},
    {"url": f"https://{VALUE}@h/mcp"},
    {"headers": {"X-Anything": VALUE}},
]

PLAIN: list[dict[str, Any]] = [
    {"env": {"MODE": "fast", "PATH_TO": "/usr/share/x", "URL": "https://host/x?page=2"}},
    {"args": ["-y", "@scope/server@1.2.3", "--port", "8080", "--root", "/home/me/work", "--verbose"]},
    {"args": ["--no-auth", "--port", "3"]},
    {"args": ["clone", "ssh://git@host/repo.git", "git@host:repo.git"]},
    {"url": "https://host/mcp?page=2#top"},
]


def layer(server: dict[str, Any]) -> dict[str, Any]:
    return {"mcp": {"servers": {"one": {"command": "x", **server}}}}


def mcp(of: dict[str, Any]) -> Mcp:
    return msgspec.convert(of["mcp"], Mcp)


@pytest.mark.parametrize("server", SECRET, ids=str)
def test_a_secret_is_kept_here_and_not_stored(server: dict[str, Any]) -> None:
    secrets = Secrets()
    sealed = secrets.seal(layer(server))
    assert VALUE not in json.dumps(sealed)
    assert NOT_STORED in json.dumps(sealed)
    assert secrets.open(mcp(sealed)) == mcp(layer(server))
    assert any(VALUE in text for text in secrets_of(mcp(layer(server)).servers["one"]))


@pytest.mark.parametrize("server", PLAIN, ids=str)
def test_what_is_no_secret_is_stored_as_it_is(server: dict[str, Any]) -> None:
    assert Secrets().seal(layer(server)) == layer(server)
    assert secrets_of(mcp(layer(server)).servers["one"]) == ()


def test_the_value_alone_is_a_secret_too() -> None:
    server = {
        "args": ["--token=abcdef"],
        "headers": {"Authorization": "Bearer ghijkl"},
        "env": {"MCP_HEADERS": '{"Authorization": "Bearer mnopqr", "Version": "2"}'},
        "url": "https://me:stuvwx@host/mcp?key=yzabcd&page=2",
    }
    found = set(secrets_of(mcp(layer(server)).servers["one"]))
    assert {"abcdef", "ghijkl", "mnopqr", "stuvwx", "yzabcd"} <= found
    assert not {"2", "me", "page"} & found
