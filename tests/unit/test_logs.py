"""Logs: no secret in any of them, JSON lines, levels, a file, and a reader that never comes."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sidecar import logs

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcSECRETdef",
        "'authorization': 'Basic abcSECRETdef=='",
        '{"Authorization": "abcSECRETdef"}',
        r"{\"authorization\": \"Bearer abcSECRETdef\"}",
        "Proxy-Authorization: Digest abcSECRETdef",
        "x-api-key: abcSECRETdef",
        "api_key='abcSECRETdef'",
        "failed with bearer abcSECRETdef, twice",
        "Incorrect API key provided: sk-abcSECRETdef",
        "sk-ant-test-abcSECRETdef and ghp_abcSECRETdef",
    ],
)
def test_secrets_in_text_are_hidden(text: str) -> None:
    assert "SECRET" not in logs.redact(text)
    assert logs.HIDDEN in logs.redact(text)


@pytest.mark.parametrize("text", ["prompt_tokens: 500", "the bearer of news", "a task-1 that is risky", "tokens=12"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert logs.redact(text) == text


def test_fields_named_like_secrets_are_hidden_at_any_depth() -> None:
    fields = {"a": [{"api_key": "x", "OPENAI_API_KEY": "y", "token": "z", "prompt_tokens": 5}], "password": {"p": 1}}
    hidden = {"api_key": logs.HIDDEN, "OPENAI_API_KEY": logs.HIDDEN, "token": logs.HIDDEN, "prompt_tokens": 5}
    assert logs.hide_fields(fields) == {"a": [hidden], "password": logs.HIDDEN}


def run(program: str, *, stderr: Any = subprocess.PIPE) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "from sidecar import logs\nlog = logs.get('part')\n" + program],
        stderr=stderr,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
    )
    assert (done.returncode, done.stdout) == (0, "")
    return done.stderr or ""


def test_before_it_is_configured_only_errors_are_written_and_structlog_is_not_loaded() -> None:
    lines = run(
        "import sys\n"
        "log.info('quiet'); log.warning('quiet')\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError as error: log.error('bad', exc_info=error, token='t', text='Bearer abcdefgh')\n"
        "assert 'structlog' not in sys.modules; logs.flush(5)"
    ).splitlines()
    (entry,) = [json.loads(line) for line in lines]
    assert (entry["event"], entry["level"], entry["logger"]) == ("bad", "error", "part")
    assert (entry["token"], entry["text"]) == (logs.HIDDEN, f"Bearer {logs.HIDDEN}")
    assert "ZeroDivisionError" in entry["exception"]


def test_what_is_hidden_for_a_while_is_hidden_in_any_spelling_and_shown_again() -> None:
    lines = run(
        "logs.configure('info')\n"
        "with logs.hiding(['say \"grüße\"', 'words']):\n"
        "    with logs.hiding(['say \"grüße\"']): pass\n"
        "    log.info('one', text='I say \"grüße\" and words')\n"
        "log.info('two', text='I say \"grüße\"')\n"
        "logs.flush(5)"
    ).splitlines()
    first, second = (json.loads(line)["text"] for line in lines)
    assert first == f"I {logs.HIDDEN} and words"
    assert second == 'I say "grüße"'


def test_all_ways_to_log_come_out_as_json_without_secrets() -> None:
    lines = run(
        "import logging, structlog\n"
        "logs.configure('info'); logs.hide('my-own-secret')\n"
        "log.debug('quiet'); log.info('one', n=1)\n"
        "structlog.get_logger('other').warning('two', authorization='x', url='?k=my-own-secret')\n"
        "logging.getLogger('httpx').info('quiet'); logging.getLogger('httpx').warning('three %s', 'Bearer abcdefgh')\n"
        "try: raise ValueError('my-own-secret')\n"
        "except ValueError: logging.getLogger('lib').exception('four')\n"
        "logs.flush(5)"
    ).splitlines()
    entries = [json.loads(line) for line in lines]
    assert [(e["event"].split()[0], e["level"], e["logger"]) for e in entries] == [
        ("one", "info", "part"),
        ("two", "warning", "other"),
        ("three", "warning", "httpx"),
        ("four", "error", "lib"),
    ]
    assert entries[1]["authorization"] == logs.HIDDEN
    assert not [line for line in lines if "my-own-secret" in line or "abcdefgh" in line]
    assert "ValueError" in entries[3]["exception"]


def test_a_log_file_is_for_its_owner_and_is_appended_to(tmp_path: Path) -> None:
    file = tmp_path / "log"
    for n in range(2):
        assert run(f"logs.configure('warning', {str(file)!r}); log.info('no'); log.error('e{n}'); logs.flush(5)") == ""
    assert [json.loads(line)["event"] for line in file.read_text().splitlines()] == ["e0", "e1"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_terminal_gets_lines_for_people() -> None:
    ours, theirs = pty.openpty()
    run("logs.configure('info', colors=False); log.info('hello', n=1); logs.flush(5)", stderr=theirs)
    os.close(theirs)
    line = os.read(ours, 4096).decode()
    os.close(ours)
    assert "hello" in line
    assert not line.startswith("{")


def test_a_reader_that_never_comes_loses_lines_and_stops_nobody() -> None:
    reading, writing = os.pipe()
    program = "logs.configure('info')\nfor n in range(20_000): log.info('x' * 100, n=n)\n"
    program += "assert logs._state.sink._lost > 10_000\nimport os; os._exit(0)"
    run(program, stderr=writing)
    os.close(reading)
    os.close(writing)
