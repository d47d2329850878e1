//! `neater serve`, against clients that are not ours.

mod common;

use common::{Folder, Serving, neater, noise, of, run};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

fn curl(server: &Serving, args: &[&str]) -> (String, bool) {
    let out = Command::new("curl").args(["-sS", "--cacert"]).arg(&server.ca).args(args).output().expect("curl");
    (String::from_utf8_lossy(&out.stdout).into_owned(), out.status.success())
}

fn raw(port: u16, request: &str) -> String {
    let mut c = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    c.write_all(request.as_bytes()).expect("written");
    let mut text = Vec::new();
    let _ = c.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn curl_takes_both_versions_with_the_generated_certificate() {
    let f = Folder::new("curl");
    f.put("srv/sub/a b.txt", "hello\n");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    for (option, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let url = server.url("sub/a%20b.txt");
        let (text, ok) = curl(&server, &[option, "-w", " %{http_version} %{http_code}", &url]);
        assert_eq!((text, ok), (format!("hello\n {version} 200"), true));
        let (head, _) = curl(&server, &[option, "-I", &url]);
        assert!(head.contains("content-length: 6") && head.contains(&format!("h3=\":{}\"", server.port)), "{head}");
        let (part, _) = curl(&server, &[option, "-r", "1-3", "-w", " %{http_code}", &url]);
        assert_eq!(part, "ell 206");
        let (page, _) = curl(&server, &[option, &server.url("sub/")]);
        assert!(page.contains("./a%20b.txt"), "{page}");
    }
}

#[test]
fn nothing_outside_the_folder_is_reachable() {
    let f = Folder::new("traversal");
    f.put("secret", "secret");
    f.put("srv/a", "a");
    std::os::unix::fs::symlink("../secret", f.path("srv/leak")).expect("linked");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &["--plain"]);
    for path in
        ["/../secret", "/%2e%2e/secret", "/..%2fsecret", "/a/../../secret", "/leak", "//../secret", "/./../secret"]
    {
        let text = raw(server.port, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        assert!(text.starts_with("HTTP/1.1 4") && !text.contains("\r\nsecret"), "{path}: {text}");
        assert!(!text.ends_with("secret"), "{path}: {text}");
    }
    let text = raw(server.port, "GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("\r\na"), "{text}");
    // Neither is what is no file: a socket cannot be opened.
    let _socket = std::os::unix::net::UnixListener::bind(f.path("srv/socket")).expect("bound");
    let text = raw(server.port, "GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 403"), "{text}");
}

#[test]
fn the_certificate_stays_the_same_and_its_key_private() {
    let f = Folder::new("certificate");
    f.put("srv/a", "a");
    let first = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let second = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    assert_eq!((first.sha256.len(), &first.sha256), (64, &second.sha256));
    let public = std::fs::read_to_string(&first.ca).expect("text");
    assert!(public.contains("BEGIN CERTIFICATE") && !public.contains("PRIVATE"));
    for entry in std::fs::read_dir(f.path("state")).expect("a folder").flatten() {
        let private = std::fs::read_to_string(entry.path()).expect("text").contains("PRIVATE");
        let mode = entry.metadata().expect("known").permissions().mode() & 0o777;
        assert!(!private || mode == 0o600, "{:?}: {mode:o}", entry.path());
    }
    let named = Serving::new(&f.path("srv"), &f.path("state"), &["--name", "files.test"]);
    assert_ne!(named.sha256, first.sha256);
}

#[test]
fn a_port_in_use_and_a_missing_folder_say_what_to_do() {
    let f = Folder::new("inuse");
    f.put("srv/a", "a");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let port = server.port.to_string();
    let r = run(neater().args(["serve", "--port", &port, "--cert-dir"]).arg(f.path("state")).arg(f.path("srv")));
    assert_eq!((r.code, r.err.contains("--port 0")), (1, true), "{}", r.err);
    let r = run(neater().arg("serve").arg(f.path("nothing")));
    assert_eq!(r.code, 4, "{}", r.err);
    let r = run(neater().args(["serve", "--plain", "--cert", "x", "--key", "y"]));
    assert_eq!(r.code, 2);
    let both = f.put("not.pem", "hello");
    let r = run(neater().arg("serve").arg("--cert").arg(&both).arg("--key").arg(&both));
    assert_eq!((r.code, r.err.contains("not PEM")), (2, true), "{}", r.err);
}

#[test]
fn it_ends_in_order_when_it_is_told_to() {
    let f = Folder::new("term");
    f.put("srv/a", "a");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &["--plain"]);
    assert!(
        raw(server.port, "GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 200")
    );
    let idle = TcpStream::connect(("127.0.0.1", server.port)).expect("connected");
    let started = std::time::Instant::now();
    let (code, last) = server.stop();
    assert_eq!((code, &last["event"], &last["requests"]), (0, &"stopped".into(), &1.into()));
    assert!(started.elapsed() < std::time::Duration::from_secs(11));
    drop(idle);
}

#[test]
fn names_with_a_dot_are_served_only_when_that_is_asked_for() {
    let f = Folder::new("hidden");
    f.put("srv/a", "a");
    f.put("srv/.env", "PASSWORD");
    f.put("srv/.git/config", "PASSWORD");
    let ask = |server: &Serving, path: &str| {
        raw(server.port, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    };
    let server = Serving::new(&f.path("srv"), &f.path("state"), &["--plain"]);
    for path in ["/.env", "/%2eenv", "/.git/config", "/.git/", "/./.git/config", "//.env"] {
        let text = ask(&server, path);
        assert!(text.starts_with("HTTP/1.1 404") && !text.contains("PASSWORD"), "{path}: {text}");
    }
    let page = ask(&server, "/");
    assert!(page.contains("./a\"") && !page.contains(".env") && !page.contains(".git"), "{page}");
    drop(server);
    let server = Serving::new(&f.path("srv"), &f.path("state"), &["--plain", "--hidden"]);
    assert!(ask(&server, "/.git/config").ends_with("PASSWORD"));
    assert!(ask(&server, "/").contains(".env"));
}

#[test]
fn a_request_that_names_no_host_or_two_is_a_bad_one() {
    let f = Folder::new("no-host");
    f.put("srv/a", "a");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &["--plain"]);
    for (version, fields, status) in [
        ("1.1", "", "400"),
        ("1.1", "Host: a\r\nHost: a\r\n", "400"),
        ("1.1", "Host: a b\r\n", "400"),
        ("1.1", "Host: me@a\r\n", "400"),
        ("1.1", "Host:\r\n", "200"),
        ("1.1", "Host: localhost:80\r\n", "200"),
        ("1.1", "Host: 127.0.0.1:80\r\n", "200"),
        // It listens for this host alone, and that is not its name.
        ("1.1", "Host: a:80\r\n", "421"),
        ("1.0", "", "200"),
    ] {
        let text = raw(server.port, &format!("GET /a HTTP/{version}\r\n{fields}Connection: close\r\n\r\n"));
        assert_eq!(text.split(' ').nth(1), Some(status), "{fields}: {text}");
        assert!(text.contains("\r\ndate: ") || text.contains("\r\nDate: "), "{text}");
    }
    let text = raw(server.port, "GET https://localhost/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 421"), "https in the clear: {text}");
}

#[test]
fn a_name_of_another_site_that_leads_here_reads_nothing() {
    let f = Folder::new("rebinding");
    f.put("srv/a", "secret");
    let ask = |more: &[&str], option: &str, host: &str| {
        let server = Serving::new(&f.path("srv"), &f.path("state"), more);
        let resolve = format!("{host}:{}:127.0.0.1", server.port);
        let url = format!("https://{host}:{}/a", server.port);
        curl(&server, &["-k", option, "--resolve", &resolve, "-w", " %{http_code}", &url]).0
    };
    for option in ["--http1.1", "--http2"] {
        let text = ask(&[], option, "evil.test");
        assert!(text.ends_with(" 421") && !text.contains("secret"), "{option}: {text}");
        assert_eq!(ask(&[], option, "own.localhost"), "secret 200");
        assert_eq!(ask(&["--name", "files.test"], option, "files.test"), "secret 200");
        assert_eq!(ask(&["--host", "proxy.test"], option, "proxy.test"), "secret 200");
        assert_eq!(ask(&["--host", "*"], option, "evil.test"), "secret 200");
    }
    let r = run(neater().args(["serve", "--plain", "--host", "a/b"]).arg(f.path("srv")));
    assert_eq!((r.code, r.err.contains("--host")), (2, true), "{}", r.err);
}

#[test]
fn the_number_of_connections_can_be_set() {
    let f = Folder::new("max");
    f.put("srv/a", "a");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &["--plain", "--max-connections", "1"]);
    let mut first = TcpStream::connect(("127.0.0.1", server.port)).expect("connected");
    first.write_all(b"HEAD /a HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("written");
    assert!(first.read(&mut [0; 1024]).expect("answered") > 0);
    if let Ok(mut second) = TcpStream::connect(("127.0.0.1", server.port)) {
        let _ = second.write_all(b"HEAD /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(matches!(second.read(&mut [0; 1024]), Ok(0) | Err(_)));
    }
    let (_, events) = server.stop_with_events();
    assert_eq!(events.last().expect("stopped")["refused"], 1, "{events:?}");
    // And the server's user is notified at once.
    let turned_away = of(&events, "turned-away");
    assert!(matches!(turned_away[..], [one] if one["refused"] == 1 && one["max_connections"] == 1), "{events:?}");
    let r = run(neater().args(["serve", "--max-connections", "0"]));
    assert_eq!(r.code, 2, "{}", r.err);
}

#[test]
fn files_and_names_that_make_no_sense_are_refused() {
    let f = Folder::new("senseless");
    let zero = ["--cert", "/dev/zero", "--key", "/dev/zero"];
    let r = run(neater().args(["serve", "--port", "0"]).args(zero).arg(f.path("")));
    assert!(r.code == 2 && r.err.contains("too many"), "{}: {}", r.code, r.err);
    let r = run(neater().args(["get", "--ca", "/dev/zero", "https://127.0.0.1:1/"]));
    assert!(r.code == 2 && r.err.contains("too many"), "{}: {}", r.code, r.err);
    let state = f.path("state");
    let r = run(neater().args(["serve", "--port", "0", "--name", "a\nb", "--cert-dir"]).arg(&state).arg(f.path("")));
    assert!(r.code == 2 && r.err.contains("neither the name of a host nor an address"), "{}: {}", r.code, r.err);
}

#[test]
fn keys_and_packets_are_written_down_for_those_who_ask() {
    let f = Folder::new("logs");
    f.put("root/a", noise(100_000, 1));
    std::fs::create_dir_all(f.path("qlog")).expect("made");
    let server = Serving::new(&f.path("root"), &f.path("state"), &[]);
    let fetch = |c: &mut std::process::Command| {
        run(c.args(["--transport", "QUIC", "-o"]).arg(f.path("a")).arg(server.url("a")))
    };
    // Nothing, without being asked.
    assert_eq!(fetch(&mut server.get()).code, 0);
    let keys = f.path("keys");
    let r = fetch(server.get().env("SSLKEYLOGFILE", &keys).arg("--qlog").arg(f.path("qlog")));
    assert_eq!(r.code, 0, "{}", r.err);
    let text = String::from_utf8(f.read("keys")).expect("text");
    for label in ["CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_TRAFFIC_SECRET_0"] {
        let line = text.lines().find(|l| l.starts_with(label)).unwrap_or_else(|| panic!("{label}: {text}"));
        let [_, random, secret] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert!(random.len() == 64 && secret.len() >= 64 && secret.bytes().all(|b| b.is_ascii_hexdigit()), "{line}");
    }
    assert_eq!(keys.metadata().expect("there").permissions().mode() & 0o777, 0o600, "its owner's alone");
    let logs: Vec<_> = std::fs::read_dir(f.path("qlog")).expect("there").flatten().map(|e| e.path()).collect();
    let [log] = &logs[..] else { panic!("one connection: {logs:?}") };
    let log = std::fs::read_to_string(log).expect("text");
    // RFC 7464: each record begins with RS.
    let records: Vec<serde_json::Value> = log
        .split('\u{1e}')
        .filter(|r| !r.trim().is_empty())
        .map(|r| serde_json::from_str(r).unwrap_or_else(|e| panic!("{e}: {r}")))
        .collect();
    let named = |name: &str| records.iter().filter(|r| r["name"].as_str().is_some_and(|n| n.ends_with(name))).count();
    assert!(named("packet_sent") > 2 && named("packet_received") > 50, "{log}");
    let r = fetch(server.get().env("NEATER_QLOG", f.path("nowhere")));
    assert!(r.code == 4 && r.err.contains("nowhere"), "{}", r.err);
}

#[test]
fn files_go_over_streams_of_sctp_when_that_is_asked_for() {
    let f = Folder::new("sctp");
    let all: Vec<(String, Vec<u8>)> = (0..5).map(|i| (format!("f{i}"), noise(300_000 + i, i as u64))).collect();
    for (name, data) in &all {
        f.put(&format!("srv/{name}"), data);
    }
    let more = ["--plain", "--transport", "tcp,sctp", "--udp-port", "0"];
    let server = Serving::new(&f.path("srv"), &f.path("state"), &more);
    let udp = server.udp_port.expect("told").to_string();
    let url = |name: &str| format!("http://127.0.0.1:{}/{name}", server.port);
    let urls: Vec<String> = all.iter().map(|(name, _)| url(name)).collect();
    std::fs::create_dir_all(f.path("got")).expect("made");
    let mut get = neater();
    get.args(["get", "--json", "--transport", "sctp", "--udp-port", &udp, "--output-dir"])
        .arg(f.path("got"))
        .args(&urls);
    let r = run(&mut get);
    assert_eq!(r.code, 0, "{} {}", r.out, r.err);
    for (name, data) in &all {
        assert!(f.read(&format!("got/{name}")) == *data, "{name}");
    }
    let events = r.events();
    let connected = of(&events, "connected");
    assert!(!connected.is_empty() && connected.iter().all(|e| e["transport"] == "SCTP/UDP"), "{}", r.out);
    // A client that does not ask for it gets TCP.
    let r = run(neater().args(["get", "--json", "-o"]).arg(f.path("plain")).arg(&urls[0]));
    assert!(r.code == 0 && r.out.contains("\"TCP\""), "{} {}", r.out, r.err);
    let r = run(neater().args(["explain", "127.0.0.1:1", "--needs", "cleartext", "--transport", "sctp,tcp"]));
    assert!(r.code == 0 && r.out.contains("SCTP/UDP"), "{} {}", r.out, r.err);
    let (code, last) = server.stop();
    assert_eq!((code, last["requests"].as_u64()), (0, Some(6)), "{last}");
    let r = run(neater().args(["serve", "--plain", "--transport", "quic", "--port", "0"]).arg(f.path("srv")));
    assert!(r.code == 2 && r.err.contains("TCP, SCTP and SCTP/IP"), "{}", r.err);
}

/// Over DTLS, `https` and all that belongs to it: the certificate is looked at, and `explain`
/// knows.
#[test]
fn files_go_over_streams_of_sctp_over_dtls() {
    let f = Folder::new("sctp-dtls");
    let data = noise(700_000, 9);
    f.put("srv/a", &data);
    f.put("srv/b", noise(10_000, 10));
    let more = ["--transport", "tls,sctp", "--udp-port", "0"];
    let server = Serving::new(&f.path("srv"), &f.path("state"), &more);
    let udp = server.udp_port.expect("told").to_string();
    let url = |name: &str| format!("https://127.0.0.1:{}/{name}", server.port);
    std::fs::create_dir_all(f.path("got")).expect("made");
    let mut get = server.get();
    get.args(["--json", "--transport", "sctp", "--udp-port", &udp, "--output-dir"])
        .arg(f.path("got"))
        .args([url("a"), url("b")]);
    let r = run(&mut get);
    assert_eq!(r.code, 0, "{} {}", r.out, r.err);
    assert!(f.read("got/a") == data && f.read("got/b") == noise(10_000, 10));
    let events = r.events();
    let connected = of(&events, "connected");
    let secure =
        |e: &&Value| e["transport"] == "SCTP/DTLS" && e["security"].as_str().is_some_and(|s| s.starts_with("DTLS"));
    assert!(!connected.is_empty() && connected.iter().all(secure), "{}", r.out);
    // A client that does not trust the certificate gets nothing.
    let mut wary = neater();
    wary.args(["get", "--transport", "sctp", "--udp-port", &udp, "--timeout", "5", "-o"])
        .arg(f.path("x"))
        .arg(url("a"));
    let r = run(&mut wary);
    assert!(r.code != 0 && r.err.contains("certificate"), "{} {}", r.code, r.err);
    let r = run(neater().args(["explain", "127.0.0.1:1", "--needs", "encrypted", "--transport", "sctp"]));
    assert!(r.code == 0 && r.out.contains("SCTP/DTLS"), "{} {}", r.out, r.err);
    // A client that does not ask for it gets TLS.
    let r = run(server.get().args(["--json", "-o"]).arg(f.path("plain")).arg(url("b")));
    assert!(r.code == 0 && r.out.contains("TLS/TCP"), "{} {}", r.out, r.err);
    server.stop();
}

/// Straight over IP, where this process may: otherwise the reason names the privilege.
#[test]
fn files_go_over_sctp_straight_over_ip() {
    let f = Folder::new("sctp-ip");
    let data = noise(700_000, 11);
    f.put("srv/a", &data);
    let r = run(neater().args(["explain", "127.0.0.1:1", "--needs", "cleartext", "--transport", "sctp/ip,tcp"]));
    assert!(r.code == 0 && r.out.contains("SCTP/IP"), "{} {}", r.out, r.err);
    if r.out.contains("CAP_NET_RAW") || r.out.contains("Linux' own SCTP") {
        common::say_skipped("files go over SCTP straight over IP: raw sockets are not for this process");
        return;
    }
    let server = Serving::new(&f.path("srv"), &f.path("state"), &["--plain", "--transport", "tcp,sctp/ip"]);
    assert_eq!(server.udp_port, None);
    let url = format!("http://127.0.0.1:{}/a", server.port);
    let mut get = neater();
    get.args(["get", "--json", "--transport", "sctp/ip", "-o"]).arg(f.path("got")).arg(&url);
    let r = run(&mut get);
    assert_eq!(r.code, 0, "{} {}", r.out, r.err);
    assert!(f.read("got") == data && r.out.contains("SCTP/IP"), "{}", r.out);
    server.stop();
}

/// A transport that was named and cannot be served is not left out without a word.
#[test]
fn what_is_named_and_cannot_be_served_is_an_error() {
    let f = Folder::new("named");
    f.put("srv/a", "a");
    // Without any privilege there are no raw sockets.
    let set = std::process::Command::new("setpriv").arg("--version").output();
    if set.is_err() || !std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0) {
        common::say_skipped("needs root and setpriv (util-linux), to be without privileges");
        return;
    }
    let mut c = std::process::Command::new("setpriv");
    c.args(["--bounding-set", "-all", "--inh-caps", "-all", "--ambient-caps", "-all", "--securebits", "+noroot"]);
    c.arg(neater().get_program());
    let r = run(c.args(["serve", "--plain", "--port", "0", "--transport", "tcp,sctp/ip"]).arg(f.path("srv")));
    assert_eq!((r.code, r.err.contains("SCTP/IP cannot be served here")), (1, true), "{} {}", r.out, r.err);
}

/// The system resolves localhost to ::1 first: with another program there, half of the clients
/// would meet that one.
#[test]
fn an_address_of_localhost_that_somebody_has_is_not_left_out_silently() {
    let f = Folder::new("localhost");
    f.put("srv/a", "a");
    let Ok(taken) = std::net::TcpListener::bind("[::1]:0") else {
        return common::say_skipped("localhost by IPv6: no IPv6 on this machine");
    };
    let port = taken.local_addr().expect("bound").port().to_string();
    let r = run(neater().args(["serve", "--plain", "--port", &port]).arg(f.path("srv")));
    assert_eq!((r.code, r.err.contains("[::1]") && r.err.contains("--bind 127.0.0.1")), (1, true), "{}", r.err);
    drop(taken);
    // All addresses, given twice, are no reason to fail.
    let all = ["--plain", "--bind", "0.0.0.0", "--bind", "::"];
    let server = Serving::new(&f.path("srv"), &f.path("state"), &all);
    assert!(raw(server.port, "GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ends_with("\r\na"));
}

#[test]
fn a_key_that_others_may_read_is_not_used() {
    let f = Folder::new("known-key");
    f.put("srv/a", "a");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    let key = f.path("state/localhost.key.pem");
    assert_eq!(key.metadata().expect("there").permissions().mode() & 0o777, 0o600);
    drop(server);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("ours");
    let r = run(neater().args(["serve", "--port", "0", "--cert-dir"]).arg(f.path("state")).arg(f.path("srv")));
    assert_eq!((r.code, r.err.contains("others may read it")), (4, true), "{}", r.err);
}

/// A client that has sent everything and closes its direction is owed its whole answer (RFC 9112
/// section 9.6).
#[test]
fn a_client_that_closes_its_direction_gets_its_answer() {
    let f = Folder::new("half-close");
    f.put("srv/a", noise(3_000_000, 1));
    let server = Serving::new(&f.path("srv"), &f.path("state"), &["--plain"]);
    for _ in 0..10 {
        let mut c = TcpStream::connect(("127.0.0.1", server.port)).expect("connected");
        c.write_all(b"GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("written");
        c.shutdown(std::net::Shutdown::Write).expect("ended");
        c.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        let mut all = Vec::new();
        c.read_to_end(&mut all).expect("an answer");
        assert!(all.ends_with(&noise(3_000_000, 1)), "{} bytes", all.len());
    }
}

#[test]
fn a_port_for_sctp_where_nothing_is_served_over_it_is_an_error() {
    let f = Folder::new("no-sctp");
    let r = run(neater().args(["serve", "--plain", "--udp-port", "0"]).arg(f.path(".")));
    assert_eq!((r.code, r.err.contains("--transport sctp")), (2, true), "{}", r.err);
}

/// Reads an answer to its end, so many bytes in each step; the number of all bytes.
fn sip(from: &mut impl Read, step: usize, apart: Duration) -> usize {
    let (mut buf, mut total) = (vec![0; step], 0);
    loop {
        let mut filled = 0;
        while filled < step {
            match from.read(&mut buf[filled..]).expect("not cut") {
                0 => return total + filled,
                n => filled += n,
            }
        }
        total += filled;
        std::thread::sleep(apart);
    }
}

#[test]
fn a_client_that_reads_slowly_gets_everything() {
    let f = Folder::new("slow");
    f.put("srv/a", noise(3_000_000, 1));
    let limits = ["--plain", "--max-idle", "0.3", "--max-pause", "5"];
    let server = Serving::new(&f.path("srv"), &f.path("state"), &limits);
    let mut c = TcpStream::connect(("127.0.0.1", server.port)).expect("connected");
    c.write_all(b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("written");
    let total = sip(&mut c, 150_000, Duration::from_millis(100));
    assert!((3_000_000..3_001_000).contains(&total), "{total}");
}

#[test]
fn a_client_that_takes_nothing_is_ended_in_the_time_that_was_set() {
    let f = Folder::new("stands-still");
    // More than all buffers on the way.
    f.put("srv/a", noise(40_000_000, 1));
    let limits = ["--plain", "--max-pause", "0.5"];
    let server = Serving::new(&f.path("srv"), &f.path("state"), &limits);
    let mut c = TcpStream::connect(("127.0.0.1", server.port)).expect("connected");
    c.write_all(b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("written");
    std::thread::sleep(Duration::from_millis(1500));
    let mut all = Vec::new();
    let _ = c.read_to_end(&mut all);
    assert!(all.len() < 40_000_000, "it was not cut");
}

/// Slow readers at their true speed: 5 MB at 40 kB/s, 300 kB at 24 kbit/s, and pauses of two
/// minutes.
#[test]
#[ignore = "takes four minutes: cargo test -p neater-cli --test serve -- --ignored slow_readers"]
fn slow_readers_at_their_true_speed_get_everything() {
    let f = Folder::new("true-speed");
    let (large, small) = (noise(5_000_000, 1), noise(300_000, 2));
    f.put("srv/large", &large);
    f.put("srv/small", &small);
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    std::thread::scope(|scope| {
        let (f, server, large, small) = (&f, &server, &large, &small);
        for (name, contents, rate) in [("large", large, "40k"), ("small", small, "3k")] {
            for version in ["--http1.1", "--http2"] {
                scope.spawn(move || {
                    let to = f.path(&format!("{name}{version}"));
                    let to = to.to_str().expect("UTF-8");
                    let (_, ok) = curl(server, &[version, "--limit-rate", rate, "-o", to, &server.url(name)]);
                    assert!(ok && f.read(&format!("{name}{version}")) == *contents, "{version} {name} at {rate}");
                });
            }
        }
        // As `neater get URL | less` does: the command waits for the reader of its output.
        for version in ["1.1", "2", "3"] {
            for (name, contents, step, apart) in [
                ("large", large, 40_000, Duration::from_secs(1)),
                ("large", large, 2_500_000, Duration::from_secs(120)),
            ] {
                scope.spawn(move || {
                    let mut get = server.get();
                    get.args(["--http", version, "-o", "-"]).arg(server.url(name));
                    let mut get = get.stdout(std::process::Stdio::piped()).spawn().expect("started");
                    let mut out = get.stdout.take().expect("a pipe");
                    assert_eq!(sip(&mut out, step, apart), contents.len(), "{version} {name} by {step}");
                    assert!(get.wait().expect("ended").success(), "{version} {name} by {step}");
                });
            }
        }
    });
}

/// One address with as many connections as a load generator or a proxy has.
#[test]
#[ignore = "needs 1,100 descriptors: ulimit -n 4096; cargo test -p neater-cli --test serve -- --ignored a_thousand"]
fn a_thousand_connections_of_one_address_stay_open() {
    let f = Folder::new("thousand");
    f.put("srv/a", "a");
    let server = Serving::new(&f.path("srv"), &f.path("state"), &["--plain"]);
    let mut all: Vec<_> =
        (0..1000).map(|_| TcpStream::connect(("127.0.0.1", server.port)).expect("connected")).collect();
    for round in 0..3 {
        for (i, c) in all.iter_mut().enumerate() {
            c.write_all(b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap_or_else(|e| panic!("{round} {i}: {e}"));
            let n = c.read(&mut [0; 1024]).unwrap_or_else(|e| panic!("{round} {i}: {e}"));
            assert!(n > 0, "{round} {i}");
        }
    }
    drop(all);
    let (_, last) = server.stop();
    assert_eq!((&last["refused"], &last["ended_for_others"]), (&0.into(), &0.into()), "{last}");
}

/// Content means nothing to a server of files, and a client that sends some gets its answer all the
/// same.
#[test]
fn uploads_are_answered_over_every_version() {
    let f = Folder::new("uploads");
    f.put("srv/a", "a");
    let big = f.put("big", noise(3_000_000, 9));
    let server = Serving::new(&f.path("srv"), &f.path("state"), &[]);
    for version in ["--http1.1", "--http2"] {
        for expect in ["Expect: 100-continue", "Expect:"] {
            let out = std::process::Command::new("curl")
                .args(["-s", "-w", "%{http_code}", "-o", "/dev/null", version, "-H", expect, "--cacert"])
                .arg(&server.ca)
                .arg("--data-binary")
                .arg(format!("@{}", big.display()))
                .arg(server.url("a"))
                .output()
                .expect("curl");
            assert_eq!(String::from_utf8_lossy(&out.stdout), "405", "{version} {expect}");
        }
    }
}

/// The client and target of each request, its time and its duration: as objects for programs, as
/// lines for people, and not at all where it is not wanted.
#[test]
fn requests_are_logged_with_address_and_duration() {
    let f = Folder::new("log");
    f.put("srv/a b", "hello");
    for (options, json) in [(&["--json", "-v"][..], true), (&["-v"], false), (&["--json"], true), (&[], false)] {
        let mut c = neater();
        c.arg("serve").args(options).args(["--plain", "--port", "0", "--bind", "127.0.0.1"]).arg(f.path("srv"));
        let (out, err) = (f.path("out"), f.path("err"));
        let file = |path| std::fs::File::create(path).expect("made");
        let mut child = c.stdout(file(&out)).stderr(file(&err)).spawn().expect("started");
        let text =
            || std::fs::read_to_string(&out).unwrap_or_default() + &std::fs::read_to_string(&err).unwrap_or_default();
        let begun = std::time::Instant::now();
        let port = loop {
            let all = text();
            let port = all.split("http://localhost:").nth(1).and_then(|rest| {
                rest.split(|c: char| !c.is_ascii_digit())
                    .next()
                    .filter(|p| !p.is_empty() && rest.len() > p.len())
                    .map(str::to_owned)
            });
            match port {
                Some(port) => break port,
                None => assert!(begun.elapsed().as_secs() < 10, "{all}"),
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        let r = run(neater().args(["get", "-q", &format!("http://127.0.0.1:{port}/a%20b")]));
        assert_eq!((r.code, r.out.as_str()), (0, "hello"), "{}", r.err);
        common::signal(&child, "-TERM");
        assert!(child.wait().expect("ended").success());
        let (out, err) = (std::fs::read_to_string(&out).expect("read"), std::fs::read_to_string(&err).expect("read"));
        let events = if json { common::parse(&out) } else { Vec::new() };
        let asked = of(&events, "request");
        match options.contains(&"-v") {
            true if json => {
                let a = asked[0];
                assert_eq!(
                    (&a["client"], &a["path"], &a["status"]),
                    (&"127.0.0.1".into(), &"/a%20b".into(), &200.into()),
                    "{out}"
                );
                assert_eq!((&a["bytes"], &a["whole"], &a["method"]), (&5.into(), &true.into(), &"GET".into()), "{out}");
                assert!(
                    a["ms"].as_f64().is_some_and(|ms| ms >= 0.0) && a["time"].as_f64().is_some_and(|t| t > 1e9),
                    "{out}"
                );
            }
            true => assert!(err.contains("127.0.0.1 \"GET /a%20b HTTP/1.1\" 200 5 bytes in "), "{err}"),
            false => assert!(asked.is_empty() && !err.contains("GET"), "{out}{err}"),
        }
    }
}

#[test]
fn errors_of_sctp_name_its_port_of_udp() {
    let f = Folder::new("udp-port");
    f.put("srv/a", "a");
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let udp = taken.local_addr().expect("bound").port().to_string();
    let serve = ["serve", "--plain", "--bind", "127.0.0.1", "--port", "0", "--transport", "sctp", "--udp-port", &udp];
    let r = run(neater().args(serve).arg(f.path("srv")));
    assert_eq!(r.code, 1, "{}", r.err);
    let named = format!("(UDP port {udp}): address already in use");
    assert!(r.err.contains(&named) && r.err.contains("--udp-port 0 for any"), "{}", r.err);
    drop(taken);
    let get = ["get", "--transport", "sctp", "--udp-port", &udp, "--retries", "0", "--timeout", "3"];
    let r = run(neater().args(get).arg("http://127.0.0.1:8080/a"));
    assert!(r.code == 1 && r.err.contains(&format!("127.0.0.1:8080 (UDP port {udp}): ")), "{}", r.err);
}
