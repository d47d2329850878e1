"""asyncio: loop.add_reader on the engine's descriptor, the engine through ctypes.

Arguments: the shared library, the echo server's port, the black hole's port. The same scenario as scenario.c.
"""

import asyncio
import ctypes
import os
import signal
import sys
import time

CONNECTIONS, BYTES, FLOOD, QUIC_BYTES = 50, 100_000, 200, 300_000
IDLE_MS, IDLE_TURNS_MAX, TURNS_MAX = 400, 40, 2000
AGAIN = -1

lib = ctypes.CDLL(sys.argv[1])
lib.neater_shim_create.restype = ctypes.c_void_p
lib.neater_shim_fd.argtypes = [ctypes.c_void_p]
lib.neater_shim_destroy.argtypes = [ctypes.c_void_p]
lib.neater_shim_destroy.restype = None


def function(name, *types):
    f = getattr(lib, "neater_shim_" + name)
    f.argtypes, f.restype = [ctypes.c_void_p, *types], ctypes.c_int64

    def call(*args, may_wait=False):
        result = f(shim, *args)
        if result < 0 and not (may_wait and result == AGAIN):
            raise SystemExit(f"failed after {turns} turns: {name}{args[:1]} gave {result}")
        return result

    return call


ID, PORT, TEXT, SIZE = ctypes.c_int64, ctypes.c_uint16, ctypes.c_char_p, ctypes.c_size_t
turn, live, release, is_done = function("turn"), function("live"), function("release"), function("is_done")
connect = function("connect", TEXT, PORT, TEXT, PORT)
state, finish, close = function("state", ID), function("finish", ID), function("close", ID)
send, receive = function("send", ID, TEXT, SIZE), function("receive", ID, TEXT, SIZE)
flood, flood_accepted, flood_end = function("flood", ctypes.c_uint32), function("flood_accepted"), function("flood_end")
send_from_thread = function("send_from_thread", ID, ctypes.c_uint8, ctypes.c_uint32)
quic_from_thread, threads_done = function("quic_from_thread", ctypes.c_uint32), function("threads_done")

buffer = ctypes.create_string_buffer(16384)


class Transfer:
    def __init__(self, number, port):
        self.id = connect(b"127.0.0.1", port, None, 0)
        self.data = bytes((number * 7 + i) % 251 for i in range(BYTES))
        self.sent, self.echo, self.finished, self.over = 0, bytearray(), False, False

    def step(self):
        if self.over or not state(self.id):
            return
        while self.sent < BYTES:
            part = self.data[self.sent : self.sent + 16384]
            taken = send(self.id, part, len(part), may_wait=True)
            if taken == AGAIN:
                break
            self.sent += taken
        if self.sent == BYTES and not self.finished:
            finish(self.id)
            self.finished = True
        while (got := receive(self.id, buffer, len(buffer), may_wait=True)) != AGAIN:
            if got == 0:
                assert self.echo == self.data, f"{len(self.echo)} bytes echoed"
                close(self.id)
                self.over = True
                return
            self.echo += buffer.raw[:got]


async def main(echo, black_hole):
    global turns
    begun, ended = time.monotonic(), asyncio.get_running_loop().create_future()
    transfers = [Transfer(n, echo) for n in range(CONNECTIONS)]
    keeper = connect(b"127.0.0.1", echo, None, 0)
    fallback = connect(b"127.0.0.1", black_hole, b"127.0.0.1", echo)
    now = {"phase": "working", "fallback": None, "idle_from": 0, "idle": 0}

    def working():
        for t in transfers:
            t.step()
        if now["fallback"] is None and state(fallback):
            now["fallback"] = time.monotonic() - begun
            close(fallback)
        done = all(t.over for t in transfers) and state(keeper) == 1
        return not (done and now["fallback"] is not None)

    def ready():
        global turns
        turns = turn()
        assert turns < TURNS_MAX, "it spins"
        if now["phase"] == "working" and not working():
            now["phase"] = "flooded"
            flood(FLOOD)
        if now["phase"] == "flooded" and flood_accepted() == FLOOD:
            now["phase"] = "threaded"
            flood_end()
            quic_from_thread(QUIC_BYTES)
        if now["phase"] == "threaded" and threads_done() == 1:
            now["phase"], now["idle_from"] = "idle", turns
            send_from_thread(keeper, ord("w"), IDLE_MS)
        if now["phase"] == "idle" and (got := receive(keeper, buffer, 1, may_wait=True)) != AGAIN:
            assert got == 1 and buffer.raw[:1] == b"w"
            now["idle"], now["phase"] = turns - now["idle_from"], "released"
            release()
        if now["phase"] == "released" and is_done() and not ended.done():
            ended.set_result(None)

    def guarded():
        try:
            ready()
        except BaseException as e:
            if not ended.done():
                ended.set_exception(RuntimeError(f"after {turns} turns: {e!r}"))

    loop, fd = asyncio.get_running_loop(), lib.neater_shim_fd(shim)
    loop.add_reader(fd, guarded)
    try:
        await ended
    finally:
        loop.remove_reader(fd)
    print(f"turns={turns} idle_turns={now['idle']} fallback_ms={now['fallback'] * 1000:.0f}")
    assert now["idle"] <= IDLE_TURNS_MAX, f"{now['idle']} turns while idle"
    assert 0.2 <= now["fallback"] <= 5, f"the fallback came after {now['fallback']} s"


async def outer():
    global shim
    before = len(os.listdir("/proc/self/fd"))
    shim = lib.neater_shim_create()
    assert shim, "create"
    await main(int(sys.argv[2]), int(sys.argv[3]))
    lib.neater_shim_destroy(shim)
    after = len(os.listdir("/proc/self/fd"))
    assert before == after, f"{before} descriptors before, {after} after"
    print("ok")


signal.alarm(18)
shim, turns = None, 0
asyncio.run(outer())
