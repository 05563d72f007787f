"""A scripted model behind a real HTTP server on loopback: an OpenAI-compatible endpoint that plays a patient reader.

It answers from what is in the request and from nothing else, so that what compaction loses, it does not know.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STEP_S = 0.15
"""Seconds that an ordinary answer takes."""

SUMMARY_S = 0.6
"""Seconds that a summary takes: longer than a step, so that the turn visibly goes on meanwhile."""

CHAPTERS = 14


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(p.get("text", "") for p in content)


def decide(messages: list[dict[str, Any]]) -> tuple[str, list[dict[str, str]]]:
    """Text and calls of the answer."""
    last = text_of(messages[-1])
    seen = "\n".join(text_of(m) for m in messages)
    read = {int(n) for n in re.findall(r"Chapter (\d+) of", seen)} | _listed(seen)
    if "summar" in last.lower() and "conversation" in last.lower() and messages[-1]["role"] == "user":
        code = re.search(r"code word is (\w+)", seen)
        finds = sorted(set(re.findall(r"The keeper wrote: \w+ \d+", seen)))
        done = ", ".join(str(n) for n in sorted(read))
        return (
            f"Goal: read all {CHAPTERS} chapters of the log book and report. The user's code word is "
            f"{code.group(1) if code else 'unknown'}. Chapters read so far: {done}. "
            f"Findings: {'; '.join(finds)}. Next step: go on with the next chapter."
        ), []
    if "code word" in last.lower() and "?" in last:
        code = re.search(r"code word is (\w+)", seen)
        return (f"Your code word is {code.group(1)}." if code else "I do not know it."), []
    asked = any("read the log book" in text_of(m).lower() for m in messages if m["role"] == "user")
    following = max(read, default=0) + 1
    if asked and following <= CHAPTERS:
        return f"Reading chapter {following}.", [
            {"name": "read_chapter", "arguments": json.dumps({"number": following})}
        ]
    return f"I have read {len(read)} chapters; the log book is complete and the keeper's notes are in order.", []


def _listed(text: str) -> set[int]:
    found: set[int] = set()
    for numbers in re.findall(r"Chapters read so far: ([\d, ]+)", text):
        found |= {int(n) for n in re.findall(r"\d+", numbers)}
    return found


def stream(text: str, calls: list[dict[str, str]], prompt_tokens: int, number: int) -> Iterator[bytes]:
    def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"

    for word in re.findall(r"\S+\s*", text):
        yield event({"content": word})
    for i, call in enumerate(calls):
        yield event({"tool_calls": [{"index": i, "id": f"call_{number}_{i}", "type": "function", "function": call}]})
    yield event({}, "tool_calls" if calls else "stop")
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": max(1, len(text) // 4)}
    yield b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


class DemoModel:
    """Serves until `close`. `base_url` is what OPENAI_BASE_URL takes."""

    def __init__(self) -> None:
        model = self
        self.requests = 0
        self.hold = threading.Event()
        self.hold.set()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                return None

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                model.requests += 1
                number = model.requests
                text, calls = decide(json.loads(body)["messages"])
                time.sleep(SUMMARY_S if text.startswith("Goal:") else STEP_S)
                model.hold.wait()
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                try:
                    for piece in stream(text, calls, len(body) // 4, number):
                        self.wfile.write(piece)
                        self.wfile.flush()
                except OSError:
                    return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()
