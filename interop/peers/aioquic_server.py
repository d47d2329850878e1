"""aioquic as a server.

Arguments: CERT KEY [retry] [v2]. Prints "port N", then one line for every event. Echoes streams,
answers a one-way stream with its text in capitals on a one-way stream of its own, echoes datagrams, and closes with code
42 and words when a one-way stream says "close me".
"""

import asyncio
import sys

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicProtocolVersion

tickets = {}


def say(text):
    print(text, flush=True)


class Peer(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.streams = {}

    def quic_event_received(self, event):
        if isinstance(event, events.HandshakeCompleted):
            alpn, early, resumed = event.alpn_protocol, event.early_data_accepted, event.session_resumed
            say(f"handshake alpn={alpn} early={early} resumed={resumed}")
        elif isinstance(event, events.StreamDataReceived):
            self.stream(event.stream_id, event.data, event.end_stream)
        elif isinstance(event, events.DatagramFrameReceived):
            say(f"datagram {len(event.data)}")
            self._quic.send_datagram_frame(event.data)
            self.transmit()
        elif isinstance(event, events.StreamReset):
            say(f"reset {event.stream_id} {event.error_code}")
        elif isinstance(event, events.ConnectionTerminated):
            say(f"closed code={event.error_code} reason={event.reason_phrase}")

    def stream(self, stream_id, data, end):
        if stream_id % 4 == 0:
            self._quic.send_stream_data(stream_id, data, end)
            self.transmit()
            if end:
                say(f"stream {stream_id} ended")
            return
        text = self.streams.setdefault(stream_id, bytearray())
        text += data
        if not end:
            return
        say(f"one-way {bytes(text)!r}")
        if text == b"close me":
            self.close(error_code=42, reason_phrase="as you wish")
            return
        back = self._quic.get_next_available_stream_id(is_unidirectional=True)
        self._quic.send_stream_data(back, bytes(text).upper(), True)
        self.transmit()


async def main():
    cert, key, *options = sys.argv[1:]
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["echo"], max_datagram_frame_size=65536)
    configuration.load_cert_chain(cert, key)
    if "v2" in options:
        configuration.supported_versions = [QuicProtocolVersion.VERSION_2]
    server = await serve(
        "127.0.0.1",
        0,
        configuration=configuration,
        create_protocol=Peer,
        session_ticket_fetcher=lambda label: tickets.pop(label, None),
        session_ticket_handler=lambda ticket: tickets.__setitem__(ticket.ticket, ticket),
        retry="retry" in options,
    )
    say(f"port {server._transport.get_extra_info('sockname')[1]}")
    await asyncio.Future()


asyncio.run(main())
