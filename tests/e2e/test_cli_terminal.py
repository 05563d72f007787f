"""`sidecar run` at a terminal: who approves sees what would run, whatever the model writes into it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.support.fake_llm import FakeLLM
from tests.support.running import Place, a_place
from tests.support.tool_talk import obedient

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
QUESTION = b"[N]o: "


def at_a_terminal(place: Place, call: tuple[str, dict[str, Any]], answer: bytes) -> str:
    """All that the terminal showed; `answer` is typed at the question."""
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        place.command("run", "--tools", "all", json.dumps([call])),
        env=place.env,
        cwd=place.work,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    answered = False
    end = time.monotonic() + 60
    try:
        while time.monotonic() < end:
            if not select.select([ours], [], [], 0.1)[0]:
                continue
            try:
                piece = os.read(ours, 65536)
            except OSError:  # how Linux says that nobody has the other end any more
                break
            if not piece:
                break
            seen += piece
            if not answered and QUESTION in seen:
                answered = True
                os.write(ours, answer)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert answered, seen
    return seen.decode()


@pytest.mark.parametrize(
    ("answer", "runs"),
    [(b"y\n", True), (b"yes\n", True), (b"s\n", True), (b"n\n", False), (b"\n", False), (b"\x04", False)],
)
def test_only_a_clear_yes_is_one(answer: bytes, runs: bool) -> None:
    with FakeLLM(obedient) as llm, a_place(llm) as place:
        at_a_terminal(place, ("write_file", {"path": "made", "content": "x"}), answer)
        assert (place.work / "made").exists() == runs


def test_nothing_that_a_terminal_acts_on_reaches_it() -> None:
    command = "touch made\x1b[2K\rls \u202e#\n\x1b]0;title\x07Allow? [y]es, [N]o: y"
    with FakeLLM(obedient) as llm, a_place(llm) as place:
        seen = at_a_terminal(place, ("run_command", {"command": command}), b"n\n").replace("\r\n", "\n")
        assert not [c for c in seen if c in "\x1b\x07\r\u202e"]
        assert "  command: touch made\\x1b[2K\\x0dls \\u202e#\n  \\x1b]0;title" in seen
        assert not (place.work / "made").exists()


def test_what_is_not_shown_is_counted() -> None:
    with FakeLLM(obedient) as llm, a_place(llm) as place:
        seen = at_a_terminal(place, ("run_command", {"command": "true " + " " * 3000 + "; touch made"}), b"n\n")
        assert "characters more]" in seen


def test_a_title_is_listed_on_one_line_as_plain_text() -> None:
    with FakeLLM() as llm, a_place(llm) as place:
        for arguments in (("run", "words\x1b[2J and\ta bell\x07"), ("sessions",)):
            done = subprocess.run(
                place.command(*arguments), env=place.env, cwd=place.work, capture_output=True, text=True, check=True
            )
        assert done.stdout.endswith("words\\x1b[2J and\\x09a bell\\x07\n")
