//! Datagrams that are sent together leave together, and arrive as they were.

use neater_base::net::{
    DirectStream, ErrorKind, IcmpError, Interface, NameConfig, Net, NetError, NetEvent, RecvBatch, Sock, SocketOption,
    SocketOptions, StreamInfo, StreamPaths, Token, Transmit,
};
use neater_base::{Instant, WallTime};
use neater_engine::{Event, SendOptions, Stack};
use neater_netsim::SimNet;
use neater_testkit::{Ask, FlowId, Manner, Plan, Town};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Result<T> = core::result::Result<T, NetError>;

const S: Duration = Duration::from_secs(1);

/// What was given to the network: bytes, and the length of each piece.
type Calls = Arc<Mutex<Vec<(usize, Option<usize>)>>>;

/// A network that writes down what it is given, and may cut up nothing.
struct Watched {
    inner: SimNet,
    calls: Calls,
    refuses: bool,
}

impl Net for Watched {
    fn send(&mut self, sock: Sock, transmit: &Transmit<'_>) -> Result<()> {
        self.calls.lock().unwrap().push((transmit.contents.len(), transmit.segment_size));
        if self.refuses && transmit.segment_size.is_some() {
            return Err(NetError::new(ErrorKind::InvalidInput));
        }
        self.inner.send(sock, transmit)
    }
    fn max_segments(&self, sock: Sock) -> usize {
        if self.refuses { 64 } else { self.inner.max_segments(sock) }
    }
    fn now(&self) -> Instant {
        self.inner.now()
    }
    fn wall(&self) -> WallTime {
        self.inner.wall()
    }
    fn connect(&mut self, token: Token, remote: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        self.inner.connect(token, remote, options)
    }
    fn connect_result(&mut self, sock: Sock) -> Result<()> {
        self.inner.connect_result(sock)
    }
    fn listen(&mut self, token: Token, local: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        self.inner.listen(token, local, options)
    }
    fn accept(&mut self, listener: Sock, token: Token) -> Result<(Sock, SocketAddr)> {
        self.inner.accept(listener, token)
    }
    fn read(&mut self, sock: Sock, buf: &mut [u8]) -> Result<usize> {
        self.inner.read(sock, buf)
    }
    fn write(&mut self, sock: Sock, bufs: &[IoSlice<'_>]) -> Result<usize> {
        self.inner.write(sock, bufs)
    }
    fn direct_stream(&mut self, sock: Sock) -> Option<Box<dyn DirectStream>> {
        self.inner.direct_stream(sock)
    }
    fn shutdown_write(&mut self, sock: Sock) -> Result<()> {
        self.inner.shutdown_write(sock)
    }
    fn close(&mut self, sock: Sock) {
        self.inner.close(sock)
    }
    fn abort(&mut self, sock: Sock) {
        self.inner.abort(sock)
    }
    fn stream_info(&self, sock: Sock) -> Result<StreamInfo> {
        self.inner.stream_info(sock)
    }
    fn stream_paths(&self, sock: Sock) -> Option<StreamPaths> {
        self.inner.stream_paths(sock)
    }
    fn take_error(&mut self, sock: Sock) -> Option<NetError> {
        self.inner.take_error(sock)
    }
    fn udp(&mut self, token: Token, family: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        self.inner.udp(token, family, options)
    }
    fn udp_lite_obstacle(&mut self) -> Option<&'static str> {
        self.inner.udp_lite_obstacle()
    }
    fn raw(&mut self, token: Token, protocol: u8, family: SocketAddr, options: &SocketOptions) -> Result<Sock> {
        self.inner.raw(token, protocol, family, options)
    }
    fn raw_obstacle(&mut self, protocol: u8) -> Option<&'static str> {
        self.inner.raw_obstacle(protocol)
    }
    fn udp_connect(&mut self, sock: Sock, remote: SocketAddr) -> Result<()> {
        self.inner.udp_connect(sock, remote)
    }
    fn recv(&mut self, sock: Sock, batch: &mut RecvBatch) -> Result<usize> {
        self.inner.recv(sock, batch)
    }
    fn take_icmp_error(&mut self, sock: Sock) -> Option<IcmpError> {
        self.inner.take_icmp_error(sock)
    }
    fn local_addr(&self, sock: Sock) -> Result<SocketAddr> {
        self.inner.local_addr(sock)
    }
    fn set(&mut self, sock: Sock, option: SocketOption) -> Result<()> {
        self.inner.set(sock, option)
    }
    fn poll(&mut self, events: &mut Vec<NetEvent>) -> bool {
        self.inner.poll(events)
    }
    fn arm(&mut self, deadline: Option<Instant>, again: bool) {
        self.inner.arm(deadline, again)
    }
    fn interfaces(&self) -> &[Interface] {
        self.inner.interfaces()
    }
    fn source_for(&mut self, remote: IpAddr) -> Option<IpAddr> {
        self.inner.source_for(remote)
    }
    fn name_config(&self) -> &NameConfig {
        self.inner.name_config()
    }
    fn name_config_error(&self) -> Option<NetError> {
        self.inner.name_config_error()
    }
    fn forked(&self) -> bool {
        self.inner.forked()
    }
}

fn town(refuses: bool) -> (Town<Watched>, Calls) {
    let calls = Calls::default();
    let town = Plan::new(1).build_over(|inner, _| Watched { inner, calls: calls.clone(), refuses });
    (town, calls)
}

/// Two that know each other: a server takes a peer when it has heard it.
fn pair(town: &mut Town<Watched>) -> (FlowId, FlowId) {
    let ask = Ask::over(&[Stack::Udp]);
    town.listen(&ask, 443, Manner::patient());
    let c = town.open(&ask, Manner::patient());
    town.play.say(c, "!", SendOptions::default());
    town.play.run_for(S);
    (c, town.play.accepted(town.server)[0])
}

/// Says messages of these lengths together; what was given to the network for them, and what came.
fn together(
    town: &mut Town<Watched>,
    calls: &Calls,
    from: FlowId,
    to: FlowId,
    lens: &[usize],
) -> Vec<(usize, Option<usize>)> {
    let before = town.play.flow(to).messages.len();
    let data = |i: usize, len: usize| vec![i as u8; len];
    calls.lock().unwrap().clear();
    let engine = town.play.engine(from.node);
    engine.start_batch(from.conn);
    let mut ids = Vec::new();
    for (i, len) in lens.iter().enumerate() {
        ids.push(engine.send(from.conn, data(i, *len).into(), SendOptions::default()).unwrap());
    }
    engine.end_batch(from.conn);
    let made = calls.lock().unwrap().clone();
    town.play.run_for(S);
    let came = town.play.flow(to).messages[before..].to_vec();
    let said: Vec<_> = lens.iter().enumerate().map(|(i, len)| data(i, *len)).collect();
    assert_eq!(came, said, "each as it was, in order");
    let log = town.play.log(from.node);
    let sent = |id| log.iter().filter(|(_, n)| matches!(&n.event, Event::Sent(i) if *i == id)).count();
    assert!(ids.iter().all(|id| sent(*id) == 1), "each was sent once");
    made
}

#[test]
fn equal_datagrams_and_a_shorter_last_one_leave_with_one_call() {
    let (mut town, calls) = town(false);
    let (c, s) = pair(&mut town);
    // By a socket of its own, and by one that peers share.
    for (from, to) in [(c, s), (s, c)] {
        let mut send = |lens: &[usize]| together(&mut town, &calls, from, to, lens);
        assert_eq!(send(&[1000; 10]), [(10_000, Some(1000))]);
        assert_eq!(send(&[1000, 1000, 400]), [(2400, Some(1000))]);
        assert_eq!(send(&[1000, 400, 1000]), [(1400, Some(1000)), (1000, None)]);
        assert_eq!(send(&[400, 1000]), [(400, None), (1000, None)]);
        assert_eq!(send(&[100, 0, 100]), [(100, None), (0, None), (100, None)]);
        assert_eq!(send(&[10; 12]), [(100, Some(10)), (20, Some(10))], "as many as the network cuts up");
    }
    town.play.end();
}

#[test]
fn where_nothing_is_cut_up_datagrams_leave_one_by_one() {
    let (mut town, calls) = town(true);
    let (c, s) = pair(&mut town);
    let made = together(&mut town, &calls, c, s, &[500; 3]);
    assert_eq!(made, [(1500, Some(500)), (500, None), (500, None), (500, None)]);
    let made = together(&mut town, &calls, c, s, &[1400; 50]);
    assert_eq!(made[0], (64_400, Some(1400)), "what one packet can hold");
    assert_eq!(made[1..], [(1400, None); 50]);
    town.play.end();
}

#[test]
fn datagrams_that_must_be_fragmented_are_no_batch() {
    let (mut town, calls) = town(false);
    let (c, s) = pair(&mut town);
    let made = together(&mut town, &calls, c, s, &[3000; 2]);
    assert_eq!(made, [(6000, Some(3000)), (3000, None), (3000, None)]);
    town.play.end();
}
