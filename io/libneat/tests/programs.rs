//! Programs of the kind that NEAT came with, built with nothing but `cc` and pkg-config, against
//! each other and against programs that are not ours. `NEAT_VALGRIND=1 cargo test -p libneat` runs
//! them under valgrind.

#![cfg(has_libuv)]

mod common;

use common::{Server, build, build_foreign, build_with, has, pem, port, prefix, program, run};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[test]
fn the_header_is_c99_and_cpp17_with_neats_layout() {
    let posix = "-D_POSIX_C_SOURCE=200809L";
    for (compiler, standard, define) in [
        ("cc", "-std=c99", "-DBARE"),
        ("cc", "-std=c99", posix),
        ("cc", "-std=gnu17", posix),
        ("c++", "-std=c++17", posix),
    ] {
        let built = build_with("tests/c/layout.c", compiler, &[standard, define], &format!("{standard}{define}"));
        assert_eq!(run(&mut program(&built, &[])), "layout: as NEAT's\n", "{compiler} {standard}");
    }
}

/// To be held while there is a listener of SCTP over UDP: they all want its port (RFC 6951), which
/// this host has once.
fn only_sctp() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An echo client against an echo server.
fn echo(transport: &str, bytes: &str, message: &str) {
    let (server, client) = (build("examples/echo_server.c"), build("examples/echo_client.c"));
    let (port, pem) = (port(), pem());
    let arguments = [transport, &port, &pem];
    let secure = transport.contains("tls");
    let server = Server::start(&server, if secure { &arguments } else { &arguments[..2] });
    let out = run(&mut program(&client, &[transport, "127.0.0.1", &port, bytes, message]));
    assert!(out.starts_with(&format!("{bytes} bytes over ")), "{out}");
    server.stop();
}

#[test]
fn echo_over_tcp() {
    echo("tcp", "1000000", "16384");
}

#[test]
fn echo_over_tls() {
    // More than a record, so that what one read of TLS leaves behind would be missed.
    echo("tls", "1000000", "65536");
}

#[test]
fn echo_over_udp() {
    echo("udp", "20000", "1000");
}

#[test]
fn echo_over_dtls() {
    echo("dtls", "20000", "1000");
}

#[test]
fn a_flow_that_may_take_sctp_or_tcp_takes_what_there_is() {
    let (server, client) = (build("examples/echo_server.c"), build("examples/echo_client.c"));
    let port = port();
    let server = Server::start(&server, &["tcp", &port]);
    let out = run(&mut program(&client, &["any", "localhost", &port, "1000"]));
    assert_eq!(out, "1000 bytes over 3\n");
    server.stop();
}

#[test]
fn sctp_over_udp_echoes_and_has_many_flows_on_one_association() {
    let _turn = only_sctp();
    echo("sctp", "500000", "16384");
    echo("sctp-dtls", "50000", "1000");
    let bench = build("examples/msbench.c");
    let port = port();
    let server = Server::start(&bench, &["server", &port]);
    let out = run(&mut program(&bench, &["client", "127.0.0.1", &port, "6"]));
    assert_eq!(out.matches(": 200000 back").count(), 6, "{out}");
    assert_eq!(server.stop().matches("accepted").count(), 6);
}

/// A peer that is not ours, each end opening once: messages on several streams come back on those.
#[test]
fn messages_on_streams_are_echoed_between_libneat_and_usrsctp() {
    let Some(usrsctp) = build_foreign("tests/c/usrsctp_echo.c", "usrsctp", "libusrsctp-dev") else { return };
    let _turn = only_sctp();
    let (echo, streams) = (build("examples/echo_server.c"), build("tests/c/streams.c"));
    let at = port();
    let server = Server::start(&echo, &["sctp", &at]);
    let out = run(&mut program(&usrsctp, &["connect", &port(), &at, "5", "200", "6000", "9899"]));
    assert_eq!(out, "200 messages back on 5 streams\n");
    server.stop();
    let at = port();
    let server = Server::start(&usrsctp, &["serve", "9899", &at]);
    let out = run(&mut program(&streams, &[&at, "5", "200", "6000"]));
    assert_eq!(out, "200 messages back on 5 streams\n");
    assert_eq!(server.stop(), "200 messages on 5 streams\n");
}

#[test]
fn http_between_our_programs_curl_and_openssl() {
    let (server, client) = (build("examples/http_server.c"), build("examples/http_get.c"));
    let (plain, secure, pem) = (port(), port(), pem());
    let folder = prefix().join("pages");
    std::fs::create_dir_all(&folder).expect("a folder");
    let page: Vec<u8> = (0..300_000_u32).flat_map(|i| format!("{i}\n").into_bytes()).collect();
    std::fs::write(folder.join("page"), &page).expect("a page");
    let folder = folder.to_str().expect("UTF-8");
    let server = Server::start(&server, &[folder, &plain, &pem, &secure]);
    for (transport, port) in [("tcp", &plain), ("tls", &secure)] {
        let out = run(&mut program(&client, &[transport, "localhost", port, "/page", "5"]));
        let (head, body) = out.split_once("\r\n\r\n").expect("an answer");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(body.len(), page.len());
    }
    for url in has("curl")
        .then(|| [format!("http://127.0.0.1:{plain}/page"), format!("https://localhost:{secure}/page")])
        .into_iter()
        .flatten()
    {
        let out = run(Command::new("curl").args(["-sS", "--max-time", "50", "--cacert", &pem, &url, &url]));
        assert_eq!(out.len(), 2 * page.len(), "{url}");
    }
    server.stop();
}

#[test]
fn the_http_client_reads_from_nginx() {
    if !has("nginx") {
        return;
    }
    let client = build("examples/http_get.c");
    let folder = prefix().join("nginx");
    std::fs::create_dir_all(folder.join("www")).expect("a folder");
    std::fs::write(folder.join("www/page"), vec![b'x'; 500_000]).expect("a page");
    let (plain, secure, pem) = (port(), port(), pem());
    let at = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|t| format!("{t}_temp_path {at}/{t};"))
        .collect();
    let configuration = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log; events {{}}
         http {{ access_log off; {temporary} server {{ listen 127.0.0.1:{plain}; listen 127.0.0.1:{secure} ssl;
         ssl_certificate {pem}; ssl_certificate_key {pem}; root {at}/www; }} }}"
    );
    std::fs::write(folder.join("conf"), configuration).expect("a file");
    let mut nginx = Command::new("nginx")
        .args(["-e", &format!("{at}/error.log"), "-c", &format!("{at}/conf"), "-p", &at.to_string()])
        .spawn()
        .expect("nginx: apt-get install nginx-light");
    await_port(&plain);
    for (transport, port) in [("tcp", &plain), ("tls", &secure)] {
        let out = run(&mut program(&client, &[transport, "127.0.0.1", port, "/page", "3"]));
        assert!(out.starts_with("HTTP/1.1 200") && out.ends_with(&"x".repeat(500_000)), "{}", out.len());
    }
    let _ = nginx.kill();
    let _ = nginx.wait();
}

#[test]
fn echo_with_openssl_over_tls_and_dtls() {
    if !has("openssl") {
        return;
    }
    let server = build("examples/echo_server.c");
    let pem = pem();
    for (transport, option) in [("tls", "-tls1_2"), ("dtls", "-dtls1_2")] {
        // Ours serves.
        let at = port();
        let ours = Server::start(&server, &[transport, &at, &pem]);
        let mut openssl = Command::new("openssl")
            .args(["s_client", option, "-quiet", "-connect", &format!("127.0.0.1:{at}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl");
        openssl.stdin.as_mut().expect("input").write_all(b"hello\n").expect("written");
        let mut answer = [0; 6];
        openssl.stdout.as_mut().expect("output").read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"hello\n", "{transport}");
        let _ = openssl.kill();
        let _ = openssl.wait();
        ours.stop();
    }
    // OpenSSL serves.
    let at = port();
    let mut openssl = Command::new("openssl")
        .args(["s_server", "-accept", &format!("127.0.0.1:{at}"), "-cert", &pem, "-key", &pem, "-quiet", "-www"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl");
    await_port(&at);
    let page = run(&mut program(&build("examples/http_get.c"), &["tls", "127.0.0.1", &at, "/"]));
    assert!(page.starts_with("HTTP/1.0 200") && page.contains("s_server"), "{page}");
    let _ = openssl.kill();
    let _ = openssl.wait();
}

/// Waits until a server listens.
fn await_port(port: &str) {
    for _ in 0..500 {
        if TcpStream::connect(format!("127.0.0.1:{port}")).is_ok() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("no server listens at port {port}");
}

#[test]
fn small_servers() {
    let servers = build("examples/small_servers.c");
    let at = port();
    let daytime = Server::start(&servers, &["daytime", "tcp", &at]);
    let mut text = String::new();
    TcpStream::connect(format!("127.0.0.1:{at}")).expect("connected").read_to_string(&mut text).expect("the time");
    assert!(text.ends_with('\n') && text.contains(':'), "{text:?}");
    daytime.stop();

    let at = port();
    let mut discard = Server::start(&servers, &["discard", "tcp", &at]);
    TcpStream::connect(format!("127.0.0.1:{at}")).expect("connected").write_all(&vec![0; 1_000_000]).expect("written");
    assert_eq!(discard.line(), "discarded 1000000");
    discard.stop();

    let at = port();
    let chargen = Server::start(&servers, &["chargen", "tcp", &at]);
    let mut bytes = vec![0; 7400];
    TcpStream::connect(format!("127.0.0.1:{at}")).expect("connected").read_exact(&mut bytes).expect("characters");
    assert!(bytes.chunks(74).all(|line| line.ends_with(b"\r\n")), "{bytes:?}");
    chargen.stop();
}

#[test]
fn traffic_of_many_flows_in_one_context() {
    let _turn = only_sctp();
    let traffic = build("examples/traffic.c");
    for transport in ["tcp", "sctp"] {
        let out = run(&mut program(&traffic, &[transport, &port(), "50", "200000"]));
        assert!(out.starts_with("10000000 bytes over 50 flows\n"), "{out}");
        let json: serde_json::Value = serde_json::from_str(out.split_once('\n').expect("JSON").1).expect("JSON");
        assert_eq!(json["Total bytes received"], 10_000_000);
        assert_eq!(json["Total bytes sent"], 10_000_000);
    }
}

#[test]
fn a_file_goes_to_a_peer() {
    let _turn = only_sctp();
    let transfer = build("examples/file_transfer.c");
    let (from, to) = (prefix().join("sent"), prefix().join("received"));
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|i| (i * 7 + (i >> 9)) as u8).collect();
    std::fs::write(&from, &bytes).expect("a file");
    for transport in ["tcp", "sctp"] {
        let port = port();
        let mut receiver = Server::start(&transfer, &["receive", transport, &port, to.to_str().expect("UTF-8")]);
        run(&mut program(&transfer, &["send", transport, "localhost", &port, from.to_str().expect("UTF-8")]));
        assert_eq!(receiver.line(), "1000000 bytes");
        receiver.stop();
        assert!(std::fs::read(&to).expect("a file") == bytes, "{transport}");
    }
}

#[test]
fn a_terminal_in_the_loop() {
    let (server, terminal) = (build("examples/echo_server.c"), build("examples/terminal.c"));
    let port = port();
    let server = Server::start(&server, &["tcp", &port]);
    let mut child = program(&terminal, &["tcp", "127.0.0.1", &port])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a program");
    let mut input = child.stdin.take().expect("input");
    let mut output = child.stdout.take().expect("output");
    for line in ["first\n", "second\n"] {
        input.write_all(line.as_bytes()).expect("typed");
        let mut answer = vec![0; line.len()];
        output.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer, line.as_bytes());
    }
    drop(input);
    assert!(child.wait().expect("ended").success());
    server.stop();
}

#[test]
fn contexts_in_a_loop_of_the_programs_own() {
    let (server, client) = (build("examples/http_server.c"), build("examples/run_once.c"));
    let port = port();
    let server = Server::start(&server, &[prefix().to_str().expect("UTF-8"), &port]);
    let out = run(&mut program(&client, &["127.0.0.1", &port, "5"]));
    assert_eq!(out.lines().collect::<Vec<_>>().len(), 5, "{out}");
    assert!(out.lines().all(|l| l.ends_with(" bytes") && l != "0 bytes"), "{out}");
    server.stop();
}

#[test]
fn functions_and_callbacks_behave_as_described() {
    let _turn = only_sctp();
    let built = build("tests/c/behaviour.c");
    assert_eq!(run(&mut program(&built, &[&port(), &pem()])), "as described\n");
}

#[test]
fn every_call_in_every_callback() {
    let _turn = only_sctp();
    let built = build("tests/c/every_call.c");
    for transport in ["tcp", "tls", "udp", "sctp"] {
        // Nothing of TLS without need: valgrind looks less closely then.
        let pem = if transport == "tls" { pem() } else { String::new() };
        let arguments = [transport, &port(), &pem];
        let out = run(&mut program(&built, if pem.is_empty() { &arguments[..2] } else { &arguments }));
        assert!(out.ends_with("every call in every callback\n"), "{transport}: {out}");
    }
}
