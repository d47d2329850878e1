"""aioquic as a client of an echo server.

Arguments: PORT CERT MODE. MODE is "echo" (streams, and a close with code 42), "datagrams", "twice" (a second connection
that resumes the first with early data) or "version" (the first packet is of a version that the server does not speak).
Prints "ok" at the end.
"""

import asyncio
import sys

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicProtocolVersion

BULK = 200_000
LIMIT = 10


class Peer(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.datagrams, self.handshake = asyncio.Queue(), None

    def quic_event_received(self, event):
        super().quic_event_received(event)
        if isinstance(event, events.DatagramFrameReceived):
            self.datagrams.put_nowait(event.data)
        elif isinstance(event, events.HandshakeCompleted):
            self.handshake = event
        elif isinstance(event, events.ConnectionTerminated):
            print(f"closed code={event.error_code} reason={event.reason_phrase}", flush=True)


async def echo(peer, data):
    reader, writer = await peer.create_stream()
    writer.write(data)
    writer.write_eof()
    back = await asyncio.wait_for(reader.read(), LIMIT)
    assert back == data, f"{len(data)} bytes went, {len(back)} came"


async def main():
    port, cert, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]

    def configuration(**more):
        c = QuicConfiguration(is_client=True, alpn_protocols=["echo"], max_datagram_frame_size=65536, **more)
        c.load_verify_locations(cert)
        c.server_name = "localhost"
        return c

    def open(c, **more):
        return connect("127.0.0.1", port, configuration=c, create_protocol=Peer, **more)

    if mode == "echo":
        async with open(configuration()) as peer:
            for n in range(3):
                await echo(peer, bytes([n]) * BULK)
            await asyncio.gather(*(echo(peer, bytes([n]) * 1000) for n in range(20)))
            peer.close(error_code=42, reason_phrase="from python")
    elif mode == "datagrams":
        async with open(configuration()) as peer:
            await peer.wait_connected()
            for n in range(10):
                peer._quic.send_datagram_frame(bytes([n]) * 900)
                peer.transmit()
                assert await asyncio.wait_for(peer.datagrams.get(), LIMIT) == bytes([n]) * 900
    elif mode == "twice":
        tickets = []
        async with open(configuration(), session_ticket_handler=tickets.append) as peer:
            await echo(peer, b"first")
            for _ in range(100):
                if tickets:
                    break
                await asyncio.sleep(0.02)
        assert tickets, "the server gives no ticket"
        async with open(configuration(session_ticket=tickets[-1]), wait_connected=False) as peer:
            await echo(peer, b"early")
            early, resumed = peer.handshake.early_data_accepted, peer.handshake.session_resumed
            print(f"early={early} resumed={resumed}", flush=True)
            assert resumed
    elif mode == "version":
        versions = [QuicProtocolVersion.VERSION_2, QuicProtocolVersion.VERSION_1]
        c = configuration(original_version=QuicProtocolVersion.VERSION_2, supported_versions=versions)
        async with open(c) as peer:
            await echo(peer, b"after all")
            print(f"version={peer._quic._version:#x}", flush=True)
    else:
        raise SystemExit(f"no such mode: {mode}")
    print("ok", flush=True)


asyncio.run(asyncio.wait_for(main(), 15))
