//! The whole engine over SCTP against usrsctp, over UDP on loopback: a connection is an association, whose streams are a property of
//! each message, for this peer gives them no meaning of ours.

use neater::{
    Connection, ConnectionError, Listener, LocalEndpoint, MessageContext, Neater, Preconnection, RemoteEndpoint,
    SecurityParameters, SendError, Stack,
};
use neater_interop::sctp::{Batch, Ledger, Peer, Received, fill, hash};
use neater_interop::{free_port, nothing_left, skip, within_limit};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Who opens the association.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Client,
    Server,
}

const ROLES: [Role; 2] = [Role::Client, Role::Server];
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection of ours to usrsctp, with accounts of both directions.
struct World {
    neater: Neater,
    conn: Connection,
    peer: Peer,
    listener: Option<Listener>,
    udp: u16,
    out: Ledger,
    back: Ledger,
    /// Which of theirs are unordered.
    unordered: BTreeMap<u32, bool>,
}

fn sctp(neater: &Neater) -> Preconnection {
    let all = neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Sctp]);
    all.needs("partial-reliability").expect("a word")
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

impl World {
    /// Opens an association; usrsctp has these arguments more. `Err`: why it is not here.
    async fn open(role: Role, more: &[&str]) -> Result<Self, String> {
        let neater = Neater::new().expect("engine");
        let udp = free_port();
        let arguments = |kind: &str, port: u16| {
            let fixed = [kind, "--streams", "100,200", "--udp"].map(str::to_owned);
            let mut all = fixed.to_vec();
            all.extend([udp.to_string(), "--port".to_owned(), port.to_string()]);
            all.extend(more.iter().map(|s| (*s).to_owned()));
            all
        };
        let start = |all: Vec<String>| Peer::usrsctp(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let (conn, peer, listener) = match role {
            Role::Client => {
                let peer = start(arguments("listen", 5001))?;
                let remote = RemoteEndpoint::from(loopback(5001)).with_udp_port(udp);
                (sctp(&neater).remote(remote).initiate().await.expect("connected"), peer, None)
            }
            Role::Server => {
                let local = LocalEndpoint::from(loopback(5001)).with_udp_port(0);
                let listener = sctp(&neater).local(local).listen().expect("listening");
                let mut all = arguments("connect", 5001);
                all.extend(["--remote-udp".to_owned(), listener.udp_ports()[0].to_string()]);
                all.extend(["--bind".to_owned(), "5002".to_owned()]);
                let peer = start(all)?;
                (listener.accept().await.expect("a connection"), peer, Some(listener))
            }
        };
        assert_eq!(conn.stack(), Some(Stack::Sctp));
        let (out, back, unordered) = (Ledger::default(), Ledger::default(), BTreeMap::new());
        let mut world = Self { neater, conn, peer, listener, udp, out, back, unordered };
        world.until("the peer to be connected", |w| w.peer.has("connected")).await;
        Ok(world)
    }

    /// Sends these messages.
    async fn ours(&mut self, batch: &Batch) {
        for number in self.out.expect(batch) {
            let mut context = MessageContext::new().on_stream(batch.stream(number)).with_payload_protocol(number);
            context.add("msgOrdered", !batch.unordered).expect("a property");
            match batch.policy.split_once(' ') {
                Some(("ttl", ms)) => context = context.lifetime(Duration::from_millis(ms.parse().expect("a time"))),
                Some(("rtx", _)) => drop(context.add("msgReliable", false).expect("a property")),
                _ => {}
            }
            self.conn.send_with(fill(number, batch.size(number)), &context).await.expect("sent");
        }
    }

    /// Lets them send these messages.
    fn theirs(&mut self, batch: &Batch) {
        self.unordered.extend(self.back.expect(batch).map(|number| (number, batch.unordered)));
        self.peer.tell(&batch.command());
    }

    fn listen(&mut self) {
        for message in self.peer.listen() {
            self.out.arrive(&message);
        }
    }

    /// Waits until `done`.
    async fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            self.listen();
            if done(self) {
                return;
            }
            assert!(Instant::now() < end, "{what}: {:?}, {:?}", self.peer.events, self.conn.stats());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Takes one message.
    async fn receive(&mut self) {
        let Ok(message) = tokio::time::timeout(PATIENCE, self.conn.receive()).await else {
            self.listen();
            panic!("nothing comes: {:?}, {:?}, {:?}", self.peer.events, self.back, self.conn.stats());
        };
        let message = message.expect("alive").expect("a message");
        let stream = message.context.stream().expect("it came on a stream");
        let number = message.context.payload_protocol().expect("it has an identifier");
        let unordered = self.unordered.get(&number).copied().unwrap_or_default();
        self.back.arrive(&Received { number, stream, unordered, size: message.data.len(), hash: hash(&message.data) });
    }

    /// Until everything has arrived that may not be given up.
    async fn settle(&mut self) {
        while !self.back.is_complete() {
            self.receive().await;
        }
        self.until("their account", |w| w.out.is_complete()).await;
    }

    /// Ends it in order from our side.
    async fn part(mut self) {
        self.conn.close().await.expect("in order");
        self.until("the peer to know", |w| w.peer.has("closed")).await;
        self.end().await;
    }

    /// Nothing is left of it.
    async fn end(mut self) {
        if let Some(listener) = self.listener.take() {
            listener.stop();
        }
        let Self { neater, conn, .. } = self;
        drop(conn);
        nothing_left(&neater).await;
    }
}

macro_rules! world {
    ($role:expr, $more:expr) => {
        match World::open($role, $more).await {
            Ok(world) => world,
            Err(why) => skip!("{why}"),
        }
    };
}

#[test]
fn messages_keep_boundaries_streams_and_identifiers_both_ways() {
    within_limit(async {
        for role in ROLES {
            let mut world = world!(role, &[]);
            for batch in [
                Batch::reliable(50, 1, 1..=1),
                Batch::reliable(500, 100, 1..=3000),
                Batch { unordered: true, ..Batch::reliable(100, 20, 1..=10_000) },
                Batch::reliable(3, 2, 900_000..=1_000_000),
            ] {
                world.theirs(&batch);
                world.ours(&batch).await;
                world.settle().await;
            }
            world.part().await;
        }
    });
}

/// Several long messages at once on as many streams, together longer than the receive window: each comes whole.
#[test]
fn long_messages_that_are_interleaved_come_whole() {
    within_limit(async {
        for role in ROLES {
            let mut world = world!(role, &["--interleave", "--scheduler", "1"]);
            let batch = Batch::reliable(4, 4, 1_500_000..=1_500_000);
            world.theirs(&batch);
            world.ours(&batch).await;
            world.settle().await;
            world.part().await;
        }
    });
}

#[test]
fn messages_that_need_not_arrive_go_to_it_and_come_from_it() {
    within_limit(async {
        for role in ROLES {
            let mut world = world!(role, &[]);
            for policy in ["ttl 2000", "rtx 0"] {
                let batch = Batch { policy: policy.to_owned(), ..Batch::reliable(50, 10, 1..=2000) };
                world.theirs(&batch);
                world.ours(&batch).await;
                // Nothing is lost on loopback, so that all come.
                for _ in 0..50 {
                    world.receive().await;
                }
                let all = world.out.arrived() + 50;
                world.until("all of ours", |w| w.out.arrived() >= all.min(w.back.arrived())).await;
            }
            world.part().await;
        }
    });
}

/// SCTP has no half-close. Whoever asks the peer to shut down takes nothing new to send, and the peer may not send either: it delivers
/// what it had accepted, and ends too (RFC 9260 section 9.2).
#[test]
fn when_the_peer_shuts_down_what_it_sent_is_read_and_then_the_end() {
    within_limit(async {
        for role in ROLES {
            let mut world = world!(role, &[]);
            let batch = Batch::reliable(100, 10, 1..=5000);
            world.ours(&batch).await;
            world.theirs(&batch);
            world.peer.tell("shutdown");
            world.settle().await;
            assert!(world.conn.receive().await.expect("in order").is_none(), "{role:?}: the end");
            world.conn.closed().await.expect("in order");
            assert!(matches!(world.conn.send("more").await, Err(SendError::Connection(_) | SendError::AfterFinal)));
            world.end().await;
        }
    });
}

/// The final message says nothing to this peer: it may go on sending, and only closing ends the association.
#[test]
fn the_end_of_our_direction_is_not_told_to_the_peer_before_the_connection_is_closed() {
    within_limit(async {
        for role in ROLES {
            let mut world = world!(role, &[]);
            let one = Batch::reliable(1, 1, 10..=10);
            let number = world.out.expect(&one).start;
            let context = MessageContext::new().final_as(true).with_payload_protocol(number);
            world.conn.send_with(fill(number, 10), &context).await.expect("sent");
            assert!(matches!(world.conn.send("more").await, Err(SendError::AfterFinal)));
            world.until("the last message", |w| w.out.is_complete()).await;
            world.theirs(&Batch::reliable(100, 10, 1..=5000));
            world.settle().await;
            assert!(!world.peer.has("shutdown"), "{role:?}: {:?}", world.peer.events);
            world.part().await;
        }
    });
}

/// Who wants no more and has said the last has not ended the association: this peer is told so by its end alone, and may not have everything.
#[test]
fn a_connection_that_neither_reads_nor_writes_any_more_lasts_until_it_is_closed() {
    within_limit(async {
        for role in ROLES {
            let mut world = world!(role, &[]);
            let batch = Batch::reliable(50, 10, 20_000..=20_000);
            world.ours(&batch).await;
            world.conn.stop_receiving(7);
            world.conn.finish().expect("the end of our direction");
            let over = tokio::time::timeout(Duration::from_millis(200), world.conn.closed()).await;
            assert!(over.is_err(), "{role:?}: {over:?}");
            assert_eq!(world.conn.state(), neater::ConnectionState::Established);
            world.until("all of ours", |w| w.out.is_complete()).await;
            let over = tokio::time::timeout(Duration::from_millis(200), world.conn.closed()).await;
            assert!(over.is_err(), "{role:?}: {over:?}");
            world.listen();
            assert!(!world.peer.has("shutdown") && !world.peer.has("closed"), "{role:?}: {:?}", world.peer.events);
            world.part().await;
        }
    });
}

#[test]
fn an_abort_by_either_side_is_told_to_the_other() {
    within_limit(async {
        for role in ROLES {
            let mut world = world!(role, &[]);
            world.conn.abort();
            // User-Initiated Abort (RFC 9260 section 3.3.10.12).
            world.until("the peer to be told", |w| w.peer.event("lost").is_some_and(|e| e["error"] == 12)).await;
            assert!(matches!(world.conn.closed().await, Err(ConnectionError::LocalAbort)));
            world.end().await;

            let mut world = world!(role, &[]);
            world.peer.tell("abort");
            let error = world.conn.receive().await.expect_err("it was aborted");
            assert!(matches!(error, ConnectionError::Sctp(neater::SctpClose::PeerAborted { .. })), "{error:?}");
            assert_eq!(world.conn.closed().await.expect_err("not in order"), error);
            world.end().await;
        }
    });
}

/// A clone of such a connection is an association of its own, for the peer knows nothing of connections in an association; this peer
/// takes one only, and says so. We cannot open one to somebody who has come to us.
#[test]
fn a_clone_of_such_a_connection_is_another_association() {
    within_limit(async {
        for role in ROLES {
            let mut world = world!(role, &[]);
            let error = match world.conn.clone_connection() {
                Ok(c) => c.ready().await.expect_err("it cannot be"),
                Err(e) => e,
            };
            let why = if role == Role::Client { "the peer aborted the association" } else { "connection" };
            assert!(error.to_string().contains(why), "{role:?}: {error}");
            let batch = Batch::reliable(10, 2, 1..=100);
            world.theirs(&batch);
            world.ours(&batch).await;
            world.settle().await;
            world.part().await;
        }
    });
}

/// A peer that has lost its memory opens the association again (RFC 9260 section 5.2.4, action A): the connection that was is over with
/// an error, and a new one is there.
#[test]
fn a_peer_that_starts_again_is_a_new_connection() {
    within_limit(async {
        let mut world = world!(Role::Server, &[]);
        world.theirs(&Batch::reliable(10, 2, 1..=100));
        world.settle().await;
        world.peer.kill();
        let ours = world.listener.as_ref().expect("we listen").udp_ports()[0].to_string();
        let udp = world.udp.to_string();
        let all = [
            "connect",
            "--streams",
            "100,200",
            "--udp",
            &udp,
            "--port",
            "5001",
            "--remote-udp",
            &ours,
            "--bind",
            "5002",
        ];
        world.peer = match Peer::usrsctp(&all) {
            Ok(peer) => peer,
            Err(why) => skip!("{why}"),
        };
        let error = world.conn.receive().await.expect_err("it is over");
        assert!(matches!(error, ConnectionError::Sctp(_)), "{error:?}");
        world.conn = world.listener.as_ref().expect("we listen").accept().await.expect("a new one");
        (world.out, world.back) = (Ledger::default(), Ledger::default());
        let batch = Batch::reliable(100, 10, 1..=5000);
        world.theirs(&batch);
        world.ours(&batch).await;
        world.settle().await;
        world.part().await;
    });
}

/// Its streams mean nothing to us but numbers of messages (RFC 6525 section 5.2.2): that they begin anew ends no connection.
#[test]
fn streams_that_the_peer_begins_anew_end_nothing() {
    within_limit(async {
        for role in ROLES {
            let mut world = world!(role, &[]);
            let batch = Batch::reliable(20, 5, 1..=3000);
            world.theirs(&batch);
            world.ours(&batch).await;
            world.settle().await;
            for what in ["reset out 0", "reset in 0", "reset both"] {
                let before = world.peer.events.iter().filter(|e| e["event"] == "reset").count();
                world.peer.tell(what);
                world.until(what, |w| w.peer.events.iter().filter(|e| e["event"] == "reset").count() > before).await;
                world.theirs(&batch);
                world.ours(&batch).await;
                world.settle().await;
            }
            world.part().await;
        }
    });
}

/// A peer that takes nothing, and answers every probe of its window: to it, the connection is in order. Where room is short (here
/// for connections), `close` fails after ten seconds, and nothing is kept for the peer either; else it has five minutes.
#[test]
fn a_peer_that_holds_up_the_end_keeps_nothing_of_ours() {
    use neater_interop::sctp::Driver;
    use neater_sctp::{AssociationConfig, Config, Event};
    use std::sync::atomic::{AtomicBool, Ordering};
    let [over, told] = [(); 2].map(|()| std::sync::Arc::new(AtomicBool::new(false)));
    let (tell, hear) = std::sync::mpsc::channel();
    let (done, closed) = (over.clone(), told.clone());
    let peer = std::thread::spawn(move || {
        let association = AssociationConfig { receive_buffer: 20_000, ..AssociationConfig::default() };
        let config = Config { port: 5001, accept: true, association, ..Config::default() };
        let mut driver = Driver::new(config, &neater_link::LinkConfig::default(), 1);
        tell.send(driver.port()).expect("somebody waits");
        while !done.load(Ordering::Relaxed) {
            driver.turn(Duration::from_millis(5));
            let ended = driver.events.iter().any(|(_, e)| matches!(e, Event::Closed(_)));
            closed.store(ended, Ordering::Relaxed);
        }
    });
    let udp = hear.recv().expect("a port");
    within_limit(async {
        let limits = neater::Limits { connections: 1, ..neater::Limits::default() };
        let neater = Neater::builder().limits(limits).build().expect("engine");
        let remote = RemoteEndpoint::from(loopback(5001)).with_udp_port(udp);
        let conn = sctp(&neater).remote(remote).initiate().await.expect("connected");
        for _ in 0..10 {
            conn.send(vec![7; 10_000]).await.expect("there is room here");
        }
        let began = Instant::now();
        let end = conn.close().await;
        assert!(matches!(end, Err(ConnectionError::TimedOut)), "{end:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        drop(conn);
        nothing_left(&neater).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(told.load(Ordering::Relaxed), "the peer is told while the engine lives");
    });
    over.store(true, Ordering::Relaxed);
    peer.join().expect("the peer");
}
