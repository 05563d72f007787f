"""An MCP server over stdio for the tests, written by hand: standard library, the protocol's older dialect.

    python mcp_server.py [mode]

mode: `silent` never answers, `slow` waits before it starts, `exit` ends at once, `chatter` writes nonsense first,
`child` leaves a process behind that holds its pipes. Everything that it is told is appended to the file `$TRACE`.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

PNG = base64.b64encode(b"\x89PNG fake").decode()
lock = threading.Lock()
extra: list[str] = []


def say(message: dict[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def trace(text: str) -> None:
    if os.environ.get("TRACE"):
        with open(os.environ["TRACE"], "a") as file:
            file.write(text + "\n")


def tool(name: str, *, read_only: bool | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "description": f"Does {name}.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    }
    return found if read_only is None else {**found, "annotations": {"readOnlyHint": read_only}}


def tools() -> list[dict[str, Any]]:
    names = ("echo", "die", "sleep", "image", "mixed", "fail", "grow", "environment", "with.dot", "with dot", "broken")
    return [tool("look", read_only=True), *(tool(n) for n in (*names, "backwards", *extra))]


def content(name: str, text: str) -> dict[str, Any]:
    match name:
        case "image":
            return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}
        case "mixed":
            return {
                "content": [
                    {"type": "text", "text": "a\0b"},
                    {"type": "image", "data": "!!", "mimeType": "image/png"},
                    {"type": "image", "data": PNG, "mimeType": "image/tiff"},
                    {"type": "audio", "data": PNG, "mimeType": "audio/wav"},
                    {"type": "resource", "resource": {"uri": "file:///x", "text": "inner"}},
                    {"type": "resource", "resource": {"uri": "file:///y", "blob": PNG, "mimeType": "application/zip"}},
                    {"type": "resource_link", "uri": "file:///z", "name": "zed"},
                    {"type": "image", "data": PNG, "mimeType": "image/png"},
                ]
            }
        case "fail":
            return {"content": [{"type": "text", "text": "it went wrong"}], "isError": True}
        case "environment":
            return {"content": [{"type": "text", "text": "\n".join(sorted(os.environ)) + "\n" + os.getcwd()}]}
        case "backwards":
            told = " ".join([*sys.argv[1:], os.environ.get(text, "nothing")])
            return {"content": [{"type": "text", "text": told[::-1]}]}
        case "broken":
            return {"nothing": "useful"}
    return {"content": [{"type": "text", "text": f"{name}: {text}"}]}


def call(number: Any, params: dict[str, Any]) -> None:
    name, text = params["name"], params.get("arguments", {}).get("text", "")
    trace(f"call {name} {text}")
    if name == "die":
        os._exit(3)
    if name == "sleep":
        time.sleep(300)
    if name == "grow":
        extra.append(f"grown_{len(extra)}")
        say({"method": "notifications/tools/list_changed"})
    say({"id": number, "result": content(name, text)})


def answer(message: dict[str, Any]) -> None:
    method, number = message.get("method"), message.get("id")
    params = message.get("params", {})
    if method == "initialize":
        info = {"name": "by hand", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        version = params["protocolVersion"]
        say({"id": number, "result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}})
    elif method == "tools/list":
        every = tools()
        start = int(params.get("cursor", 0))
        page: dict[str, Any] = {"tools": every[start : start + 5]}
        say({"id": number, "result": {**page, "nextCursor": str(start + 5)} if start + 5 < len(every) else page})
    elif method == "tools/call":
        threading.Thread(target=call, args=(number, params), daemon=True).start()
    elif number is not None:
        say({"id": number, "error": {"code": -32601, "message": "Method not found"}})
    else:
        trace(str(method))


def main() -> None:
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    trace(f"start {os.getpid()}")
    print("hello from stderr", file=sys.stderr, flush=True)
    if mode == "exit":
        sys.exit(1)
    if mode == "slow":
        time.sleep(0.5)
    if mode == "chatter":
        print("Starting up...\n{}\n[1, 2", flush=True)
    if mode == "child":
        child = subprocess.Popen(["sleep", "300"])
        trace(f"child {child.pid}")
    for line in sys.stdin:
        if mode != "silent":
            answer(json.loads(line))


main()
