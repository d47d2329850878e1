"""What programs begin with: transport systems, preconnections, `connect` and `listen`."""

from __future__ import annotations

import asyncio
import enum
import os
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import TypeAlias

from . import _neater
from ._neater import (
    Connection,
    Event,
    Framer,
    Group,
    Listener,
    LocalEndpoint,
    MessageContext,
    Operation,
    RemoteEndpoint,
    SecurityParameters,
    TransportProperties,
)

Buffer: TypeAlias = "bytes | bytearray | memoryview | _neater.Message"
"""What may be sent: `bytes` are not copied, whatever could change meanwhile is."""
Remote: TypeAlias = "str | tuple[str, int] | RemoteEndpoint"
"""A remote endpoint: `"host:port"`, `(host, port)` or a `RemoteEndpoint`."""
Local: TypeAlias = "str | int | tuple[str, int] | LocalEndpoint"
"""A local endpoint: `"address:port"`, a port, `(address, port)` or a `LocalEndpoint`. Port 0 is any."""


class Preference(enum.StrEnum):
    """How much a property is wanted (RFC 9622 section 4.2). The words alone will do, too."""

    REQUIRE = "require"
    """Only protocols and paths with it, else fail."""
    PREFER = "prefer"
    """Those with it first, else proceed."""
    NO_PREFERENCE = "no-preference"
    """It does not matter."""
    AVOID = "avoid"
    """Those without it first, else proceed."""
    PROHIBIT = "prohibit"
    """Only protocols and paths without it, else fail."""


class Neater(_neater.Neater):
    """One transport system: connections, listeners and caches that belong together. Systems share nothing.

    Most programs need none: `connect` and `listen` use that of the running event loop (`system()`). Made within a
    coroutine, it is driven by the running loop: its one descriptor becomes a reader of that loop, and there is no thread.
    Made elsewhere, it is driven by `poll`, or by a loop that it is given to by `attach`.

    All arguments are keywords:

    - `limits`: other bounds than the default ones, as a dict: `send_buffer`, `engine_bytes`, `send_floor`,
      `datagram_buffer`, `message` (bytes), `handshakes`, `unverified`, `untaken`, `udp_peers`, `sctp_per_source`,
      `connections` (numbers).
    - `seed`: 32 bytes from which everything random follows, for tests.
    - `reset_secret`: 32 secret bytes that a server keeps from run to run, so that its clients learn of a restart at once
      (RFC 9000 section 10.3).
    - `sctp_ecn`: SCTP associations offer congestion marks.
    - `resolv_conf`, `hosts`: other files than the system's.
    - `names`: `"dns"` asks name servers (the default), `"system"` the system's resolver, in helper threads.
    - `policies`: folders of policies; `strict_policies`: a file among them that cannot be used is an error;
      `without_policies`: none count. `application`: what policies call this program.
    - `key_log`: keys of sessions go to the file that `SSLKEYLOGFILE` names. `qlog_dir`: a folder for logs of QUIC.

    Raises `OSError` where the system has no descriptor or memory left.
    """

    def __init__(self, **options: object) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self.attach(loop)

    async def __aenter__(self) -> Neater:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.detach()


_systems: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Neater] = weakref.WeakKeyDictionary()


def system() -> Neater:
    """The transport system of the running event loop, made when it is first asked for.

    Raises `RuntimeError` outside of an event loop: there, make a `Neater()` and drive it by `poll`.
    """
    loop = asyncio.get_running_loop()
    made = _systems.get(loop)
    if made is None:
        made = _systems[loop] = Neater()
    return made


_of_this_loop = system

# A child of fork has systems of its own: those that it has inherited answer nothing but ForkedError.
os.register_at_fork(after_in_child=_systems.clear)


class Connecting:
    """A connection that is being established: `await` it, or enter it by `async with`.

    Entered, it is closed at the end of the block: without an exception, when the peer has acknowledged everything; with
    one, in the background.
    """

    __slots__ = ("_connection", "_operation")

    def __init__(self, operation: Operation[Connection]) -> None:
        self._operation = operation
        self._connection: Connection | None = None

    def __await__(self) -> Generator[object, None, Connection]:
        return self._operation.__await__()

    def wait(self, timeout: float | None = None) -> Connection:
        """Waits without an event loop, at most `timeout` seconds.

        Raises `EstablishmentError`, or `TimeoutError` if there is no outcome in time: ask again, or drop it.
        """
        return self._operation.wait(timeout)

    def poll(self) -> Connection | None:
        """The connection if it is ready, else None. For loops of the program's own: see `Neater.fileno`.

        Raises `EstablishmentError`.
        """
        answer = self._operation.poll()
        return None if answer is None else answer[0]

    async def __aenter__(self) -> Connection:
        self._connection = await self._operation
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if kind is None:
            await connection.close()
        else:
            connection.close_soon()


class Listening:
    """A listener, entered by `async with` or iterated by `async for`; `listener` is the listener itself."""

    __slots__ = ("listener",)

    def __init__(self, listener: Listener) -> None:
        self.listener = listener

    async def __aenter__(self) -> Listener:
        return self.listener

    async def __aexit__(self, *_: object) -> None:
        self.listener.stop()

    def __aiter__(self) -> AsyncIterator[Connection | Group]:
        return self.listener

    @property
    def port(self) -> int:
        """The port number that all protocols share."""
        return self.listener.port


class Preconnection(_neater.Preconnection):
    """What a connection or a listener is made from (RFC 9622 section 6); it can be used any number of times.

    - `remote`, `local`: an endpoint, or a list of them. Several remotes offer the same service, and any may be chosen.
    - `needs`: what is asked, in words (`"reliable, low-delay, tls13"`; `needs_words()` lists them), or
      `properties`: the same as `TransportProperties`. Without, the defaults of RFC 9622.
    - `security`: `SecurityParameters`. Without, the words decide, and without words the peer is authenticated by the
      system's roots of trust.
    - `framer`: how messages are framed over byte streams.
    - `stacks`: only these stacks are eligible. For diagnosis and experiments.
    - `timeout`: how long establishment may take in all, in seconds.
    - `policy`: properties for policies to look at, as a dict.
    - `on_event`: called with each `Event` of connections made from this, on the thread that drives. An exception in it is
      reported by `sys.unraisablehook`, and everything goes on.
    - `system`: the transport system; that of the running loop otherwise.

    Raises `PropertyError` for what is not understood.
    """

    def __new__(
        cls,
        remote: Remote | Sequence[Remote] | None = None,
        local: Local | Sequence[Local] | None = None,
        *,
        needs: str | None = None,
        properties: TransportProperties | None = None,
        security: SecurityParameters | None = None,
        framer: Framer | None = None,
        stacks: Sequence[str] | None = None,
        timeout: float | None = None,
        policy: Mapping[str, object] | None = None,
        on_event: Callable[[Event], object] | None = None,
        system: Neater | None = None,
    ) -> Preconnection:
        return super().__new__(
            cls,
            system if system is not None else _of_this_loop(),
            remote,
            local,
            needs=needs,
            properties=properties,
            security=security,
            framer=framer,
            stacks=stacks,
            timeout=timeout,
            policy=policy,
            on_event=on_event,
        )

    def connect(self, first: Buffer | None = None, context: MessageContext | None = None) -> Connecting:
        """Opens a connection (`Initiate`, RFC 9622 section 7.1); with `first`, hands it its first message (section 9.2.5),
        which may travel with the handshake where its `context` has `safely_replayable`.

        Establishment begins at once. Raises `EstablishmentError` when it is awaited.
        """
        if first is None:
            return Connecting(self.initiate())
        return Connecting(self.initiate_with_send(first, context))


def connect(
    remote: Remote | Sequence[Remote],
    *,
    local: Local | Sequence[Local] | None = None,
    needs: str | None = None,
    properties: TransportProperties | None = None,
    security: SecurityParameters | None = None,
    framer: Framer | None = None,
    stacks: Sequence[str] | None = None,
    timeout: float | None = None,
    policy: Mapping[str, object] | None = None,
    on_event: Callable[[Event], object] | None = None,
    system: Neater | None = None,
) -> Connecting:
    """Opens a connection: `async with neater.connect("host:443") as connection:`. Arguments as of `Preconnection`.

    Raises `EstablishmentError` with every candidate and what became of it, `PropertyError` for what is not understood.
    """
    return Preconnection(
        remote,
        local,
        needs=needs,
        properties=properties,
        security=security,
        framer=framer,
        stacks=stacks,
        timeout=timeout,
        policy=policy,
        on_event=on_event,
        system=system,
    ).connect()


def listen(
    local: Local | Sequence[Local],
    *,
    needs: str | None = None,
    properties: TransportProperties | None = None,
    security: SecurityParameters | None = None,
    framer: Framer | None = None,
    stacks: Sequence[str] | None = None,
    on_event: Callable[[Event], object] | None = None,
    system: Neater | None = None,
) -> Listening:
    """Listens with every eligible protocol: `async for connection in neater.listen("[::1]:0", ...):`. Arguments as of
    `Preconnection`; a server needs security with its certificate, or `needs` with `cleartext`.

    Raises `EstablishmentError` where no protocol is eligible or a port cannot be bound.
    """
    return Listening(
        Preconnection(
            None,
            local,
            needs=needs,
            properties=properties,
            security=security,
            framer=framer,
            stacks=stacks,
            on_event=on_event,
            system=system,
        ).listen()
    )
