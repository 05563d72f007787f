"""A model that answers well-formed requests and refuses all others with a 400: a real server on 127.0.0.1.

with StrictServer() as server:
    ...  # OPENAI_BASE_URL = server.openai_url, ANTHROPIC_BASE_URL = server.anthropic_url
    assert server.refusals == []
"""

from __future__ import annotations

from typing import Any

from tests.support.fake_llm import FakeLLM, Reply, failure
from tests.support.strict_anthropic import check as check_messages
from tests.support.strict_json import Refused
from tests.support.strict_openai import check as check_chat


class StrictServer(FakeLLM):
    """`refusals` are the reasons, in order. Whatever is well formed is answered with `reply`."""

    def __init__(self, reply: Reply | None = None) -> None:
        self.refusals: list[str] = []
        self._reply = reply or Reply("understood")
        super().__init__(self._judge)

    def _judge(self, asked: dict[str, Any], n: int) -> Reply:
        request = self.requests[-1]
        try:
            (check_messages if request.is_anthropic else check_chat)(request.body)
        except Refused as refusal:
            self.refusals.append(str(refusal))
            return failure(400, str(refusal), type="invalid_request_error")
        return self._reply
