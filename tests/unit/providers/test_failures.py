"""What refusals mean, told in the words that providers and gateways really use."""

# ruff: noqa: E501

from __future__ import annotations

import json
from typing import Any

import pytest

from sidecar.providers.errors import ErrorKind
from sidecar.providers.failures import MAX_MESSAGE_CHARS, Judge

KEY = "sk-test-0123456789abcdefSECRET"
JUDGE = Judge("here", (KEY, "tok/en+with=odd chars"))


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


OVERFLOWS: list[tuple[str, int, Any, int | None]] = [
    ("openai", 400, error("This model's maximum context length is 128000 tokens. However, your messages resulted in 130001"
                          " tokens. Please reduce the length of the messages.", type="invalid_request_error",
                          code="context_length_exceeded"), 128000),
    ("openai, new words", 400, error("Your input exceeds the context window of this model. Please adjust your input.",
                                     code="context_length_exceeded"), None),
    ("anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error",
                        "message": "prompt is too long: 208310 tokens > 200000 maximum"}}, 200000),
    ("anthropic, output too", 400, {"type": "error", "error": {"type": "invalid_request_error", "message":
     "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length"}}, 200000),
    ("vllm", 400, {"object": "error", "type": "BadRequestError", "code": 400, "message": "This model's maximum context "
     "length is 4096 tokens. However, you requested 5000 tokens (4488 in the messages, 512 in the completion)."}, 4096),
    ("vllm, prompt", 400, {"object": "error", "message": "The decoder prompt (length 5000) is longer than the maximum "
     "model length of 4096.", "code": 400}, 4096),
    ("vllm, output", 400, error("'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context "
     "length is 4096 tokens and your request has 15 input tokens (5000 > 4096 - 15).", code=400), 4096),
    ("llama.cpp", 400, error("the request exceeds the available context size, try increasing it", code=400,
                             type="exceed_context_size_error", n_prompt_tokens=14429, n_ctx=8192), 8192),
    ("llama.cpp, 500", 500, error("the request exceeds the available context size. try increasing the context size or "
     "enable context shift", code=500, type="exceed_context_size_error", n_ctx=256), 256),
    ("llama.cpp, size in words", 400, error("request (5200 tokens) exceeds the available context size (4096 tokens), "
     "try increasing it"), 4096),
    ("llama-cpp-python", 500, error("Requested tokens (2285) exceed context window of 2048"), 2048),
    ("ollama", 400, {"error": "prompt too long; exceeded max context length by 4 tokens"}, None),
    ("lm studio", 400, {"error": "Trying to keep the first 5098 tokens when context the overflows. However, the model is "
     "loaded with context length of only 4096 tokens, which is not enough."}, 4096),
    ("openrouter", 400, error("This endpoint's maximum context length is 131072 tokens. However, you requested about "
     "140000 tokens (139000 of text input, 1000 in the output).", code=400), 131072),
    ("openrouter, raw", 400, error("Provider returned error", code=400, metadata={"raw": json.dumps(
        {"error": {"message": "prompt is too long: 200251 tokens > 200000 maximum"}}), "provider_name": "P"}), 200000),
    ("cerebras", 400, error("Please reduce the length of the messages or completion. Current length is 12047 while limit is "
     "8192", code="context_length_exceeded"), 8192),
    ("inference server", 422, {"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
     "error_type": "validation"}, 4096),
    ("github", 413, error("Request body too large for gpt-4o model. Max size: 8000 tokens.", code="tokens_limit_reached"),
     8000),
    ("workers", 400, {"errors": [{"code": 5021, "message": "AiError: The estimated number of input and maximum output "
     "tokens (5000) exceeded this model context window limit (4096)."}]}, 4096),
    ("cohere", 400, {"message": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000."
     " Try using a shorter prompt."}, 4081),
    ("gemini", 400, [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count (1200000) "
     "exceeds the maximum number of tokens allowed (1048576)."}}], 1048576),
    ("kimi", 400, error("Invalid request: Your request exceeded model token limit: 131072",
                        type="invalid_request_error"), 131072),
    ("xai", 400, {"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 131072 "
     "but the request contains 537812 tokens."}, 131072),
    ("mistral", 400, {"object": "error", "message": "Prompt contains 332345 tokens and 0 draft tokens, too large for model "
     "with 262144 maximum context length", "type": "invalid_request_error", "code": "3051"}, 262144),
    ("qwen", 400, error("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
                        code="invalid_parameter_error"), 129024),
    ("tgi", 422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` "
     "tokens and 100 `max_new_tokens`", "error_type": "validation"}, 8193),
    ("sglang", 400, {"object": "error", "message": "The input (10000 tokens) is longer than the model's context length "
     "(8192 tokens).", "code": 400}, 8192),
    ("bedrock", 400, {"message": "Input is too long for requested model."}, None),
    ("copilot", 400, error("prompt token count of 140000 exceeds the limit of 128000",
                           code="model_max_prompt_tokens_exceeded"), 128000),
    ("zhipu", 400, error("Prompt exceeds max length", code="1261"), None),
    ("chinese words", 400, error("输入内容超出模型上下文长度限制"), None),
    ("a configured limit", 400, error("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted "
     "in 300000 tokens. Please reduce the length of the messages.", code="context_length_exceeded"), 272000),
    ("more than", 400, error("input is too long: 9000 tokens > 8192"), 8192),
    ("how many it exceeds", 400, error("input exceeds 8192 tokens, the context window of this model"), 8192),
    ("by how much is no maximum", 400, error("prompt too long; exceeded max context length by 900 tokens"), None),
    ("a proxy's 413 with words", 413, error("maximum context length is 32768 tokens"), 32768),
    ("with separators", 400, error("maximum context length is 1,048,576 tokens", code="context_length_exceeded"), 1048576),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "window"), [o[1:] for o in OVERFLOWS], ids=[o[0] for o in OVERFLOWS])
def test_overflows(status: int, body: Any, window: int | None) -> None:
    found = JUDGE.answer(status, {}, json.dumps(body).encode(), 0)
    assert (found.kind, found.window, found.retryable) == ("overflow", window, False)
    assert JUDGE.event(body[0] if isinstance(body, list) else body).kind == "overflow"


OTHERS: list[tuple[int, Any, ErrorKind]] = [
    (401, error("Incorrect API key provided", code="invalid_api_key"), "auth"),
    (403, error("Your account is not active"), "auth"),
    (400, [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "API key not valid. Please pass a valid key."}}],
     "auth"),
    (429, error("Rate limit reached on tokens per min (TPM): Limit 10000. Please reduce the length of the messages"),
     "rate_limited"),
    (429, error("You exceeded your current quota", code="insufficient_quota"), "rate_limited"),
    (408, {}, "unavailable"), (409, {}, "unavailable"), (500, {}, "unavailable"), (502, {}, "unavailable"),
    (503, error("overloaded"), "unavailable"), (529, error("Overloaded", type="overloaded_error"), "unavailable"),
    (599, {}, "unavailable"),
    (400, error("messages.1: bad role"), "rejected"), (404, error("The model `x` does not exist"), "rejected"),
    (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "rejected"), (402, error("no credit"), "rejected"),
    (301, {}, "rejected"), (413, {}, "rejected"),
    (400, error("max_tokens is too large: 32768. This model supports at most 16384 completion tokens"), "rejected"),
    (400, error("The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
                code="content_filter"), "refused"),
    (400, error("Content Exists Risk"), "refused"),
    (400, error("x", code="data_inspection_failed"), "refused"),
    (400, {"error": {"message": "filtered", "innererror": {"code": "ResponsibleAIPolicyViolation"}}}, "refused"),
    (403, error("Your input was flagged by moderation", code=403), "refused"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "kind"), OTHERS)
def test_the_rest(status: int, body: Any, kind: ErrorKind) -> None:
    found = JUDGE.answer(status, {}, json.dumps(body).encode(), 0)
    assert (found.kind, found.status) == (kind, status)
    assert found.retryable is (kind in ("rate_limited", "unavailable"))
    assert found.too_large is (status == 413)
    assert found.window is None


STREAMED: list[tuple[Any, ErrorKind]] = [
    ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "unavailable"),
    ({"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}, "rate_limited"),
    ({"type": "error", "error": {"type": "api_error", "message": "Internal server error"}}, "unavailable"),
    ({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}, "rejected"),
    ({"type": "error", "error": {"type": "authentication_error", "message": "no"}}, "auth"),
    ({"type": "error", "error": {"type": "timeout_error", "message": "no"}}, "unavailable"),
    (error("busy", code=429), "rate_limited"), (error("busy", code=502), "unavailable"),
    (error("bad", code=400), "rejected"), (error("boom", type="server_error", code=None), "unavailable"),
    (error("boom"), "unavailable"), ({"error": "boom"}, "unavailable"), ({"error": True}, "unavailable"),
    (error("who knows", type="strange_error"), "rejected"),
    (error("nope", code="rate_limit_exceeded"), "rate_limited"),
    (error("Content filter", code="content_filter"), "refused"),
    ({"object": "error", "message": "bad", "type": "BadRequestError", "code": 400}, "rejected"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "kind"), STREAMED)
def test_errors_in_a_stream_count_like_their_status(value: Any, kind: ErrorKind) -> None:
    assert JUDGE.event(value).kind == kind


@pytest.mark.parametrize(
    ("status", "message", "param", "named"),
    [
        (400, "Could not process image", None, True),
        (400, "messages.3.content.0.image.source.base64: invalid base64 data", None, True),
        (400, "Invalid value", "messages.[0].content.[1].image_url", True),
        (404, "No endpoints found that support image input", None, True),
        (413, "image exceeds 5 MB maximum", None, True),
        (400, "imaginary tool", None, False), (400, "bad role", None, False), (500, "image service down", None, False),
    ],
)  # fmt: skip
def test_blaming_an_image(status: int, message: str, param: str | None, named: bool) -> None:
    assert JUDGE.answer(status, {}, json.dumps(error(message, param=param)).encode(), 0).names_image is named


@pytest.mark.parametrize(
    "said",
    [f"Incorrect API key provided: {KEY}", f"you sent 'Bearer {KEY}'", "see tok/en+with=odd chars",
     "url?key=tok%2Fen%2Bwith%3Dodd%20chars", "another sk-proj-AbC123********9xyz", "Basic dXNlcjpwYXNzd29yZDE="],
)  # fmt: skip
def test_no_key_survives(said: str) -> None:
    body = json.dumps(error(said, code=said, type=said)).encode()
    for found in (JUDGE.answer(401, {}, body, 0), JUDGE.answer(400, {}, said.encode(), 0), JUDGE.event(error(said))):
        told = " ".join((found.message, str(found.code), str(found), repr(found.args)))
        for secret in (KEY, "tok/en", "tok%2Fen", "9xyz", "dXNlcjp"):
            assert secret not in told


def test_words_are_for_people() -> None:
    page = b"<!DOCTYPE html><html><head><title>502\n Bad  Gateway</title></head><body>long</body></html>"
    assert JUDGE.answer(502, {}, page, 0).message == "here answered 502: 502 Bad Gateway"
    assert JUDGE.answer(400, {}, b"a\x00b\x1b[31m\r\n\tc\xff", 0).message == "here answered 400: a\ufffdb [31m c\ufffd"
    assert JUDGE.answer(503, {}, b"", 0).message == "here answered 503: the service is not available"
    long = JUDGE.answer(400, {}, b"word " * 500, 0).message
    assert len(long) <= MAX_MESSAGE_CHARS + len("here answered 400: ")
    assert long.endswith("…")


def test_waits() -> None:
    assert JUDGE.answer(429, {"retry-after": "3"}, b"", 0).retry_after_s == 3
    assert JUDGE.answer(401, {"retry-after": "3"}, b"", 0).retry_after_s is None
    google = error("quota", code=429, details=[{"@type": "x"}, {"retryDelay": "31s"}])
    assert JUDGE.answer(429, {}, json.dumps(google).encode(), 0).retry_after_s == 31
    assert JUDGE.answer(429, {"retry-after": "2"}, json.dumps(google).encode(), 0).retry_after_s == 2
