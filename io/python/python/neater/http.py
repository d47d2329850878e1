"""HTTP by `httpx` over neater: a client's connections are opened by races over addresses and families, secured by neater, and
report what carried them.

```python
import httpx, neater.http

async with httpx.AsyncClient(transport=neater.http.AsyncTransport()) as client:
    print((await client.get("https://example.com/")).status_code)
```
"""

from __future__ import annotations

import asyncio
import ssl
import typing
from collections.abc import Iterable

import httpcore
import httpx

from ._neater import ByteStream, SecurityParameters
from .api import Neater, Preconnection
from .errors import EstablishmentError

__all__ = ["AsyncTransport", "NetworkBackend"]


class _Stream(httpcore.AsyncNetworkStream):
    """A neater connection as httpcore's stream."""

    def __init__(self, stream: ByteStream, loop: asyncio.AbstractEventLoop) -> None:
        self._stream = stream
        self._loop = loop
        self._readable: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        stream.on_readable(self._on_readable)
        stream.on_writable(self._on_writable)

    def _on_readable(self) -> None:
        if self._readable is not None and not self._readable.done():
            self._readable.set_result(None)

    def _on_writable(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                while True:
                    self._readable = self._loop.create_future()
                    data = self._stream.try_read(max_bytes)
                    if data is not None:
                        return data
                    await self._readable
        except TimeoutError as e:
            raise httpcore.ReadTimeout(str(e)) from e
        except OSError as e:
            raise httpcore.ReadError(str(e)) from e

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        left = memoryview(buffer)
        try:
            async with asyncio.timeout(timeout):
                while left:
                    self._writable = self._loop.create_future()
                    written = self._stream.try_write(left)
                    if written is None:
                        await self._writable
                    else:
                        left = left[written:]
        except TimeoutError as e:
            raise httpcore.WriteTimeout(str(e)) from e
        except OSError as e:
            raise httpcore.WriteError(str(e)) from e

    async def aclose(self) -> None:
        self._stream.on_readable(None)
        self._stream.on_writable(None)
        self._stream.connection.close_soon()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        # The race has brought TLS with it, by the security parameters of the transport.
        return self

    def get_extra_info(self, info: str) -> typing.Any:
        connection = self._stream.connection
        match info:
            case "ssl_object":
                return _Agreed(connection.alpn) if connection.security else None
            case "client_addr":
                return connection.local_address
            case "server_addr":
                return connection.remote_address
            case "is_readable":
                return connection.state != "established"
            case "neater":
                return connection
        return None


class _Agreed:
    """What httpcore asks of TLS: which protocol was agreed on."""

    def __init__(self, alpn: str | None) -> None:
        self._alpn = alpn

    def selected_alpn_protocol(self) -> str | None:
        return self._alpn


class NetworkBackend(httpcore.AsyncNetworkBackend):
    """Opens httpcore's connections. It gets the origin, not the scheme: ports of `cleartext` are those without TLS."""

    def __init__(
        self, *, security: SecurityParameters | None, cleartext: Iterable[int], http2: bool, system: Neater | None
    ) -> None:
        alpn = ["h2", "http/1.1"] if http2 else ["http/1.1"]
        self._security = security or SecurityParameters(alpn=alpn)
        self._cleartext = frozenset(cleartext)
        self._system = system

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[typing.Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        clear = port in self._cleartext
        pre = Preconnection(
            (host, port),
            None if local_address is None else (local_address, 0),
            security=SecurityParameters.disabled() if clear else self._security,
            stacks=["TCP"] if clear else ["TLS/TCP"],
            timeout=timeout,
            system=self._system,
        )
        try:
            stream = await pre.connect_bytes()
        except EstablishmentError as e:
            kind = httpcore.ConnectTimeout if e.reason == "timeout" else httpcore.ConnectError
            raise kind(str(e)) from e
        return _Stream(stream, asyncio.get_running_loop())

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[typing.Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.UnsupportedProtocol("neater opens no Unix sockets")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class AsyncTransport(httpx.AsyncHTTPTransport):
    """A transport of httpx's, for HTTP/1.1 and, with `http2` and the package h2, HTTP/2.

    `security` is that of neater, with the application protocols that are to be offered; without, the system's roots of
    trust count. `cleartext` names the ports at which `http:` URLs are served.
    """

    def __init__(
        self,
        *,
        security: SecurityParameters | None = None,
        cleartext: Iterable[int] = (80,),
        http2: bool = False,
        retries: int = 0,
        system: Neater | None = None,
    ) -> None:
        super().__init__(http2=http2, retries=retries)
        backend = NetworkBackend(security=security, cleartext=cleartext, http2=http2, system=system)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(),
            http1=True,
            http2=http2,
            retries=retries,
            network_backend=backend,
        )
