"""Throughput of 64 kB messages over loopback, both ends in one process and one loop: neater beside asyncio's streams.

    python3 io/python/measure/throughput.py [--megabytes N] [--variant tcp|tls|quic|neater-streams|asyncio|asyncio-tls]

Prints a line of JSON for each variant, several times, alternating. `neater-lab run PY` runs it beside `peer-messages`, which does the
same with the Rust API.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time

import neater

SIZE = 64 * 1000
LOCAL = ("127.0.0.1", 0)
STACKS = {"tcp": "TCP", "tls": "TLS/TCP", "quic": "QUIC"}
VARIANTS = (*STACKS, "neater-streams", "asyncio")


async def messages(variant: str, count: int, security: neater.SecurityParameters) -> float:
    options = {
        "needs": "reliable, cleartext" if variant == "tcp" else "reliable",
        "security": None if variant == "tcp" else security,
        "stacks": [STACKS[variant]],
        "framer": neater.Framer.length_prefixed(),
    }
    listener = neater.listen(LOCAL, **options).listener
    async with neater.connect(("127.0.0.1", listener.port), **options) as c:
        await c.send(b"begin")
        peer = await listener.accept()
        await peer.receive()
        data = bytes(SIZE)

        async def send() -> None:
            for _ in range(count):
                await c.send(data)

        began = time.process_time()
        sender = asyncio.create_task(send())
        for _ in range(count):
            message = await peer.receive()
            assert len(message) == SIZE
        await sender
        taken = time.process_time() - began
        peer.close_soon()
    return taken


async def streams(variant: str, count: int) -> float:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def sink(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(count):
            assert len(await reader.readexactly(SIZE)) == SIZE
        done.set_result(None)
        writer.close()

    if variant == "asyncio":
        server = await asyncio.start_server(sink, *LOCAL)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    else:
        clear = {"needs": "reliable, cleartext", "stacks": ["TCP"]}
        server = await neater.start_server(sink, LOCAL, **clear)
        _, writer = await neater.open_connection(("127.0.0.1", server.port), **clear)
    data, began = bytes(SIZE), time.process_time()
    for _ in range(count):
        writer.write(data)
        await writer.drain()
    await done
    taken = time.process_time() - began
    writer.close()
    server.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=640)
    parser.add_argument("--variant", choices=VARIANTS)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    count = arguments.megabytes * 1_000_000 // SIZE
    security = neater.self_signed()
    for round_ in range(arguments.rounds):
        for variant in [arguments.variant] if arguments.variant else VARIANTS:
            of = messages(variant, count, security) if variant in STACKS else streams(variant, count)
            taken = asyncio.run(of)
            line = {"id": "PY", "measure": "throughput", "variant": variant, "round": round_}
            print(json.dumps(line | {"mb_per_cpu_s": round(count * SIZE / 1e6 / taken, 1)}), flush=True)


if __name__ == "__main__":
    main()
