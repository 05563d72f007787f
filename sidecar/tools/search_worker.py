"""The process that searches for the daemon: one request on stdin, one answer on stdout. Standard library only."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from sidecar.tools.confine import Confinement
from sidecar.tools.refusal import Refused
from sidecar.tools.search import SECONDS, GlobRequest, GrepRequest, glob, grep

HARD_SECONDS = int(SECONDS) + 5
"""When the process ends whatever it does: a pattern that never comes back, or a daemon that is gone."""


def main() -> None:
    if hasattr(signal, "alarm"):
        signal.alarm(HARD_SECONDS)
    try:
        answer = {"text": _search(json.loads(sys.stdin.buffer.readline()))}
    except Refused as refusal:
        answer = {"refused": str(refusal)}
    os.write(1, json.dumps(answer).encode())


def _search(request: dict[str, Any]) -> str:
    place = Confinement(request.pop("cwd"), tuple(request.pop("roots")))
    if request.pop("kind") == "glob":
        return glob(GlobRequest(place, **request))
    return grep(GrepRequest(place, **request))
