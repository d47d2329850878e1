"""Loops, tasks, threads and processes: what a program may do to them."""

import asyncio
import gc
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import pytest

import neater
from conftest import descriptors

CLEAR = {"needs": "reliable, cleartext", "framer": neater.Framer.length_prefixed()}
LOCAL = ("127.0.0.1", 0)


async def pair(**more):
    listener = neater.listen(LOCAL, **CLEAR, **more).listener
    c = await neater.connect(("127.0.0.1", listener.port), **CLEAR, **more)
    return listener, c, await listener.accept()


def python(code, timeout=30):
    """Runs a program of its own; what it prints."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_a_cancelled_receive_takes_nothing(run):
    async def main():
        _listener, c, peer = await pair()
        for i in range(50):
            task = asyncio.create_task(peer.receive())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await c.send(b"%d" % i)
            assert await asyncio.wait_for(peer.receive(), 10) == b"%d" % i

    run(main())


def test_a_timeout_ends_a_receive_and_nothing_else(run):
    async def main():
        _listener, c, peer = await pair()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await peer.receive()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.receive(), 0.02)
        await c.send(b"there")
        assert await peer.receive() == b"there"

    run(main())


def test_many_tasks_wait_on_one_connection(run):
    async def main():
        _listener, c, peer = await pair()
        tasks = [asyncio.create_task(peer.receive()) for _ in range(20)]
        await asyncio.sleep(0.01)
        for i in range(20):
            await c.send(b"%d" % i)
        got = {bytes(m) for m in await asyncio.gather(*tasks)}
        assert got == {b"%d" % i for i in range(20)}

    run(main())


def test_a_task_that_never_waits_lets_others_run(run):
    async def main():
        _listener, c, peer = await pair()
        ticks = 0

        async def ticker():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(ticker())
        for _ in range(10):
            for _ in range(100):
                await c.send(b"x")
            for _ in range(100):
                await peer.receive()
        task.cancel()
        assert ticks >= 10

    run(main())


def test_a_cancelled_connect_gives_up_its_sockets(run):
    async def main():
        listener = neater.listen(LOCAL, **CLEAR).listener
        await neater.connect(("127.0.0.1", listener.port), **CLEAR)
        await asyncio.sleep(0.05)
        before = descriptors()
        for _ in range(20):
            # An address of the documentation's: no answer, or no route.
            connecting = neater.connect("192.0.2.1:9", **CLEAR)
            task = asyncio.ensure_future(connecting)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises((asyncio.CancelledError, neater.EstablishmentError)):
                await task
        del connecting, task
        gc.collect()
        await asyncio.sleep(0.2)
        assert descriptors() <= before + 1

    run(main())


def test_an_operation_that_is_never_awaited_warns(run):
    async def main():
        _listener, c, _peer = await pair()
        with pytest.warns(RuntimeWarning, match=r"send\(\) was never awaited"):
            c.send(b"x")
            gc.collect()
        done = c.send(b"y")
        await done
        with pytest.raises(RuntimeError, match="already awaited"):
            await done

    run(main())


def test_a_loop_that_is_closed_ends_its_system():
    kept = []

    async def main():
        listener, c, peer = await pair()
        kept.extend((listener, c, peer, neater.system()))
        task = asyncio.create_task(c.receive())
        await asyncio.sleep(0)
        kept.append(task)

    asyncio.run(main())
    _listener, c, _peer, system, task = kept
    assert task.cancelled()

    async def later():
        with pytest.raises(RuntimeError, match="event loop"):
            await c.receive()
        # And a loop that follows has a system of its own.
        assert neater.system() is not system
        await pair()

    asyncio.run(later())
    assert c.state in ("established", "closed")


def test_a_system_moves_to_another_loop():
    system = neater.Neater()

    async def first():
        system.attach(asyncio.get_running_loop())
        listener, c, peer = await pair(system=system)
        system.detach()
        return listener, c, peer

    kept = asyncio.run(first())

    async def second():
        system.attach(asyncio.get_running_loop())
        _listener, c, peer = kept
        await c.send(b"moved")
        assert await peer.receive() == b"moved"
        system.detach()

    asyncio.run(second())


def test_exceptions_in_callbacks_harm_nothing(run, monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda u: unraisable.append(u.exc_type))

    def broken(event):
        raise ZeroDivisionError(event.kind)

    async def main():
        _listener, c, peer = await pair(on_event=broken)
        await c.send(b"x")
        assert await peer.receive() == b"x"

    run(main())
    gc.collect()  # the callback is told of that end, too: not in the test that follows
    assert set(unraisable) == {ZeroDivisionError}


def test_without_asyncio_by_wait_and_by_poll():
    system = neater.Neater()
    listener = neater.listen(LOCAL, **CLEAR, system=system).listener
    c = neater.connect(("127.0.0.1", listener.port), **CLEAR, system=system).wait(10)
    peer = listener.accept().wait(10)
    c.send(b"waited").wait(10)
    assert peer.receive().wait(10) == b"waited"
    with pytest.raises(TimeoutError):
        peer.receive().wait(0.01)
    # A loop of the program's own, by the one descriptor.
    poll = select.poll()
    poll.register(system, select.POLLIN)
    c.try_send(b"polled")
    receiving, until = peer.receive(), time.monotonic() + 10
    while (got := receiving.poll()) is None:
        assert time.monotonic() < until
        poll.poll(100)
        system.turn()
    assert got[0] == b"polled"
    assert peer.try_receive() == (False, None)
    assert system.poll(0) in (True, False)
    c.close().wait(10)
    assert peer.receive().wait(10) is None

    async def wrong():
        with pytest.raises(RuntimeError, match="no event loop"):
            await listener.accept()

    asyncio.run(wrong())


def test_waiting_within_a_loop_is_an_error(run):
    async def main():
        _listener, _c, peer = await pair()
        with pytest.raises(RuntimeError, match="event loop drives"):
            peer.receive().wait(1)

    run(main())


def test_calls_from_other_threads_wake_the_loop(run):
    async def main():
        _listener, c, peer = await pair()
        for i in range(20):
            waits = asyncio.create_task(peer.receive())
            await asyncio.sleep(0)
            thread = threading.Thread(target=c.try_send, args=(b"%d" % i,))
            thread.start()
            assert await asyncio.wait_for(waits, 10) == b"%d" % i
            thread.join()
        waits = asyncio.create_task(c.closed())
        await asyncio.sleep(0)
        threading.Thread(target=c.abort).start()
        with pytest.raises(neater.ConnectionError):
            await asyncio.wait_for(waits, 10)

    run(main())


def test_loops_of_several_threads_have_a_system_each():
    systems, problems = [], []

    def thread():
        async def main():
            systems.append(neater.system())
            _listener, c, peer = await pair()
            for _ in range(100):
                await c.send(b"x" * 1000)
                await peer.receive()

        try:
            asyncio.run(main())
        except BaseException as e:
            problems.append(e)

    threads = [threading.Thread(target=thread) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems and len(set(map(id, systems))) == 4


def test_a_child_of_fork_is_told_and_harms_nothing(run):
    async def main():
        _listener, c, peer = await pair()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for call in (
                    lambda: c.try_send(b"x"),
                    lambda: neater.Preconnection("127.0.0.1:1", system=kept),
                    lambda: c.receive().poll(),
                ):
                    try:
                        call()
                    except neater.ForkedError:
                        pass
                    else:
                        os._exit(2)
                # Its own works.
                own = neater.Neater.__new__(neater.Neater)
                listener = neater.listen(LOCAL, **CLEAR, system=own).listener
                mine = neater.connect(("127.0.0.1", listener.port), **CLEAR, system=own).wait(10)
                mine.send(b"x").wait(10)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        await c.send(b"parent")
        assert await peer.receive() == b"parent"

    async def outer():
        nonlocal_system = neater.system()
        globals()["kept"] = nonlocal_system
        await main()

    run(outer())
    del globals()["kept"]


def _in_child(_):
    async def main():
        _listener, c, peer = await pair()
        await c.send(b"x")
        return bytes(await peer.receive())

    return asyncio.run(main())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_multiprocessing(run, method):
    async def main():
        _listener, c, peer = await pair()
        loop = asyncio.get_running_loop()
        with multiprocessing.get_context(method).Pool(2) as pool:
            results = await loop.run_in_executor(None, pool.map, _in_child, range(4))
        assert results == [b"x"] * 4
        await c.send(b"parent")
        assert await peer.receive() == b"parent"

    run(main())


def test_the_interpreter_ends_with_connections_open():
    out, err = python(
        """
        import asyncio, neater
        options = {"security": neater.self_signed(), "framer": neater.Framer.lines()}
        kept = []
        async def main():
            listener = neater.listen("127.0.0.1:0", **options).listener
            c = await neater.connect(("127.0.0.1", listener.port), **options)
            await c.send(b"x")
            peer = await listener.accept()
            kept.extend((listener, c, peer, asyncio.create_task(peer.receive()), c.clone()))
            await asyncio.sleep(0)
            print("ends")
        asyncio.run(main())
        """
    )
    assert out == "ends\n" and err == ""


def test_the_interpreter_ends_without_the_loop_being_closed():
    out, err = python(
        """
        import asyncio, neater, sys
        loop = asyncio.new_event_loop()
        async def main():
            listener = neater.listen("127.0.0.1:0", needs="reliable, cleartext", framer=neater.Framer.lines()).listener
            c = neater.Preconnection(("127.0.0.1", listener.port), needs="reliable, cleartext",
                framer=neater.Framer.lines(), on_event=lambda e: None).begin()
            await c.ready()
            globals().update(kept=(listener, c))
            print("ends")
            sys.stdout.flush()
        loop.run_until_complete(main())
        loop.close()
        """
    )
    assert out == "ends\n" and err == ""


def test_an_interrupt_ends_a_wait():
    out, _ = python(
        """
        import neater, os, signal, threading, time
        system = neater.Neater()
        listener = neater.listen("127.0.0.1:0", needs="reliable, cleartext", framer=neater.Framer.lines(), system=system).listener
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            listener.accept().wait(20)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert out == "interrupted\n"
    assert signal.getsignal(signal.SIGINT) is not None


def memory():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_thousand_loops_leak_nothing():
    seen = []

    def once():
        async def main():
            _listener, c, peer = await pair()
            waits = asyncio.create_task(peer.receive())
            await asyncio.sleep(0)
            await c.send(b"x" * 2000)
            await waits
            kept = asyncio.create_task(c.receive())
            await asyncio.sleep(0)
            del kept
            seen.append(weakref.ref(c))

        asyncio.run(main())

    for _ in range(100):
        once()
    gc.collect()
    fds, objects, bytes_ = descriptors(), len(gc.get_objects()), memory()
    for _ in range(900):
        once()
    gc.collect()
    assert descriptors() <= fds + 2
    assert len(gc.get_objects()) < objects + 2000
    assert memory() < bytes_ + (8 << 20), (memory() - bytes_) / 900
    assert not any(r() for r in seen)


def test_a_task_that_waits_for_ever_is_collected_with_its_loop():
    gone = []

    def once():
        loop = asyncio.new_event_loop()

        async def main():
            _listener, c, _peer = await pair()
            gone.append(weakref.ref(c))

            async def for_ever():
                await c.receive()

            task = loop.create_task(for_ever())
            task._log_destroy_pending = False
            await asyncio.sleep(0.01)

        loop.run_until_complete(main())
        loop.close()

    for _ in range(5):
        once()
    gc.collect()
    assert not any(r() for r in gone)
