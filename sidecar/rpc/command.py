"""`sidecar serve`, from parsed arguments to an exit code: composition only."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from sidecar import logs
from sidecar.errors import Fault
from sidecar.rpc.arguments import ServeArguments
from sidecar.rpc.errors import StartError
from sidecar.rpc.port import Application, ListenSpec, ServeOptions
from sidecar.rpc.server import serve

Build = Callable[[ServeOptions], Application]


def _real_application() -> Build:
    from sidecar.app import build

    return build


def run(arguments: ServeArguments, stdio: tuple[int, int], find_build: Callable[[], Build] = _real_application) -> int:
    """`stdio` are the descriptors that were kept aside; `find_build` imports the application, in a thread."""
    listen = ListenSpec(
        stdio=stdio if arguments.stdio else None,
        sockets=arguments.sockets,
        tcp=arguments.tcp,
        token_file=arguments.token_file,
        allow_remote=arguments.allow_remote,
    )

    def load() -> Application:
        try:
            logs.configure(arguments.log_level, arguments.log_file)
        except OSError:
            raise Fault("config_invalid", "The log file cannot be opened", hint="check --log-file") from None
        return find_build()(ServeOptions(arguments.config, arguments.log_file, arguments.log_level))

    try:
        code = anyio.run(serve, listen, load)
    except StartError as error:
        logs.tell(str(error))
        code = 1
    logs.flush()
    return code
