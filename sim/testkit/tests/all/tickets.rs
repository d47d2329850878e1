//! A server of TLS 1.3 may send tickets without end (RFC 8446 section 4.6.1 names no limit). Each is work for the client, and none is
//! data: nobody else waits for that.

use bytes::Bytes;
use neater_base::net::{InterfaceKind, Net, Sock, SocketOptions, Token};
use neater_engine::{ConnectionState, ReceiveOutcome, RemoteEndpoint, Stack};
use neater_framing::{Framer, FramerError, FramerSpec, Input, Outbound, Readiness};
use neater_link::LinkConfig;
use neater_netsim::{BufferSize, DEFAULT_WALL, SimNet, TcpConfig};
use neater_testkit::{Ask, Manner, Plan, Town, security};
use neater_tls::TlsStream;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const ADDRESS: &str = "203.0.113.66";
/// Some 100 bytes each. rustls sends them as one flight, of which its other side takes 64 kB.
const TICKETS: usize = 500;

/// A TLS server without an engine, which says one word after its tickets.
struct Generous {
    net: SimNet,
    listener: Sock,
    sock: Option<Sock>,
    tls: TlsStream,
    said: bool,
}

/// A socket as rustls wants it.
struct Io<'a>(&'a mut SimNet, Sock);

impl Read for Io<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(self.1, buf).map_err(|_| io::ErrorKind::WouldBlock.into())
    }
}

impl Write for Io<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(self.1, &[IoSlice::new(buf)]).map_err(|_| io::ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Generous {
    /// Does what there is to do now.
    fn turn(&mut self) {
        self.net.poll(&mut Vec::new());
        if self.sock.is_none() {
            self.sock = self.net.accept(self.listener, Token(2)).ok().map(|(sock, _)| sock);
        }
        let Some(sock) = self.sock else { return };
        while self.tls.read_tls(&mut Io(&mut self.net, sock)).is_ok_and(|n| n > 0) {
            self.tls.process().expect("a sound client");
        }
        if !self.tls.is_handshaking() && !self.said {
            self.said = self.tls.write_plain(&[IoSlice::new(b"hello")]) == 5;
        }
        while self.tls.wants_write() && self.tls.write_tls(&mut Io(&mut self.net, sock)).is_ok_and(|n| n > 0) {}
    }
}

/// A server of [`TICKETS`] whose packets of these numbers are lost once, and what a client asks for that trusts it.
fn generous(town: &Town, lost: core::ops::Range<u64>) -> (Generous, RemoteEndpoint, Ask) {
    let world = town.play.world().clone();
    let tcp = TcpConfig { receive_buffer: BufferSize::Fixed(4 << 20), ..TcpConfig::linux() };
    world.set_tcp(town.play.host(town.client), tcp);
    let host = world.add_host("generous");
    let mut tcp = TcpConfig::linux();
    tcp.congestion.initial_window = neater_cc::InitialWindow::Segments(64);
    world.set_tcp(host, tcp);
    let iface = world.add_interface(host, "eth0", InterfaceKind::Wired, &[ADDRESS.parse().unwrap()]);
    let link = || LinkConfig::delay(MS);
    world.attach(iface, link().without(lost), link());
    let mut net = world.net(host);
    let at = SocketAddr::new(ADDRESS.parse().unwrap(), 443);
    let listener = net.listen(Token(1), at, &SocketOptions::default()).expect("a socket");
    let identity = neater_tls::self_signed(&[ADDRESS], DEFAULT_WALL, [9; 32]);
    let (mut theirs, mut ours) = (security::server_security(), security::client_security());
    ours.trust = neater_tls::Trust::Only(identity.chain.clone());
    theirs.server_certificates = vec![identity];
    let crypto = security::crypto(41, 9);
    crypto.clock.set(net.wall());
    let mut config = (*neater_tls::server_config(&theirs, &crypto, &[], false).expect("a configuration")).clone();
    config.send_tls13_tickets = TICKETS;
    let tls = TlsStream::server(Arc::new(config)).expect("a session");
    let server = Generous { net, listener, sock: None, tls, said: false };
    (server, RemoteEndpoint::from(at), Ask { security: Some(ours), ..Ask::over(&[Stack::Tls]) })
}

#[test]
fn a_server_that_sends_tickets_without_end_leaves_others_their_turn() {
    let mut town = Plan::new(41).build();
    let (mut server, at, ask) = generous(&town, 0..0);
    let flow = town.open_to(&ask, &[at], Manner::stalled());
    town.play.run_until(3000 * MS, |_| {
        server.turn();
        false
    });
    assert!(town.play.flow(flow).is_ready(), "{:?}", town.play.flow(flow).end());
    assert!(server.said && !server.tls.wants_write(), "not all of it is on its way");

    // All of it is there. A turn ends before all tickets are looked at, and the program is told to come back.
    let first = town.play.engine(flow.node).receive(flow.conn, 100);
    assert_eq!(first, Ok(ReceiveOutcome::Blocked), "the word came in one turn with all tickets");
    town.play.flow_mut(flow).manner.reads = true;
    let heard = town.play.run_until(MS, |p| {
        server.turn();
        p.flow(flow).received == b"hello"
    });
    assert!(heard, "nobody was told to go on: {:?}", town.play.flow(flow).over);
}

/// Is ready with the first word of the other side.
struct Polite;

impl Framer for Polite {
    fn name(&self) -> &str {
        "polite"
    }
    fn start(&mut self, _: &mut Outbound) -> Result<Readiness, FramerError> {
        Ok(Readiness::Handshaking)
    }
    fn new_sent_message(&mut self, out: &mut Outbound, data: Bytes, _: bool, _: bool) -> Result<(), FramerError> {
        out.send(data);
        Ok(())
    }
    fn handle_received_data(&mut self, _: &mut Input<'_>) -> Result<Readiness, FramerError> {
        Ok(Readiness::Ready)
    }
}

#[test]
fn a_framer_that_shakes_hands_behind_them_is_not_forgotten() {
    // Behind a packet that was lost the others come all at once, and nothing more comes after them.
    for lost in 1..8 {
        let mut town = Plan::new(42).build();
        let (mut server, at, mut ask) = generous(&town, lost..lost + 1);
        ask.options.framer = FramerSpec::Custom(Arc::new(|| Box::new(Polite)));
        let flow = town.open_to(&ask, &[at], Manner::patient());
        let ready = town.play.run_until(5000 * MS, |p| {
            server.turn();
            p.flow(flow).is_ready()
        });
        assert!(ready, "packet {lost} was lost: {:?}", town.play.flow(flow).end());
    }
}

#[test]
fn a_framer_that_shakes_hands_behind_them_has_one_turn_after_the_other() {
    let mut town = Plan::new(43).build();
    let (mut server, at, mut ask) = generous(&town, 0..0);
    // Their timers are far off, and no reason to have more turns.
    let nowhere = RemoteEndpoint::from(SocketAddr::new("192.0.2.1".parse().unwrap(), 9));
    for _ in 0..50 {
        town.open_to(&Ask::over(&[Stack::Tcp]), std::slice::from_ref(&nowhere), Manner::patient());
    }
    ask.options.framer = FramerSpec::Custom(Arc::new(|| Box::new(Polite)));
    let flow = town.open_to(&ask, &[at], Manner::patient());
    assert!(town.play.run_until(3000 * MS, |_| {
        server.turn();
        server.said
    }));
    // All of it arrives while the engine has no turn.
    let world = town.play.world().clone();
    for _ in 0..200 {
        world.run_until(world.now() + 10 * MS);
        server.turn();
    }
    assert!(!server.tls.wants_write(), "not all of it is on its way");
    let engine = town.play.engine(flow.node);
    let mut turns = 0;
    while engine.state(flow.conn) == ConnectionState::Establishing && turns < 1000 {
        engine.turn();
        turns += 1;
    }
    assert!((2..1000).contains(&turns), "{turns}");
}
