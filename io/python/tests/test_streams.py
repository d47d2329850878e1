"""Streams and transports of asyncio over neater."""

import asyncio
import contextlib
import gc
import socket
import ssl
import weakref

import pytest

import neater
import neater.streams

LOCAL = ("127.0.0.1", 0)
KINDS = {
    "TCP": {"needs": "reliable, cleartext"},
    "TLS/TCP": {"needs": "reliable"},
    "QUIC": {"needs": "reliable"},
}


def options(stack, security):
    return {**KINDS[stack], "security": None if stack == "TCP" else security, "stacks": [stack]}


async def upper(reader, writer):
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("stack", KINDS)
def test_streams_over_every_stack_of_bytes(run, security, stack):
    async def main():
        async with await neater.start_server(upper, LOCAL, **options(stack, security)) as server:
            reader, writer = await neater.open_connection(("127.0.0.1", server.port), **options(stack, security))
            assert isinstance(reader, asyncio.StreamReader) and isinstance(writer, asyncio.StreamWriter)
            assert writer.get_extra_info("stack") == stack
            assert writer.get_extra_info("peername") == ("127.0.0.1", server.port)
            assert writer.get_extra_info("nothing", 3) == 3
            for line in (b"hello\n", b"world\n"):
                writer.write(line)
                await writer.drain()
                assert await asyncio.wait_for(reader.readline(), 20) == line.upper()
            writer.write_eof()
            assert await asyncio.wait_for(reader.read(), 20) == b""
            writer.close()
            await writer.wait_closed()

    run(main())


@pytest.mark.parametrize("stack", KINDS)
def test_much_goes_through_with_flow_control(run, security, stack):
    total = 8 << 20
    got = []

    async def sink(reader, writer):
        n = 0
        while data := await reader.read(1 << 16):
            n += len(data)
            if n < 1 << 20:
                await asyncio.sleep(0.001)  # slower than the sender
        got.append(n)
        writer.close()

    async def main():
        async with await neater.start_server(sink, LOCAL, **options(stack, security)) as server:
            _reader, writer = await neater.open_connection(("127.0.0.1", server.port), **options(stack, security))
            block, waited = bytes(1 << 16), 0
            for _ in range(total // len(block)):
                writer.write(block)
                waited = max(waited, writer.transport.get_write_buffer_size())
                await writer.drain()
            writer.write_eof()
            while not got:
                await asyncio.sleep(0.01)
            assert got == [total]
            assert waited < 1 << 19
            writer.close()
            await writer.wait_closed()

    run(main())


class Buffered(asyncio.BufferedProtocol):
    def __init__(self):
        self.memory = bytearray(1000)
        self.got = b""
        self.done = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint):
        return self.memory

    def buffer_updated(self, nbytes):
        self.got += self.memory[:nbytes]

    def eof_received(self):
        self.done.set_result(self.got)

    def connection_lost(self, exc):
        pass


def test_protocols_with_buffers_of_their_own(run):
    async def main():
        async with await neater.start_server(upper, LOCAL, **KINDS["TCP"]) as server:
            transport, protocol = await neater.create_connection(Buffered, ("127.0.0.1", server.port), **KINDS["TCP"])
            transport.write(bytearray(b"a" * 5000 + b"\n"))
            transport.writelines([b"b", b"\n"])
            transport.write_eof()
            assert await protocol.done == b"A" * 5000 + b"\nB\n"
            transport.close()

    run(main())


def test_pausing_and_limits(run):
    received = []

    class Counting(asyncio.Protocol):
        def data_received(self, data):
            received.append(len(data))

    async def main():
        async def talk(reader, writer):
            writer.write(b"x" * 1000)
            with contextlib.suppress(ConnectionError):  # it is aborted
                await reader.read()
            writer.close()

        async with await neater.start_server(talk, LOCAL, **KINDS["TCP"]) as server:
            transport, _ = await neater.create_connection(Counting, ("127.0.0.1", server.port), **KINDS["TCP"])
            transport.pause_reading()
            before = sum(received)
            await asyncio.sleep(0.05)
            assert sum(received) == before and not transport.is_reading()
            transport.resume_reading()
            while sum(received) < 1000:
                await asyncio.sleep(0.01)
            transport.set_write_buffer_limits(high=100)
            assert transport.get_write_buffer_limits() == (25, 100)
            with pytest.raises(ValueError):
                transport.set_write_buffer_limits(high=1, low=2)
            transport.abort()
            assert transport.is_closing()

    run(main())


def test_a_protocol_that_fails_ends_its_connection_alone():
    problems, lost = [], []

    class Broken(asyncio.Protocol):
        def data_received(self, data):
            raise ZeroDivisionError

        def connection_lost(self, exc):
            lost.append(exc)

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context["exception"]))
        async with await neater.create_server(Broken, LOCAL, **KINDS["TCP"]) as server:
            for _ in range(2):
                reader, writer = await neater.open_connection(("127.0.0.1", server.port), **KINDS["TCP"])
                writer.write(b"x")
                try:
                    assert await reader.read() == b""
                except ConnectionError:
                    pass
                writer.close()
                try:
                    await writer.wait_closed()
                except ConnectionError:
                    pass

    asyncio.run(main())
    assert [type(e) for e in problems] == [ZeroDivisionError] * 2
    assert len(lost) == 2


def test_a_connection_that_is_aborted_raises_in_the_reader(run):
    async def main():
        async def aborts(reader, writer):
            await reader.readline()
            writer.transport.abort()

        async with await neater.start_server(aborts, LOCAL, **KINDS["TCP"]) as server:
            reader, writer = await neater.open_connection(("127.0.0.1", server.port), **KINDS["TCP"])
            writer.write(b"x\n")
            with pytest.raises(neater.ConnectionError):
                await reader.read()
            writer.close()
            with pytest.raises(ConnectionError):
                await writer.wait_closed()

    run(main())


def test_a_transport_that_is_forgotten_is_kept_by_its_loop_and_warns_with_it():
    got = []

    class Noting(asyncio.Protocol):
        def data_received(self, data):
            got.append(data)

    async def main():
        async def late(reader, writer):
            writer.write(await reader.read(1))
            await writer.drain()
            writer.close()

        server = await neater.start_server(late, LOCAL, **KINDS["TCP"])
        transport, _ = await neater.create_connection(Noting, ("127.0.0.1", server.port), **KINDS["TCP"])
        gone = weakref.ref(transport)
        transport.write(b"x")
        del transport, _
        gc.collect()
        while not got:
            await asyncio.sleep(0.01)
        # One that is closed is kept no longer, and one that nobody has closed until its loop is.
        while gone() is not None:
            await asyncio.sleep(0.01)
            gc.collect()
        server.close()
        await neater.create_connection(asyncio.Protocol, silent.getsockname(), **KINDS["TCP"])

    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.warns(ResourceWarning, match="unclosed transport"):
        asyncio.run(main())
        for _ in range(3):  # what the engine held is seen once the engine is gone
            gc.collect()
    assert got == [b"x"]


def test_interoperates_with_asyncio_in_the_clear_and_over_tls(run, security, tmp_path):
    """asyncio's own server, with Python's own TLS, and neater's client."""
    rcgen = pytest.importorskip("trustme")
    authority = rcgen.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    trusted = neater.SecurityParameters(trust=authority.cert_pem.bytes())

    async def main():
        for tls in (None, context):
            answered = asyncio.Event()

            async def answers(reader, writer, answered=answered):
                await upper(reader, writer)
                answered.set()

            server = await asyncio.start_server(answers, "127.0.0.1", 0, ssl=tls)
            port = server.sockets[0].getsockname()[1]
            more = {"security": trusted, "stacks": ["TLS/TCP"]} if tls else KINDS["TCP"]
            reader, writer = await neater.open_connection(("127.0.0.1", port), **more)
            writer.write(b"hello\n")
            assert await reader.readline() == b"HELLO\n"
            writer.close()
            await writer.wait_closed()
            await answered.wait()
            server.close()
            await server.wait_closed()

    run(main())


def test_httpx_over_neater(run, security):
    httpx = pytest.importorskip("httpx")
    import neater.http

    async def serve(reader, writer):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1]
            body = b"path " + path
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()

    async def handle(reader, writer):
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def main():
        for tls in (False, True):
            more = {"security": security, "stacks": ["TLS/TCP"]} if tls else KINDS["TCP"]
            async with await neater.start_server(handle, LOCAL, **more) as server:
                transport = neater.http.AsyncTransport(security=security, cleartext=() if tls else (server.port,))
                async with httpx.AsyncClient(transport=transport) as client:
                    scheme = "https" if tls else "http"
                    for path in ("/a", "/b"):
                        answer = await client.get(f"{scheme}://127.0.0.1:{server.port}{path}")
                        assert answer.status_code == 200 and answer.text == f"path {path}"
                    with pytest.raises(httpx.ConnectError):
                        await client.get(f"{scheme}://127.0.0.1:1/")

    run(main())
