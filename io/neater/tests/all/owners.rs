//! Data is handed over without being copied, and its owner may be the program's own: its destructor
//! never runs while the engine is borrowed, so it may call anything.

use crate::common::{loopback, security};
use bytes::Bytes;
use neater::{Connection, FramerSpec, Listener, MessageContext, Neater, Preconnection, SecurityParameters, Stack};
use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A thread that is stuck in a lock does not let a runtime shut down: whether a test has ended is
/// watched from outside.
fn without_deadlock(test: impl Future<Output = ()> + Send + 'static) {
    let (done, ended) = channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(test);
        let _ = done.send(());
    });
    match ended.recv_timeout(Duration::from_secs(20)) {
        Ok(()) => {}
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("deadlock"),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => panic!("the test has failed; see above"),
    }
}

/// Owns bytes, and calls back when it is dropped.
struct Owner {
    data: Vec<u8>,
    neater: Neater,
    connection: Option<Arc<Connection>>,
    closes: bool,
    dropped: Sender<()>,
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Each of these takes the engine.
        let _ = self.neater.stats();
        if let Some(connection) = &self.connection {
            let _ = (connection.stats(), connection.state());
            let _ = connection.try_send("from a destructor", &MessageContext::new());
            if self.closes {
                connection.abort();
            }
        }
        let _ = self.dropped.send(());
    }
}

struct Owners {
    neater: Neater,
    made: usize,
    dropped: (Sender<()>, Receiver<()>),
}

impl Owners {
    fn new(neater: &Neater) -> Self {
        Self { neater: neater.clone(), made: 0, dropped: channel() }
    }

    fn own(&mut self, len: usize, connection: Option<&Arc<Connection>>, closes: bool) -> Bytes {
        self.made += 1;
        let connection = connection.cloned();
        let dropped = self.dropped.0.clone();
        Bytes::from_owner(Owner { data: vec![7; len], neater: self.neater.clone(), connection, closes, dropped })
    }

    /// Waits until all owners are gone.
    async fn gone(self, when: &str) {
        let (made, dropped) = (self.made, self.dropped.1);
        let wait = move || (0..made).take_while(|_| dropped.recv_timeout(Duration::from_secs(5)).is_ok()).count();
        let gone = tokio::task::spawn_blocking(wait).await.expect("a thread");
        assert_eq!(gone, made, "{when}");
    }
}

fn needs(pre: Preconnection, security: &SecurityParameters, stack: Stack) -> Preconnection {
    let plain = matches!(stack, Stack::Tcp | Stack::Udp);
    let mut properties = neater::TransportProperties::new();
    if !stack.is_stream() {
        properties = neater_property::profile("unreliable-datagram").expect("known");
    }
    let security = if plain { SecurityParameters::disabled() } else { security.clone() };
    pre.properties(properties).security(security).stacks(&[stack])
}

async fn pair(neater: &Neater, stack: Stack, framer: &FramerSpec) -> (Arc<Connection>, Connection, Listener) {
    let (client, server) = security();
    let pre = || neater.preconnection().framer(framer.clone());
    let listener = needs(pre(), &server, stack).local(loopback(0)).listen().expect("listening");
    let ours = needs(pre(), &client, stack).remote(loopback(listener.port())).initiate().await.expect("connected");
    // A datagram is what makes a peer of UDP known; a stream of QUIC is known by its first byte.
    ours.send("first").await.expect("sent");
    let theirs = listener.accept().await.expect("a connection");
    assert!(theirs.receive().await.expect("alive").is_some());
    (Arc::new(ours), theirs, listener)
}

const FRAMED: FramerSpec = FramerSpec::LengthPrefixed { width: 4, max: 1 << 24 };

#[test]
fn an_owner_calls_back_when_its_data_is_written_at_once() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        for (stack, framer) in [
            (Stack::Tcp, FramerSpec::Raw),
            (Stack::Tcp, FRAMED),
            (Stack::Tls, FRAMED),
            (Stack::Quic, FRAMED),
            (Stack::Udp, FramerSpec::Raw),
            (Stack::QuicDatagram, FramerSpec::Raw),
        ] {
            let (ours, theirs, _listener) = pair(&neater, stack, &framer).await;
            for closes in [false, true] {
                let mut owners = Owners::new(&neater);
                let context = MessageContext::new().safely_replayable_as(stack == Stack::Udp);
                ours.try_send(owners.own(100, Some(&ours), closes), &context).expect("room");
                ours.send(owners.own(100, Some(&ours), false)).await.ok();
                owners.gone(&format!("{stack}")).await;
            }
            drop(theirs);
        }
    });
}

/// Sends until there is no room.
fn fill(owners: &mut Owners, ours: &Arc<Connection>) {
    loop {
        let data = owners.own(60_000, Some(ours), false);
        match ours.try_send(data, &MessageContext::new()) {
            Ok(_) => {}
            Err(neater::SendError::Blocked { .. }) => return,
            Err(e) => panic!("{e}"),
        }
    }
}

/// Sends until there is no room and there still is none later: the peer's engine reads ahead of its
/// program, and the system's buffers grow, so that the first lack of room may be over in a moment.
async fn fill_for_good(owners: &mut Owners, ours: &Arc<Connection>) {
    for _ in 0..100 {
        let before = owners.made;
        fill(owners, ours);
        // One owner is made in vain each time.
        if owners.made == before + 1 && ours.stats().expect("alive").queued > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the peer's program reads nothing, and yet there is always room again");
}

#[test]
fn an_owner_calls_back_when_its_data_is_written_later() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        for stack in [Stack::Tcp, Stack::Tls, Stack::Quic] {
            let (ours, theirs, _listener) = pair(&neater, stack, &FRAMED).await;
            let mut owners = Owners::new(&neater);
            fill_for_good(&mut owners, &ours).await;
            let reading = tokio::spawn(async move { while let Ok(Some(_)) = theirs.receive().await {} });
            owners.gone(&format!("{stack}")).await;
            // Whatever still waits for room on the path, the end does not.
            ours.abort();
            reading.await.expect("the peer is told");
        }
    });
}

#[test]
fn an_owner_calls_back_when_its_message_has_expired() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        let (ours, theirs, _listener) = pair(&neater, Stack::Tcp, &FRAMED).await;
        let mut filling = Owners::new(&neater);
        let mut owners = Owners::new(&neater);
        let soon = MessageContext::new().lifetime(Duration::from_millis(300));
        loop {
            // Nothing is read: the first of them fill the socket, the others wait in vain.
            if ours.try_send(owners.own(50_000, Some(&ours), false), &soon).is_err() {
                break;
            }
        }
        fill(&mut filling, &ours);
        let queued = owners.made;
        let expired = async {
            while let Some(event) = ours.next_event().await {
                if matches!(event, neater::Event::Expired(_)) {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(5), expired).await.expect("a message expires");
        assert!(queued > 1);
        drop(theirs);
        owners.gone("expired").await;
        filling.gone("failed").await;
    });
}

#[test]
fn an_owner_calls_back_when_its_connection_ends_first() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        for stack in [Stack::Tcp, Stack::Tls, Stack::Quic] {
            for end in 0..4 {
                let (ours, theirs, _listener) = pair(&neater, stack, &FRAMED).await;
                let mut owners = Owners::new(&neater);
                // An owner of its own connection would keep it: these look at another.
                let (other, _others, _another) = pair(&neater, Stack::Tcp, &FRAMED).await;
                loop {
                    let data = owners.own(60_000, Some(&other), false);
                    if ours.try_send(data, &MessageContext::new()).is_err() {
                        break;
                    }
                }
                match end {
                    0 => ours.abort(),
                    1 => theirs.abort(),
                    2 => ours.reset_sending(3),
                    _ => {
                        // Dropped: closed as soon as the peer has everything, and the peer goes.
                        drop(ours);
                        theirs.abort();
                        owners.gone(&format!("{stack}, released")).await;
                        continue;
                    }
                }
                owners.gone(&format!("{stack}, ending {end}")).await;
            }
        }
    });
}

#[test]
fn an_owner_calls_back_when_its_data_is_refused_or_never_gets_a_connection() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        let (ours, _theirs, listener) = pair(&neater, Stack::Tcp, &FRAMED).await;
        let (client, _) = security();
        let mut owners = Owners::new(&neater);
        let replayable = MessageContext::new().safely_replayable_as(true);
        for context in [MessageContext::new(), replayable] {
            // Nowhere to go to.
            let pre = needs(neater.preconnection(), &client, Stack::Tcp);
            assert!(pre.initiate_with_send(owners.own(10, Some(&ours), false), &context).await.is_err());
            // No listener there.
            let nobody = std::net::TcpListener::bind(loopback(0)).expect("a port").local_addr().expect("its address");
            let pre = pre.remote(nobody);
            assert!(pre.initiate_with_send(owners.own(10, Some(&ours), false), &context).await.is_err());
            // Given up.
            let pre = needs(neater.preconnection(), &client, Stack::Tls).remote(loopback(listener.port()));
            drop(pre.initiate_with_send(owners.own(10, Some(&ours), false), &context));
            // Given up by itself.
            let pre = needs(neater.preconnection(), &client, Stack::Tcp).remote(loopback(listener.port()));
            let begun = pre.initiate_with_send(owners.own(10, Some(&ours), false), &context).connection();
            let begun = begun.expect("begun");
            begun.reset_sending(1);
            begun.ready().await.expect("established");
        }
        ours.finish().expect("open");
        let refused = ours.try_send(owners.own(10, Some(&ours), false), &MessageContext::new());
        assert!(refused.is_err());
        owners.gone("refused").await;
    });
}

/// A program may answer a question for a name from any place: the driver notifies of the result.
#[test]
fn an_owner_calls_back_when_the_name_of_its_peer_is_not_known() {
    without_deadlock(async {
        let neater = Neater::builder().names_by(|lookup| lookup.no_such_name()).build().expect("engine");
        let mut owners = Owners::new(&neater);
        for _ in 0..10 {
            let pre = needs(neater.preconnection(), &security().0, Stack::Tcp);
            let remote = neater::RemoteEndpoint::new().with_host_name("none.directory").with_port(9);
            let connection = pre.remote(remote).initiate().connection().expect("begun");
            let _ = connection.try_send(owners.own(10, None, false), &MessageContext::new());
            connection.ready().await.expect_err("no such name");
        }
        owners.gone("unknown").await;
    });
}

/// A framer that sends and delivers what the program owns, and then gives up.
struct Generous {
    neater: Neater,
    dropped: Sender<()>,
}

impl Generous {
    fn own(&self) -> Bytes {
        let (neater, dropped) = (self.neater.clone(), self.dropped.clone());
        Bytes::from_owner(Owner { data: vec![7; 10], neater, connection: None, closes: false, dropped })
    }
}

impl neater::Framer for Generous {
    fn name(&self) -> &str {
        "generous"
    }

    fn new_sent_message(
        &mut self,
        out: &mut neater::Outbound,
        data: Bytes,
        _first: bool,
        _end: bool,
    ) -> Result<(), neater::FramerError> {
        out.send(data);
        Ok(())
    }

    fn handle_received_data(
        &mut self,
        input: &mut neater::Input<'_>,
    ) -> Result<neater::Readiness, neater::FramerError> {
        if input.parse().is_empty() {
            return Ok(neater::Readiness::Ready);
        }
        input.send(self.own());
        input.deliver(self.own(), false);
        if input.parse().len() < 2 {
            input.advance_receive_cursor(1);
            return Ok(neater::Readiness::Ready);
        }
        Err(neater::FramerError("enough".into()))
    }

    fn buffer_limit(&self) -> usize {
        1000
    }
}

#[test]
fn an_owner_calls_back_when_a_framer_has_made_it_in_vain() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        let (dropped, gone) = channel();
        let (of, tell) = (neater.clone(), dropped.clone());
        let framer =
            FramerSpec::Custom(Arc::new(move || Box::new(Generous { neater: of.clone(), dropped: tell.clone() })));
        let listener = std::net::TcpListener::bind(loopback(0)).expect("a port");
        let pre = needs(neater.preconnection().framer(framer), &security().0, Stack::Tcp);
        let connection = pre.remote(listener.local_addr().expect("bound")).initiate().await.expect("connected");
        let (mut peer, _) = listener.accept().expect("accepted");
        std::io::Write::write_all(&mut peer, b"x").expect("written");
        let waited = tokio::time::timeout(Duration::from_millis(200), connection.receive()).await;
        assert!(waited.is_err(), "the message has no end yet");
        std::io::Write::write_all(&mut peer, b"yz").expect("written");
        connection.receive().await.expect_err("it gives up");
        drop(connection);
        let count = tokio::task::spawn_blocking(move || {
            (0..4).take_while(|_| gone.recv_timeout(Duration::from_secs(5)).is_ok()).count()
        });
        assert_eq!(count.await.expect("a thread"), 4);
    });
}

#[test]
fn an_owner_calls_back_when_its_data_has_gone_with_the_handshake_of_sctp() {
    without_deadlock(async {
        let neater = Neater::new().expect("engine");
        let of = || neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Sctp]);
        let local = neater::LocalEndpoint::from(loopback(0)).with_udp_port(0);
        let listener = of().local(local).listen().expect("listening");
        let remote = neater::RemoteEndpoint::from(loopback(listener.port())).with_udp_port(listener.udp_ports()[0]);
        let mut owners = Owners::new(&neater);
        let context = MessageContext::new().safely_replayable_as(true);
        let ours = of().remote(remote).initiate_with_send(owners.own(50_000, None, false), &context);
        let ours = ours.await.expect("connected");
        let theirs = listener.accept().await.expect("accepted");
        assert_eq!(theirs.receive().await.expect("open").map(|m| m.len()), Some(50_000));
        owners.gone("acknowledged").await;
        drop(ours);
    });
}
