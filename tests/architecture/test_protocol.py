"""What is derived from the table of methods is there and current."""

from __future__ import annotations

import functools
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from protocol.errors import CODES
from protocol.events import EVENTS, AnyEvent
from protocol.messages import Part
from protocol.methods import METHODS, TO_DAEMON
from sidecar.app import build
from sidecar.client import connection, resources
from sidecar.rpc.port import ServeOptions
from tests.architecture.source import ROOT, modules

ANSWERED_BY_THE_EDGE = {"system.initialize", "system.ping", "system.shutdown"}
"""They are answered before the application is loaded."""

RESOURCES = {
    "agent.session": "sessions",
    "agent.chat": "chat",
    "agent.context": "context",
    "tool": "tools",
    "model": "models",
    "memory": "memory",
    "skill": "skills",
    "record": "records",
    "config": "config",
    "system": "system",
}
"""Where the typed client has the methods of a prefix."""


def by_client(name: str) -> list[str]:
    """How a test that uses the typed client calls this method."""
    prefix, _, verb = name.rpartition(".")
    special = {"agent.chat.send": ["chat.send", "chat.run"]}
    return special.get(name, [f"{RESOURCES[prefix]}.{verb}"] if prefix in RESOURCES else [])


@functools.cache
def e2e_text() -> str:
    return "\n".join(m.text for m in modules("tests") if m.name.startswith("tests.e2e"))


def test_the_reference_page_shows_the_tag_that_tells_parts_apart() -> None:
    page = (ROOT / "protocol" / "REFERENCE.md").read_text()
    for part in get_args(Part):
        section = page.split(f"### {part.__name__}\n", 1)[1]
        assert section.strip().startswith(f'`{{type: "{part.__struct_config__.tag}", ')


def test_the_schema_and_the_reference_page_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "checks.py"), "generated"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"run `python -m protocol` and commit what it writes:\n{done.stdout}{done.stderr}"


async def test_every_method_has_a_handler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDECAR_HOME", str(tmp_path))
    application = build(ServeOptions())
    async with application.lifespan():
        assert set(application.methods) == {m.name for m in TO_DAEMON} - ANSWERED_BY_THE_EDGE
        await application.shutdown("now")


@pytest.mark.parametrize("name", [m.name for m in METHODS])
def test_every_method_has_an_end_to_end_test_that_names_it(name: str) -> None:
    literal = rf"[\"'`]{re.escape(name)}[\"'` ]"
    patterns = [literal, *([rf"\b{re.escape(c)}\(" for c in by_client(name)])]
    assert any(re.search(p, e2e_text()) for p in patterns), f"no test in tests/e2e names {name!r} or calls it"


def test_the_client_offers_every_method_of_the_daemon() -> None:
    source = inspect.getsource(resources) + inspect.getsource(connection)
    missing = [m.name for m in TO_DAEMON if f'"{m.name}"' not in source]
    assert not missing


def test_every_error_of_a_method_is_in_the_table() -> None:
    unknown = {f"{m.name}: {e}" for m in METHODS for e in m.errors if e not in CODES}
    assert not unknown


def test_events_are_listed_once_and_decode_by_their_tag() -> None:
    tags = [str(e.__struct_config__.tag) for e in EVENTS]
    assert len(set(tags)) == len(tags)
    decoder = msgspec.json.Decoder(AnyEvent)
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(b'{"type": "no_such_event"}')
    assert set(EVENTS) == set(AnyEvent.__args__)
