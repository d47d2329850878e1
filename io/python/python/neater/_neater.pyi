"""The native half of `neater`. Programs import these from `neater`."""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar, final

from typing_extensions import Buffer, disjoint_base

_T = TypeVar("_T")

_Value: TypeAlias = Any  # bool | int | float | str | datetime.timedelta | dict[str, str]
_Material: TypeAlias = str | bytes | PathLike[str]

@final
class Operation(Coroutine[Any, Any, _T], Generic[_T]):
    """Something that is under way and may have to wait: `await` it, or give it to `asyncio.create_task`.

    Nothing is done before it is awaited, except where the method's text names it; one that never is, warns. Cancelling the task gives it
    up: nothing is lost and nothing is taken. Without an event loop, `wait` and `poll` do the same.
    """

    def __await__(self) -> Generator[Any, Any, _T]: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any) -> Any: ...
    def throw(
        self, kind: Any, value: Any = None, traceback: TracebackType | None = None
    ) -> Any: ...
    def close(self) -> None:
        """Gives it up."""
    def poll(self) -> tuple[_T] | None:
        """Goes on as far as it can without waiting: the result in a tuple, or None. Raises what awaiting it raises."""
    def wait(self, timeout: float | None = None) -> _T:
        """Waits without an event loop, driving the transport system meanwhile; at most `timeout` seconds.

        Raises what awaiting it raises; `TimeoutError` when there is no result in time (it goes on when it is asked again);
        `RuntimeError` where an event loop drives the transport system.
        """

@disjoint_base
class Neater:
    """One transport system; see `neater.Neater`."""

    def __new__(
        cls,
        *,
        limits: Mapping[str, int] | None = None,
        seed: bytes | None = None,
        reset_secret: bytes | None = None,
        sctp_ecn: bool = False,
        resolv_conf: str | PathLike[str] | None = None,
        hosts: str | PathLike[str] | None = None,
        names: str | None = None,
        policies: Sequence[str | PathLike[str]] | None = None,
        strict_policies: bool = False,
        without_policies: bool = False,
        application: str | None = None,
        key_log: bool = False,
        qlog_dir: str | PathLike[str] | None = None,
    ) -> Self: ...
    def fileno(self) -> int:
        """The one descriptor: it becomes readable when there is something to do, deadlines included. It may be watched by
        `select`, `poll` or `epoll`, level-triggered or edge-triggered; then call `turn`."""
    def turn(self) -> None:
        """Does what there is to do now; never blocks. Raises `ForkedError` in a child of `fork`."""
    def poll(self, timeout: float | None = None) -> bool:
        """Waits until there is something to do, at most `timeout` seconds, and does it; whether there was something.

        Raises `RuntimeError` where an event loop drives, `ForkedError` in a child of `fork`.
        """
    def attach(self, event_loop: AbstractEventLoop) -> None:
        """Has an event loop drive, by its `add_reader`. What waits goes on there.

        Raises `RuntimeError` if another loop drives already, `TypeError` if it has no `add_reader`.
        """
    def detach(self) -> None:
        """Has no event loop drive any more. Connections stay, and go on when something drives again."""
    @property
    def event_loop(self) -> AbstractEventLoop | None:
        """The event loop that drives. Raises `RuntimeError` where that is gone."""
    @property
    def is_inherited(self) -> bool:
        """Whether this process is a child of the one that made it: then everything fails with `ForkedError`."""
    @property
    def is_done(self) -> bool:
        """Whether every object made from it is gone and what was sent is delivered."""
    def stats(self) -> dict[str, int]:
        """Figures of the engine: `connections`, `channels`, `quic_connections`, `sctp_associations`, `bytes_queued`,
        `timers`, `initiated`, `established`, `failed`, `attempts`, `cache_hits`, `received`, `refused` and others."""
    def flush_caches(self) -> None:
        """Forgets names and outcomes of races: the next connection resolves and races again."""
    def export_outcomes(self) -> str | None:
        """What races have taught, as text for `import_outcomes` in a later process of this host; None if nothing. It
        contains addresses of servers: keep it where only the user can read it."""
    def import_outcomes(self, text: str) -> int:
        """Lets connections begin with what earlier processes have found to work; how many entries have come.

        Raises `PropertyError` if the text is damaged, of another version, or from a time that is still to come.
        """
    def policy_sources(self) -> list[str]:
        """Where policies come from, those that count least first."""
    def policy_profiles(self) -> list[str]:
        """The profiles that `policy={"profile": ...}` may name."""
    def policy_faults(self) -> list[tuple[str, bool]]:
        """What is wrong with files of policies, and whether the file is used nevertheless."""
    def set_roots(self, pem: bytes) -> None:
        """Trusts these authorities in place of the system's, from now on. Raises `SecurityError`."""

@final
class RemoteEndpoint:
    """Where a connection goes (RFC 9622 section 6.1): at most one name, one address, one port and one interface.

    `protocol` limits it to one stack; `udp_port` is the port that SCTP is encapsulated to (RFC 6951).
    """

    def __new__(
        cls,
        host_name: str | None = None,
        port: int | None = None,
        *,
        ip_address: str | None = None,
        interface: str | None = None,
        protocol: str | None = None,
        udp_port: int | None = None,
    ) -> Self: ...
    @staticmethod
    def parse(text: str) -> RemoteEndpoint:
        """Reads `host:port` or `[::1]:port`. Raises `PropertyError`."""
    @property
    def host_name(self) -> str | None:
        """The name, if it has one."""
    @property
    def port(self) -> int:
        """The port; 0 if it has none."""
    @property
    def ip_address(self) -> str | None:
        """The address, if it has one."""

@final
class LocalEndpoint:
    """Where a connection comes from, or a listener listens (RFC 9622 section 6.1)."""

    def __new__(
        cls,
        ip_address: str | None = None,
        port: int | None = None,
        *,
        interface: str | None = None,
        udp_port: int | None = None,
    ) -> Self: ...
    @property
    def port(self) -> int:
        """The port; 0 if it has none."""
    @property
    def ip_address(self) -> str | None:
        """The address, if it has one."""

@final
class Framer:
    """How messages are framed over byte streams (RFC 9622 section 9.1.2). Without one, TCP, TLS and QUIC join messages to a
    stream of bytes."""

    @staticmethod
    def length_prefixed(width: int = 4, max: int = 1048576) -> Framer:
        """A length of `width` bytes (1, 2, 4 or 8) before each message of at most `max` bytes."""
    @staticmethod
    def lines(max: int = 65536, *, crlf: bool = False) -> Framer:
        """A message is a line of at most `max` bytes, sent with CR LF if `crlf`, else with LF. Both are accepted."""

@final
class TransportProperties:
    """What is asked of the transport (RFC 9622 section 6.2 and 8.1), by the names of the RFC as Python writes them:
    `TransportProperties(reliability="require", multistreaming="avoid", conn_priority=10)`.

    Preferences are `require`, `prefer`, `no-preference`, `avoid` and `prohibit`, or `True` and `False`; durations are
    seconds, `timedelta` or texts with a unit; `interface` and `pvd` are dicts of preferences by name. Without anything they
    are the defaults of the RFC. Raises `PropertyError`.
    """

    def __new__(cls, **properties: _Value) -> Self: ...
    @staticmethod
    def parse(words: str) -> TransportProperties:
        """Reads what is asked in words, as `needs`; words about security do not count here. Raises
        `PropertyError`."""
    def set(self, name: str, value: _Value) -> None:
        """Sets a property. Raises `PropertyError` if there is none of that name, or the value is not one of its own."""
    def get(self, name: str) -> _Value:
        """Reads a property. Raises `KeyError`."""
    def __setitem__(self, key: str, value: _Value, /) -> None: ...
    def __getitem__(self, key: str, /) -> _Value: ...
    def items(self) -> list[tuple[str, _Value]]:
        """All properties that are set, by the names of the RFC."""
    def require(self, *names: str) -> None:
        """Requires these properties."""
    def prefer(self, *names: str) -> None:
        """Prefers these properties."""
    def no_preference(self, *names: str) -> None:
        """Takes what comes."""
    def avoid(self, *names: str) -> None:
        """Avoids these properties."""
    def prohibit(self, *names: str) -> None:
        """Prohibits these properties."""

@final
class SecurityParameters:
    """What is asked of security (RFC 9622 section 6.3). The defaults are safe: a client sets nothing, a server its
    `certificate` and `key`.

    Certificates and keys are PEM (str or bytes), DER (bytes) or paths of files. `trust` are authorities that are trusted in
    place of the system's, or beside them if `trust_system`. `pinned_server_certificates`: the server's must be one of these
    besides. `protection` is `required`, `opportunistic` or `disabled`. `ciphersuites`, `supported_groups` and
    `signature_algorithms` are numbers of IANA's registries. `cached_session_lifetime` is in seconds. Raises
    `SecurityError`; `OSError` for a file that cannot be read.
    """

    def __new__(
        cls,
        *,
        certificate: _Material | None = None,
        key: _Material | None = None,
        trust: _Material | list[_Material] | None = None,
        trust_system: bool | None = None,
        client_certificate: _Material | None = None,
        client_key: _Material | None = None,
        client_authentication: str = "none",
        pinned_server_certificates: _Material | list[_Material] | None = None,
        alpn: Sequence[str] | None = None,
        server_name: str | None = None,
        min_version: str = "1.2",
        max_version: str = "1.3",
        ciphersuites: Sequence[int] | None = None,
        supported_groups: Sequence[int] | None = None,
        signature_algorithms: Sequence[int] | None = None,
        max_cached_sessions: int | None = None,
        cached_session_lifetime: float | None = None,
        early_data: bool = True,
        protection: str = "required",
    ) -> Self: ...
    @staticmethod
    def disabled() -> SecurityParameters:
        """No security is attempted (`NewDisabledSecurityParameters`)."""
    @staticmethod
    def opportunistic() -> SecurityParameters:
        """Unauthenticated security where it is available, else none (`NewOpportunisticSecurityParameters`)."""
    @property
    def certificate_pem(self) -> str | None:
        """The certificates of the server's identity, in PEM: what clients are given as `trust`."""

def self_signed(*names: str) -> SecurityParameters:
    """Security for a server with a certificate of its own making, and for clients that trust it and nothing else: for tests
    and for trying things out. The names are `localhost`, `127.0.0.1` and `::1` otherwise. Raises `SecurityError`."""

@disjoint_base
class Preconnection:
    """What a connection or a listener is made from; see `neater.Preconnection`."""

    def __new__(
        cls,
        system: Neater,
        remote: object = None,
        local: object = None,
        *,
        needs: str | None = None,
        properties: TransportProperties | None = None,
        security: SecurityParameters | None = None,
        framer: Framer | None = None,
        stacks: Sequence[str] | None = None,
        timeout: float | None = None,
        policy: Mapping[str, object] | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> Self: ...
    def initiate(self) -> Operation[Connection]:
        """Opens a connection (RFC 9622 section 7.1). Establishment begins at once, whether it is awaited or not."""
    def initiate_with_send(self, data: Buffer, context: MessageContext | None = None) -> Operation[Connection]:
        """Opens a connection with its first message (RFC 9622 section 9.2.5)."""
    def begin(self, first: Buffer | None = None, context: MessageContext | None = None) -> Connection:
        """The connection at once, in state `establishing`, with its first message if there is one: messages sent on it wait
        until it is ready. Raises
        `EstablishmentError` for what is wrong before anything is sent."""
    def connect_bytes(self) -> Operation[ByteStream]:
        """Opens a connection as a stream of bytes; begins when it is awaited. Raises `EstablishmentError`."""
    def listen(self) -> Listener:
        """Listens with every eligible protocol (RFC 9622 section 7.2). Raises `EstablishmentError`."""
    def plan(self) -> Operation[Plan]:
        """What would be tried, in which order and when, if no peer ever answered; nothing is sent to a peer. Raises
        `EstablishmentError`."""
    def explain(self, role: str = "initiate") -> Explanation:
        """How what is asked ranks the stacks; `role` is `initiate` or `listen`. Raises `EstablishmentError`."""
    def eligible(self, role: str = "initiate") -> list[str]:
        """The stacks that may serve, best first. Raises `EstablishmentError`."""
    def explain_policies(self) -> PolicyStory | None:
        """What policies do to such a connection to its first remote endpoint, with their files and lines; None
        where there are no policies. Nothing is sent."""

@final
class Connection:
    """A connection: messages in, messages out, over whichever transport was chosen (RFC 9622 sections 8 to 10).

    `async for message in connection` receives until the peer sends no more. All methods may be called from any thread.
    When the last reference is gone, the connection is closed in order in the background.
    """

    @property
    def id(self) -> str:
        """Its name in its transport system."""
    def ready(self) -> Operation[None]:
        """Waits until it is established. Raises `EstablishmentError`."""
    def send(
        self, data: Buffer, context: MessageContext | None = None, *, end_of_message: bool | None = None
    ) -> Operation[int]:
        """Sends a message; the result is its number, which events name. Waits while the send buffer is full: from its end on
        the message is delivered, or reported by an event as unsent. `bytes` are not copied.

        With `end_of_message` it is a part of a message (section 9.2.3), and True ends that message. Raises `SendError`,
        `ConnectionError`.
        """
    def try_send(self, data: Buffer, context: MessageContext | None = None) -> int:
        """Sends a message if there is room now. Raises `SendError` of kind `blocked` if not, and nothing was taken."""
    def start_batch(self) -> None:
        """Several sends follow, which may be put together (section 9.2.4)."""
    def end_batch(self) -> None:
        """The batch is complete: send it."""
    def receive(self) -> Operation[Message | None]:
        """The next whole message; None when the peer will send no more. A byte stream without framer has no boundaries:
        whatever has arrived is the message. Raises `ConnectionError`."""
    def receive_partial(self, max: int = 65536) -> Operation[Message | None]:
        """What has arrived of the next message, at most `max` bytes of a byte stream; None when the peer will send no more.
        Raises `ConnectionError`."""
    def try_receive(self, max: int | None = None) -> tuple[bool, Message | None]:
        """What has arrived, without waiting: `(False, None)` if nothing has, `(True, None)` if the peer will send no more,
        else `(True, message)`. With `max`, as `receive_partial`. Raises `ConnectionError`."""
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Operation[Message]: ...
    def finish(self) -> None:
        """Ends this side's direction; receiving goes on. Raises `SendError`, `ConnectionError`."""
    def close(self) -> Operation[None]:
        """Closes in order, and waits until the peer has acknowledged everything. What the peer still sends is thrown away.
        Raises `ConnectionError` if what was sent may not have been delivered."""
    def close_soon(self) -> None:
        """Closes in order, in the background."""
    def closed(self) -> Operation[None]:
        """Waits until the connection is over, from whichever side. Raises `ConnectionError` if it has failed."""
    def abort(self, code: int | None = None) -> None:
        """Ends the connection at once, with an application error code where the protocol has them (QUIC)."""
    def stop_receiving(self, code: int = 0) -> None:
        """Refuses what the peer may still send (QUIC)."""
    def reset_sending(self, code: int = 0) -> None:
        """Abandons the sending direction (QUIC, SCTP)."""
    def clone(self, *, one_way: bool = False) -> Connection:
        """Adds a connection to this one's group (section 7.4): a stream where the transport has them, another transport
        connection otherwise. See its `ready`. Raises `EstablishmentError`."""
    def group(self) -> Group:
        """The group of this connection. While the result lives, streams that the peer opens come to it. Raises
        `ConnectionError`."""
    def on_event(self, callback: Callable[[Event], object]) -> None:
        """Calls `callback` with every event from now on, in place of the function that was set before. For connections that
        were received, cloned or opened as streams: those of a `Preconnection` have its `on_event`. What has become of the
        connection already comes first: that it is ready, could not be established, or is over. An exception that it raises
        goes to `sys.unraisablehook`.
        """
    def next_event(self) -> Operation[Event | None]:
        """The next event of this connection; None after the last. Up to 1,024 wait."""
    @property
    def state(self) -> str:
        """`establishing`, `established`, `closing` or `closed`."""
    @property
    def stack(self) -> str | None:
        """The protocol stack that carries it, once it was chosen."""
    @property
    def remote_address(self) -> tuple[str, int] | None:
        """The peer's address and port."""
    @property
    def local_address(self) -> tuple[str, int] | None:
        """Our address and port."""
    @property
    def alpn(self) -> str | None:
        """The application protocol that was agreed on."""
    @property
    def security(self) -> str | None:
        """The security protocol in use; None in the clear."""
    @property
    def peer_certificates(self) -> list[bytes]:
        """The peer's certificates, leaf first, in DER."""
    @property
    def stream_number(self) -> int | None:
        """The number of the stream on the wire (QUIC)."""
    def paths(self) -> list[PathInfo]:
        """The paths of the transport below."""
    def candidates(self) -> list[Candidate]:
        """How the race went; empty where the outcome of an earlier race was used."""
    def timeline(self) -> list[TimelineEntry]:
        """The steps of establishment."""
    def stats(self) -> ConnectionStats | None:
        """Figures of this connection."""
    def delivery(self) -> Delivery | None:
        """How far what was sent has come; None where the transport keeps no such figures."""
    def get(self, name: str) -> _Value:
        """Reads a property by its name in RFC 9622. Raises `KeyError`."""
    def set(self, name: str, value: _Value) -> None:
        """Sets a Connection Property, or a default for messages sent from now on. Raises `PropertyError`."""
    def report(self, outcome: str) -> None:
        """Reports how it has served: `answered`, `silent`, `broken` or `wants-other`. Later races take it into account."""
    def add_remote(self, remote: str) -> None:
        """Uses one more address of the peer's, `ADDRESS:PORT` (section 7.5). Raises `EndpointError`."""
    def remove_remote(self, remote: str) -> None:
        """Uses an address of the peer's no more. Raises `EndpointError`."""
    def add_local(self, local: LocalEndpoint) -> None:
        """Uses one more interface or address of this host. Raises `EndpointError`."""
    def remove_local(self, local: LocalEndpoint) -> None:
        """Uses an interface or address of this host no more. Raises `EndpointError`."""

@final
class ByteStream:
    """A connection as a stream of bytes, by functions that never wait: what transports are made of. Programs mostly use
    `open_connection` and `start_server`."""

    @property
    def connection(self) -> Connection:
        """The connection behind it."""
    def on_readable(self, callback: Callable[[], object] | None) -> None:
        """Has this called, by the event loop that drives, when a read that had nothing may have something."""
    def on_writable(self, callback: Callable[[], object] | None) -> None:
        """Has this called when a write that took nothing may take something."""
    def keep(self, transport: object, keeps: bool = True) -> None:
        """Has the loop that drives keep `transport` alive, or, without `keeps`, keep it no longer."""
    def try_read(self, max: int = 262144) -> bytes | None:
        """What there is, at most `max` bytes (at most 262,144 at a time); empty at the end; None where nothing is there yet.
        Raises `ConnectionError`."""
    def try_read_into(self, buffer: Buffer) -> int | None:
        """Reads into a writable buffer: how many bytes, 0 at the end, None where nothing is there yet. Raises
        `ConnectionError`."""
    def try_write(self, data: Buffer) -> int | None:
        """Writes some of it: how many bytes, None where there is no room. Raises `ConnectionError`, `SendError`."""
    def end(self) -> Operation[None]:
        """Ends this side's direction, and waits until that end needs this process no more."""

@final
class Listener:
    """Receives connections over every eligible protocol (RFC 9622 section 7.2): `async for connection in listener`. When the
    last reference is gone it stops."""

    def accept(self) -> Operation[Connection | Group | None]:
        """The next connection, or group after `deliver_groups(True)`; None when it has stopped."""
    def accept_bytes(self) -> Operation[ByteStream | None]:
        """The next connection as a stream of bytes; None when it has stopped. Raises `ConnectionError` for one that carries
        none."""
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Operation[Any]: ...
    @property
    def local_addresses(self) -> list[tuple[str, str, int]]:
        """With which stack it listens, at which address and port."""
    @property
    def port(self) -> int:
        """The port number that all protocols share."""
    @property
    def udp_ports(self) -> list[int]:
        """The UDP ports at which SCTP is taken (RFC 6951)."""
    def set_new_connection_limit(self, limit: int | None) -> None:
        """How many connections may still be received; None: any number."""
    def deliver_groups(self, groups: bool) -> None:
        """Where the transport has streams, deliver groups instead of a connection for every stream."""
    def stop(self) -> None:
        """Stops. What was received can still be accepted; connections that were accepted go on."""

@final
class Group:
    """The connections that share a transport connection (RFC 9622 section 7.4): `async for connection in group` receives
    the streams that the peer opens."""

    def accept(self) -> Operation[Connection]:
        """The next stream that the peer opens. Raises `ConnectionError` when the session is over."""
    def accept_bytes(self) -> Operation[ByteStream]:
        """The next stream that the peer opens, as a stream of bytes. Raises `ConnectionError`."""
    def open(self, *, one_way: bool = False) -> Connection:
        """Opens a stream. Raises `EstablishmentError`."""
    def open_bytes(self, *, one_way: bool = False) -> ByteStream:
        """Opens a stream, as a stream of bytes. Raises `EstablishmentError`, `ConnectionError`."""
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Operation[Connection]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    @property
    def has_streams(self) -> bool:
        """Whether it lives on a transport with streams."""
    @property
    def stack(self) -> str | None:
        """The stack that carries the session; None when that is gone."""
    @property
    def is_over(self) -> bool:
        """Whether the session is over."""
    @property
    def alpn(self) -> str | None:
        """The application protocol that was agreed on."""
    @property
    def remote_address(self) -> tuple[str, int] | None:
        """The peer's address and port."""
    def delivery(self) -> Delivery | None:
        """As `Connection.delivery`, of all streams together."""
    def close(self) -> None:
        """Closes all its connections in order, then the session (`CloseGroup`)."""
    def abort(self) -> None:
        """Aborts all its connections (`AbortGroup`)."""
    def close_session(self, code: int, reason: bytes | None = None) -> None:
        """Ends the session at once, with an application error code and a few words for the peer."""

@final
class MessageContext:
    """The properties of a message that is sent (RFC 9622 section 9.1.3), and what is known of one that was received:
    `MessageContext(msg_lifetime=0.2, msg_ordered=False)`.

    `stream` and `payload_protocol` are for SCTP peers that are not neater's. Raises `PropertyError`.
    """

    def __new__(
        cls, *, stream: int | None = None, payload_protocol: int | None = None, **properties: _Value
    ) -> Self: ...
    def add(self, name: str, value: _Value) -> None:
        """Sets a Message Property. Raises `PropertyError`."""
    def get(self, name: str) -> _Value:
        """Reads a Message Property. Raises `KeyError`."""
    @property
    def is_final(self) -> bool:
        """Whether it is the last message of its direction."""
    @property
    def is_early_data(self) -> bool:
        """Whether it came before the handshake was done: it may be a replay (section 9.3.3.2)."""
    @property
    def stream(self) -> int | None:
        """The stream that it came on, where the connection is a whole SCTP association."""
    @property
    def payload_protocol(self) -> int | None:
        """Its payload protocol identifier (RFC 9260 section 3.3.1)."""
    @property
    def message_number(self) -> int | None:
        """Distinguishes messages whose parts alternate."""
    @property
    def ecn(self) -> str | None:
        """The congestion mark of its datagram: `not-ect`, `ect0`, `ect1` or `ce`."""
    @property
    def remote_address(self) -> str | None:
        """Where it came from."""
    @property
    def local_address(self) -> str | None:
        """Which of our addresses it came to."""

@final
class Message:
    """A received message: a read-only buffer. `memoryview(message)` copies nothing, `bytes(message)` and `data` copy; it
    equals `bytes` of the same content."""

    @property
    def data(self) -> bytes:
        """Its bytes, as a copy."""
    @property
    def context(self) -> MessageContext:
        """What is known of it."""
    @property
    def end_of_message(self) -> bool:
        """Whether the message ends with these bytes."""
    def __bytes__(self) -> bytes: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, view: memoryview, /) -> None: ...
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Event:
    """Something that has happened (RFC 9622 sections 7 to 11)."""

    @property
    def kind(self) -> str:
        """`ready`, `sent`, `expired`, `send-error`, `soft-error`, `path-change`, `closed`, `connection-error`,
        `establishment-error`, `timeline`, `listener-error` or others, in the RFC's words."""
    @property
    def text(self) -> str:
        """Details."""
    @property
    def message_id(self) -> int | None:
        """The number of the message, as `send` returned it."""
    @property
    def error(self) -> BaseException | None:
        """The exception, where it is an error: `ConnectionError`, `EstablishmentError` or `SendError`."""

@final
class Candidate:
    """How a candidate of a race fared, or, of a plan, would. Times are seconds from the call; None: never."""

    @property
    def stack(self) -> str:
        """The protocol stack."""
    @property
    def address(self) -> str:
        """The remote address."""
    @property
    def encapsulation_port(self) -> int | None:
        """The port of UDP that SCTP is encapsulated to."""
    @property
    def started(self) -> float | None:
        """When it was started."""
    @property
    def reachable(self) -> float | None:
        """When it became reachable."""
    @property
    def ended(self) -> float | None:
        """When it ended, in whatever way."""
    @property
    def doubt(self) -> str | None:
        """The penalty from earlier establishments, if it was put back for that."""
    @property
    def fate(self) -> str:
        """`won`, `not-started`, `withdrawn`, `no-answer`, `failed` or `planned`."""
    @property
    def error(self) -> str | None:
        """Why it failed."""

@final
class TimelineEntry:
    """A step of establishment."""

    @property
    def at(self) -> float:
        """When, in seconds from the call."""
    @property
    def text(self) -> str:
        """What."""

@final
class Plan:
    """What would be tried; printed, in lines."""

    @property
    def candidates(self) -> list[Candidate]:
        """Every candidate, in the order in which they take their turns."""
    @property
    def timeline(self) -> list[TimelineEntry]:
        """How it was found out."""
    @property
    def resolution(self) -> list[str]:
        """What went wrong with names."""
    @property
    def excluded(self) -> list[str]:
        """Stacks that are not eligible, each with the properties that rule it out."""

@final
class ConnectionStats:
    """Figures of a connection. Times are seconds."""

    @property
    def bytes_sent(self) -> int:
        """Bytes handed to the transport."""
    @property
    def bytes_received(self) -> int:
        """Bytes handed to the program."""
    @property
    def messages_sent(self) -> int:
        """Messages handed to the transport."""
    @property
    def messages_received(self) -> int:
        """Messages handed to the program."""
    @property
    def datagrams_dropped(self) -> int:
        """Datagrams dropped because the program did not take them in time, or its framer could make nothing of them."""
    @property
    def establishment(self) -> float:
        """How long establishment took."""
    @property
    def rtt(self) -> float | None:
        """Smoothed round-trip time, where the transport knows it."""
    @property
    def congestion_window(self) -> int | None:
        """In bytes, where the transport knows it."""
    @property
    def queued(self) -> int:
        """Bytes that wait in the engine."""
    @property
    def ended(self) -> bool:
        """Whether this side's direction has ended, and that end needs this process no more."""

@final
class Delivery:
    """How far what was sent has come, in bytes."""

    @property
    def acknowledged(self) -> int:
        """What the peer has acknowledged, of all streams of the session."""
    @property
    def pending(self) -> int:
        """What was taken for delivery and is not acknowledged."""
    @property
    def received(self) -> int:
        """What has come."""

@final
class PathInfo:
    """A path of a connection's transport."""

    @property
    def local(self) -> str:
        """Our address."""
    @property
    def remote(self) -> str:
        """The peer's address, and the port below the transport."""
    @property
    def interface(self) -> str | None:
        """The interface that packets are bound to leave by."""
    @property
    def state(self) -> str:
        """`unconfirmed`, `in-use`, `standby`, `potentially-failed` or `inactive`."""
    @property
    def why(self) -> str | None:
        """Why it carries new data or does not, where the transport chooses among several that work; why there is one path, where several
        were asked for."""
    @property
    def rtt(self) -> float | None:
        """Smoothed round-trip time in seconds, once measured."""
    @property
    def window(self) -> int:
        """Congestion window in bytes."""
    @property
    def in_flight(self) -> int:
        """Bytes that are on their way."""
    @property
    def sent(self) -> int:
        """Packets or chunks with data sent."""
    @property
    def lost(self) -> int:
        """Of those, how many the path is believed to have lost."""
    @property
    def delivered(self) -> int:
        """Bytes of payload that have been acknowledged."""
    @property
    def received(self) -> int:
        """Bytes of payload that have come by it."""

@final
class Explanation:
    """A decision, taken apart; printed, as `neater explain` prints it."""

    @property
    def role(self) -> str:
        """How the connections come about."""
    @property
    def security(self) -> str:
        """What security was asked for."""
    @property
    def capacity_profile(self) -> str:
        """How the network is asked to treat the connections."""
    @property
    def fingerprint(self) -> str:
        """The number of the request, in hexadecimal."""
    @property
    def properties(self) -> list[tuple[str, str, bool]]:
        """What is wanted: property, preference, and whether the program asked for it."""
    @property
    def ranked(self) -> list[tuple[str, int | None, list[tuple[str, str, int | None, str]]]]:
        """The candidates, best first: name, score, and the reasons (property, preference, points, in words)."""
    @property
    def excluded(self) -> list[tuple[str, int | None, list[tuple[str, str, int | None, str]]]]:
        """What is ruled out, and why."""
    @property
    def lines(self) -> list[str]:
        """All of it in lines of plain text."""

@final
class PolicyStory:
    """What policies do to a connection; printed, in lines."""

    @property
    def lines(self) -> list[str]:
        """In lines of plain text."""
    @property
    def prohibited(self) -> str | None:
        """Why the connection may not be opened, if it may not."""
    @property
    def stacks(self) -> list[str]:
        """The stacks that are left, in the order in which they are first tried."""
    @property
    def interfaces(self) -> list[int]:
        """The interfaces that policies choose, by their indices."""
    @property
    def is_neutral(self) -> bool:
        """Whether policies change nothing."""
    def to_dict(self) -> dict[str, Any]:
        """For programs."""

def needs_words() -> list[tuple[str, str]]:
    """The words of `needs`, and what each asks for. Each property of RFC 9622 can be named besides, with a preference or a
    value (`multistreaming=avoid`)."""

def property_effect(name: str) -> str | None:
    """What setting a property does in this version: `implemented`, or what is missing; None if there is none."""

def shipped_scenarios() -> list[tuple[str, str]]:
    """The scenarios that come with neater: names and texts."""

def check_scenario(
    text: str, overrides: list[tuple[str, str]], directory: str | PathLike[str] | None = None
) -> tuple[str, str, int, int]:
    """Reads a scenario: its name, description, first seed and number of seeds. Raises `PropertyError`."""

def simulate(
    text: str,
    seed: int,
    overrides: list[tuple[str, str]],
    directory: str | PathLike[str] | None = None,
    progress: Callable[[float], object] | None = None,
) -> dict[str, Any]:
    """Runs a scenario once; see `neater.sim`."""
