//! The programs of `examples/`, built with plain `cc`, against each other and under valgrind.

use crate::tools::{Finished, compile, end_of, here, run, sanitizing, skip, valgrind, which};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);
/// Valgrind takes its time.
const LATER: Duration = Duration::from_secs(120);
/// An error or a leak is the end of the program with 99.
pub(crate) const VALGRIND: [&str; 7] = [
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--show-leak-kinds=definite,indirect,possible",
    "--errors-for-leak-kinds=definite,indirect,possible",
    "--num-callers=30",
    concat!("--suppressions=", env!("CARGO_MANIFEST_DIR"), "/tests/valgrind.supp"),
];

/// A program, on its own or under valgrind.
fn command(valgrind: Option<&Path>, program: &Path) -> Command {
    match valgrind {
        None => Command::new(program),
        Some(valgrind) => {
            let mut command = Command::new(valgrind);
            command.args(VALGRIND).arg(program);
            command
        }
    }
}

/// The echo server, and where it listens.
fn echo_server(valgrind: Option<&Path>, program: &Path, connections: &str) -> (Child, String) {
    let mut server = command(valgrind, program);
    server.arg(connections).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = server.spawn().expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("its port");
    (child, format!("127.0.0.1:{}", line.trim()))
}

fn ended(mut child: Child) {
    let status = end_of(&mut child, LATER);
    let mut err = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut err).expect("read");
    assert!(status.success(), "{status}: {err}");
}

fn well(done: &Finished) {
    assert!(done.status.success(), "{}: {}\n{}", done.status, done.out, done.err);
}

fn echo(valgrind: Option<&Path>) {
    let (Some(server), Some(client)) = (compile("examples/echo_server.c"), compile("examples/echo_client.c")) else {
        skip!("no C compiler (package gcc)");
    };
    let (child, addr) = echo_server(valgrind, &server, "2");
    for text in ["hello", "and again"] {
        let done = run(command(valgrind, &client).args([&addr, text]), LATER);
        well(&done);
        assert_eq!(done.out, format!("{text}\n"));
    }
    ended(child);
}

#[test]
fn an_echo_server_and_its_client() {
    echo(None);
}

#[test]
fn a_client_in_an_epoll_loop_of_its_own() {
    let (Some(server), Some(client)) = (compile("examples/echo_server.c"), compile("examples/epoll_loop.c")) else {
        skip!("no C compiler (package gcc)");
    };
    let (child, addr) = echo_server(None, &server, "1");
    let mut client = Command::new(client)
        .arg(&addr)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut input = client.stdin.take().expect("piped");
    input.write_all(b"line 1\n").expect("written");
    // The second comes when the loop has nothing else to do.
    std::thread::sleep(Duration::from_millis(200));
    input.write_all(b"line 2\n").expect("written");
    drop(input);
    let status = end_of(&mut client, SOON);
    let done = client.wait_with_output().expect("read");
    let out = String::from_utf8_lossy(&done.stdout);
    assert!(status.success() && out == "line 1\nline 2\n", "{status}: {out}{}", String::from_utf8_lossy(&done.stderr));
    ended(child);
}

fn messages(valgrind: Option<&Path>) {
    let Some(program) = compile("examples/messages_sctp.c") else { skip!("no C compiler (package gcc)") };
    let done = run(&mut command(valgrind, &program), LATER);
    well(&done);
    let mut lines: Vec<&str> = done.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["and one on a stream of its own", "another, which need not arrive", "one message"]);
    assert!(done.err.contains("path 0: ") && done.err.contains(" messages sent"), "{}", done.err);
}

#[test]
fn messages_over_sctp() {
    messages(None);
}

fn callbacks(valgrind: Option<&Path>) {
    let Some(program) = compile("examples/callbacks.c") else { skip!("no C compiler (package gcc)") };
    let done = run(command(valgrind, &program).arg("3"), LATER);
    well(&done);
    assert_eq!(done.out, "an answer to question 1\nan answer to another question\nan answer to another question\n");
}

#[test]
fn callbacks_instead_of_a_switch() {
    callbacks(None);
}

/// A server of HTTP/1.1 over TLS that is not neater's; returns where it listens and the file with
/// its certificate.
fn https_server(requests: usize) -> (String, PathBuf) {
    use neater_tls::rustls::{ServerConfig, ServerConnection, StreamOwned, crypto::ring};
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let identity = neater_tls::self_signed_p256(&["localhost", "127.0.0.1"], neater::WallTime(wall)).expect("made");
    let name = format!("authorities-{requests}-{:?}.pem", std::thread::current().id());
    let file = crate::tools::folder().join(name);
    std::fs::write(&file, neater_tls::certificates_to_pem(&identity.chain)).expect("written");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(identity.chain.clone(), identity.key.clone_key())
        .expect("a certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for _ in 0..requests {
            let (tcp, _) = listener.accept().expect("a client");
            let mut tls = StreamOwned::new(ServerConnection::new(config.clone()).expect("made"), tcp);
            let mut request = Vec::new();
            let mut byte = [0; 1];
            while !request.ends_with(b"\r\n\r\n") && tls.read(&mut byte).is_ok_and(|n| n == 1) {
                request.push(byte[0]);
            }
            let path = String::from_utf8_lossy(&request).split(' ').nth(1).unwrap_or("?").to_owned();
            let body = format!("you asked for {path}\n");
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = tls.write_all(head.as_bytes()).and_then(|()| tls.write_all(body.as_bytes()));
            tls.conn.send_close_notify();
            let _ = tls.flush();
        }
    });
    (format!("localhost:{port}"), file)
}

fn https(valgrind: Option<&Path>) {
    let Some(program) = compile("examples/https_get.c") else { skip!("no C compiler (package gcc)") };
    let (addr, file) = https_server(1);
    let done = run(command(valgrind, &program).args([&addr, "/a/page"]).arg(&file), LATER);
    well(&done);
    assert!(done.out.starts_with("HTTP/1.1 200 OK\r\n"), "{}", done.out);
    assert!(done.out.ends_with("you asked for /a/page\n"), "{}", done.out);
    assert!(done.err.starts_with("TLS/TCP, ") && done.err.contains(": chosen"), "{}", done.err);
}

#[test]
fn http_over_tls() {
    https(None);
}

#[test]
fn a_server_with_another_certificate_is_refused_in_words() {
    let Some(program) = compile("examples/https_get.c") else { skip!("no C compiler (package gcc)") };
    let (addr, _) = https_server(2);
    let (_, other) = https_server(3);
    let done = run(Command::new(program).args([&addr, "/"]).arg(&other), SOON);
    assert_eq!(done.status.code(), Some(1), "{}{}", done.out, done.err);
    assert!(done.err.contains("establishment_error") && done.err.contains("certificate"), "{}", done.err);
}

#[test]
fn the_examples_under_valgrind() {
    let Some(valgrind) = valgrind() else { skip!("no valgrind (apt-get install valgrind), or a sanitizer instead") };
    echo(Some(&valgrind));
    messages(Some(&valgrind));
    callbacks(Some(&valgrind));
    https(Some(&valgrind));
}

#[test]
fn a_program_is_linked_statically_too() {
    let Some(cc) = which("cc") else { skip!("no C compiler (package gcc)") };
    let library = crate::tools::library().with_file_name("libneater_c.a");
    if !library.is_file() {
        skip!("cargo has not built {}", library.display());
    }
    let program = crate::tools::folder().join("static_echo_client");
    let mut command = Command::new(cc);
    command.args(crate::tools::STRICT).arg("-I").arg(here("include")).arg("-o").arg(&program);
    command.args(sanitizing());
    command.arg(here("examples/echo_client.c")).arg(&library).args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-lc"]);
    let done = command.output().expect("a compiler");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let done = run(Command::new(&program).args(["no-port", "x"]), SOON);
    assert!(done.err.contains("the port is missing"), "{}", done.err);
    std::fs::remove_file(program).expect("it was there");
}
