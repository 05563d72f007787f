"""What both dialects need to know of messages and their parts. Pure but for the reading of blobs."""

from __future__ import annotations

import re
from hashlib import blake2b

from protocol.messages import ImagePart, Message, TextPart
from sidecar.base64text import encode
from sidecar.providers.jsontext import json_object
from sidecar.providers.port import BlobReader
from sidecar.providers.shelf import BlobShelf

EMPTY_MESSAGE = "(empty message)"
NO_OUTPUT = "(no output)"
MISSING_RESULT = "[no result: the call was interrupted; it may have had effects]"
LATE_RESULT = "[tool result whose call is no longer part of this conversation]"

_NAME = re.compile(r"[A-Za-z0-9_-]+")


def short_hash(text: str, size: int = 8) -> str:
    """Hex digits that stand for a text: the same text, the same digits."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=size).hexdigest()


def hash_of(*chunks: bytes) -> str:
    state = blake2b(digest_size=8)
    for chunk in chunks:
        state.update(chunk)
    return state.hexdigest()


def image_base64(part: ImagePart, blobs: BlobReader) -> str | None:
    """The image's bytes in base64; None if its blob is lost."""
    if part.data is not None or part.blob is None:
        return part.data
    if isinstance(blobs, BlobShelf):
        return blobs.base64(part.blob)
    raw = blobs(part.blob)
    return encode(raw) if raw is not None else None


def image_pointer(part: ImagePart, why: str) -> str:
    """The text that stands for an image that cannot be sent. Holds nothing that changes."""
    return f"[image {why}: {(part.blob or 'inline')[:12]}, {part.media_type}]"


def is_blank(message: Message) -> bool:
    """Whether an assistant message says nothing and calls nothing; such a message is not sent."""
    return not message.tool_calls and not any(isinstance(p, TextPart) and p.text.strip() for p in message.content)


def safe_name(name: str, limit: int) -> str:
    """A tool's name as strict providers take it; one that fits is unchanged."""
    if len(name) <= limit and _NAME.fullmatch(name):
        return name
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:limit] or "unnamed"


def safe_id(call_id: str, prefix: str, limit: int) -> str:
    """A call's id as strict providers take it; one that does not fit becomes `prefix` and a hash of it."""
    if 0 < len(call_id) <= limit and _NAME.fullmatch(call_id):
        return call_id
    return prefix + short_hash(call_id, 12)


def wrapped_arguments(text: str) -> dict[str, str]:
    """An object that carries argument text that is no JSON object, so that the model sees what it wrote."""
    return {"malformed_arguments": text} if text.strip() else {}


def arguments_object(text: str) -> bytes | None:
    """The model's own text as the JSON object that it is; None if it is none (blank text counts as `{}`)."""
    return json_object(text) if text.strip() else b"{}"
