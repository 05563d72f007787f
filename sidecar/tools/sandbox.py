"""What confines commands on this machine: Landlock, bubblewrap, or nothing. The choice is made here, and only here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from sidecar.tools import kernel
from sidecar.tools.refusal import Refused

Mechanism = Literal["landlock", "bubblewrap", "none"]

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts")
"""What programs write to that stores nothing."""
SHARED_MEMORY = "/dev/shm"
"""Semaphores of ordinary programs live here."""
GOOD_LANDLOCK = 3
"""The first version that keeps files outside from being truncated; below it bubblewrap is better."""
_PROBE_S = 5.0


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """What is in force for `tools.sandbox = auto`: `writes` names the mechanism that confines them to the working
    folders, `network` whether it can be cut, `detail` is one line for people."""

    writes: Mechanism
    network: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Plan:
    """How one command is confined. `prefix` goes before its argv; `writable` None: the kernel is not asked to confine
    writes; `scratch` is where its private temporary directory is made; `network` False: the kernel is asked to cut it.
    `folders` are what it may write to, for people; None: not confined."""

    prefix: tuple[str, ...] = ()
    writable: tuple[str, ...] | None = None
    devices: tuple[str, ...] = ()
    scratch: str | None = None
    network: bool = True
    folders: tuple[str, ...] | None = None
    cuts_network: bool = False


def status(environment: Mapping[str, str]) -> SandboxStatus:
    """What this machine offers; blocking at the first call (a few ms, or seconds where bubblewrap hangs)."""
    version = kernel.landlock_version()
    bubblewrap = None if version >= GOOD_LANDLOCK else _bubblewrap(environment.get("PATH", os.defpath))
    if bubblewrap is not None:
        return SandboxStatus("bubblewrap", True, f"bubblewrap ({bubblewrap})")
    if version == 0:
        network = kernel.can_cut_network()
        return SandboxStatus("none", network, "no Landlock in this kernel, no working bubblewrap")
    network = kernel.can_cut_network()
    note = "" if version >= GOOD_LANDLOCK else ", too old to keep files outside from being truncated"
    return SandboxStatus("landlock", network, f"Landlock version {version}{note}")


def plan(
    mode: Literal["auto", "off", "required"],
    network: bool,
    roots: Sequence[str],
    environment: Mapping[str, str],
) -> Plan:
    """How a command that may write to `roots` is confined. Raises `Refused` for `required` where that cannot be."""
    if mode == "off":
        return Plan()
    found = status(environment)
    if mode == "required" and found.writes == "none":
        raise Refused(
            f"Commands must run in a sandbox (tools.sandbox = required), and there is none here: {found.detail}."
            " Install bubblewrap or use a kernel with Landlock, or set tools.sandbox to auto."
        )
    if mode == "required" and not network and not found.network:
        raise Refused(
            "Commands must run without network (tools.sandbox_network = false), which cannot be enforced here."
            " Install bubblewrap, or set tools.sandbox to auto."
        )
    cut = not network and found.network
    match found.writes:
        case "landlock":
            folders = (*roots, *_if_there(SHARED_MEMORY))
            scratch = tempfile.gettempdir()
            return Plan((), folders, DEVICES, scratch, not cut, tuple(roots), cut)
        case "bubblewrap":
            return Plan(_bubblewrap_prefix(roots, environment, cut), folders=tuple(roots), cuts_network=cut)
        case "none":
            return Plan(network=not cut, cuts_network=cut)


def _if_there(path: str) -> tuple[str, ...]:
    return (path,) if os.path.isdir(path) else ()


def _bubblewrap_prefix(roots: Sequence[str], environment: Mapping[str, str], cut: bool) -> tuple[str, ...]:
    program = _bubblewrap(environment.get("PATH", os.defpath))
    assert program is not None
    binds = [word for root in roots for word in ("--bind", root, root)]
    return (program, *_BASE, *binds, *(["--unshare-net"] if cut else []), "--")


_BASE = (
    *("--die-with-parent", "--unshare-pid", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
    *("--tmpfs", "/tmp"),
    *(word for name in kernel.STRONG_CAPABILITIES if name != "CAP_BPF" for word in ("--cap-drop", name)),
)


@cache
def _bubblewrap(path: str) -> str | None:
    """The bubblewrap on this search path, if it works here: in a container it often may not."""
    program = shutil.which("bwrap", path=path) if sys.platform.startswith("linux") else None
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *_BASE, "--unshare-net", "--", "/bin/sh", "-c", "exit 0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PROBE_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return program if done.returncode == 0 else None
