"""What every front door must do alike: the scenarios of interop/parity, whose language is described there, from Python."""

import asyncio
import re
import socket
import tomllib
from pathlib import Path

import pytest

import neater

LIST = Path(__file__).resolve().parents[3] / "interop" / "parity" / "scenarios.toml"
STACKS = {
    "tcp": "TCP",
    "tls": "TLS/TCP",
    "quic": "QUIC",
    "udp": "UDP",
    "sctp": "SCTP/UDP",
    "sctp-dtls": "SCTP/DTLS",
    "dtls": "DTLS/UDP",
    "quic-datagram": "QUIC datagrams",
}
REASONS = {"timeout": "establishment_timeout"}
# What a kind of error is called in scripts.
KINDS = {
    "local-abort": "aborted",
    "unknown": "not_found",
    "invalid": "invalid_value",
    "read-only": "invalid_value",
    "not-settable": "invalid_value",
    "invalid-message-properties": "invalid_value",
    "net": "network",
}


def status(e):
    if isinstance(e, neater.EstablishmentError):
        return REASONS.get(e.reason, e.reason.replace("-", "_"))
    return KINDS.get(e.kind, e.kind.replace("-", "_"))


class Object:
    def __init__(self, of):
        self.of = of
        self.events = []
        self.cursor = 0
        self.received = asyncio.Queue()
        self.receiving = []
        self.ready = False
        self.came = None


class Script:
    def __init__(self, security, system):
        self.objects, self.tasks, self.sockets = {}, [], []
        self.security, self.system = security, system
        self.news = asyncio.Event()

    def note(self, o, text):
        o.events.append(text)
        self.news.set()

    def add(self, name, of):
        assert name not in self.objects
        o = self.objects[name] = Object(of)
        return o

    def start(self, coroutine):
        self.tasks.append(asyncio.create_task(coroutine))

    def event(self, o, event, ready):
        """Notes an event of a connection; `ready`: that it is ready is no news."""
        match event.kind:
            case "connection-error" | "establishment-error":
                self.start(self.ends(o, f"{event.kind.replace('-', '_')} {status(event.error)}"))
            case "closed":
                self.start(self.ends(o, event.kind))
            case "sent" | "expired":
                self.note(o, event.kind)
            case "ready":
                o.ready = True
                if not ready:
                    self.note(o, event.kind)

    async def ends(self, o, text):
        # What was waited for ends first, as for everybody who looks at messages before events.
        await asyncio.gather(*o.receiving, return_exceptions=True)
        self.note(o, text)

    def connection(self, name, c, ready=False, came=None):
        o = self.add(name, c)
        o.ready, o.came = ready, came
        c.on_event(lambda event: self.event(o, event, ready))

    def accepting(self, o):
        async def accepts():
            try:
                async for c in o.of:
                    # At once: early data is such only while the handshake goes on.
                    receiving = c.receive()
                    try:
                        came = receiving.poll()
                    except neater.ConnectionError:
                        came = None
                    if came is None:
                        receiving.close()
                    o.received.put_nowait((c, came))
                    self.note(o, "connection_received")
            except neater.ConnectionError:
                return
            if isinstance(o.of, neater.Listener):
                self.note(o, "stopped")

        self.start(accepts())

    async def awaits(self, o, event):
        async with asyncio.timeout(20):
            while True:
                while o.cursor < len(o.events):
                    o.cursor += 1
                    if o.events[o.cursor - 1].split(" ")[0] == event:
                        return
                self.news.clear()
                await self.news.wait()

    def bound(self, family, host, listens):
        s = socket.socket(family, socket.SOCK_STREAM)
        s.bind((host, 0))
        self.sockets.append(s)
        if listens:
            s.listen(0)
            for _ in range(4):
                c = socket.socket(family, socket.SOCK_STREAM)
                c.setblocking(False)
                c.connect_ex(s.getsockname())
                self.sockets.append(c)
        return s.getsockname()[1]

    def remote(self, item):
        if ":" in item:
            return item
        if item == "refused":
            return ("127.0.0.1", self.bound(socket.AF_INET, "127.0.0.1", False))
        of = self.objects[item].of
        if isinstance(of, int):
            return ("::1", of)
        udp = of.udp_ports
        return neater.RemoteEndpoint(None, of.port, ip_address="127.0.0.1", udp_port=udp[0] if udp else None)

    def preconnection(self, words, local=None, on_event=None):
        options, properties, remotes, first, context = {}, {}, [], None, {}
        for word in words:
            key, value = word.split("=", 1)
            match key:
                case "to":
                    remotes = [self.remote(item) for item in value.split(",")]
                case "stacks":
                    options["stacks"] = [STACKS[s] for s in value.split(",")]
                case "security":
                    clear = value == "clear"
                    options["security"] = neater.SecurityParameters.disabled() if clear else self.security
                case "framer":
                    options["framer"] = neater.Framer.length_prefixed(4, 1 << 20)
                case "needs":
                    options["needs"] = value.replace("+", ",")
                case "timeout":
                    options["timeout"] = int(value) / 1000
                case "first":
                    first = value.encode()
                case "replayable":
                    context["safely_replayable"] = True
                case _:
                    properties[key.removeprefix("property.")] = value
        if properties:
            options["properties"] = neater.TransportProperties(**properties)
        pre = neater.Preconnection(remotes, local, **options, on_event=on_event, system=self.system)
        return pre, first, neater.MessageContext(**context)

    async def receives(self, o):
        (m,), o.came = o.came or (None,), None
        try:
            m = m or await o.of.receive()
        except neater.ConnectionError as e:
            # On what was never established nothing can be received.
            self.note(o, f"receive_error {status(e) if o.ready else 'closed'}")
            return
        if m is None:
            self.note(o, "receive_end")
            return
        kind = "received" if m.end_of_message else "received_partial"
        self.note(o, f"{kind} {bytes(m).decode()}" + (" early" if m.context.is_early_data else ""))

    def sending(self, words):
        o, text = self.objects[words[1]].of, words[2]
        data = bytes(int(text[1:])) if text.startswith("#") else text.encode()
        context = neater.MessageContext(**dict(word.split("=", 1) for word in words[3:]))
        if words[0] == "send":
            o.try_send(data, context)
        else:
            done = o.send(data, context, end_of_message=words[0] == "end").poll()
            assert done is not None

    async def command(self, words):
        objects = self.objects
        match words:
            case ["listen", name, *rest]:
                local = neater.LocalEndpoint("127.0.0.1", 0, udp_port=0)
                o = self.add(name, self.preconnection(rest, local)[0].listen())
                self.accepting(o)
            case ["initiate", name, *rest]:
                o = Object(None)
                on_event = lambda event: self.event(o, event, False)
                pre, first, context = self.preconnection(rest, on_event=on_event)
                o.of = pre.begin() if first is None else pre.begin(first, context)
                assert name not in self.objects
                self.objects[name] = o
            case ["blackhole", name]:
                self.add(name, self.bound(socket.AF_INET6, "::1", True))
            case ["accept", of, name]:
                await self.awaits(objects[of], "connection_received")
                c, came = objects[of].received.get_nowait()
                self.connection(name, c, ready=True, came=came)
            case ["clone", name, of]:
                self.connection(name, objects[of].of.clone())
            case ["group", name, of]:
                self.accepting(self.add(name, objects[of].of.group()))
            case ["send" | "part" | "end", *_]:
                self.sending(words)
            case ["receive", name]:
                o = objects[name]
                task = asyncio.create_task(self.receives(o))
                o.receiving.append(task)
                self.tasks.append(task)
                await asyncio.sleep(0)
            case ["finish", name]:
                objects[name].of.finish()
            case ["close", name]:
                of = objects[name].of
                of.close() if isinstance(of, neater.Group) else of.close_soon()
            case ["abort", name]:
                objects[name].of.abort()
            case ["stop", name]:
                objects[name].of.stop()
            case ["set", name, key, value]:
                objects[name].of.set(key, value)
            case ["await", name, event]:
                await self.awaits(objects[name], event)
            case ["wait", milliseconds]:
                await asyncio.sleep(int(milliseconds) / 1000)
            case ["is", name, what, value]:
                assert self.what(objects[name].of, what) == (STACKS[value] if what == "stack" else value)
            case _:
                raise AssertionError(words)

    def what(self, c, what):
        match what:
            case "stack" | "state":
                return getattr(c, what)
            case "family":
                return "ipv6" if ":" in c.remote_address[0] else "ipv4"
            case "candidates":
                return str(len(c.candidates()))
        value = c.get(what)
        return f"{value:g}" if isinstance(value, float) else str(value)

    async def run(self, text):
        for line in text.splitlines():
            words = line.split()
            if not words:
                continue
            if words[0] != "fails":
                await self.command(words)
                continue
            with pytest.raises(neater.NeaterError) as caught:
                await self.command(words[2:])
            assert status(caught.value) == words[1], (line, caught.value)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for s in self.sockets:
            s.close()
        return {name: o.events for name, o in self.objects.items()}


def scenarios():
    if not LIST.exists():
        return
    for scenario in tomllib.loads(LIST.read_text())["scenario"]:
        for stack in scenario.get("stacks", [""]):
            yield pytest.param(scenario, *(stack.split(":") if stack else ("", "")), id=f"{scenario['name']} {stack}")


@pytest.mark.skipif(not LIST.exists(), reason="the list of scenarios is not there")
@pytest.mark.parametrize(("scenario", "stack", "protection"), list(scenarios()))
def test_a_scenario_has_the_events_of_every_front_door(run, scenario, stack, protection):
    async def main():
        async with neater.Neater(without_policies=True, resolv_conf="/dev/null") as system:
            script = re.sub(r"\$STACK\b", stack, scenario["script"])
            script = re.sub(r"\$SECURITY\b", protection, script)
            seen = await Script(neater.self_signed(), system).run(script)
        for name, events in scenario.get("events", {}).items():
            assert seen[name] == events, name

    run(main())
