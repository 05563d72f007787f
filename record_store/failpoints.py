"""Named failpoints at every write, rename, sync and between them: how crash tests reach what only bad luck reaches.

Off (always, but in tests) they cost one look at a module's flag. They are switched on by the environment variable
`SIDECAR_FAILPOINTS` when the process starts, or by `active` inside a test:

    SIDECAR_FAILPOINTS="log.write=ENOSPC@3;checkpoint.*=crash@2;blob.sync=EIO"

A rule is `name=action`, the name a glob. With `@n` it acts at the n-th hit of the rule, with `@n+` from the n-th on,
with `@n-m` from the n-th to the m-th, else always. Actions:

    crash      the process is gone at once (SIGKILL, where there is one)
    ENOSPC...  any name of `errno`: the operation fails with it and does nothing
    short:k    a write takes k bytes and returns, as the kernel may; what follows is the next write
    torn:k     a write takes k bytes, then the process is gone
    part:k:E   a write takes k bytes, and the next one fails with error E

The name of a write is hit once for each call of the system.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

ENVIRONMENT = "SIDECAR_FAILPOINTS"

ATOMIC_STEPS = ("open", "write", "sync", "rename", "dirsync", "done")
"""What an atomic replacement of a file passes, each as `<name>.<step>`."""

NAMES: tuple[str, ...] = (
    "log.open", "log.write", "log.written", "log.truncate", "log.sync", "log.synced", "log.rewrite",
    "log.newline", "repair.cut", "repair.mark", "repair.done",
    "lock.write", "lock.taken",
    "create.stage", "create.log", "create.sync", "create.rename", "create.dirsync",
    "fork.copy", "fork.sync", "fork.link",
    "delete.rename", "delete.dirsync", "delete.remove",
    *(f"{name}.{step}" for name in ("torn", "checkpoint", "blob", "probe") for step in ATOMIC_STEPS),
    *(f"session.{step}" for step in ATOMIC_STEPS if step != "sync"),
)  # fmt: skip
"""Every failpoint of this package."""

on = False
"""Whether any rule is set. Callers look at it first: `if failpoints.on: failpoints.hit(...)`."""


@dataclass(slots=True)
class _Rule:
    pattern: str
    action: str
    first: int = 1
    last: int | None = None
    hits: int = 0
    then_error: int | None = None

    def fires(self) -> bool:
        self.hits += 1
        return self.hits >= self.first and (self.last is None or self.hits <= self.last)


@dataclass(slots=True)
class _Rules:
    rules: list[_Rule] = field(default_factory=list)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def firing(self, name: str) -> _Rule | None:
        with self.mutex:
            for rule in self.rules:
                if fnmatchcase(name, rule.pattern) and (rule.then_error is not None or rule.fires()):
                    return rule
        return None


_rules = _Rules()


def parse(spec: str) -> list[_Rule]:
    """The rules of a specification; ValueError names the part that is wrong."""
    rules = []
    for part in filter(None, (p.strip() for p in spec.split(";"))):
        pattern, equals, rest = part.partition("=")
        action, _, when = rest.partition("@")
        word, *numbers = action.split(":")
        if not equals or not (word in ("crash", "short", "torn", "part") or hasattr(errno, word)):
            raise ValueError(f"failpoint {part!r}")
        rule = _Rule(pattern.strip(), action, *_when(when))
        if word in ("short", "torn", "part") and not (numbers and numbers[0].isdigit()):
            raise ValueError(f"failpoint {part!r} needs a number of bytes")
        rules.append(rule)
    return rules


def _when(text: str) -> tuple[int, int | None]:
    if not text:
        return 1, None
    if text.endswith("+"):
        return int(text[:-1]), None
    first, dash, last = text.partition("-")
    return int(first), int(last) if dash else int(first)


def set_rules(spec: str) -> None:
    """Replaces all rules; an empty text switches everything off."""
    global on
    _rules.rules = parse(spec)
    on = bool(_rules.rules)


@contextmanager
def active(spec: str) -> Iterator[None]:
    """These rules, and no others, inside the block."""
    set_rules(spec)
    try:
        yield
    finally:
        set_rules("")


def hit(name: str) -> None:
    """A place between two operations, or an operation that is no write."""
    rule = _rules.firing(name)
    if rule is not None:
        _act(rule.action.split(":")[0])


def write(name: str, fd: int, data: bytes | memoryview) -> int:
    """`os.write` under a failpoint."""
    rule = _rules.firing(name)
    if rule is None:
        return os.write(fd, data)
    if rule.then_error is not None:
        code, rule.then_error = rule.then_error, None
        raise OSError(code, os.strerror(code))
    word, *numbers = rule.action.split(":")
    if word not in ("short", "torn", "part"):
        _act(word)
    taken = os.write(fd, data[: int(numbers[0])])
    if word == "torn":
        _act("crash")
    if word == "part":
        rule.then_error = getattr(errno, numbers[1])
    return taken


def _act(word: str) -> None:
    if word == "crash":
        if hasattr(signal, "SIGKILL"):
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(137)
    code: int = getattr(errno, word, errno.EIO)
    raise OSError(code, os.strerror(code))


set_rules(os.environ.get(ENVIRONMENT, ""))
