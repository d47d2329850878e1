//! QUIC with aioquic (Python) and quic-go: both ways, streams, one-way streams, datagrams, early data, retry, version
//! negotiation, and the end with a code and words.

use neater::{
    Accepted, Connection, ConnectionError, Group, Listener, MessageContext, Neater, Preconnection, SecurityParameters,
    Stack, StreamDirection,
};
use neater_interop::{
    Certificate, LIMIT, Running, Scratch, certificate, go_peer, here, python_with_aioquic, run, security, skip,
    within_limit,
};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn quic(neater: &Neater, mut security: SecurityParameters) -> Preconnection {
    security.alpn = vec![b"echo".to_vec()];
    neater.preconnection().security(security).stacks(&[Stack::Quic])
}

async fn read_all(connection: &Connection) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(part) = connection.receive().await.expect("alive") {
        all.extend_from_slice(&part);
    }
    all
}

/// Sends on a stream, ends it, and expects the same back.
async fn echo(connection: &Connection, data: &[u8]) {
    connection.send(data.to_vec()).await.expect("sent");
    connection.finish().expect("finished");
    let back = read_all(connection).await;
    assert!(back == data, "{} bytes went, {} came", data.len(), back.len());
}

/// What our client does with a peer that serves as `peers/aioquic_server.py` and `go/main.go` do.
async fn client(server: &Running, port: u16, certificate: &Certificate) {
    let neater = Neater::new().expect("engine");
    let (security, _) = security(certificate);
    let pre = quic(&neater, security).remote(loopback(port));
    let connection = pre.initiate().await.expect("connected");
    assert_eq!(connection.alpn().as_deref(), Some(&b"echo"[..]));
    let group = connection.group().expect("a group");
    let streams: Vec<Connection> = (0..5).map(|_| connection.clone_connection().expect("a stream")).collect();
    echo(&connection, &[7; 200_000]).await;
    for (n, stream) in streams.iter().enumerate() {
        stream.ready().await.expect("ready");
        echo(stream, &vec![n as u8; 20_000 * n + 1]).await;
    }
    drop((connection, streams));

    // A stream that only we send on is answered on one that only the peer sends on.
    let one_way = group.open(StreamDirection::One).expect("a one-way stream");
    one_way.send_with("shout", &MessageContext::new().final_as(true)).await.expect("sent");
    let answer = group.accept().await.expect("the peer's stream");
    assert_eq!(read_all(&answer).await, b"SHOUT");

    // The peer ends it, with a code and words that we see.
    let last = group.open(StreamDirection::One).expect("a one-way stream");
    last.send_with("close me", &MessageContext::new().final_as(true)).await.expect("sent");
    let end = loop {
        match group.accept().await {
            Ok(_) => {}
            Err(e) => break e,
        }
    };
    let ConnectionError::Quic(end) = &end else { panic!("not an end of QUIC: {end}") };
    let words = format!("{end:?}");
    assert!(words.contains("42") && words.contains("as you wish"), "{words}");
    drop((group, one_way, last, answer));

    // We end it, with a code and words that the peer sees.
    let connection = pre.initiate().await.expect("connected");
    echo(&connection, b"x").await;
    let group = connection.group().expect("a group");
    group.close_session(77, b"enough");
    let seen = tokio::task::block_in_place(|| server.wait_to_say("closed code=77"));
    assert!(seen.contains("enough"), "{seen}");
}

async fn datagrams(port: u16, certificate: &Certificate) {
    let neater = Neater::new().expect("engine");
    let (mut security, _) = security(certificate);
    security.alpn = vec![b"echo".to_vec()];
    let properties = neater::TransportProperties::parse("unreliable-datagram").expect("words").properties;
    let pre = neater.preconnection().properties(properties).security(security).stacks(&[Stack::QuicDatagram]);
    let connection = pre.remote(loopback(port)).initiate().await.expect("connected");
    for n in 0..10u8 {
        connection.send(vec![n; 900]).await.expect("sent");
        let back = connection.receive().await.expect("alive").expect("a datagram");
        assert_eq!(&back[..], [n; 900]);
    }
}

/// Runs a test's future where its tasks can block without stopping the engine.
fn on_two_threads<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(LIMIT, future).await.expect("the test is through in time") })
}

fn aioquic_server(python: PathBuf, certificate: &Certificate, options: &[&str]) -> (Running, u16) {
    let mut command = Command::new(python);
    command.arg(here("peers/aioquic_server.py")).arg(&certificate.cert).arg(&certificate.key).args(options);
    let server = Running::start(&mut command);
    let port = server.wait_to_say("port ").parse().expect("a port");
    (server, port)
}

macro_rules! aioquic {
    () => {
        match python_with_aioquic() {
            Ok(python) => python,
            Err(why) => skip!("aioquic: {why}"),
        }
    };
}

#[test]
fn our_client_and_an_aioquic_server() {
    let python = aioquic!();
    let scratch = Scratch::new("aioquic");
    let certificate = certificate(&scratch, "server");
    let (server, port) = aioquic_server(python, &certificate, &[]);
    on_two_threads(async {
        client(&server, port, &certificate).await;
        datagrams(port, &certificate).await;
    });
}

#[test]
fn an_aioquic_server_asks_our_client_to_retry() {
    let python = aioquic!();
    let scratch = Scratch::new("retry");
    let certificate = certificate(&scratch, "server");
    let (_server, port) = aioquic_server(python, &certificate, &["retry"]);
    within_limit(async {
        let neater = Neater::new().expect("engine");
        let connection = quic(&neater, security(&certificate).0).remote(loopback(port)).initiate().await;
        echo(&connection.expect("connected after a retry"), b"hello").await;
    });
}

#[test]
fn a_second_connection_to_an_aioquic_server_sends_its_first_message_early() {
    let python = aioquic!();
    let scratch = Scratch::new("early");
    let certificate = certificate(&scratch, "server");
    let (server, port) = aioquic_server(python, &certificate, &[]);
    on_two_threads(async {
        let neater = Neater::new().expect("engine");
        let mut pre = quic(&neater, security(&certificate).0).remote(loopback(port));
        pre.compile(neater::Role::Initiate).expect("compiles");
        let first = pre.initiate().await.expect("connected");
        let said = tokio::task::block_in_place(|| server.wait_to_say("handshake "));
        assert_eq!(said, "alpn=echo early=False resumed=False");
        echo(&first, b"first").await;
        // The ticket comes after the handshake.
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(first);
        let replayable = MessageContext::new().safely_replayable_as(true);
        let second = pre.initiate_with_send("early", &replayable).await.expect("connected");
        second.finish().expect("finished");
        assert_eq!(read_all(&second).await, b"early", "once and whole");
        let said = tokio::task::block_in_place(|| server.wait_to_say("handshake alpn=echo early=True"));
        assert_eq!(said, "resumed=True");
    });
}

#[test]
fn a_server_without_our_version_is_told_apart_from_one_that_is_away() {
    let python = aioquic!();
    let scratch = Scratch::new("version");
    let certificate = certificate(&scratch, "server");
    let (_server, port) = aioquic_server(python, &certificate, &["v2"]);
    within_limit(async {
        let neater = Neater::new().expect("engine");
        let error = quic(&neater, security(&certificate).0).remote(loopback(port)).initiate().await;
        let error = error.expect_err("it speaks version 2 only").to_string();
        assert!(error.contains("version"), "{error}");
    });
}

/// Our listener, which echoes every stream of every connection, until the group is closed; tells how it ended.
async fn serve(listener: Listener, ended: tokio::sync::mpsc::UnboundedSender<String>) {
    listener.deliver_groups(true);
    while let Some(accepted) = listener.accept_any().await {
        let Accepted::Group(group) = accepted else { panic!("QUIC comes as groups") };
        tokio::spawn(serve_group(group, ended.clone()));
    }
}

async fn serve_group(group: Group, ended: tokio::sync::mpsc::UnboundedSender<String>) {
    loop {
        match group.accept().await {
            Ok(stream) => drop(tokio::spawn(async move {
                while let Ok(Some(part)) = stream.receive().await {
                    if stream.send(part.data).await.is_err() {
                        return;
                    }
                }
                let _ = stream.finish();
            })),
            Err(e) => {
                let _ = ended.send(format!("{e:?}"));
                return;
            }
        }
    }
}

/// Runs a client against our echo server; returns what the client said and how the server's groups ended.
fn against_our_server(scratch: &Scratch, command: impl FnOnce(u16, &Certificate) -> Command) -> (String, Vec<String>) {
    let certificate = certificate(scratch, "ours");
    on_two_threads(async {
        let neater = Neater::new().expect("engine");
        let pre = quic(&neater, security(&certificate).1).local(loopback(0));
        let listener = pre.prefer(neater::SelectionProperty::ZeroRttMsg).listen().expect("listening");
        let port = listener.port();
        let (sender, mut ends) = tokio::sync::mpsc::unbounded_channel();
        let task = tokio::spawn(serve(listener, sender));
        let mut command = command(port, &certificate);
        let done = tokio::task::spawn_blocking(move || run(&mut command, Duration::from_secs(15))).await.expect("runs");
        assert!(done.status.success() && done.said.lines().any(|l| l == "ok"), "{}: {}", done.status, done.said);
        let mut seen = Vec::new();
        while let Ok(Some(end)) = tokio::time::timeout(Duration::from_millis(300), ends.recv()).await {
            seen.push(end);
        }
        task.abort();
        (done.said, seen)
    })
}

fn aioquic_client(python: PathBuf, port: u16, certificate: &Certificate, mode: &str) -> Command {
    let mut command = Command::new(python);
    command.arg(here("peers/aioquic_client.py")).arg(port.to_string()).arg(&certificate.cert).arg(mode);
    command
}

#[test]
fn an_aioquic_client_and_our_listener() {
    let python = aioquic!();
    let scratch = Scratch::new("aioquic");
    let (_, ends) = against_our_server(&scratch, |port, c| aioquic_client(python, port, c, "echo"));
    assert!(ends.iter().any(|e| e.contains("42") && e.contains("from python")), "{ends:?}");
}

#[test]
fn an_aioquic_client_resumes_and_sends_early() {
    let python = aioquic!();
    let scratch = Scratch::new("twice");
    let (said, _) = against_our_server(&scratch, |port, c| aioquic_client(python, port, c, "twice"));
    assert!(said.contains("early=True resumed=True"), "{said}");
}

#[test]
fn an_aioquic_client_is_told_which_version_we_speak() {
    let python = aioquic!();
    let scratch = Scratch::new("version");
    let (said, _) = against_our_server(&scratch, |port, c| aioquic_client(python, port, c, "version"));
    assert!(said.contains("version=0x1\n"), "{said}");
}

#[test]
fn an_aioquic_client_exchanges_datagrams_with_our_listener() {
    let python = aioquic!();
    let scratch = Scratch::new("datagrams");
    let certificate = certificate(&scratch, "ours");
    on_two_threads(async {
        let neater = Neater::new().expect("engine");
        let (_, mut security) = security(&certificate);
        security.alpn = vec![b"echo".to_vec()];
        let properties = neater::TransportProperties::parse("unreliable-datagram").expect("words").properties;
        let pre = neater.preconnection().properties(properties).security(security).stacks(&[Stack::QuicDatagram]);
        let listener = pre.local(loopback(0)).listen().expect("listening");
        let mut command = aioquic_client(python, listener.port(), &certificate, "datagrams");
        let serving = tokio::spawn(async move {
            let connection = listener.accept().await.expect("a connection");
            while let Ok(Some(datagram)) = connection.receive().await {
                connection.send(datagram.data).await.expect("sent");
            }
        });
        let done = tokio::task::spawn_blocking(move || run(&mut command, Duration::from_secs(15))).await.expect("runs");
        serving.abort();
        assert!(done.status.success() && done.said.contains("ok"), "{}: {}", done.status, done.said);
    });
}

#[test]
fn our_client_and_a_quic_go_server() {
    let peer = match go_peer() {
        Ok(peer) => peer,
        Err(why) => skip!("{why}"),
    };
    let scratch = Scratch::new("go");
    let certificate = certificate(&scratch, "server");
    let server = Running::start(Command::new(peer).arg("server").arg(&certificate.cert).arg(&certificate.key));
    let port = server.wait_to_say("port ").parse().expect("a port");
    on_two_threads(async {
        client(&server, port, &certificate).await;
        datagrams(port, &certificate).await;
    });
}

#[test]
fn a_quic_go_client_and_our_listener() {
    let peer = match go_peer() {
        Ok(peer) => peer,
        Err(why) => skip!("{why}"),
    };
    let scratch = Scratch::new("go");
    let (_, ends) = against_our_server(&scratch, |port, c| {
        let mut command = Command::new(peer);
        command.arg("client").arg(port.to_string()).arg(&c.cert);
        command
    });
    assert!(ends.iter().any(|e| e.contains("42") && e.contains("from go")), "{ends:?}");
}
