"""Runs one shell command through the supervisor and says how it ended."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from anyio import to_thread

from sidecar.settings import ToolSettings
from sidecar.tools import process, sandbox
from sidecar.tools.confine import Confinement
from sidecar.tools.environment import for_helpers
from sidecar.tools.job import Job, Report
from sidecar.tools.refusal import Refused
from sidecar.tools.supervisor import GRACE_S, KILL_S

KEEP_BYTES = 128 << 10
"""Output kept at each end."""
MAX_COMMAND = 100_000
"""Characters; the kernel takes 128 KiB in one argument."""
_END_S = GRACE_S + 0.5
"""How long a supervisor that was told to stop is waited for; a cancelled turn has one second."""


@dataclass(frozen=True, slots=True)
class Finished:
    """`exit_code` is negative for a signal. `head` and `tail` are the ends of stdout and stderr together, `total` all
    of its bytes. `left` says that something of the command was still running when its shell ended, and was ended."""

    exit_code: int
    timed_out: bool
    left: bool
    head: bytes
    tail: bytes
    total: int
    plan: sandbox.Plan


async def run(
    command: str,
    *,
    confinement: Confinement,
    directory: str,
    environment: Mapping[str, str],
    timeout_s: float,
    settings: ToolSettings,
) -> Finished:
    """Runs `command` in `directory` (resolved) with this environment, confined as the settings say. When it returns,
    is cancelled or raises, nothing of the command runs any more. Raises `Refused` if it cannot be started."""
    if sys.platform == "win32":
        raise Refused("run_command needs a POSIX system; on Windows give the session a tool of its host instead.")
    if len(command) > MAX_COMMAND:
        raise Refused(f"The command is over {MAX_COMMAND:,} characters long: write a script file and run that.")
    if "\0" in command:
        raise Refused("The command contains a NUL character: leave it out.")
    plan = await to_thread.run_sync(
        sandbox.plan, settings.sandbox, settings.sandbox_network, confinement.roots, environment
    )
    with confinement.directory(directory) as folder:
        job: Job = {
            "argv": [*plan.prefix, *shell(environment), command],
            "environment": {**environment, "PWD": directory},
            "cwd_fd": folder,
            "timeout_s": timeout_s,
            "keep": KEEP_BYTES,
            "writable": None if plan.writable is None else list(plan.writable),
            "devices": list(plan.devices),
            "scratch": plan.scratch,
            "network": plan.network,
        }
        answer = await process.ask(
            "supervisor",
            json.dumps(job).encode(),
            environment=for_helpers(environment),
            timeout_s=timeout_s + GRACE_S + KILL_S + 10,
            limit=2 * KEEP_BYTES + 65536,
            pass_fds=(folder,),
            grace_s=_END_S,
        )
    return _finished(answer, plan)


def shell(environment: Mapping[str, str]) -> list[str]:
    """`bash -c`, or `sh -c` where there is no bash."""
    path = environment.get("PATH", os.defpath)
    for name, usual in (("bash", "/bin/bash"), ("sh", "/bin/sh")):
        program = shutil.which(name, path=path) or (usual if os.access(usual, os.X_OK) else None)
        if program is not None:
            return [program, "-c"]
    raise Refused("There is no shell on this machine: neither bash nor sh was found.")


def _finished(answer: process.Answer, plan: sandbox.Plan) -> Finished:
    line, found, output = answer.output.partition(b"\n")
    if not found or answer.exit_code is None:
        raise Refused("The command's supervisor ended before it could report; the command was ended with it.")
    report: Report = json.loads(line)
    if "failure" in report:
        raise Refused(f"The command could not be started: {report['failure']}.")
    head = report["head"]
    return Finished(
        report["exit_code"],
        report["timed_out"],
        report["left"],
        output[:head],
        output[head : head + report["tail"]],
        report["total"],
        plan,
    )
