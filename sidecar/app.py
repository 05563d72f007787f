"""The composition root: puts the parts together, and decides nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import anyio
import structlog

from record_store.commit import Committer
from record_store.local import LocalStore
from sidecar import settings as configuration
from sidecar.clock import SystemClock
from sidecar.memory.service import MemoryService
from sidecar.providers.registry import Registry
from sidecar.rpc.bind import bind
from sidecar.rpc.clients import Clients
from sidecar.rpc.handlers.chat import ChatHandlers
from sidecar.rpc.handlers.context import ContextHandlers
from sidecar.rpc.handlers.resources import ResourceHandlers
from sidecar.rpc.handlers.sessions import SessionHandlers
from sidecar.rpc.port import Handler, Limits, Peer, ServeOptions, ShutdownMode
from sidecar.rpc.requests import new_request_id
from sidecar.sessions.engine import ContextEngine
from sidecar.sessions.layers import Layers
from sidecar.sessions.manager import SessionManager
from sidecar.sessions.prefix import PrefixMaker
from sidecar.sessions.reading import Reading
from sidecar.sessions.roster import Roster
from sidecar.sessions.services import Services
from sidecar.tokens import vocabulary
from sidecar.tokens.calibration import FileCalibration
from sidecar.tokens.estimator import TextCounter

_log = structlog.get_logger("sidecar")

OPEN_FILES = 65_536


def _file_layer(config_file: str | None, environment: Mapping[str, str]) -> configuration.Layer:
    """A file that was named must be there; the default one may be missing, but is never passed over."""
    if config_file is not None:
        return configuration.read_file(Path(config_file))
    path = configuration.config_file(environment)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError:
        pass  # reading it says what is wrong
    return configuration.read_file(path)


def layers_of(config_file: str | None, environment: Mapping[str, str]) -> Layers:
    """The process's configuration. Raises `config_invalid`."""
    return Layers(_file_layer(config_file, environment), configuration.read_env(environment))


def configuration_layer(config_file: str | None, environment: Mapping[str, str]) -> configuration.Layer:
    """File and environment as one layer, for commands that only read."""
    return configuration.merge(_file_layer(config_file, environment), configuration.read_env(environment))


class App:
    """The `Application` that the RPC edge serves, and that `sidecar run` uses in process."""

    def __init__(self, layers: Layers, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._home = configuration.home_directory(environment)
        self._layers = layers
        self._clients = Clients()
        self._manager: SessionManager | None = None
        self._methods: dict[str, Handler] = {}

    # -- what the edge asks for

    @property
    def methods(self) -> Mapping[str, Handler]:
        return self._methods

    @property
    def limits(self) -> Limits:
        server = self._layers.process.server
        return Limits(server.max_frame_bytes, server.outbox_soft_bytes, server.outbox_hard_bytes)

    @property
    def manager(self) -> SessionManager:
        assert self._manager is not None, "only inside the lifespan"
        return self._manager

    def lifespan(self) -> AbstractAsyncContextManager[object]:
        return self._run()

    async def peer_connected(self, peer: Peer) -> None:
        self._clients.of(peer)

    async def initialized(self, peer: Peer) -> None:
        self.manager.roster.capabilities_changed(self._clients.of(peer))

    async def peer_gone(self, peer: Peer) -> None:
        self._clients.gone(peer)
        self.manager.roster.peer_gone(peer.id)

    async def shutdown(self, mode: ShutdownMode) -> None:
        await self.manager.roster.shutdown()

    def ping(self) -> Mapping[str, int]:
        return {"sessions": len(self.manager.roster), "turns_running": self.manager.roster.turns_running}

    # -- inside

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        words = vocabulary.from_environment(self._environment)
        registry = Registry(self._environment)
        calibration = FileCalibration(self._home / "calibration.json")
        user_home = configuration.user_home(self._environment)
        memory = MemoryService(self._home / "memory", SystemClock(), (str(user_home),))
        async with anyio.create_task_group() as group:
            registry.start(group)
            group.start_soon(_warm_up, registry, words)
            committer = Committer()
            store = LocalStore(self._home, on_dirty=committer.mark)
            group.start_soon(committer.run)
            services = Services(
                store=store,
                registry=registry,
                counter=TextCounter(words),
                calibration=calibration,
                memory=memory,
                layers=self._layers,
                clock=SystemClock(),
                environment=self._environment,
                home=self._home,
                user_home=user_home,
                group=group,
                request_ids=new_request_id,
            )
            prefixes = PrefixMaker(services)
            engine = ContextEngine(services, prefixes)
            manager = self._manager = SessionManager(services, prefixes, Roster(services, engine))
            reading = Reading(manager)
            self._methods.update(
                bind(
                    SessionHandlers(manager, reading, self._clients).table()
                    | ChatHandlers(manager).table()
                    | ResourceHandlers(services, manager, reading).table()
                    | ContextHandlers(memory, engine, manager).table()
                )
            )
            group.start_soon(manager.roster.sweep)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await registry.aclose()
                    calibration.save()
                group.cancel_scope.cancel()


async def _warm_up(registry: Registry, words: vocabulary.Vocabulary) -> None:
    """After the imports that everybody waits for, the vocabulary: handing it over to the tokenizer holds up the whole
    process for a moment, which is better now than in the middle of a turn."""
    await registry.ready()
    words.start()


def build(options: ServeOptions) -> App:
    """Called in a worker thread, so that imports and files hold up nobody. Raises `Fault` for a bad configuration."""
    environment = configuration.environment()
    _allow_many_files()
    return App(layers_of(options.config_file, environment), environment)


def _allow_many_files() -> None:
    """Every loaded session keeps two files open, and every connection one: the usual soft limit is soon reached."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
