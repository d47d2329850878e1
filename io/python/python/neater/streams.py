"""Transports and streams of asyncio over whatever carries a connection: what is written for `asyncio.open_connection` runs
here, with races, QUIC and TLS by the same call."""

from __future__ import annotations

import asyncio
import collections
import itertools
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ._neater import ByteStream, Listener, SecurityParameters, TransportProperties
from .api import Local, Neater, Preconnection, Remote

__all__ = ["Server", "Transport", "create_connection", "create_server", "open_connection", "start_server"]

P = TypeVar("P", bound=asyncio.BaseProtocol)

_READS_IN_A_ROW = 16
"""How often a transport reads before others have their turn."""


class Transport(asyncio.Transport):
    """A transport of asyncio's over a neater connection. `get_extra_info` knows `peername`, `sockname`, `stack` (which
    protocols carry it), `security`, `alpn`, `peer_certificates` and `connection` (the `neater.Connection`)."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stream: ByteStream, protocol: asyncio.BaseProtocol, server: Server | None
    ) -> None:
        super().__init__()
        self._loop = loop
        self._stream = stream
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)
        self._server = server
        self._out: collections.deque[memoryview] = collections.deque()
        self._size = 0
        self._high = 64 * 1024
        self._low = 16 * 1024
        self._reading = False
        self._full = False  # the protocol was asked to pause
        self._closing = False
        self._lost = False
        self._ended = False  # the peer has ended its direction
        self._eof = False  # this side is to end its direction
        stream.on_readable(self._readable)
        stream.on_writable(self._writable)
        # As with asyncio's own: a program may forget its transport, and its protocol is still told what comes.
        stream.keep(self)
        loop.call_soon(self._begin)

    def _begin(self) -> None:
        if self._lost:
            return
        self._protocol.connection_made(self)
        if not self._closing and not self._reading:
            self.resume_reading()

    # Reading.

    def is_reading(self) -> bool:
        """Whether what arrives is given to the protocol."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Gives the protocol nothing more; the peer is slowed down when buffers are full."""
        self._reading = False

    def resume_reading(self) -> None:
        """Gives the protocol what arrives."""
        if self._closing or self._reading:
            return
        self._reading = True
        self._loop.call_soon(self._readable)

    def _readable(self) -> None:
        if self._lost or not self._reading or self._ended:
            return
        try:
            for _ in itertools.repeat(None, _READS_IN_A_ROW):
                if not self._read_once():
                    return
        except (SystemExit, KeyboardInterrupt):
            raise
        except ConnectionError as e:
            self._fail(e)
            return
        except BaseException as e:
            self._fatal(e, "a protocol has failed with what was received")
            return
        self._loop.call_soon(self._readable)

    def _read_once(self) -> bool:
        """Reads once; whether it makes sense to read again at once."""
        protocol = self._protocol
        if self._buffered:
            assert isinstance(protocol, asyncio.BufferedProtocol)
            buffer = protocol.get_buffer(-1)
            read = self._stream.try_read_into(buffer)
            if read is None:
                return False
            if read:
                protocol.buffer_updated(read)
                return self._reading and not self._lost
        else:
            data = self._stream.try_read()
            if data is None:
                return False
            if data:
                assert isinstance(protocol, asyncio.Protocol)
                protocol.data_received(data)
                return self._reading and not self._lost
        self._ended = True
        keep = self._closing or protocol.eof_received()  # type: ignore[attr-defined]
        if not keep:
            self.close()
        elif self._closing and not self._out:
            self._finish(None)
        return False

    # Writing.

    def get_write_buffer_size(self) -> int:
        """How many bytes wait here. What the engine has taken is not counted."""
        return self._size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Below how many bytes the protocol may go on, and above how many it is to pause."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As of `asyncio.WriteTransport`."""
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")
        self._high, self._low = high, low

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends bytes in order, as soon as there is room."""
        if self._eof:
            raise RuntimeError("cannot write after write_eof()")
        if self._closing or not data:
            return
        if self._out:
            self._keep(data)
            return
        try:
            written = self._stream.try_write(data)
        except (OSError, RuntimeError) as e:
            self._fail(e)
            return
        if written == len(data):
            return
        self._keep(memoryview(data)[written or 0 :])
        if written:
            self._writable()

    def writelines(self, list_of_data: Sequence[bytes | bytearray | memoryview]) -> None:  # type: ignore[override]
        """Sends several, as one."""
        self.write(b"".join(list_of_data))

    def _keep(self, data: bytes | bytearray | memoryview) -> None:
        # What could change is copied; `bytes`, and views of them, are kept as they are.
        view = memoryview(data)
        if not view.readonly:
            view = memoryview(bytes(view))
        self._out.append(view.cast("B") if view.ndim != 1 or view.format != "B" else view)
        self._size += len(self._out[-1])
        if self._size > self._high and not self._full:
            self._full = True
            self._call(self._protocol.pause_writing)

    def _writable(self) -> None:
        if self._lost:
            return
        try:
            while self._out:
                first = self._out[0]
                written = self._stream.try_write(first)
                if written is None:
                    break
                self._size -= written
                if written == len(first):
                    self._out.popleft()
                else:
                    self._out[0] = first[written:]
        except (OSError, RuntimeError) as e:
            self._fail(e)
            return
        if self._full and self._size <= self._low:
            self._full = False
            self._call(self._protocol.resume_writing)
        if not self._out:
            if self._eof:
                self._end()
            if self._closing:
                self._finish(None)

    def _call(self, of: Callable[[], object]) -> None:
        try:
            of()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as e:
            self._loop.call_exception_handler(
                {"message": f"{of} has failed", "exception": e, "transport": self, "protocol": self._protocol}
            )

    # Ending.

    def can_write_eof(self) -> bool:
        """Every stack that carries bytes can end one direction."""
        return True

    def write_eof(self) -> None:
        """Ends this side's direction when all is sent; receiving goes on."""
        if self._eof or self._closing:
            return
        self._eof = True
        if not self._out:
            self._end()

    def _end(self) -> None:
        try:
            self._stream.connection.finish()
        except Exception as e:
            self._fail(e)

    def is_closing(self) -> bool:
        """Whether it is closed, or is being closed."""
        return self._closing

    def close(self) -> None:
        """Closes in order: what was written is sent before."""
        if self._closing:
            return
        self._closing = True
        self._reading = False
        if not self._out:
            self._finish(None)

    def abort(self) -> None:
        """Closes at once; what was not sent is lost."""
        if not self._lost:
            self._stream.connection.abort()
        self._finish(None)

    def _fail(self, error: BaseException) -> None:
        self._out.clear()
        self._size = 0
        self._finish(error)

    def _fatal(self, error: BaseException, message: str) -> None:
        self._loop.call_exception_handler(
            {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        )
        self._stream.connection.abort()
        self._fail(error)

    def _finish(self, error: BaseException | None) -> None:
        self._closing = True
        self._reading = False
        if self._lost:
            return
        self._lost = True
        self._loop.call_soon(self._gone, error)

    def _gone(self, error: BaseException | None) -> None:
        stream, server = self._stream, self._server
        stream.on_readable(None)
        stream.on_writable(None)
        stream.keep(self, keeps=False)
        # Bytes that the engine has are still delivered, in the background.
        stream.connection.close_soon()
        try:
            self._protocol.connection_lost(error if isinstance(error, Exception) else None)
        finally:
            self._server = None
            if server is not None:
                server._closed(self)

    def __del__(self) -> None:
        if not self._closing and not self._lost:
            import warnings

            warnings.warn(f"unclosed transport {self!r}", ResourceWarning, source=self, stacklevel=1)

    # About it.

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Another protocol from now on."""
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_extra_info(self, name: str, default: object = None) -> object:
        """What is known of it, by name; see the class."""
        connection = self._stream.connection
        known: dict[str, Callable[[], object]] = {
            "peername": lambda: connection.remote_address,
            "sockname": lambda: connection.local_address,
            "stack": lambda: connection.stack,
            "security": lambda: connection.security,
            "alpn": lambda: connection.alpn,
            "peer_certificates": lambda: connection.peer_certificates,
            "connection": lambda: connection,
        }
        value = known[name]() if name in known else None
        return default if value is None else value

    def __repr__(self) -> str:
        return f"<neater.Transport {self._stream!r}{' closing' if self._closing else ''}>"


class Server:
    """A server that `create_server` or `start_server` has made; to be closed, or used with `async with`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, listener: Listener, factory: Callable[[], asyncio.BaseProtocol]):
        self._loop = loop
        self.listener = listener
        self._factory = factory
        self._transports: set[Transport] = set()
        self._waiting: list[asyncio.Future[None]] = []
        self._stopped = False
        self._task = loop.create_task(self._serve(), name="neater-server")

    async def _serve(self) -> None:
        while True:
            try:
                stream = await self.listener.accept_bytes()
            except ConnectionError as e:
                # A connection that carries no bytes: the next one may.
                self._loop.call_exception_handler({"message": "a connection without a stream of bytes", "exception": e})
                continue
            if stream is None:
                return
            self._transports.add(Transport(self._loop, stream, self._factory(), self))

    def _closed(self, transport: Transport) -> None:
        self._transports.discard(transport)
        if self._stopped and not self._transports:
            for waits in self._waiting:
                if not waits.done():
                    waits.set_result(None)

    @property
    def port(self) -> int:
        """The port number that all protocols share."""
        return self.listener.port

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """No sockets of Python's are behind it: always empty. See `listener.local_addresses`."""
        return ()

    def is_serving(self) -> bool:
        """Whether it takes connections."""
        return not self._stopped

    def close(self) -> None:
        """Takes no more connections. Those that are there go on."""
        if self._stopped:
            return
        self._stopped = True
        self.listener.stop()
        self._task.cancel()

    async def wait_closed(self) -> None:
        """Waits until it is closed and its connections are gone."""
        if self._stopped and not self._transports:
            return
        waits: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(waits)
        await waits

    async def serve_forever(self) -> None:
        """Serves until it is cancelled, and closes then."""
        try:
            await asyncio.shield(self._task)
        finally:
            self.close()

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.wait_closed()


async def create_connection(
    protocol_factory: Callable[[], P],
    remote: Remote | Sequence[Remote],
    *,
    needs: str | None = None,
    properties: TransportProperties | None = None,
    security: SecurityParameters | None = None,
    stacks: Sequence[str] | None = None,
    timeout: float | None = None,
    local: Local | None = None,
    system: Neater | None = None,
) -> tuple[Transport, P]:
    """As `loop.create_connection`, over any stack that carries bytes. Arguments as of `Preconnection`.

    Raises `EstablishmentError`.
    """
    loop = asyncio.get_running_loop()
    pre = Preconnection(
        remote,
        local,
        needs=needs,
        properties=properties,
        security=security,
        stacks=stacks,
        timeout=timeout,
        system=system,
    )
    stream = await pre.connect_bytes()
    protocol = protocol_factory()
    transport = Transport(loop, stream, protocol, None)
    # As asyncio does: the caller may use the protocol, which has its transport by then.
    made: asyncio.Future[None] = loop.create_future()
    loop.call_soon(lambda: None if made.done() else made.set_result(None))
    try:
        await made
    except BaseException:
        transport.close()
        raise
    return transport, protocol


async def open_connection(
    remote: Remote | Sequence[Remote],
    *,
    limit: int = 64 * 1024,
    needs: str | None = None,
    properties: TransportProperties | None = None,
    security: SecurityParameters | None = None,
    stacks: Sequence[str] | None = None,
    timeout: float | None = None,
    local: Local | None = None,
    system: Neater | None = None,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """As `asyncio.open_connection`, over any stack that carries bytes: the same `StreamReader` and `StreamWriter`.

    `limit` is the reader's, in bytes; the other arguments are as of `Preconnection`. Raises `EstablishmentError`.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await create_connection(
        lambda: protocol,
        remote,
        needs=needs,
        properties=properties,
        security=security,
        stacks=stacks,
        timeout=timeout,
        local=local,
        system=system,
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def create_server(
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    local: Local | Sequence[Local],
    *,
    needs: str | None = None,
    properties: TransportProperties | None = None,
    security: SecurityParameters | None = None,
    stacks: Sequence[str] | None = None,
    system: Neater | None = None,
) -> Server:
    """As `loop.create_server`, with every eligible stack that carries bytes. Arguments as of `Preconnection`.

    Raises `EstablishmentError` where no protocol is eligible or a port cannot be bound.
    """
    if stacks is None:
        stacks = ["TCP", "TLS/TCP", "QUIC"]
    pre = Preconnection(
        None, local, needs=needs, properties=properties, security=security, stacks=stacks, system=system
    )
    return Server(asyncio.get_running_loop(), pre.listen(), protocol_factory)


async def start_server(
    client_connected_cb: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None],
    local: Local | Sequence[Local],
    *,
    limit: int = 64 * 1024,
    needs: str | None = None,
    properties: TransportProperties | None = None,
    security: SecurityParameters | None = None,
    stacks: Sequence[str] | None = None,
    system: Neater | None = None,
) -> Server:
    """As `asyncio.start_server`, with every eligible stack that carries bytes.

    `client_connected_cb(reader, writer)` is called for each connection; where it returns a coroutine, that becomes a task.
    Raises `EstablishmentError` where no protocol is eligible or a port cannot be bound.
    """
    loop = asyncio.get_running_loop()

    def factory() -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=limit, loop=loop)
        return asyncio.StreamReaderProtocol(reader, client_connected_cb, loop=loop)

    return await create_server(
        factory, local, needs=needs, properties=properties, security=security, stacks=stacks, system=system
    )
