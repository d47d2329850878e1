"""Ten thousand connections from one loop: none lost, memory of each beside asyncio's streams, stalls of the loop.

    python3 io/python/measure/many.py [--connections N] [--variant neater|neater-streams|asyncio]

Without a variant all are measured, each in processes of its own: a server and a client. Prints a line of JSON for each: lab id `PY`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time

VARIANTS = ("neater", "neater-streams", "asyncio")
CLEAR = "reliable, cleartext"


def resident() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def more_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Stalls:
    """How long the loop's thread computes without a turn for others: by the thread's CPU clock, so that a busy machine does not
    count."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            self.seen.append(time.thread_time() - before)

    def quantile(self, share: float) -> float:
        ordered = sorted(self.seen)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


async def serve() -> None:
    """asyncio's own server, the same for all variants: it answers each connection's first bytes, and keeps it."""

    class Echo(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(data)  # type: ignore[attr-defined]

    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def measure(variant: str, port: int, total: int) -> dict[str, object]:
    import neater

    address, kept = ("127.0.0.1", port), []

    async def one(i: int) -> None:
        text = b"%08d" % i
        if variant == "neater":
            c = await neater.connect(address, needs=CLEAR, stacks=["TCP"])
            await c.send(text)
            got = b""
            while len(got) < 8:
                message = await c.receive()
                got += bytes(message or b"")
            kept.append(c)
        else:
            if variant == "asyncio":
                reader, writer = await asyncio.open_connection(*address)
            else:
                reader, writer = await neater.open_connection(address, needs=CLEAR, stacks=["TCP"])
            writer.write(text)
            got = await reader.readexactly(8)
            kept.append((reader, writer))
        assert got == text

    await one(0)
    before, began, cpu = resident(), time.monotonic(), time.process_time()
    stalls = Stalls()
    numbers = iter(range(1, total))

    async def worker() -> None:
        for i in numbers:
            await one(i)

    await asyncio.gather(*(worker() for _ in range(100)))
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    grown = resident() - before
    return {
        "id": "PY",
        "measure": "many",
        "variant": variant,
        "connections": len(kept),
        "lost": total - len(kept),
        "bytes_each": round(grown / max(total - 1, 1)),
        "seconds": round(seconds, 2),
        "cpu_us_each": round(cpu / total * 1e6, 1),
        "stall_p999_ms": round(stalls.quantile(0.999) * 1e3, 2),
        "stall_max_ms": round(stalls.quantile(1.0) * 1e3, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--variant", choices=VARIANTS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    more_descriptors()
    if arguments.serve:
        asyncio.run(serve())
        return
    if arguments.variant is None:
        for variant in VARIANTS:
            subprocess.run(
                [sys.executable, __file__, "--connections", str(arguments.connections), "--variant", variant], check=True
            )
        return
    with subprocess.Popen(
        [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None and server.stdin is not None
        port = int(server.stdout.readline())
        print(json.dumps(asyncio.run(measure(arguments.variant, port, arguments.connections))), flush=True)
        server.stdin.close()


if __name__ == "__main__":
    main()
