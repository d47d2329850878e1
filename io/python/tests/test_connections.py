"""Connections, listeners and groups, over every stack that loopback has."""

import asyncio
import builtins
import gc
import pickle

import pytest

import neater

LOCAL = ("127.0.0.1", 0)
FRAMED = neater.Framer.length_prefixed()

STACKS = {
    "TCP": "reliable, cleartext",
    "TLS/TCP": "reliable",
    "QUIC": "reliable",
    "SCTP/UDP": "reliable, cleartext",
    "SCTP/DTLS": "reliable",
    "UDP": "datagrams, cleartext",
    "QUIC datagrams": "datagrams",
    "DTLS/UDP": "datagrams",
}


async def echo(listener):
    async def serve(connection):
        async for message in connection:
            await connection.send(message)

    tasks = set()
    async for connection in listener:
        tasks.add(asyncio.create_task(serve(connection)))


def options(stack, security):
    needs = STACKS[stack]
    return {
        "needs": needs,
        "security": None if "cleartext" in needs else security,
        "framer": None if "datagrams" in needs else FRAMED,
        "stacks": [stack],
    }


@pytest.mark.parametrize("stack", STACKS)
def test_messages_go_both_ways_over_every_stack(run, security, stack):
    async def main():
        async with neater.listen(LOCAL, **options(stack, security)) as listener:
            server = asyncio.create_task(echo(listener))
            async with neater.connect(("127.0.0.1", listener.port), **options(stack, security), timeout=20) as c:
                assert c.stack == stack
                assert c.state == "established"
                assert c.remote_address == ("127.0.0.1", listener.port)
                assert (c.security is None) == ("cleartext" in STACKS[stack])
                for size in (1, 600, 1000):
                    sent = bytes(range(256)) * 4
                    await c.send(sent[:size])
                    message = await asyncio.wait_for(c.receive(), 20)
                    assert message == sent[:size]
                    assert memoryview(message).tobytes() == bytes(message) == message.data
                    assert message.end_of_message
                stats = c.stats()
                assert stats.messages_sent == stats.messages_received == 3
                assert stats.bytes_received >= 1601
            server.cancel()

    run(main())


def test_a_race_brings_the_best_of_what_is_allowed(run, security):
    async def main():
        async with neater.listen(LOCAL, security=security, framer=FRAMED) as listener:
            server = asyncio.create_task(echo(listener))
            async with neater.connect(("127.0.0.1", listener.port), security=security, framer=FRAMED) as c:
                candidates = c.candidates()
                assert [x.stack for x in candidates if x.fate == "won"] == [c.stack]
                assert any("chosen" in step.text for step in c.timeline())
                assert [p.state for p in c.paths()] == ["in-use"]
                assert c.get("connState") is not None
                assert len(c.peer_certificates) == 1
            server.cancel()

    run(main())


def test_an_establishment_error_carries_and_prints_candidates(run):
    async def main():
        with pytest.raises(neater.EstablishmentError) as caught:
            # Port 1 of loopback: nothing listens there.
            await neater.connect("127.0.0.1:1", needs="reliable, cleartext", stacks=["TCP"])
        e = caught.value
        assert isinstance(e, builtins.ConnectionError) and isinstance(e, neater.NeaterError)
        assert e.reason == "establishment-failed"
        assert [(c.stack, c.address, c.fate) for c in e.candidates] == [("TCP", "127.0.0.1:1", "failed")]
        assert "refused" in e.candidates[0].error
        assert "TCP to 127.0.0.1:1: started at" in str(e)
        with pytest.raises(neater.EstablishmentError) as caught:
            await neater.connect("127.0.0.1:1", needs="reliable, unordered, tls13", stacks=["UDP"])
        assert caught.value.reason == "no-candidates"
        assert caught.value.excluded

    run(main())


def test_what_is_not_understood_is_an_error_at_once(run):
    async def main():
        for bad in ({"needs": "relieable"}, {"stacks": ["SPX"]}, {"properties": 3}):
            with pytest.raises((neater.PropertyError, TypeError)):
                neater.connect("127.0.0.1:1", **bad)
        for endpoint in ("localhost", "http://localhost:80", ("localhost", 70000), 3.5):
            with pytest.raises((neater.PropertyError, TypeError, OverflowError)):
                neater.connect(endpoint)
        with pytest.raises(ValueError, match="one of them"):
            neater.connect("a:1", needs="reliable", properties=neater.TransportProperties())
        with pytest.raises(TypeError, match="encode"):
            neater.Preconnection("127.0.0.1:1", needs="reliable, cleartext").begin().send("text")

    run(main())


def test_streams_of_a_group(run, security):
    async def main():
        options = {"security": security, "stacks": ["QUIC"], "framer": FRAMED}
        async with neater.listen(LOCAL, **options) as listener:
            listener.deliver_groups(True)
            accepted = asyncio.create_task(listener.accept())
            async with neater.connect(("127.0.0.1", listener.port), **options) as first:
                await first.send(b"first")
                group = await accepted
                assert isinstance(group, neater.Group) and group.has_streams and group.stack == "QUIC"
                second = first.clone()
                await second.ready()
                await second.send(b"second")
                theirs = [await group.accept(), await group.accept()]
                received = {bytes(await s.receive()) for s in theirs}
                assert received == {b"first", b"second"}
                back = group.open()
                await back.send(b"third")
                mine = await first.group().accept()
                assert await mine.receive() == b"third"
                one = first.clone(one_way=True)
                await one.send(b"one way")
                theirs.append(await group.accept())
                assert await theirs[-1].receive() == b"one way"
                assert first.stream_number == 0
                assert len(group) == 4

    run(main())


def test_message_properties_events_and_parts(run):
    async def main():
        options = {"needs": "reliable, cleartext", "stacks": ["SCTP/UDP"]}
        events = []
        async with neater.listen(LOCAL, **options) as listener:
            accepted = asyncio.create_task(listener.accept())
            pre = neater.Preconnection(("127.0.0.1", listener.port), **options, on_event=events.append)
            async with pre.connect() as c:
                context = neater.MessageContext(msg_lifetime=5.0, msg_ordered=False, msg_priority=3)
                assert context.get("msgPriority") == 3 and context.get("msg_ordered") is False
                number = await c.send(b"urgent", context)
                await c.send(b"in ", end_of_message=False)
                await c.send(b"parts", end_of_message=True)
                peer = await accepted
                got = {bytes(await peer.receive()), bytes(await peer.receive())}
                assert got == {b"urgent", b"in parts"}
                assert isinstance(number, int)
                with pytest.raises(neater.PropertyError):
                    neater.MessageContext(msg_colour="red")
                with pytest.raises(neater.PropertyError):
                    c.set("reliability", "avoid")
                c.set("connPriority", 7)
                assert c.get("conn_priority") == 7
        kinds = [e.kind for e in events]
        assert "ready" in kinds and "timeline" in kinds and "sent" in kinds

    run(main())


def test_events_of_a_connection_are_iterated_to_their_end(run):
    async def main():
        async with neater.listen(LOCAL, needs="reliable, cleartext", framer=FRAMED) as listener:
            server = asyncio.create_task(echo(listener))
            c = await neater.connect(("127.0.0.1", listener.port), needs="reliable, cleartext", framer=FRAMED)
            waits = asyncio.create_task(c.next_event())
            await asyncio.sleep(0)
            number = await c.send(b"x")
            kinds = []
            event = await waits
            while event is not None:
                kinds.append((event.kind, event.message_id))
                if event.kind == "sent":
                    c.close_soon()
                event = await c.next_event()
            assert ("sent", number) in kinds and kinds[-1][0] == "closed"
            server.cancel()

    run(main())


def test_end_of_a_direction_and_of_a_connection(run):
    async def main():
        async with neater.listen(LOCAL, needs="reliable, cleartext", framer=FRAMED) as listener:
            accepted = asyncio.create_task(listener.accept())
            c = await neater.connect(("127.0.0.1", listener.port), needs="reliable, cleartext", framer=FRAMED)
            peer = await accepted
            await c.send(b"last")
            c.finish()
            assert [bytes(m) async for m in peer] == [b"last"]
            with pytest.raises(neater.SendError) as caught:
                await c.send(b"after")
            assert caught.value.kind == "after-final"
            await peer.send(b"still")
            assert await c.receive() == b"still"
            peer.abort()
            with pytest.raises(neater.ConnectionError) as lost:
                await c.receive()
            assert lost.value.kind == "reset"

    run(main())


def test_sending_waits_for_room_and_try_send_does_not(run):
    async def main():
        async with neater.listen(LOCAL, needs="reliable, cleartext", framer=neater.Framer.length_prefixed(4, 1 << 26)) as l:
            accepted = asyncio.create_task(l.accept())
            c = await neater.connect(("127.0.0.1", l.port), needs="reliable, cleartext", framer=neater.Framer.length_prefixed(4, 1 << 26))
            peer = await accepted
            block, sent = bytes(1 << 18), 0
            with pytest.raises(neater.SendError) as caught:
                for _ in range(1000):
                    c.try_send(block)
                    sent += 1
                    await asyncio.sleep(0)
            assert caught.value.kind == "blocked" and caught.value.limit < len(block)
            waits = asyncio.create_task(c.send(block))
            await asyncio.sleep(0.05)
            assert not waits.done()
            for _ in range(sent + 1):
                assert len(await peer.receive()) == len(block)
            await waits

    run(main())


def test_buffers_are_kept_or_copied_as_they_must_be(run):
    async def main():
        async with neater.listen(LOCAL, needs="reliable, cleartext", framer=FRAMED) as listener:
            server = asyncio.create_task(echo(listener))
            async with neater.connect(("127.0.0.1", listener.port), needs="reliable, cleartext", framer=FRAMED) as c:
                data = bytes(range(256)) * 16
                changing = bytearray(data)
                for sent in (data, memoryview(data)[100:2000], changing, memoryview(changing)[::1], b""):
                    before = bytes(sent)
                    await c.send(sent)
                    if sent is changing:
                        changing[:] = bytes(len(changing))
                        changing[:] = data
                    got = await c.receive()
                    assert got == before, len(before)
                    view = memoryview(got)
                    assert view.readonly
                    del got
                    gc.collect()
                    assert view.tobytes() == before
                with pytest.raises(TypeError):
                    await c.send(object())
            server.cancel()

    run(main())


def test_needs_are_explained_and_planned(run):
    async def main():
        pre = neater.Preconnection("127.0.0.1:9", needs="reliable, low-delay, cleartext", framer=FRAMED)
        explained = pre.explain()
        assert [name for name, *_ in explained.ranked] == pre.eligible()
        assert "Security:" in str(explained) and explained.excluded
        plan = await pre.plan()
        assert {c.fate for c in plan.candidates} <= {"planned", "failed"}
        assert plan.candidates[0].stack == pre.eligible()[0]
        assert "started" in str(plan)

    run(main())


def test_properties_by_both_spellings():
    p = neater.TransportProperties(reliability="require", preserve_msg_boundaries=True, conn_priority=5)
    assert p.get("preserveMsgBoundaries") == neater.Preference.REQUIRE == p["preserve_msg_boundaries"]
    assert p["connPriority"] == 5
    p.avoid("multistreaming", "zero_rtt_msg")
    p["interface"] = {"lo": "prefer"}
    assert p["multistreaming"] == "avoid" and p["interface"] == {"lo": "prefer"}
    assert dict(p.items())["reliability"] == "require"
    for bad in (lambda: p.set("colour", 1), lambda: p.require("connPriority"), lambda: p.set("connPriority", -1)):
        with pytest.raises(ValueError):
            bad()
    assert neater.TransportProperties.parse("reliable, low-delay") != neater.TransportProperties()
    assert ("reliable", "all data arrives, once") in neater.needs_words()
    assert neater.property_effect("reliability") == "implemented" and neater.property_effect("colour") is None


def test_policies_answer_and_prohibit(run, tmp_path):
    async def main():
        (tmp_path / "no-udp.policy").write_text(
            '{"priority": 1, "match": {"transport": {"value": "TCP"}}, "properties": {"transport": {"value": "TCP"}}}'
        )
        system = neater.Neater(policies=[tmp_path])
        assert any(str(tmp_path) in s for s in system.policy_sources())
        pre = neater.Preconnection("127.0.0.1:9", needs="reliable, cleartext", framer=FRAMED, system=system)
        story = pre.explain_policies()
        assert story is not None and story.prohibited is None
        assert story.stacks and set(story.stacks) <= set(pre.eligible()), str(story)
        assert isinstance(story.to_dict(), dict) and story.lines
        assert "low_latency" in "".join(system.policy_profiles()).replace("-", "_") or system.policy_profiles()
        system.detach()

    run(main())


def test_security_parameters(tmp_path, security):
    pem = security.certificate_pem
    assert pem.startswith("-----BEGIN CERTIFICATE")
    (tmp_path / "ca.pem").write_text(pem)
    for trust in (pem, pem.encode(), tmp_path / "ca.pem", [str(tmp_path / "ca.pem")]):
        assert neater.SecurityParameters(trust=trust, alpn=["x/1"], min_version="1.3")
    for bad in (
        {"certificate": pem},
        {"trust": b"-----BEGIN nonsense"},
        {"min_version": "1.1"},
        {"protection": "some"},
        {"trust_system": False},
    ):
        with pytest.raises(ValueError):
            neater.SecurityParameters(**bad)
    with pytest.raises(FileNotFoundError):
        neater.SecurityParameters(trust=tmp_path / "nothing.pem")


def test_an_untrusted_peer_is_refused(run, security):
    async def main():
        async with neater.listen(LOCAL, security=security, framer=FRAMED) as listener:
            other = neater.self_signed("localhost", "127.0.0.1")
            with pytest.raises(neater.EstablishmentError) as caught:
                await neater.connect(("127.0.0.1", listener.port), security=other, framer=FRAMED, timeout=10)
            assert any("certificate" in (c.error or "") for c in caught.value.candidates), str(caught.value)

    run(main())


def test_outcomes_are_kept_for_a_later_process(run):
    async def main():
        async with neater.listen(LOCAL, needs="reliable, cleartext", framer=FRAMED) as listener:
            server = asyncio.create_task(echo(listener))
            await neater.connect(("127.0.0.1", listener.port), needs="reliable, cleartext", framer=FRAMED)
            text = neater.system().export_outcomes()
            server.cancel()
        async with neater.Neater() as other:
            if text is not None:
                assert other.import_outcomes(text) >= 1
            with pytest.raises(neater.PropertyError):
                other.import_outcomes("nonsense")

    run(main())


def test_errors_are_plain_exceptions():
    for e in (neater.SendError("x", kind="blocked", limit=3), neater.ConnectionError("y", kind="net")):
        assert str(pickle.loads(pickle.dumps(e))) == str(e)
