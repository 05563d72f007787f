"""What a provider's refusal means: status, headers and words to one `ProviderError`. Pure.

Providers speak of the same few things in many ways, gateways repeat the words of others, and local servers invent
their own; so one reader knows all shapes, and the dialect only decides how a request is written.

The order of the questions: content filter, overflow, key, then the status.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from sidecar.providers.errors import ErrorKind, ProviderError
from sidecar.providers.jsontext import clean, loads
from sidecar.providers.retry import retry_after

MAX_MESSAGE_CHARS = 300
MIN_SECRET_CHARS = 6

MIN_WINDOW, MAX_WINDOW = 256, 100_000_000
"""A number outside of this in an overflow's words is no window."""


@dataclass(frozen=True, slots=True)
class Words:
    """What an error body says, whatever its shape. `code` and `kind` are lower case; `text` is raw."""

    text: str = ""
    code: str = ""
    kind: str = ""
    param: str = ""
    status: int | None = None
    window: int | None = None
    wait_s: float | None = None


class Judge:
    """Converts the refusals of one endpoint. `secrets` never survive in what it makes."""

    __slots__ = ("_name", "_secrets")

    def __init__(self, name: str, secrets: Iterable[str] = ()) -> None:
        self._name = name
        long_enough = {s for s in secrets if len(s) >= MIN_SECRET_CHARS}
        spellings = long_enough | {quote(s, safe="") for s in long_enough}
        self._secrets = tuple(sorted(spellings, key=len, reverse=True))

    def answer(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> ProviderError:
        """The error of an answer that is no 2xx. Header names are lower case; `now` is seconds since 1970."""
        words = read_words(self._redact(body.decode(errors="replace")))
        wait = retry_after(headers, now)
        return self._error(status, words, words.wait_s if wait is None else wait)

    def event(self, value: Any) -> ProviderError:
        """The error that stands in a stream, or in a 200 answer; it counts like the status that it names."""
        words = _from_object(value)
        words = words if words.text or words.code or words.kind else Words("an error without words")
        return self._error(words.status or _status_of(words), words, words.wait_s)

    def unreadable(self, what: str) -> ProviderError:
        """An answer that cannot be used as it came: it is asked for again."""
        return ProviderError("unavailable", f"{self._name}: {what}")

    def _redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _error(self, status: int, words: Words, wait_s: float | None) -> ProviderError:
        kind = kind_of(status, words)
        said = summary(self._redact(words.text)) or _PLAIN.get(kind, "no reason was given")
        return ProviderError(
            kind,
            f"{self._name} answered {status}: {said}",
            status=status,
            retry_after_s=wait_s if kind in ("rate_limited", "unavailable") else None,
            window=window_in(words) if kind == "overflow" else None,
            names_image=kind == "rejected" and status in _IMAGE_STATUSES and names_image(words),
            too_large=kind == "rejected" and status == 413,
            code=summary(self._redact(words.code or words.kind))[:64] or None,
        )


_PLAIN: dict[ErrorKind, str] = {
    "auth": "the key was refused",
    "rate_limited": "too many requests",
    "unavailable": "the service is not available",
    "rejected": "the request was refused",
    "overflow": "the request is larger than the model's window",
    "refused": "the content filter refused the request",
}


# ---------------------------------------------------------------- reading a body


def read_words(body: str) -> Words:
    """The words of an error body: JSON in any of the known shapes, else plain text or a page."""
    try:
        value, _ = loads(body.encode("utf-8", "replace"))
    except ValueError:
        return Words(body)
    return _from_object(value)


def _from_object(value: Any) -> Words:
    if isinstance(value, list):
        value = next((v for v in value if isinstance(v, dict)), None) or (value[0] if value else None)
    if not isinstance(value, dict):
        return Words(value if isinstance(value, str) else "")
    error = value.get("error", value.get("errors"))
    if isinstance(error, list):
        error = error[0] if error else None
    if isinstance(error, str):
        return Words(error, code=_word(value.get("code")), kind=_word(value.get("type")), status=_number(value))
    inner = error if isinstance(error, dict) else value
    text = _text(inner) or _text(value)
    upstream = inner.get("metadata")
    if isinstance(upstream, dict) and isinstance(upstream.get("raw"), (str, dict)):
        raw = upstream["raw"]
        said = read_words(raw) if isinstance(raw, str) else _from_object(raw)
        text = f"{text}: {said.text}" if said.text else text
    filtered = inner.get("innererror")
    return Words(
        text=text,
        code=_word(inner.get("code")) or (_word(filtered.get("code")) if isinstance(filtered, dict) else ""),
        kind=_word(inner.get("type")) or _word(inner.get("status")),
        param=_word(inner.get("param")),
        status=_number(inner) or _number(value),
        window=_window(inner.get("n_ctx")),
        wait_s=_retry_info(inner.get("details")),
    )


def _text(value: Mapping[str, Any]) -> str:
    for name in ("message", "detail", "msg", "error_msg", "error_message", "reason"):
        said = value.get(name)
        if isinstance(said, str) and said:
            return said
        if isinstance(said, list):
            parts = [str(d.get("msg") or d) if isinstance(d, dict) else str(d) for d in said]
            return "; ".join(parts)
        if isinstance(said, dict):
            return _text(said)
    return ""


def _word(value: Any) -> str:
    return value.lower() if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def _number(value: Mapping[str, Any]) -> int | None:
    """The HTTP status that an error object names."""
    for name in ("status", "status_code", "code"):
        found = value.get(name)
        if isinstance(found, str) and found.isdigit() and len(found) == 3:
            found = int(found)
        if isinstance(found, int) and not isinstance(found, bool) and 400 <= found <= 599:
            return found
    return None


def _retry_info(details: Any) -> float | None:
    """Google's `RetryInfo`: `{"retryDelay": "31s"}` among the details."""
    for item in details if isinstance(details, list) else ():
        delay = item.get("retryDelay") if isinstance(item, dict) else None
        if isinstance(delay, str) and re.fullmatch(r"\d{1,6}(\.\d+)?s", delay):
            return float(delay[:-1])
    return None


# ---------------------------------------------------------------- what it means

_STATUS_WORDS: tuple[tuple[int, str], ...] = (
    (529, r"overloaded"),
    (429, r"rate.?limit|too_many_requests|too many requests|insufficient_quota|resource_exhausted|throttl"),
    (401, r"authentication|invalid_api_key|unauthorized|unauthenticated"),
    (403, r"permission|forbidden"),
    (404, r"not_found"),
    (413, r"request_too_large"),
    (402, r"billing|payment"),
    (504, r"timeout|timed_out|timed out|deadline"),
    (400, r"invalid|bad.?request|context_length|exceed_context|content_filter|content_policy"),
    (503, r"unavailable|server_error|api_error|internal|upstream|bad_gateway|network|service_error|engine"),
)


def _status_of(words: Words) -> int:
    """The status that an error event without one stands for. No type and no code at all: the server broke."""
    named = f"{words.kind} {words.code}".strip()
    for status, pattern in _STATUS_WORDS:
        if re.search(pattern, named):
            return status
    return 400 if named else 500


_FILTER_CODES = frozenset(
    {"content_filter", "content_policy_violation", "responsibleaipolicyviolation", "data_inspection_failed",
     "content_filter_error", "moderation_blocked", "sensitive_words_detected", "1301"}
)  # fmt: skip
_FILTER_TEXT = re.compile(
    r"content[ _-]?filter|content[ _-]?management[ _-]?polic|content[ _-]?polic(y|ies)[ _-]?violation|"
    r"content exists risk|data inspection|inappropriate content|flagged (by|for|as)|requires moderation|"
    r"safety (system|filter|polic)|敏感内容|不安全或敏感",
    re.IGNORECASE,
)
_FILTER_STATUSES = frozenset({400, 403, 422, 451})

_OVERFLOW_CODES = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded", "context_limit_exceeded",
     "model_context_window_exceeded", "string_above_max_length", "prompt_too_long", "max_context_length_exceeded",
     "tokens_limit_reached", "1261"}
)  # fmt: skip
_OVERFLOW_TEXT = re.compile(
    r"maximum context length|maximum model length|max(imum)? context|context[ _-]?length[ _-]?exceeded|"
    r"model'?s context (length|window)|exceed\w* (the |this |your )?(model'?s? )?(available |maximum |max )?context|"
    r"context (window|length|limit|size)\b.{0,40}(exceed|too (long|large|small)|limit)|"
    r"(exceed\w*|larger than|longer than|greater than|over) .{0,60}context (window|length|limit|size)|"
    r"prompt is too long|prompt too long|prompt length|input is too long|input length and `?max_tokens`?|"
    r"input (token|length).{0,40}exceed|too large for model|maximum prompt length|"
    r"exceeds? the maximum number of tokens|token count.{0,40}exceeds|exceeded model token limit|"
    r"reduce the length of the (messages|prompt|input)|context the overflows|context overflow|"
    r"max_new_tokens`? must be <=|range of input length should be|prompt exceeds max length|"
    r"must have less than \d+ tokens|tokens in the prompt cannot exceed|body too large for .{1,60}max size: \d+ tokens|"
    r"decoder prompt \(length|exceed context window|"
    r"超出.{0,12}(长度|上下文)|(长度|上下文).{0,12}超(出|过|长)|prompt ?超长",
    re.IGNORECASE,
)
_NOT_OVERFLOW = frozenset({401, 402, 403, 404, 407, 408, 409, 429})
"""Statuses whose meaning is clear whatever words come with them (`tokens per minute` is no window)."""

_KEY_TEXT = re.compile(
    r"api[ _-]?key (not valid|is invalid|invalid|not found|expired|is missing)|"
    r"(invalid|incorrect|missing|no) api[ _-]?key|invalid x-api-key|invalid (bearer|access) token",
    re.IGNORECASE,
)
_IMAGE_TEXT = re.compile(
    r"\bimages?\b|image_url|image\.source|multi-?modal|\bvision\b|media[_ ]type|图片|图像", re.IGNORECASE
)
_IMAGE_STATUSES = frozenset({400, 404, 413, 415, 422})


def kind_of(status: int, words: Words) -> ErrorKind:
    if status in _FILTER_STATUSES and _is_filter(words):
        return "refused"
    if status not in _NOT_OVERFLOW and is_overflow(words):
        return "overflow"
    if status in (401, 403, 407) or (status == 400 and _KEY_TEXT.search(words.text)):
        return "auth"
    if status == 429:
        return "rate_limited"
    if status in (408, 409, 425) or status >= 500:
        return "unavailable"
    return "rejected"


def _is_filter(words: Words) -> bool:
    return words.code in _FILTER_CODES or words.kind in _FILTER_CODES or bool(_FILTER_TEXT.search(words.text))


def is_overflow(words: Words) -> bool:
    """Whether the words say that the request has more tokens than the model's window."""
    if words.code in _OVERFLOW_CODES or words.kind in _OVERFLOW_CODES:
        return True
    return bool(_OVERFLOW_TEXT.search(words.text))


def names_image(words: Words) -> bool:
    return bool(_IMAGE_TEXT.search(words.text) or _IMAGE_TEXT.search(words.param))


_N = r"(?<!\bby )(\d[\d,_]{2,11})"
"""A number of tokens; what a request is over the maximum *by* is none of the maximum."""
_WINDOW_PATTERNS = tuple(
    re.compile(pattern.replace("N", _N), re.IGNORECASE)
    for pattern in (
        r"maximum context length (?:is|of|:)? ?(?:only )?N",
        r"maximum context length[^.\d]{0,30}N",
        r"N (?:token )?maximum context length",
        r"> ?N maximum",
        r"context limit: \d+ \+ \d+ > N",
        r"maximum number of tokens allowed \(?N",
        r"maximum prompt length is N",
        r"maximum model length of N",
        r"token limit: ?N",
        r"context (?:length|size|window) ?\(N tokens?\)",
        r"context (?:length|size|window|limit) (?:is|of|:) ?(?:only )?N",
        r"context (?:length|size|window|limit)[^.\d]{0,20} N tokens",
        r"(?:tokens`?|length) must be <= ?N",
        r"exceeds the limit of N",
        r"input length should be \[\d+, ?N\]",
        r"maximum (?:input|sequence) length (?:is|of) N",
        r"max(?:imum)? context[^.\d]{0,20}N",
        r"context (?:length|size|window) limit \(?N",
        r"less than N tokens",
        r"max size: N tokens",
        r"cannot exceed N",
        r"limit of N tokens",
        r"tokens > ?N",
        r"exceeds? N tokens",
        r"\blimit is N",
        r"\bn_ctx ?[=:]? ?N",
    )
)


def window_in(words: Words) -> int | None:
    """The maximum that an overflow names; None if it names none."""
    if words.window is not None:
        return words.window
    for pattern in _WINDOW_PATTERNS:
        found = pattern.search(words.text)
        if found:
            window = _window(int(re.sub(r"[,_]", "", found.group(1))))
            if window is not None:
                return window
    return None


def _window(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and MIN_WINDOW <= value <= MAX_WINDOW:
        return value
    return None


# ---------------------------------------------------------------- words for people

_KEYS = re.compile(
    r"\b(sk|pk|rk|gsk|xai|key)[-_](?=[A-Za-z_*\-]*[0-9*])[A-Za-z0-9_*\-]{6,}|\bAIza[A-Za-z0-9_\-]{20,}|"
    r"\b(Bearer|Basic) +(?=\S*[0-9])\S{6,}"
)
_SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_PAGE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


def summary(text: str) -> str:
    """The text for people: one line, at most `MAX_MESSAGE_CHARS`, no markup, nothing that looks like a key."""
    if re.match(r"\s*<(!doctype|html|head|\?xml)", text, re.IGNORECASE):
        title = _PAGE.search(text)
        text = title.group(1) if title else "a web page instead of an answer"
    text = _SPACE.sub(" ", _KEYS.sub("***", clean(text[:20_000]))).strip()
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"
