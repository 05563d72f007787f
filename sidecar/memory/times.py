"""Dates of facts: ISO 8601 in UTC as text, milliseconds since 1970 inside. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

DAY_MS = 86_400_000


def to_iso(ms: int) -> str:
    """`2026-05-01T09:30:00Z`, with milliseconds only where there are some."""
    moment = datetime.fromtimestamp(ms // 1000, UTC).replace(tzinfo=None)
    fraction = f".{ms % 1000:03d}" if ms % 1000 else ""
    return f"{moment.isoformat()}{fraction}Z"


def from_iso(text: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 date or time; without a zone it is UTC. Raises `ValueError`."""
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    except OverflowError:
        raise ValueError(f"out of range: {text}") from None
