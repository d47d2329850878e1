//! The command with few descriptors: it reports that, or does its work, and a server goes on when
//! clients have gone.

mod common;

use common::{Folder, neater, noise, run};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// The command, with a limit on open files.
fn limited(limit: u32) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n \"$0\"; exec \"$@\""]).arg(limit.to_string()).arg(neater().get_program());
    shell.env_remove("RUST_LOG").stdin(Stdio::null());
    shell
}

/// A server of `srv` with a limit on open files, its URL and its port.
fn serving(f: &Folder, limit: u32) -> (Child, String, u16) {
    let mut server = limited(limit);
    server.args(["serve", "--json", "--plain", "--port", "0"]).arg(f.path("srv")).stdout(Stdio::piped());
    let mut server = server.stderr(Stdio::null()).spawn().expect("started");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let told = common::parse(&line).remove(0);
    let url = told["urls"][0].as_str().expect("a URL").trim_end_matches('/').to_owned();
    let port = url.rsplit(':').next().and_then(|p| p.parse().ok()).expect("a port");
    (server, url, port)
}

#[test]
fn a_server_and_its_clients_survive_the_lack_of_descriptors() {
    let f = Folder::new("descriptors");
    let contents = noise(10_000, 3);
    f.put("srv/a", &contents);
    let (mut server, url, port) = serving(&f, 30);

    // With some it works, with fewer it reports what is lacking; it never breaks down.
    let (mut failed, mut worked) = (0, 0);
    for limit in (4..40).step_by(3) {
        let target = f.path(&format!("a{limit}"));
        let r = run(limited(limit).arg("get").arg("-o").arg(&target).arg(format!("{url}/a")));
        match r.code {
            0 => {
                worked += 1;
                assert_eq!(std::fs::read(&target).expect("saved"), contents);
            }
            1 | 4 => {
                failed += 1;
                assert!(r.err.to_lowercase().contains("too many open files"), "{limit}: {}", r.err);
            }
            // So few that the system could not start it.
            127 if r.err.contains("shared libraries") => {}
            code => panic!("{code} with {limit} descriptors: {}", r.err),
        }
    }
    assert!(failed > 0 && worked > 0, "{failed} failed, {worked} worked");

    // More clients than the server has descriptors, one of which must wait for another to leave.
    let crowd: Vec<_> = (0..60).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("connected")).collect();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let waiting = neater().args(["get", "-o"]).arg(f.path("b")).arg(format!("{url}/a")).spawn();
    std::thread::sleep(std::time::Duration::from_millis(300));
    drop(crowd);
    let status = waiting.expect("started").wait().expect("ended");
    assert!(status.success());
    assert_eq!(f.read("b"), contents);
    server.kill().expect("killed");
    let _ = server.wait();
}

/// Connections take what descriptors there are. A client with a connection is answered all the
/// same: some are kept back for files.
#[test]
fn whom_a_server_lets_in_it_serves() {
    let f = Folder::new("let-in");
    f.put("srv/a", noise(10_000, 3));
    let (mut server, _, port) = serving(&f, 40);

    let mut crowd: Vec<_> = (0..60).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("connected")).collect();
    std::thread::sleep(std::time::Duration::from_millis(500));
    for client in &mut crowd {
        client.write_all(b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("written");
    }
    std::thread::sleep(std::time::Duration::from_secs(3));
    let mut served = 0;
    for client in &mut crowd {
        client.set_nonblocking(true).expect("set");
        let mut head = [0; 12];
        match client.read(&mut head) {
            Ok(12) => {
                assert_eq!(head, *b"HTTP/1.1 200");
                served += 1;
            }
            Ok(n) => panic!("{n} bytes of a head"),
            // It waits to be let in.
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    assert!((3..60).contains(&served), "{served} were served");
    server.kill().expect("killed");
    let _ = server.wait();
}

#[test]
fn a_server_that_has_fewer_descriptors_than_connections_says_so() {
    let f = Folder::new("few-descriptors");
    for (limit, connections, told) in [(64, "1024", true), (64, "10", false)] {
        let mut server = limited(limit);
        server.args(["serve", "--plain", "--port", "0", "--max-connections", connections]).arg(f.path(""));
        let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        // It reports that before it takes the signal for its end.
        let mut lines = BufReader::new(server.stdout.take().expect("a pipe")).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line.contains("Ctrl-C ends it"))));
        std::thread::sleep(std::time::Duration::from_millis(300));
        common::signal(&server, "-TERM");
        let ended = server.wait_with_output().expect("it ends");
        let err = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), err.contains("ulimit -n")), (Some(0), told), "{err}");
    }
}
