"""Logs: structlog, loaded late, on stderr or in a file, and never with a key in them.

`get(__name__)` costs nothing at import. Until `configure` has run, which imports structlog, only errors are written, as
plain JSON lines. A thread writes: a stderr that nobody reads never stops the event loop, it loses lines (counted).
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")

MAX_WAITING_LINES = 2000
HIDDEN = "***"
MIN_SECRET = 6


@cache
def _secret_field() -> re.Pattern[str]:
    """Compiled when the first line is logged: the first reply does not wait for it."""
    return re.compile(
        r"(?i)^(.*[_-])?(token|api[_-]?key|apikey|secret|password|passwd|authorization|cookie|credentials?)$"
    )


@cache
def _secret_text() -> re.Pattern[str]:
    return re.compile(
        r"""(?ix)
          (?P<header> \b(?:proxy-)?authorization [\\"']* \s*[:=,]\s* [\\"']* )
            (?:(?:bearer|basic|token|digest)\s+)? [^\s\\"',;)}\]]+
        | (?P<field> \b(?:x-)?api[_-]?key [\\"']* \s*[:=,]\s* [\\"']* ) [^\s\\"',;)}\]]+
        | (?P<bearer> \bbearer\s+ ) [a-z0-9._~+/=-]{6,}
        | \b(?:sk|pk|rk|ghp|gho|xox[abp])[-_][a-z0-9_-]{8,}
        """
    )


class Logger:
    """Events with fields, e.g. `log.warning("peer dropped", peer="socket-2")`. `exc_info` takes an exception."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, **fields: Any) -> None:
        self._log("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._log("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._log("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._log("error", event, fields)

    def _log(self, level: Level, event: str, fields: dict[str, Any]) -> None:
        if _state.structlog is not None:
            if LEVELS.index(level) >= LEVELS.index(_state.level):
                getattr(_state.structlog.get_logger(self._name), level)(event, **fields)
        elif level == "error":
            error = fields.pop("exc_info", None)
            if isinstance(error, BaseException):
                fields["exception"] = "".join(traceback.format_exception(error))
            entry = {"event": event, "level": level, "logger": self._name, "timestamp": _now(), **fields}
            _state.sink.write(json.dumps(hide_fields(entry), default=repr))


def get(name: str) -> Logger:
    return Logger(name)


# ---------------------------------------------------------------- secrets


def hide(secret: str) -> None:
    """From now on this exact text never reaches a log. Short texts are left alone: they would hide words."""
    _state.hide((secret,), 1)


@contextmanager
def hiding(secrets: Iterable[str]) -> Iterator[None]:
    """The same for some texts, as long as the block lasts."""
    texts = tuple(secrets)
    _state.hide(texts, 1)
    try:
        yield
    finally:
        _state.hide(texts, -1)


def redact(text: str) -> str:
    """The text without keys, bearer tokens and `Authorization` values."""
    for secret in _state.secrets:
        text = text.replace(secret, HIDDEN)
    return _secret_text().sub(_keep_name, text)


def _keep_name(match: re.Match[str]) -> str:
    return next((name for name in match.groups() if name), "") + HIDDEN


def hide_fields(value: Any) -> Any:
    """A copy in which the values of fields that are named like secrets are hidden, at any depth."""
    if isinstance(value, dict):
        return {
            key: HIDDEN if isinstance(key, str) and _secret_field().match(key) else hide_fields(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [hide_fields(item) for item in value]
    return value


# ---------------------------------------------------------------- where lines go


class _Sink:
    """A bounded queue and a thread that writes it, started with the first line."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()  # bounded: `write` drops what is over MAX_WAITING_LINES
        self._lost = 0
        self._filled = threading.Condition()
        self._writing = False
        self._fd = 2
        self._thread: threading.Thread | None = None

    def redirect(self, fd: int) -> None:
        self._fd = fd

    def write(self, line: str) -> None:
        line = redact(line)
        with self._filled:
            if len(self._lines) >= MAX_WAITING_LINES:
                self._lost += 1
                return
            self._lines.append(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
                self._thread.start()
            self._filled.notify()

    def flush(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        while (self._lines or self._writing) and time.monotonic() < end:
            time.sleep(0.005)

    def _run(self) -> None:
        while True:
            with self._filled:
                while not self._lines:
                    self._filled.wait()
                lines, self._lines = self._lines, deque()  # bounded: see __init__
                lost, self._lost = self._lost, 0
                self._writing = True
            text = "\n".join(lines) + "\n"
            if lost:
                text += f'{{"event": "log lines lost", "level": "warning", "count": {lost}}}\n'
            try:
                data = memoryview(text.encode("utf-8", "replace"))
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                pass
            self._writing = False


class _State:
    def __init__(self) -> None:
        self.level: Level = "info"
        self.secrets: tuple[str, ...] = ()
        """The longest first. Replaced whole: other threads go through it meanwhile."""
        self._holds = Counter[str]()
        self._changing = threading.Lock()
        self.sink = _Sink()
        self.structlog: Any = None

    def hide(self, texts: Iterable[str], step: Literal[1, -1]) -> None:
        """Counts how often each text is to be hidden; at 0 it is not any more."""
        with self._changing:
            for text in texts:
                self._holds[text] += step
            self._holds = +self._holds
            long = [text for text in self._holds if len(text) >= MIN_SECRET]
            inside_json = [json.dumps(text, ensure_ascii=ascii)[1:-1] for text in long for ascii in (True, False)]
            self.secrets = tuple(sorted({*long, *inside_json}, key=len, reverse=True))


_state = _State()


def flush(timeout: float = 0.3) -> None:
    """Waits until all lines are written, but no longer: a reader may have stopped."""
    _state.sink.flush(timeout)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


# ---------------------------------------------------------------- structlog


def configure(level: Level = "info", file: str | None = None, *, colors: bool = True) -> None:
    """Loads structlog. JSON, or console lines on a terminal. Raises `OSError` if `file` cannot be opened."""
    import structlog

    on_terminal = False
    if file is not None:
        _state.sink.redirect(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    else:
        on_terminal = os.isatty(2)
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=colors) if on_terminal else structlog.processors.JSONRenderer(default=repr)
    )
    _state.level = level
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _hide_processor,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_number(level)),
        logger_factory=lambda *names: _SinkLogger(names[0] if names else None),
        cache_logger_on_first_use=False,
    )
    _state.structlog = structlog
    _adopt_library_logs(level)


def _hide_processor(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    hidden: MutableMapping[str, Any] = hide_fields(dict(event))
    if isinstance(logger, _SinkLogger) and logger.name is not None:
        hidden["logger"] = logger.name
    return hidden


class _SinkLogger:
    """What structlog writes its rendered lines to."""

    def __init__(self, name: str | None) -> None:
        self.name = name

    def msg(self, message: str) -> None:
        _state.sink.write(message)

    log = debug = info = warning = warn = error = critical = fatal = exception = msg


def _number(level: Level) -> int:
    return {"debug": 10, "info": 20, "warning": 30, "error": 40}[level]


def _adopt_library_logs(level: Level) -> None:
    """What libraries log through `logging` goes the same way; below a warning only when debugging."""
    import logging

    class Adopt(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            name: Level = "error" if record.levelno >= 40 else "warning" if record.levelno >= 30 else "debug"
            exc_info = record.exc_info[1] if record.exc_info else None
            fields = {"exc_info": exc_info} if exc_info else {}
            get(record.name)._log(name, record.getMessage(), fields)

    root = logging.getLogger()
    root.handlers = [Adopt()]
    root.setLevel(logging.DEBUG if level == "debug" else logging.WARNING)


def tell(text: str) -> None:
    """One line for a person on stderr, e.g. what is listening where. Never a secret."""
    print(f"sidecar: {text}", file=sys.stderr, flush=True)
