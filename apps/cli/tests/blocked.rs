//! Networks and peers that are no good: UDP that is swallowed while a file is on its way, peers
//! that accept and do not serve.

mod common;

use common::{Folder, Serving, neater, noise, of, run};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Passes TCP and UDP on to a port, and UDP's answers only until there were this many bytes of them; its own port.
fn network(to: u16, most: u64) -> u16 {
    let (tcp, udp) = (0..100)
        .find_map(|_| {
            let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
            let udp = UdpSocket::bind(tcp.local_addr().ok()?).ok()?;
            Some((tcp, udp))
        })
        .expect("a port for both");
    let port = tcp.local_addr().expect("bound").port();
    let server = SocketAddr::from(([127, 0, 0, 1], to));
    std::thread::spawn(move || {
        for client in tcp.incoming().flatten() {
            let Ok(server) = TcpStream::connect(server) else { continue };
            for (from, to) in [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))] {
                let (Ok(from), Ok(to)) = (from, to) else { continue };
                std::thread::spawn(move || pump(from, to));
            }
        }
    });
    std::thread::spawn(move || {
        let (udp, passed) = (Arc::new(udp), Arc::new(AtomicU64::new(0)));
        let mut ways: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
        let mut buf = [0; 65_536];
        while let Ok((n, client)) = udp.recv_from(&mut buf) {
            let way = ways.entry(client).or_insert_with(|| {
                let way = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("bound"));
                way.connect(server).expect("connected");
                let (from, back, passed) = (way.clone(), udp.clone(), passed.clone());
                std::thread::spawn(move || {
                    let mut buf = [0; 65_536];
                    while let Ok(n) = from.recv(&mut buf) {
                        if passed.fetch_add(n as u64, Ordering::Relaxed) < most {
                            let _ = back.send_to(&buf[..n], client);
                        }
                    }
                });
                way
            });
            let _ = way.send(&buf[..n]);
        }
    });
    port
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    let mut buf = [0; 65_536];
    while let Ok(n @ 1..) = from.read(&mut buf) {
        if to.write_all(&buf[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

#[test]
fn what_udp_has_begun_tcp_ends() {
    let f = Folder::new("blocked");
    let contents = noise(6 << 20, 9);
    f.put("root/big.bin", &contents);
    let server = Serving::new(&f.path("root"), &f.path("state"), &[]);
    let port = network(server.port, 2 << 20);
    let url = format!("https://localhost:{port}/big.bin");
    let r = run(server.get().args(["--json", "--timeout", "2", "--retries", "3", "-o"]).arg(f.path("big")).arg(&url));
    assert_eq!(r.code, 0, "{}\n{}", r.out, r.err);
    assert!(f.read("big") == contents);
    let events = r.events();
    let ways: Vec<_> = of(&events, "connected").iter().map(|e| e["transport"].as_str().unwrap_or_default()).collect();
    assert_eq!(ways, ["QUIC", "TLS/TCP"], "{}", r.out);
    assert_eq!(of(&events, "done")[0]["transport"], "TLS/TCP");
    assert_eq!(of(&events, "retry").len(), 1, "the dead session is not asked again: {}", r.out);
}

/// A server that sends this on each connection, and keeps it: its port, and a count of connections.
fn sender_of(at: &str, what: &'static [u8]) -> Option<(u16, Arc<AtomicU64>)> {
    let listener = TcpListener::bind(at).ok()?;
    let (port, count) = (listener.local_addr().ok()?.port(), Arc::new(AtomicU64::new(0)));
    let counted = count.clone();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut client in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = client.write_all(what);
            kept.push(client);
        }
    });
    Some((port, count))
}

#[test]
fn what_speaks_no_http_is_asked_once_and_shown() {
    let (port, count) = sender_of("127.0.0.1:0", b"SSH-2.0-OpenSSH_9.9\r\n").expect("a port");
    let r = run(neater().args(["get", &format!("http://127.0.0.1:{port}/")]));
    assert_eq!((r.code, r.out.as_str()), (1, ""), "{}", r.err);
    assert!(r.err.contains("does not speak HTTP there: it begins with \"SSH-2.0-OpenSSH_9.9\""), "{}", r.err);
    assert!(!r.err.contains("asking again"), "{}", r.err);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn an_address_that_accepts_and_is_silent_costs_neither_a_time_out_nor_a_retry() {
    let served = (0..100).find_map(|_| {
        let live = TcpListener::bind("127.0.0.1:0").ok()?;
        let (port, count) = sender_of(&format!("[::1]:{}", live.local_addr().ok()?.port()), b"")?;
        Some((live, port, count))
    });
    let Some((live, port, count)) = served else {
        return common::say_skipped("there is no IPv6 here");
    };
    std::thread::spawn(move || {
        for mut client in live.incoming().flatten() {
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        }
    });
    let f = Folder::new("silent-address");
    let url = format!("http://localhost:{port}/a");
    let hosts = f.path("hosts");
    std::fs::write(&hosts, "::1 localhost\n127.0.0.1 localhost\n").expect("a file");
    let mut get = neater();
    get.args(["get", "--json", "--timeout", "2", "--hosts"]).arg(&hosts).arg("-o").arg(f.path("a")).arg(&url);
    let r = run(&mut get);
    assert_eq!(r.code, 0, "{}\n{}", r.out, r.err);
    assert_eq!(f.read("a"), b"ok");
    let events = r.events();
    assert_eq!(of(&events, "retry").len(), 0, "{}", r.out);
    let address = of(&events, "connected")[0]["address"].as_str().unwrap_or_default().to_owned();
    assert_eq!((address.starts_with("127.0.0.1:"), count.load(Ordering::SeqCst)), (true, 1), "{}", r.out);
}
