"""The client: one daemon, its resources, its events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any

from anyio.abc import ByteStream, Process
from msgspec import Struct

from protocol.events import ChatEvent
from protocol.messages import ToolSpec
from protocol.system import InitializeResult
from protocol.version import VERSION
from sidecar.client import links, resources
from sidecar.client.attachments import Attachments
from sidecar.client.connection import Connection, Identity
from sidecar.client.errors import ConnectionLost
from sidecar.client.events import DEFAULT_CAPACITY, EventStream
from sidecar.client.host import Answer, Answers, Approve, Host, HostTool


class SidecarClient:
    """A connected client. Made by `spawn`, `connect` or `over`, each an async context manager.

    They take the host's `approve` and `answer` functions, or all that it answers as `answers`.

    Attributes named after resources hold the methods: `sessions`, `chat`, `context`, `tools`, `models`, `memory`,
    `skills`, `records`, `config`, `system`. `call` sends any method. After a reconnect the client attaches again to the
    sessions that it was attached to, brings their tools, and asks for the events since the last one that it saw.
    """

    def __init__(self, dial: links.Dial, identity: Identity, answers: Answers) -> None:
        self._streams: list[EventStream] = []
        self._attachments = Attachments()
        self._host = Host(self._on_event, self._on_resolved, answers)
        self._connection = Connection(dial, identity, self._host, self._attachments, self._on_missed, self._on_lost)
        self.system = resources.System(self)
        self.sessions = resources.Sessions(self)
        self.chat = resources.Chat(self)
        self.context = resources.Context(self)
        self.tools = resources.SessionTools(self)
        self.models = resources.Models(self)
        self.memory = resources.Memory(self)
        self.skills = resources.Skills(self)
        self.records = resources.Records(self)
        self.config = resources.Config(self)

    # ---------------------------------------------------------------- ways to get one

    @staticmethod
    @asynccontextmanager
    async def spawn(
        command: Sequence[str] = links.DAEMON,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stderr: int | IO[bytes] | None = None,
        name: str = "sidecar-client",
        version: str = VERSION,
        approve: Approve | None = None,
        answer: Answer | None = None,
        answers: Answers | None = None,
    ) -> AsyncIterator[SidecarClient]:
        """A daemon as a child of this process, which ends with the block. `env` replaces the whole environment."""
        dial = links.child(command, env, cwd, stderr)
        client = SidecarClient(dial, Identity(name, version), answers or Answers(approve, answer))
        async with client._connected(reconnect=False):
            yield client

    @staticmethod
    @asynccontextmanager
    async def connect(
        socket: str | Path | None = None,
        *,
        tcp: tuple[str, int] | None = None,
        token: str | None = None,
        reconnect: bool = True,
        name: str = "sidecar-client",
        version: str = VERSION,
        approve: Approve | None = None,
        answer: Answer | None = None,
        answers: Answers | None = None,
    ) -> AsyncIterator[SidecarClient]:
        """A daemon that runs already: at a Unix socket, or at `tcp` with its token."""
        if (socket is None) == (tcp is None):
            raise ValueError("give either a socket or tcp=(host, port)")
        dial = links.unix_socket(socket) if socket is not None else links.tcp(*(tcp or ("", 0)))
        client = SidecarClient(dial, Identity(name, version, token), answers or Answers(approve, answer))
        async with client._connected(reconnect=reconnect):
            yield client

    @staticmethod
    @asynccontextmanager
    async def over(
        stream: ByteStream,
        *,
        name: str = "sidecar-client",
        version: str = VERSION,
        approve: Approve | None = None,
        answer: Answer | None = None,
        answers: Answers | None = None,
    ) -> AsyncIterator[SidecarClient]:
        """A daemon at the other end of a stream, e.g. one in this process."""

        async def dial() -> links.Link:
            return links.Link(stream)

        client = SidecarClient(dial, Identity(name, version), answers or Answers(approve, answer))
        async with client._connected(reconnect=False):
            yield client

    @asynccontextmanager
    async def _connected(self, *, reconnect: bool) -> AsyncIterator[None]:
        try:
            async with self._connection.running(reconnect=reconnect):
                yield
        finally:
            self._end_streams()

    # ---------------------------------------------------------------- for hosts

    @property
    def server(self) -> InitializeResult:
        """What the daemon said of itself."""
        if self._connection.server is None:
            raise ConnectionLost
        return self._connection.server

    @property
    def process(self) -> Process | None:
        """The child that `spawn` started."""
        return self._connection.link.process if self._connection.link is not None else None

    async def call(self, method: str, params: Struct | Mapping[str, Any] | None = None, result: Any = Any) -> Any:
        """Sends any method and decodes its result as `result`. Waits while the connection is being made again.

        Raises `SidecarError`, or `ConnectionLost` if the connection ended before the answer came. Cancelling the
        caller cancels the call at the daemon.
        """
        peer = await self._connection.ready()
        return await peer.call(method, {} if params is None else params, result)

    async def notify(self, method: str, params: Struct | Mapping[str, Any] | None = None) -> None:
        peer = await self._connection.ready()
        await peer.notify(method, {} if params is None else params)

    @contextmanager
    def events(self, session_id: str | None = None, *, capacity: int = DEFAULT_CAPACITY) -> Iterator[EventStream]:
        """The events of one session, or of all that this client is attached to, from now on."""
        stream = EventStream(session_id, capacity)
        self._streams.append(stream)
        try:
            yield stream
        finally:
            self._streams.remove(stream)
            stream.close()

    def bring(self, tools: Iterable[HostTool]) -> None:
        """Functions that serve every session that names their tools, whoever created it."""
        self._host.bring(None, tools)

    # ---------------------------------------------------------------- for the resources and the connection

    def attached(self, session_id: str, tools: Iterable[HostTool | ToolSpec] | None) -> None:
        self._attachments.add(session_id, tools)
        self._host.bring(session_id, tools)

    @contextmanager
    def attaching(self, session_id: str, tools: Iterable[HostTool | ToolSpec] | None) -> Iterator[None]:
        """Attached from here on, for calls and events can come before the answer; as before if the block fails."""
        before = self._attachments.get(session_id)
        self.attached(session_id, tools)
        try:
            yield
        except BaseException:
            self.detached(session_id)
            if before is not None:
                self._attachments.restore(session_id, before)
                self._host.bring(session_id, before.tools)
            raise

    def brought(self, session_id: str) -> list[HostTool | ToolSpec] | None:
        """The tools that this client brought to the session; None if it brought none."""
        attachment = self._attachments.get(session_id)
        return None if attachment is None else attachment.tools

    def detached(self, session_id: str) -> None:
        self._attachments.remove(session_id)
        self._host.forget(session_id)

    def _on_event(self, event: ChatEvent) -> None:
        self._attachments.saw(event)
        for stream in self._streams:
            stream.push(event)

    def _on_resolved(self, request_id: str) -> None:
        if self._connection.peer is not None:
            self._connection.peer.resolve(request_id)

    def _on_missed(self, session_id: str, why: str) -> None:
        for stream in self._streams:
            stream.lose(session_id, why)

    def _on_lost(self) -> None:
        for stream in self._streams:
            stream.close(self._connection.lost)

    def _end_streams(self) -> None:
        for stream in self._streams:
            stream.close()
