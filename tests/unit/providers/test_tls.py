"""Encrypted connections: trusted ones are used and used again, others refused, and leaving closes them at once."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from sidecar.providers.errors import ProviderError
from tests.support.providers import ask, registry_for, settings_of, summary_of
from tests.support.requests import user

x509 = pytest.importorskip("cryptography.x509")

pytestmark = pytest.mark.anyio

STREAM = (
    b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE = HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(STREAM), STREAM)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for localhost that vouches for itself, with its key in the same file."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path / "localhost.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + encoded)
    return path


class Seen:
    def __init__(self) -> None:
        self.connections = 0
        self.requests = 0
        self.gone = anyio.Event()


@asynccontextmanager
async def serving(certificate: Path, *, hold: bool = False) -> AsyncIterator[tuple[str, Seen]]:
    seen = Seen()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(h[15:]) for h in head.lower().split(b"\r\n") if h.startswith(b"content-length:"))
                await reader.readexactly(length)
                seen.requests += 1
                writer.write(HEAD if hold else WHOLE)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            seen.gone.set()
            writer.transport.abort()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(connection, "localhost", 0, ssl=context)
    try:
        yield f"https://localhost:{server.sockets[0].getsockname()[1]}/v1", seen
    finally:
        server.close()


async def test_a_trusted_server(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with serving(certificate) as (url, seen):
        async with registry_for({"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "k-12345"}) as registry:
            binding = registry.resolve("openai/m", settings_of())
            for _ in range(3):
                assert summary_of(await ask(binding, [user("hi")]))["text"] == "hi"
            assert (seen.connections, seen.requests) == (1, 3)


async def test_a_server_that_nobody_vouches_for(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    async with serving(certificate) as (url, seen):
        async with registry_for({"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "k-12345"}) as registry:
            with pytest.raises(ProviderError, match="cannot connect") as caught:
                await ask(registry.resolve("openai/m", settings_of()), [user("hi")])
            assert (caught.value.kind, seen.requests) == ("unavailable", 0)


async def test_leaving_closes_it_at_once(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with serving(certificate, hold=True) as (url, seen):
        async with registry_for({"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "k-12345"}) as registry:
            binding = registry.resolve("openai/m", settings_of(idle_timeout_s=3600))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, binding, [user("hi")])
                with anyio.fail_after(5):
                    while not seen.requests:
                        await anyio.sleep(0.01)
                await anyio.sleep(0.05)
                tasks.cancel_scope.cancel()
            with anyio.fail_after(5):
                await seen.gone.wait()
