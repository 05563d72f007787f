"""What a conversation is made of, and the shapes that several methods share.

Pure data. Everything here is frozen; absent optional fields are left out of the JSON.
Times are integer milliseconds since 1970 (UTC), tokens are integers, everywhere.
`gc=False` where a value can hold no cycle: a long conversation then costs the garbage collector nothing, which halves
the time of a replay.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Role = Literal["system", "user", "assistant", "tool"]

OriginKind = Literal[
    "user",
    "skill_activation",
    "plugin_command",
    "injection",
    "shell_command",
    "compaction_summary",
    "system_trigger",
    "task",
    "cron_job",
    "cron_missed",
    "hook_result",
    "retry",
]

StopReason = Literal["end_turn", "max_tokens", "max_steps", "refused", "cancelled", "error"]

JsonObject = dict[str, Any]
"""A JSON object whose keys are not ours to type: tool arguments, JSON Schemas, configuration."""


class TextPart(Struct, frozen=True, gc=False, tag_field="type", tag="text"):
    """Text; clean UTF-8 (lone surrogates and NULs were replaced at the border)."""

    text: str


class ImagePart(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="image"):
    """An image: `data` is base64; in the log, images over 4 KiB have `blob` (the SHA-256 of the raw bytes) instead."""

    media_type: str
    data: str | None = None
    blob: str | None = None


Part = TextPart | ImagePart


class ToolCall(Struct, frozen=True, gc=False):
    """A call as the model made it. `arguments` is the model's exact text; ids are unique in the session."""

    id: str
    name: str
    arguments: str


class Origin(Struct, frozen=True, gc=False, omit_defaults=True):
    """Where a message came from. Absent on a message means `user`.

    `trigger` says who activated a skill or a command (`user_slash`, `model`); `variant` names an injection.
    """

    kind: OriginKind
    trigger: str | None = None
    variant: str | None = None


class ReasoningBlock(Struct, frozen=True, gc=False, omit_defaults=True):
    """One block of a model's reasoning, as a signing provider wants it replayed.

    `chars` code points of the message's `reasoning`, in order, belong to it; `redacted` is opaque data without text.
    `at` code points of the message's text came before it.
    """

    chars: int = 0
    signature: str | None = None
    redacted: str | None = None
    at: int = 0


class Message(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One message of a conversation.

    `model` is set on assistant messages: reasoning is only replayed to the model that thought it.
    """

    id: str
    role: Role
    content: tuple[Part, ...]
    time: int
    origin: Origin | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool = False
    reasoning: str | None = None
    reasoning_blocks: tuple[ReasoningBlock, ...] | None = None
    model: str | None = None
    partial: bool = False

    @property
    def text(self) -> str:
        """All text parts joined, images left out."""
        return "".join(p.text for p in self.content if isinstance(p, TextPart))


class ToolSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A tool that the model may call. `parameters` is a JSON Schema, sent to the model as given."""

    name: Annotated[str, Meta(min_length=1)]
    description: str = ""
    parameters: JsonObject
    side_effects: bool | None = None
    timeout_s: Annotated[float, Meta(gt=0)] | None = None


class Usage(Struct, frozen=True, gc=False):
    """Tokens of a turn. `prompt_tokens` includes the cached ones, in every dialect."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    requests: int = 0

    def plus(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
            self.requests + other.requests,
        )


class ErrorInfo(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Why a turn failed: `reason` is the word of the error table, `code` its number."""

    code: int
    reason: str
    message: str
    hint: str | None = None
    provider_status: int | None = None


class TurnResult(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a turn ended. `text` is the text of its last assistant message, possibly empty."""

    turn_id: str
    stop_reason: StopReason
    text: str
    usage: Usage
    error: ErrorInfo | None = None
