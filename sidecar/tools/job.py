"""What the daemon and the supervisor of a command say to each other. Pure data."""

from __future__ import annotations

from typing import TypedDict


class Job(TypedDict):
    """`cwd_fd` is an inherited descriptor of the directory to run in; `keep` how many bytes of output to keep at each
    end. `writable` None means no confinement of writes; `scratch` is where a private temporary directory is made."""

    argv: list[str]
    environment: dict[str, str]
    cwd_fd: int
    timeout_s: float
    keep: int
    writable: list[str] | None
    devices: list[str]
    scratch: str | None
    network: bool


class Report(TypedDict, total=False):
    """How the command ended. `exit_code` is negative for a signal; `left` says that something of it was still
    running; `failure` that it could not be started, and why. `total` counts the output's bytes, `head` and `tail`
    those that follow."""

    exit_code: int
    timed_out: bool
    left: bool
    failure: str
    total: int
    head: int
    tail: int
