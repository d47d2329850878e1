//! Link-local peers, whose interface is part of their address (RFC 4007), in a network namespace of
//! this test's own.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "a network namespace")]

mod common;

use common::{LIMIT, echo, security};
use neater::{LocalEndpoint, Neater, Stack, TransportProperties};
use std::process::Command;

/// Runs in a thread in a network namespace whose loopback interface has a link-local address; not
/// where that is not allowed.
fn with_link_local(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        // SAFETY: moves this thread, which is about to end, into a new network namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return eprintln!("SKIP: link-local peers: not allowed to make a network namespace");
        }
        for args in [&["link", "set", "lo", "up"][..], &["-6", "addr", "add", "fe80::1/64", "dev", "lo", "nodad"]] {
            if !Command::new("ip").args(args).status().is_ok_and(|s| s.success()) {
                return eprintln!("SKIP: link-local peers: no `ip`, or no IPv6 here");
            }
        }
        run();
    });
    thread.join().expect("the test's thread");
}

#[test]
fn a_link_local_peer_is_reached_by_every_stack() {
    with_link_local(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let neater = Neater::new().expect("engine");
            for stack in [Stack::Tls, Stack::Quic, Stack::QuicDatagram, Stack::Udp, Stack::Sctp] {
                let (mut client, mut server) = security();
                client.server_name = Some("localhost".into());
                let mut pre = neater.preconnection().stacks(&[stack]);
                if matches!(stack, Stack::QuicDatagram | Stack::Udp) {
                    let words = TransportProperties::parse("unreliable-datagram").expect("words");
                    pre = pre.properties(words.properties);
                }
                if matches!(stack, Stack::Sctp | Stack::Udp) {
                    (client, server) = (neater::SecurityParameters::disabled(), neater::SecurityParameters::disabled());
                }
                let any = LocalEndpoint::new();
                let listener = pre.clone().security(server).local(any).listen().expect("listening");
                let to = format!("[fe80::1%lo]:{}", listener.port());
                tokio::spawn(echo(listener));
                let pre = pre.security(client).remote(to.parse::<neater::RemoteEndpoint>().expect("an address"));
                let c = tokio::time::timeout(LIMIT, pre.initiate()).await.expect("it ends");
                let c = c.unwrap_or_else(|e| panic!("{stack}: {e}"));
                c.send("hello").await.expect("sent");
                let back = tokio::time::timeout(LIMIT, c.receive()).await.expect("in time").expect("received");
                assert_eq!(back.expect("a message").data, "hello", "{stack}");
            }
        });
    });
}
