//! Networks and peers that are no good: UDP that is swallowed while a file is on its way, peers
//! that accept and do not serve.

mod common;

use common::{Folder, Serving, neater, noise, of, run};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Passes TCP and UDP on to a port, and UDP's answers only until there were this many bytes of
/// them; its own port.
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

/// By which transports a run has tried to connect, and whether it began with what an earlier one
/// has kept.
fn tried(r: &common::Ran) -> (Vec<String>, bool) {
    assert_eq!(r.code, 0, "{}\n{}", r.out, r.err);
    let events = r.events();
    let steps = |step: &str| {
        let of = events.iter().filter(|e| e["step"] == step);
        of.map(|e| e["transport"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    (steps("started"), !steps("from-cache").is_empty())
}

#[test]
fn what_one_run_has_learnt_of_a_network_the_next_one_begins_with() {
    use std::os::unix::fs::PermissionsExt;
    let f = Folder::new("remembers");
    f.put("root/file", noise(1000, 9));
    let server = Serving::new(&f.path("root"), &f.path("state"), &[]);
    // UDP goes in, and nothing comes back.
    let port = network(server.port, 0);
    let (url, kept) = (format!("https://127.0.0.1:{port}/file"), f.path("cache/outcomes"));
    let get = |more: &[&str]| {
        let mut get = server.get();
        get.args(["--json", "-v", "-o", "/dev/null", &url]).args(more);
        run(get.env("NEATER_CACHE", f.path("cache")))
    };
    let has_quic = |(tried, from_cache): (Vec<String>, bool)| (tried.iter().any(|t| t == "QUIC"), from_cache);
    assert_eq!(has_quic(tried(&get(&["--no-cache"]))), (true, false));
    assert!(!kept.exists());
    assert_eq!(has_quic(tried(&get(&[]))), (true, false));
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("kept").permissions().mode() & 0o777;
    assert_eq!((mode(&kept), mode(&f.path("cache"))), (0o600, 0o700));
    let text = f.read("cache/outcomes");

    let started = std::time::Instant::now();
    assert_eq!(tried(&get(&[])), (Vec::new(), true), "what has worked is tried alone");
    let took = started.elapsed();
    assert!(f.read("cache/outcomes") == text, "nothing new was learnt");
    assert_eq!(has_quic(tried(&get(&["--no-cache"]))), (true, false));
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
    // Sessions that are isolated neither use it nor add to it.
    assert_eq!(has_quic(tried(&get(&["--needs", "isolateSession=true"]))), (true, false));
    assert!(f.read("cache/outcomes") == text);

    let line = |r: &common::Ran| {
        let events = r.events();
        let of = of(&events, "cache");
        of.iter().map(|e| e["message"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(line(&get(&[])), "");
    let damaged = [&b"\xff\xfe"[..], b"", b"neater-outcomes 1 0.0.0 1 1\nend\n", &text[..text.len() / 2]];
    for (damaged, why) in damaged.into_iter().zip(["no text", "no outcomes", "another version", "damaged at line"]) {
        f.put("cache/outcomes", damaged);
        let r = get(&[]);
        assert_eq!(has_quic(tried(&r)), (true, false), "{why}");
        assert!(line(&r).contains(why) && line(&r).lines().count() == 1, "{}", line(&r));
        assert_eq!((tried(&get(&[])), mode(&kept)), ((Vec::new(), true), 0o600), "replaced");
    }
    std::fs::set_permissions(&kept, PermissionsExt::from_mode(0o644)).expect("ours");
    let r = get(&[]);
    assert_eq!(has_quic(tried(&r)), (true, false));
    assert!(line(&r).contains("others may read or change it"), "{}", line(&r));
    assert_eq!(mode(&kept), 0o600);
    assert_eq!(std::fs::read_dir(f.path("cache")).expect("there").count(), 1, "nothing is left over");
}

#[test]
fn runs_at_once_keep_a_whole_file() {
    let f = Folder::new("remembers-at-once");
    f.put("root/file", noise(1000, 9));
    let server = Serving::new(&f.path("root"), &f.path("state"), &[]);
    let ports: Vec<u16> = (0..4).map(|_| network(server.port, 0)).collect();
    let get = |port: u16| {
        let mut get = server.get();
        get.args(["--json", "-v", "-o", "/dev/null", &format!("https://127.0.0.1:{port}/file")]);
        get.env("NEATER_CACHE", f.path("cache"));
        get
    };
    let runs: Vec<_> = ports
        .iter()
        .map(|port| {
            std::thread::spawn({
                let mut get = get(*port);
                move || run(&mut get)
            })
        })
        .collect();
    for r in runs {
        assert_eq!(r.join().expect("ran").code, 0);
    }
    let known = ports.iter().filter(|port| {
        let r = run(&mut get(**port));
        assert!(of(&r.events(), "cache").is_empty(), "{}", r.out);
        tried(&r).1
    });
    // The last one that wrote knows at least of itself.
    assert!(known.count() >= 1);
    for port in ports {
        assert!(tried(&run(&mut get(port))).1, "what came since has been added");
    }
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
