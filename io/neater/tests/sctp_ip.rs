//! SCTP straight over IP: real packets of protocol 132, between engines that know nothing of each
//! other.
//!
//! Each test runs itself again in a network of its own (`unshare`), where no other process has a
//! socket for the protocol: every such socket gets every packet. Without the privilege to do that
//! the tests print that and pass.

use neater::{LocalEndpoint, Neater, Preconnection, RemoteEndpoint, SecurityParameters, Stack};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

const INSIDE: &str = "NEATER_TEST_INSIDE";

/// Runs the test of this name again: as root in a network of its own with loopback alone, or as an
/// unprivileged user. True: this is that run.
fn inside(test: &str, privileged: bool) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let me = std::env::current_exe().expect("a program");
    let prepare = "ip link set lo up; exec \"$0\" \"$@\"";
    let nobody = "ip link set lo up && exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", if privileged { prepare } else { nobody }]).arg(&me);
    let run = command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1").output();
    match run {
        Ok(o) if o.status.success() => {}
        Ok(o) if String::from_utf8_lossy(&o.stderr).contains("unshare failed") => {
            eprintln!("skipped: no namespaces here")
        }
        Ok(o) => panic!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr)),
        Err(e) => eprintln!("skipped: unshare: {e}"),
    }
    false
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn sctp(neater: &Neater) -> Preconnection {
    neater.preconnection().security(SecurityParameters::disabled()).stacks(&[Stack::SctpIp])
}

fn at(addr: &str) -> LocalEndpoint {
    LocalEndpoint::from(addr.parse::<SocketAddr>().expect("an address"))
}

/// Opens connections to a listener at `addr`, has messages of many sizes and streams echoed, and
/// closes.
async fn echo(client: &Neater, server: &Neater, addr: &str) {
    let listener = sctp(server).local(at(addr)).listen().expect("listening");
    let (stack, there) = listener.local_addrs()[0];
    assert_eq!(stack, Stack::SctpIp);
    assert!(there.port() != 0 && listener.udp_ports().is_empty());
    let task = tokio::spawn(async move {
        let mut echoes = Vec::new();
        for _ in 0..5 {
            let connection = listener.accept().await.expect("a connection");
            assert_eq!(connection.stack(), Some(Stack::SctpIp));
            assert_eq!(connection.local_addr(), Some(there));
            echoes.push(tokio::spawn(async move {
                while let Some(m) = connection.receive().await.expect("alive") {
                    connection.send(m.data).await.expect("sent");
                }
                connection.finish().expect("ended");
                connection.closed().await.expect("in order");
            }));
        }
        for e in echoes {
            e.await.expect("an echo");
        }
    });
    let first = sctp(client).remote(RemoteEndpoint::from(there)).initiate().await.expect("connected");
    assert_eq!((first.stack(), first.remote_addr()), (Some(Stack::SctpIp), Some(there)));
    for size in [1, 0, 1000, 100_000, 2_000_000] {
        first.send(vec![size as u8; size]).await.expect("sent");
        let back = first.receive().await.expect("alive").expect("a message");
        assert!(back.data.len() == size && back.end_of_message, "{} of {size} bytes", back.data.len());
    }
    // Three streams of the association, and another association with the same listener.
    let mut all: Vec<_> = (0..3).map(|_| first.clone_connection().expect("cloned")).collect();
    all.push(sctp(client).remote(RemoteEndpoint::from(there)).initiate().await.expect("connected"));
    for (i, c) in all.iter().enumerate() {
        c.send(format!("stream {i}")).await.expect("sent");
    }
    for (i, c) in all.iter().enumerate() {
        assert_eq!(c.receive().await.expect("alive").expect("a message").data, format!("stream {i}"));
    }
    for c in all.into_iter().chain([first]) {
        c.finish().expect("ended");
        assert!(c.receive().await.expect("in order").is_none());
        c.closed().await.expect("in order");
    }
    task.await.expect("the server");
}

#[test]
fn messages_and_streams_between_two_engines_and_within_one() {
    if !inside("messages_and_streams_between_two_engines_and_within_one", true) {
        return;
    }
    runtime().block_on(async {
        let (one, other) = (Neater::new().expect("an engine"), Neater::new().expect("an engine"));
        // A third engine receives every packet, listens at another port, and does no harm.
        let third = Neater::new().expect("an engine");
        let _idle = sctp(&third).local(at("127.0.0.1:7")).listen().expect("listening");
        for addr in ["127.0.0.1:9000", "[::1]:9000", "0.0.0.0:0", "127.0.0.2:9001"] {
            let addr = if addr == "0.0.0.0:0" { "127.0.0.1:0" } else { addr };
            echo(&one, &other, addr).await;
            echo(&one, &one, addr).await;
        }
    });
}

#[test]
fn two_listeners_of_one_engine_share_a_port_at_two_addresses() {
    if !inside("two_listeners_of_one_engine_share_a_port_at_two_addresses", true) {
        return;
    }
    runtime().block_on(async {
        let neater = Neater::new().expect("an engine");
        let (a, b) = ("127.0.0.1:9000", "127.0.0.2:9000");
        let listeners = [a, b].map(|addr| sctp(&neater).local(at(addr)).listen().expect("listening"));
        assert!(sctp(&neater).local(at(a)).listen().is_err(), "taken");
        for (addr, listener) in [a, b].into_iter().zip(&listeners) {
            let remote = RemoteEndpoint::from(addr.parse::<SocketAddr>().expect("an address"));
            let connection = sctp(&neater).remote(remote).initiate().await.expect("connected");
            connection.send(addr.to_owned()).await.expect("sent");
            let accepted = listener.accept().await.expect("a connection");
            assert_eq!(accepted.receive().await.expect("alive").expect("a message").data, addr);
        }
    });
}

#[test]
fn a_host_without_the_protocol_says_so_at_once() {
    if !inside("a_host_without_the_protocol_says_so_at_once", true) {
        return;
    }
    // The client's own socket would receive what is sent to any address of its host, so the peer is
    // another one.
    let veth = "ip link add veth0 type veth peer name veth1 && ip addr add 192.0.2.1/24 dev veth0 && ip link set veth0 up && \
                unshare --net sleep 9 >/dev/null 2>&1 & sleep 0.5; ip link set veth1 netns $! && nsenter --net=/proc/$!/ns/net sh -c \
                'ip addr add 192.0.2.2/24 dev veth1 && ip link set veth1 up'";
    let prepared = Command::new("sh").args(["-c", veth]).stdout(std::process::Stdio::null()).status();
    assert!(prepared.expect("a shell").success());
    runtime().block_on(async {
        let neater = Neater::new().expect("an engine");
        let remote: SocketAddr = "192.0.2.2:9000".parse().expect("an address");
        let started = Instant::now();
        let refused = sctp(&neater).remote(remote).initiate().await.map(|_| ()).expect_err("nobody is there");
        assert!(started.elapsed() < Duration::from_secs(2), "{refused:?} after {:?}", started.elapsed());
    });
}

#[test]
fn without_the_privilege_the_stack_is_excluded_and_the_reason_names_it() {
    if !inside("without_the_privilege_the_stack_is_excluded_and_the_reason_names_it", false) {
        return;
    }
    runtime().block_on(async {
        let neater = Neater::new().expect("an engine");
        let remote: SocketAddr = "127.0.0.1:9000".parse().expect("an address");
        let error = sctp(&neater).remote(remote).initiate().await.map(|_| ()).expect_err("no privilege");
        assert!(error.to_string().contains("SCTP/IP") && error.to_string().contains("CAP_NET_RAW"), "{error}");
        // Where another stack may serve it goes without.
        let both = neater.preconnection().security(SecurityParameters::disabled());
        let listener = both.local(at("127.0.0.1:0")).stacks(&[Stack::SctpIp, Stack::Tcp]).listen().expect("over TCP");
        assert!(listener.local_addrs().iter().all(|(s, _)| *s == Stack::Tcp));
    });
}

/// Engines that share ports receive all of each other's packets over IP: each knows its own by the
/// tag, clients too.
#[test]
fn siblings_leave_each_others_packets_alone() {
    if !inside("siblings_leave_each_others_packets_alone", true) {
        return;
    }
    runtime().block_on(async {
        let shards = neater::EngineShards::new().expect("random numbers");
        let shard = || Neater::builder().shard_of(&shards).build().expect("engine");
        let (server, one, other) = (Neater::new().expect("engine"), shard(), shard());
        for client in [&one, &other] {
            echo(client, &server, "127.0.0.1:0").await;
        }
        echo(&one, &other, "127.0.0.1:0").await;
    });
}
