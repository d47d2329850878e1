//! Framers of the program's own: what goes wrong in one is the affair of its connection alone. And
//! lines, with peers that know no framers.

use crate::common::{LIMIT, loopback, nothing_left};
use bytes::Bytes;
use neater::{
    Connection, ConnectionError, Framer, FramerError, FramerSpec, Input, Neater, Outbound, Preconnection, Readiness,
    Reason, SecurityParameters, SendError, Stack,
};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what} does not end"))
}

fn clear(neater: &Neater) -> Preconnection {
    neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::Tcp])
}

/// Passes bytes on, and calls `visit` with the name of each function.
struct Visited(Arc<dyn Fn(&str) + Send + Sync>);

impl Framer for Visited {
    fn name(&self) -> &str {
        "visited"
    }
    fn start(&mut self, _: &mut Outbound) -> Result<Readiness, FramerError> {
        (self.0)("start");
        Ok(Readiness::Ready)
    }
    fn new_sent_message(&mut self, out: &mut Outbound, data: Bytes, _: bool, _: bool) -> Result<(), FramerError> {
        (self.0)("send");
        out.send(data);
        Ok(())
    }
    fn handle_received_data(&mut self, input: &mut Input<'_>) -> Result<Readiness, FramerError> {
        (self.0)("receive");
        let n = input.parse().len() as u64;
        if n > 0 {
            input.deliver_and_advance_receive_cursor(n, true);
        }
        Ok(Readiness::Ready)
    }
}

fn visited(visit: impl Fn(&str) + Send + Sync + 'static) -> FramerSpec {
    let visit: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(visit);
    FramerSpec::Custom(Arc::new(move || Box::new(Visited(visit.clone()))))
}

async fn works(ours: &Connection, theirs: &Connection) {
    soon("sending", ours.send("hello")).await.expect("sent");
    let message = soon("receiving", theirs.receive()).await.expect("alive").expect("a message");
    assert_eq!(&message[..], b"hello");
}

#[tokio::test]
async fn a_framer_that_panics_on_one_incoming_connection_disturbs_no_other() {
    let neater = Neater::new().expect("engine");
    let starts = Arc::new(AtomicUsize::new(0));
    let count = starts.clone();
    let framer = visited(move |what| {
        assert!(what != "start" || count.fetch_add(1, Ordering::Relaxed) != 1, "the second connection is bad luck");
    });
    let listener = clear(&neater).framer(framer).local(loopback(0)).listen().expect("listening");
    let pre = clear(&neater).framer(visited(|_| {})).remote(loopback(listener.port()));
    let first = soon("initiate", pre.initiate()).await.expect("connected");
    let accepted = soon("accept", listener.accept()).await.expect("a connection");
    let second = soon("initiate", pre.initiate()).await.expect("connected");
    // The peer of the bad one sees its end.
    assert!(!matches!(soon("receive", second.receive()).await, Ok(Some(_))));
    works(&first, &accepted).await;
    let third = soon("initiate", pre.initiate()).await.expect("connected");
    works(&third, &soon("accept", listener.accept()).await.expect("a connection")).await;
    drop((first, second, third, accepted, listener));
    nothing_left(&neater).await;
}

#[tokio::test]
async fn a_panic_while_sending_or_receiving_ends_the_connection_with_what_it_said() {
    for place in ["send", "receive"] {
        let neater = Neater::new().expect("engine");
        let framer = visited(move |what| assert!(what != place, "no luck today"));
        let listener = clear(&neater).framer(visited(|_| {})).local(loopback(0)).listen().expect("listening");
        let pre = clear(&neater).framer(framer).remote(loopback(listener.port()));
        let ours = soon("initiate", pre.initiate()).await.expect("connected");
        let theirs = soon("accept", listener.accept()).await.expect("a connection");
        if place == "send" {
            let error = soon("send", ours.send("x")).await.expect_err("it panics");
            assert!(matches!(&error, SendError::Framer(e) if e.contains("no luck today")), "{error}");
        } else {
            soon("send", theirs.send("x")).await.expect("sent");
            assert!(soon("receive", ours.receive()).await.is_err());
        }
        let error = soon("closed", ours.closed()).await.expect_err("it has failed");
        assert!(matches!(&error, ConnectionError::Framer(e) if e.contains("no luck today")), "{error}");
        drop((ours, theirs, listener));
        nothing_left(&neater).await;
    }
}

#[tokio::test]
async fn a_framer_that_calls_its_own_engine_is_told_instead_of_waiting_for_ever() {
    let neater = Neater::new().expect("engine");
    let other = Neater::new().expect("engine");
    let (own, another) = (neater.clone(), other.clone());
    let listener = clear(&neater).local(loopback(0)).listen().expect("listening");
    // Another engine is free.
    let framer = visited(move |_| assert!(another.stats().connections == 0));
    let pre = clear(&neater).remote(loopback(listener.port()));
    let fine = soon("initiate", pre.clone().framer(framer).initiate()).await.expect("connected");
    soon("send", fine.send("x")).await.expect("sent");
    let framer = visited(move |what| assert!(what != "send" || own.stats().connections > 0));
    let bad = soon("initiate", pre.framer(framer).initiate()).await.expect("connected");
    let error = soon("send", bad.send("x")).await.expect_err("it calls its own engine");
    assert!(error.to_string().contains("must not call the objects of its own engine"), "{error}");
    soon("send", fine.send("y")).await.expect("sent");
}

/// Sends a word first, and is ready when its peer has sent the same; then every message is one byte
/// of length and as much.
#[derive(Default)]
struct Polite {
    framer_ready: bool,
}

const WORD: &[u8] = b"HELLO";

impl Framer for Polite {
    fn name(&self) -> &str {
        "polite"
    }
    fn start(&mut self, out: &mut Outbound) -> Result<Readiness, FramerError> {
        out.send(WORD);
        Ok(Readiness::Handshaking)
    }
    fn new_sent_message(&mut self, out: &mut Outbound, data: Bytes, _: bool, _: bool) -> Result<(), FramerError> {
        let mut framed = vec![data.len() as u8];
        framed.extend_from_slice(&data);
        out.send(framed);
        Ok(())
    }
    fn handle_received_data(&mut self, input: &mut Input<'_>) -> Result<Readiness, FramerError> {
        if !self.framer_ready {
            let n = input.parse().len().min(WORD.len());
            if input.parse()[..n] != WORD[..n] {
                return Err(FramerError("the peer is impolite".into()));
            }
            if n < WORD.len() {
                return Ok(Readiness::Handshaking);
            }
            input.advance_receive_cursor(n);
            self.framer_ready = true;
            // What comes behind the word is looked at when it is called again.
            return Ok(Readiness::Ready);
        }
        while let Some(&n) = input.parse().first() {
            if input.parse().len() <= usize::from(n) {
                break;
            }
            input.advance_receive_cursor(1);
            input.deliver_and_advance_receive_cursor(n.into(), true);
        }
        Ok(Readiness::Ready)
    }
}

fn polite() -> FramerSpec {
    FramerSpec::Custom(Arc::new(|| Box::new(Polite::default())))
}

#[tokio::test]
async fn a_connection_is_ready_when_both_framers_have_finished_their_handshake() {
    for stack in [Stack::Tcp, Stack::Tls, Stack::Quic, Stack::Udp] {
        let neater = Neater::new().expect("engine");
        let (client, server) = match stack {
            Stack::Tls | Stack::Quic => crate::common::security(),
            _ => (SecurityParameters::disabled(), SecurityParameters::disabled()),
        };
        let mut pre = neater.preconnection().stacks(&[stack]).framer(polite());
        if stack == Stack::Udp {
            *pre.properties_mut() = neater_property::profile("unreliable-datagram").expect("known");
        }
        let listener = pre.clone().security(server).local(loopback(0)).listen().expect("listening");
        let pre = pre.security(client).remote(loopback(listener.port()));
        // Before the handshake, with it and after it.
        for first in [true, false] {
            let ours = if first {
                soon(
                    "initiate",
                    pre.initiate_with_send("one", &neater::MessageContext::new().safely_replayable_as(true)),
                )
                .await
                .expect("connected")
            } else {
                let ours = soon("initiate", pre.initiate()).await.expect("connected");
                soon("send", ours.send("one")).await.expect("sent");
                ours
            };
            soon("send", ours.send("two")).await.expect("sent");
            let theirs = soon("accept", listener.accept()).await.expect("a connection");
            for word in ["one", "two"] {
                let message = soon("receive", theirs.receive()).await.expect("alive").expect("a message");
                assert_eq!(message.data, word, "{stack}");
            }
            soon("send", theirs.send("three")).await.expect("sent");
            let message = soon("receive", ours.receive()).await.expect("alive").expect("a message");
            assert_eq!(message.data, "three", "{stack}");
            if stack == Stack::Quic {
                let clone = ours.clone_connection().expect("a stream");
                soon("ready", clone.ready()).await.expect("ready");
                soon("send", clone.send("four")).await.expect("sent");
                let theirs = soon("accept", listener.accept()).await.expect("a stream");
                let message = soon("receive", theirs.receive()).await.expect("alive").expect("a message");
                assert_eq!(message.data, "four");
            }
        }
        drop((pre, listener));
        nothing_left(&neater).await;
    }
}

/// A stream whose framer is still at its handshake when the listener stops is not delivered.
#[tokio::test]
async fn a_connection_in_its_framer_handshake_when_the_listener_stops_is_notified() {
    let (near, far) = (Neater::new().expect("engine"), Neater::new().expect("engine"));
    let (client, server) = crate::common::security();
    let over = |n: &Neater| n.preconnection().stacks(&[Stack::Quic]);
    let listener = over(&far).framer(polite()).security(server).local(loopback(0)).listen().expect("listening");
    let pre = over(&near).security(client).remote(loopback(listener.port()));
    let first = soon("initiate", pre.initiate()).await.expect("connected");
    let context = neater::MessageContext::new();
    soon("send", first.send_partial(WORD, &context, false)).await.expect("sent");
    let taken = soon("accept", listener.accept()).await.expect("a connection");
    let second = first.clone_connection().expect("a stream");
    soon("send", second.send_partial(&WORD[..2], &context, false)).await.expect("sent");
    tokio::time::sleep(Duration::from_millis(100)).await;
    listener.stop();
    soon("send", second.send_partial(&WORD[2..], &context, false)).await.ok();
    let said = async {
        while let Some(_word) = second.receive_partial(10).await? {}
        Ok::<_, ConnectionError>(())
    };
    soon("receive", said).await.expect_err("nobody takes it");
    soon("send", taken.send("x")).await.expect("what was delivered goes on");
}

#[tokio::test]
async fn a_handshake_that_the_peer_does_not_answer_ends_in_time_and_nothing_else_is_sent() {
    let neater = Neater::new().expect("engine");
    let silent = std::net::TcpListener::bind(loopback(0)).expect("bound");
    let port = silent.local_addr().expect("bound").port();
    let pre = clear(&neater).framer(polite()).timeout(Duration::from_millis(300)).remote(loopback(port));
    let connection = pre.initiate().connection().expect("begun");
    soon("send", connection.send("data before the handshake")).await.expect("taken");
    let (mut peer, _) = silent.accept().expect("a connection");
    let error = soon("ready", connection.ready()).await.expect_err("nobody answers");
    assert_eq!(error.reason, Reason::Timeout, "{error}");
    assert!(soon("closed", connection.closed()).await.is_err());
    drop(connection);
    let mut said = Vec::new();
    let _ = peer.read_to_end(&mut said);
    assert_eq!(said, WORD);
    nothing_left(&neater).await;
}

#[tokio::test]
async fn a_handshake_that_fails_says_why_and_one_that_is_not_finished_is_not_delivered() {
    let neater = Neater::new().expect("engine");
    let listener = clear(&neater).framer(polite()).local(loopback(0)).listen().expect("listening");
    let mut impolite = std::net::TcpStream::connect(loopback(listener.port())).expect("connected");
    impolite.write_all(b"HELP").expect("written");
    let slow = std::net::TcpStream::connect(loopback(listener.port())).expect("connected");
    let accepted = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
    assert!(accepted.is_err(), "neither is delivered");
    assert_eq!(neater.stats().connections, 1, "the slow one has time");
    // A peer that sends something else, one that ends without sending, and a framer that does not
    // even begin.
    for (said, why) in
        [(&b"HOLA!"[..], "the peer is impolite"), (b"HEL", "ended the connection in the framer's handshake")]
    {
        let other = std::net::TcpListener::bind(loopback(0)).expect("bound");
        let pre = clear(&neater).framer(polite()).remote(other.local_addr().expect("bound"));
        let connection = pre.initiate().connection().expect("begun");
        let (mut peer, _) = other.accept().expect("a connection");
        peer.write_all(said).expect("written");
        peer.shutdown(std::net::Shutdown::Write).expect("ended");
        let error = soon("ready", connection.ready()).await.expect_err("it fails");
        assert!(error.to_string().contains(why), "{error}");
        assert!(connection.candidates().iter().all(|c| error.candidates.contains(c)));
    }
    struct Locked;
    impl Framer for Locked {
        fn name(&self) -> &str {
            "locked"
        }
        fn start(&mut self, _: &mut Outbound) -> Result<Readiness, FramerError> {
            Err(FramerError("no key for this peer".into()))
        }
        fn new_sent_message(&mut self, _: &mut Outbound, _: Bytes, _: bool, _: bool) -> Result<(), FramerError> {
            Ok(())
        }
        fn handle_received_data(&mut self, _: &mut Input<'_>) -> Result<Readiness, FramerError> {
            Ok(Readiness::Ready)
        }
    }
    let locked = FramerSpec::Custom(Arc::new(|| Box::new(Locked)));
    let pre = clear(&neater).framer(locked).remote(loopback(listener.port()));
    let error = soon("initiate", pre.initiate()).await.expect_err("it does not begin");
    assert_eq!(error.reason, Reason::EstablishmentFailed);
    assert!(error.to_string().contains("no key for this peer"), "{error}");
    // Given up in the middle.
    let silent = std::net::TcpListener::bind(loopback(0)).expect("bound");
    let pre = clear(&neater).framer(polite()).remote(silent.local_addr().expect("bound"));
    let given_up = tokio::time::timeout(Duration::from_millis(100), pre.initiate()).await;
    assert!(given_up.is_err());
    drop((slow, impolite, listener));
    nothing_left(&neater).await;
}

/// A line of a peer that knows nothing of framers.
fn line(from: &mut std::net::TcpStream) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while from.read(&mut byte).expect("alive") > 0 {
        text.push(byte[0]);
        if byte == *b"\n" {
            break;
        }
    }
    String::from_utf8(text).expect("text")
}

#[tokio::test]
async fn lines_are_messages_for_a_peer_that_reads_and_writes_text() {
    for (crlf, end) in [(false, "\n"), (true, "\r\n")] {
        let neater = Neater::new().expect("engine");
        let framer = FramerSpec::Lines { max: 10, crlf };
        let listener = clear(&neater).framer(framer).local(loopback(0)).listen().expect("listening");
        let at = (std::net::Ipv4Addr::LOCALHOST, listener.port());
        let mut peer = std::net::TcpStream::connect(at).expect("connected");
        let ours = soon("accept", listener.accept()).await.expect("a connection");
        // Either end is accepted, and where packets begin does not matter.
        for part in ["one\r", "\ntw", "o\n\nth", "ree\r\n"] {
            peer.write_all(part.as_bytes()).expect("written");
        }
        for wanted in ["one", "two", "", "three"] {
            let message = soon("receive", ours.receive()).await.expect("alive").expect("a message");
            assert_eq!(&message[..], wanted.as_bytes());
        }
        soon("send", ours.send("answer")).await.expect("sent");
        let (text, mut peer) = soon("the answer", async {
            tokio::task::spawn_blocking(move || (line(&mut peer), peer)).await.expect("ran")
        })
        .await;
        assert_eq!(text, format!("answer{end}"));
        // What is no line is refused before anything of it is sent.
        for bad in ["a\nb", "12345678901"] {
            assert!(soon("send", ours.send(bad)).await.is_err(), "{bad:?}");
        }
        peer.write_all(b"12345678901").expect("written");
        let e = soon("receive", ours.receive()).await.expect_err("too long").to_string();
        assert!(e.contains("more than 10 bytes"), "{e}");
    }
}

#[tokio::test]
async fn a_peer_that_ends_within_a_line_has_sent_no_message() {
    let neater = Neater::new().expect("engine");
    let framer = FramerSpec::Lines { max: 10, crlf: false };
    let listener = clear(&neater).framer(framer).local(loopback(0)).listen().expect("listening");
    let at = (std::net::Ipv4Addr::LOCALHOST, listener.port());
    let mut peer = std::net::TcpStream::connect(at).expect("connected");
    let ours = soon("accept", listener.accept()).await.expect("a connection");
    peer.write_all(b"whole\nhal").expect("written");
    drop(peer);
    assert_eq!(soon("receive", ours.receive()).await.expect("alive").as_deref(), Some(&b"whole"[..]));
    let e = soon("receive", ours.receive()).await.expect_err("cut").to_string();
    assert!(e.contains("3 bytes into a line"), "{e}");
}
