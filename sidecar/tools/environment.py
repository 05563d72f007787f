"""Which variables of the daemon's environment other programs get. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping

_SECRET = re.compile(
    r"SIDECAR_.*|(?:.*_)?(?:API_?KEY|TOKEN|SECRET|ACCESS_KEY|PRIVATE_KEY)S?|.*PASSWORD.*|.*PASSWD.*|.*_SECRET_.*",
    re.IGNORECASE,
)

_MCP = ("PATH", "HOME", "LANG", "TMPDIR")
_WINDOWS_NEEDS = ("SYSTEMROOT", "SYSTEMDRIVE", "PATHEXT", "TEMP", "TMP", "APPDATA", "LOCALAPPDATA", "USERPROFILE")


def is_secret(name: str) -> bool:
    """Whether a variable of this name is kept from child processes: ours, keys, tokens, secrets, passwords."""
    return _SECRET.fullmatch(name) is not None


def for_commands(environment: Mapping[str, str], secret_names: Collection[str] = ()) -> dict[str, str]:
    """What a command gets: everything but secrets. `secret_names` are further names, e.g. of the providers' keys."""
    hidden = {name.upper() for name in secret_names}
    return {k: v for k, v in environment.items() if not is_secret(k) and k.upper() not in hidden}


def for_servers(environment: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """What an MCP server gets: PATH, HOME, LANG, TMPDIR (and what Windows cannot do without), and its own settings."""
    names = _MCP + (_WINDOWS_NEEDS if sys.platform == "win32" else ())
    return {**{n: environment[n] for n in names if n in environment}, **configured}


def for_helpers(environment: Mapping[str, str]) -> dict[str, str]:
    """What the daemon's own helper programs get."""
    return for_servers(environment, {})
