"""What hosts send as content becomes parts here: checked, cleaned, large data moved to blobs."""

from __future__ import annotations

from anyio import to_thread

from protocol.messages import ImagePart, Part, TextPart
from record_store.backend import Blobs
from sidecar import base64text
from sidecar.errors import Fault
from sidecar.tools.text import clean

BLOB_OVER = 4096
"""Base64 characters from which an image's data goes to a blob."""


async def take_in(content: str | tuple[Part, ...], blobs: Blobs, *, path: str = "content") -> tuple[Part, ...]:
    """The parts of a user's input. Raises `invalid_params` for content that says nothing or is no image."""
    parts = await store_images(content, blobs, path=path)
    if not any(isinstance(p, ImagePart) or (isinstance(p, TextPart) and p.text.strip()) for p in parts):
        raise Fault("invalid_params", f"{path} is empty", hint="send some text or an image", path=path)
    return parts


async def store_images(content: str | tuple[Part, ...], blobs: Blobs, *, path: str = "content") -> tuple[Part, ...]:
    """Parts with clean text; images over 4 KiB of base64 are blobs. Raises `invalid_params` for bad base64."""
    if isinstance(content, str):
        return (TextPart(clean(content)),)
    out: list[Part] = []
    for i, part in enumerate(content):
        if isinstance(part, TextPart):
            out.append(TextPart(clean(part.text)))
        else:
            out.append(await _image(part, blobs, f"{path}[{i}]"))
    return tuple(out)


async def _image(part: ImagePart, blobs: Blobs, path: str) -> ImagePart:
    if part.data is None:
        if part.blob is None or blobs.get(part.blob) is None:
            raise Fault("invalid_params", f"{path} has no data", hint="send the image's bytes as base64", path=path)
        return ImagePart(part.media_type, blob=part.blob)
    try:
        large = len(part.data) > base64text.LARGE
        raw = await to_thread.run_sync(base64text.decode, part.data) if large else base64text.decode(part.data)
    except ValueError:
        raise Fault("invalid_params", f"{path}.data is not base64", path=f"{path}.data") from None
    if not raw:
        raise Fault("invalid_params", f"{path}.data is empty", path=f"{path}.data")
    if len(part.data) <= BLOB_OVER:
        return ImagePart(part.media_type, data=part.data)
    return ImagePart(part.media_type, blob=await blobs.put(raw))
