"""The command line of `sidecar serve`."""

from __future__ import annotations

import pytest

from sidecar.rpc.arguments import ServeArguments, UsageError, parse_serve, split_address


def test_stdio_is_meant_when_nothing_is_said() -> None:
    plain = ServeArguments(True, (), (), None, False, None, None, "info")
    assert parse_serve([]) == parse_serve(["--stdio"]) == plain
    assert not parse_serve(["--socket", "/s"]).stdio
    assert parse_serve(["--stdio", "--socket", "/s"]).stdio


def test_all_of_it() -> None:
    text = "--stdio --socket /a --socket=/b --tcp 127.0.0.1:0 --tcp=[::1]:80 --token-file t --allow-remote"
    text += " --config c.toml --log-file=l --log-level debug"
    assert parse_serve(text.split()) == ServeArguments(
        True, ("/a", "/b"), ("127.0.0.1:0", "[::1]:80"), "t", True, "c.toml", "l", "debug"
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("--nope", "--nope"),
        ("extra", "extra"),
        ("--socket", "--socket"),
        ("--socket --stdio", "--socket"),
        ("--socket=", "--socket"),
        ("--stdio=1", "--stdio"),
        ("--config a --config b", "--config"),
        ("--log-level loud", "loud"),
        ("--tcp 8000", "8000"),
        ("--tcp :8000", ":8000"),
        ("--tcp localhost:http", "localhost:http"),
        ("--tcp 127.0.0.1:70000", "70000"),
        ("--tcp ::1:80", "::1:80"),
    ],
)
def test_wrong_usage_is_named(text: str, named: str) -> None:
    with pytest.raises(UsageError, match=named.replace("[", r"\[")):
        parse_serve(text.split())


def test_addresses() -> None:
    assert split_address("localhost:0") == ("localhost", 0)
    assert split_address("[::1]:8080") == ("::1", 8080)
