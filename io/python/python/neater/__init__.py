"""Transport services for asyncio: a program says what it needs, neater finds how.

```python
import asyncio, neater

async def main() -> None:
    security = neater.self_signed()
    async with neater.listen("127.0.0.1:0", security=security, framer=neater.Framer.lines()) as listener:
        async def serve() -> None:
            async for connection in listener:
                async for message in connection:
                    await connection.send(bytes(message).upper())
        server = asyncio.create_task(serve())
        async with neater.connect(
            ("127.0.0.1", listener.port), security=security, framer=neater.Framer.lines()
        ) as connection:
            await connection.send(b"hello")
            print(await connection.receive(), "carried by", connection.stack)
        server.cancel()

asyncio.run(main())
```

The names are those of RFC 9622, written as Python writes names: `preserveMsgBoundaries` is `preserve_msg_boundaries`.
"""

from __future__ import annotations

from ._neater import (
    ByteStream,
    Candidate,
    Connection,
    ConnectionStats,
    Delivery,
    Event,
    Explanation,
    Framer,
    Group,
    Listener,
    LocalEndpoint,
    Message,
    MessageContext,
    Operation,
    PathInfo,
    Plan,
    PolicyStory,
    RemoteEndpoint,
    SecurityParameters,
    TimelineEntry,
    TransportProperties,
    needs_words,
    property_effect,
    self_signed,
)
from .api import Connecting, Listening, Neater, Preconnection, Preference, connect, listen, system
from .errors import (
    ConnectionError,
    EndpointError,
    EstablishmentError,
    ForkedError,
    NeaterError,
    PropertyError,
    SecurityError,
    SendError,
)
from .streams import create_connection, create_server, open_connection, start_server

__all__ = [
    "ByteStream",
    "Candidate",
    "Connecting",
    "Connection",
    "ConnectionError",
    "ConnectionStats",
    "Delivery",
    "EndpointError",
    "EstablishmentError",
    "Event",
    "Explanation",
    "ForkedError",
    "Framer",
    "Group",
    "Listener",
    "Listening",
    "LocalEndpoint",
    "Message",
    "MessageContext",
    "Neater",
    "NeaterError",
    "Operation",
    "PathInfo",
    "Plan",
    "PolicyStory",
    "Preconnection",
    "Preference",
    "PropertyError",
    "RemoteEndpoint",
    "SecurityError",
    "SecurityParameters",
    "SendError",
    "TimelineEntry",
    "TransportProperties",
    "connect",
    "create_connection",
    "create_server",
    "listen",
    "needs_words",
    "open_connection",
    "property_effect",
    "self_signed",
    "start_server",
    "system",
]
