"""An MCP server over stdio that asks its user something in the middle of a call. Standard library only."""

from __future__ import annotations

import json
import sys
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}},
    "required": ["colour"],
}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def receive() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    found: dict[str, Any] = json.loads(line)
    return found


def ask() -> str:
    send(
        {"id": "q1", "method": "elicitation/create", "params": {"message": "Which colour?", "requestedSchema": SCHEMA}}
    )
    while True:
        message = receive()
        if message.get("id") == "q1":
            result = message.get("result", {})
            return f"{result.get('action')}: {(result.get('content') or {}).get('colour')}"


while True:
    request = receive()
    match request.get("method"):
        case "initialize":
            version = request["params"]["protocolVersion"]
            info = {"name": "asking", "version": "1"}
            capabilities = {"tools": {}}
            send(
                {
                    "id": request["id"],
                    "result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info},
                }
            )
        case "tools/list":
            tool = {"name": "paint", "description": "Paints.", "inputSchema": {"type": "object"}}
            send({"id": request["id"], "result": {"tools": [tool]}})
        case "tools/call":
            send({"id": request["id"], "result": {"content": [{"type": "text", "text": ask()}]}})
        case _:
            if "id" in request:
                send({"id": request["id"], "error": {"code": -32601, "message": "unknown"}})
