"""The token that every TCP connection shows first."""

from __future__ import annotations

import hmac
import os
import secrets
import tempfile
from pathlib import Path

from sidecar.rpc.envelope import Batch, Message, Notification, Request
from sidecar.rpc.errors import StartError

MAX_TOKEN_BYTES = 4096


class TokenGuard:
    """Admits `system.initialize` with the right token, and nothing else. It compares in constant time."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def admits(self, message: Message | Batch) -> bool:
        if not isinstance(message, (Request, Notification)) or message.method != "system.initialize":
            return False
        shown = message.params.get("token")
        return isinstance(shown, str) and hmac.compare_digest(shown.encode("utf-8", "replace"), self._token)


def read_token(path: str) -> str:
    """The one line of a token file. Raises `StartError` naming the fix."""
    try:
        text = Path(path).read_bytes()[: MAX_TOKEN_BYTES + 1].decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise StartError(
            f"the token file {path} cannot be read", "give --token-file a readable file with the token on one line"
        ) from None
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if len(lines) != 1 or len(text) > MAX_TOKEN_BYTES:
        raise StartError(f"the token file {path} must hold exactly one line", "write the token into it, alone")
    return lines[0]


def fresh_token() -> tuple[str, Path]:
    """A new token in a new file that only its owner can read. Whoever made it removes it."""
    token = secrets.token_urlsafe(32)
    fd, name = tempfile.mkstemp(prefix="sidecar-token-")
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(token + "\n")
    return token, Path(name)
