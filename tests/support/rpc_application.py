"""`sidecar serve` with a small application behind it: everything of the RPC edge is real, sessions are not.

    python -m tests.support.rpc_application serve --stdio

`FAKE_APPLICATION` in the environment is a JSON object: `load_s` (how long the import takes), `fault` (a reason with
which `build` fails), `crash` (the lifespan fails), `hang` (shutdown never returns), `limits` (of the port).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sidecar.rpc.aside import keep_stdio_aside


def _main() -> None:
    stdio = keep_stdio_aside()
    from sidecar.rpc.arguments import parse_serve
    from sidecar.rpc.command import run

    os._exit(run(parse_serve(sys.argv[2:]), stdio, lambda: _application_class()))


def _application_class() -> Callable[[Any], Any]:
    import anyio
    import anyio.lowlevel

    from sidecar.errors import Fault
    from sidecar.rpc.codec import notification
    from sidecar.rpc.port import Delta, Handler, Limits, Peer, PeerError, PeerGone, ServeOptions, SharedEvent

    told = json.loads(os.environ.get("FAKE_APPLICATION", "{}"))

    class FakeApplication:
        def __init__(self, options: ServeOptions) -> None:
            time.sleep(told.get("load_s", 0))
            if "fault" in told:
                raise Fault(told["fault"], "The application does not start", hint="a hint")
            self.limits = Limits(**told.get("limits", {}))
            self.peers: dict[str, Peer] = {}
            self.hooks: list[str] = []
            self.ended = anyio.Event()
            self.methods: Mapping[str, Handler] = {
                f"test.{name.removeprefix('do_')}": getattr(self, name) for name in dir(self) if name.startswith("do_")
            }

        @asynccontextmanager
        async def lifespan(self) -> AsyncIterator[None]:
            if told.get("crash"):
                raise RuntimeError("the lifespan fails")
            self.hooks.append("lifespan")
            yield
            for peer in self.peers.values():
                peer.notify("test.left", {})

        async def peer_connected(self, peer: Peer) -> None:
            self.hooks.append(f"connected {peer.id}")
            self.peers[peer.id] = peer

        async def initialized(self, peer: Peer) -> None:
            self.hooks.append(f"initialized {peer.id}")

        async def peer_gone(self, peer: Peer) -> None:
            self.hooks.append(f"gone {peer.id}")
            del self.peers[peer.id]

        async def shutdown(self, mode: str) -> None:
            if told.get("hang") and mode == "graceful":
                await anyio.sleep_forever()
            for peer in self.peers.values():
                peer.notify("test.shutdown", {"mode": mode})
            self.ended.set()

        def ping(self) -> Mapping[str, int]:
            return {"sessions": len(self.peers), "turns_running": 0}

        # -------------------------------------------------------- methods

        async def do_echo(self, peer: Peer, params: dict[str, Any]) -> Any:
            return params

        async def do_hooks(self, peer: Peer, params: dict[str, Any]) -> Any:
            client = peer.client and [peer.client.name, peer.client.version]
            return {"hooks": self.hooks, "peer": peer.id, "client": client, "tools": peer.capabilities.tools}

        async def do_fail(self, peer: Peer, params: dict[str, Any]) -> Any:
            raise Fault("session_not_found", "No such session", hint="list them", session_id="x")

        async def do_fail_in_group(self, peer: Peer, params: dict[str, Any]) -> Any:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.do_fail, peer, params)

        async def do_crash(self, peer: Peer, params: dict[str, Any]) -> Any:
            raise RuntimeError("Authorization: Bearer abcdef123456")

        async def do_exit(self, peer: Peer, params: dict[str, Any]) -> Any:
            raise SystemExit(3)

        async def do_unserialisable(self, peer: Peer, params: dict[str, Any]) -> Any:
            return object()

        async def do_dirty(self, peer: Peer, params: dict[str, Any]) -> Any:
            return {"text": "half \ud83d", "number": 2**80, "nan": float("nan")}

        async def do_big(self, peer: Peer, params: dict[str, Any]) -> Any:
            return "x" * params["bytes"]

        async def do_wait(self, peer: Peer, params: dict[str, Any]) -> Any:
            """Until the daemon ends; cancelled, it cleans up for a moment, shielded."""
            try:
                await self.ended.wait()
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.05)
                    peer.notify("test.cleaned_up", {})
                raise
            return {"ended": True}

        async def do_stubborn(self, peer: Peer, params: dict[str, Any]) -> Any:
            """Ignores its cancel until the daemon ends."""
            with anyio.CancelScope(shield=True):
                await self.ended.wait()

        async def do_call(self, peer: Peer, params: dict[str, Any]) -> Any:
            """Calls the host, gives up after `timeout_s`."""
            try:
                with anyio.fail_after(params.get("timeout_s", 20)):
                    return {"result": await peer.request(params["method"], params.get("params", {}))}
            except PeerError as error:
                return {"code": error.code, "message": error.message, "data": error.data}
            except PeerGone:
                return {"gone": True}
            except TimeoutError:
                return {"timeout": True}

        async def do_call_all(self, peer: Peer, params: dict[str, Any]) -> Any:
            """One request, the same id, at all peers: the first answer counts, the others hear of it."""
            request_id = peer.new_request_id()
            answers: list[Any] = []

            async def ask(one: Peer, scope: anyio.CancelScope) -> None:
                try:
                    answers.append(await one.request("test.ask", {}, request_id=request_id))
                    scope.cancel()
                except (PeerGone, PeerError):
                    pass

            async with anyio.create_task_group() as tasks:
                for one in self.peers.values():
                    tasks.start_soon(ask, one, tasks.cancel_scope)
            for one in self.peers.values():
                one.notify("request.resolved", {"request_id": request_id, "reason": "answered"})
            return {"answers": answers}

        async def do_stream(self, peer: Peer, params: dict[str, Any]) -> Any:
            """Deltas to all peers as a turn would send them, no faster than the caller reads.

            For the others it waits only while they are congested.
            """
            offset = 0
            text = params.get("text", "0123456789")
            for number in range(params["deltas"]):
                delta = Delta("s1", "main", "00000000-1", "t1", "text_delta", "m1", offset, text)
                offset += len(text)
                for one in list(self.peers.values()):
                    one.notify_event(delta)
                    if one.congested:
                        await one.writable()
                await peer.writable()
                if number % 5 == 0:
                    await anyio.lowlevel.checkpoint()
            event = {"session_id": "s1", "agent_id": "main", "event_id": "00000000-2", "event": {"type": "turn_ended"}}
            shared = SharedEvent("s1", notification("agent.chat.event", event))
            for one in list(self.peers.values()):
                one.notify_event(shared)
            return {"characters": offset}

        async def do_flood(self, peer: Peer, params: dict[str, Any]) -> Any:
            """Durable events of `bytes` each to all peers, without waiting for anyone."""
            event = {"session_id": "s1", "event": {"type": "notice", "message": "x" * params["bytes"]}}
            shared = SharedEvent("s1", notification("agent.chat.event", event))
            for _ in range(params["count"]):
                for one in list(self.peers.values()):
                    one.notify_event(shared)
            return {"open": len([one for one in self.peers.values() if not one.closed])}

        async def do_congested(self, peer: Peer, params: dict[str, Any]) -> Any:
            return [one.id for one in self.peers.values() if one.congested]

        async def do_print(self, peer: Peer, params: dict[str, Any]) -> Any:
            print("printed by a library", flush=True)
            os.write(1, b"written to descriptor 1\n")
            subprocess.run([sys.executable, "-c", "print('printed by a child')"], check=True)
            return {"stdin": os.read(0, 10).decode()}

        async def do_block(self, peer: Peer, params: dict[str, Any]) -> Any:
            """Holds up the whole loop."""
            time.sleep(params["seconds"])
            return {}

    return FakeApplication


if __name__ == "__main__":
    _main()
