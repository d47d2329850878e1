//! TCP and UDP in the clear with socat, or with Python where there is no socat.

use neater::{FramerSpec, Neater, SecurityParameters, Stack, TransportProperties};
use neater_interop::{Running, Scratch, free_port, run, skip, wait_for, which, within_limit};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PYTHON: &str = r#"
import socket, sys, threading
kind, port = sys.argv[1], int(sys.argv[2])
if kind == "udp":
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", port))
    print("ready", flush=True)
    while True:
        data, peer = s.recvfrom(65536)
        s.sendto(data, peer)
def echo(c):
    while data := c.recv(65536):
        c.sendall(data)
    c.shutdown(socket.SHUT_WR)
s = socket.create_server(("127.0.0.1", port))
print("ready", flush=True)
while True:
    threading.Thread(target=echo, args=(s.accept()[0],), daemon=True).start()
"#;

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A server that echoes, over TCP or UDP.
fn echo_peer(scratch: &Scratch, kind: &str) -> Option<(Running, u16)> {
    let port = free_port();
    if let Some(socat) = which("socat") {
        let listen = match kind {
            "tcp" => format!("TCP4-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr"),
            _ => format!("UDP4-RECVFROM:{port},bind=127.0.0.1,fork"),
        };
        let server = Running::start(Command::new(socat).args([&listen, "SYSTEM:cat"]));
        if kind == "tcp" {
            wait_for(port);
        } else {
            std::thread::sleep(Duration::from_millis(300));
        }
        return Some((server, port));
    }
    let program = scratch.file("echo.py", PYTHON);
    let server = Running::start(Command::new(which("python3")?).arg(program).arg(kind).arg(port.to_string()));
    let _ = server.wait_to_say("ready");
    Some((server, port))
}

#[test]
fn a_megabyte_goes_to_a_tcp_echo_and_comes_back_after_our_half_close() {
    let scratch = Scratch::new("tcp");
    let Some((_server, port)) = echo_peer(&scratch, "tcp") else { skip!("neither socat nor python3 (package socat)") };
    within_limit(async {
        let neater = Neater::new().expect("engine");
        let pre = neater.preconnection().remote(loopback(port)).security(SecurityParameters::disabled());
        let stream = pre.connect_bytes().await.expect("connected");
        assert_eq!(stream.connection().stack(), Some(Stack::Tcp));
        let data: Vec<u8> = (0..1 << 20).map(|i| (i % 251) as u8).collect();
        let (mut reader, mut writer) = tokio::io::split(stream);
        let sent = data.clone();
        let writing = tokio::spawn(async move {
            writer.write_all(&sent).await.expect("written");
            writer.shutdown().await.expect("half-closed");
        });
        let mut back = Vec::new();
        reader.read_to_end(&mut back).await.expect("read");
        writing.await.expect("written");
        assert!(back == data, "{} bytes", back.len());
    });
}

#[test]
fn datagrams_go_to_a_udp_echo_and_come_back_whole() {
    let scratch = Scratch::new("udp");
    let Some((_server, port)) = echo_peer(&scratch, "udp") else { skip!("neither socat nor python3 (package socat)") };
    within_limit(async {
        let neater = Neater::new().expect("engine");
        let properties = TransportProperties::parse("unreliable-datagram").expect("words").properties;
        let pre = neater.preconnection().remote(loopback(port)).security(SecurityParameters::disabled());
        let connection = pre.properties(properties).stacks(&[Stack::Udp]).initiate().await.expect("connected");
        for length in [1, 100, 1200, 8000] {
            connection.send(vec![length as u8; length]).await.expect("sent");
            let back = connection.receive().await.expect("alive").expect("a datagram");
            assert_eq!(back.len(), length);
        }
    });
}

#[test]
fn a_python_client_talks_to_our_tcp_listener_and_to_our_udp_listener() {
    let Some(python) = which("python3") else { skip!("no python3 (package python3)") };
    let client = r#"
import socket, sys
tcp, udp = map(int, sys.argv[1:])
with socket.create_connection(("127.0.0.1", tcp), 5) as s:
    s.sendall(b"x" * 100000)
    s.shutdown(socket.SHUT_WR)
    back = b"".join(iter(lambda: s.recv(65536), b""))
    assert back == b"x" * 100000, len(back)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(5)
    for n in range(1, 6):
        s.sendto(b"y" * n, ("127.0.0.1", udp))
        assert s.recv(100) == b"y" * n
print("ok")
"#;
    within_limit(async {
        let neater = Neater::new().expect("engine");
        let pre = neater.preconnection().local(loopback(0)).security(SecurityParameters::disabled());
        let tcp = pre.clone().stacks(&[Stack::Tcp]).framer(FramerSpec::Raw).listen().expect("listening");
        let properties = TransportProperties::parse("unreliable-datagram").expect("words").properties;
        let udp = pre.properties(properties).stacks(&[Stack::Udp]).listen().expect("listening");
        let ports = [tcp.port(), udp.port()];
        let mut tasks = Vec::new();
        for listener in [tcp, udp] {
            tasks.push(tokio::spawn(async move {
                while let Some(connection) = listener.accept().await {
                    while let Ok(Some(message)) = connection.receive().await {
                        connection.send(message.data).await.expect("sent");
                    }
                    let _ = connection.finish();
                }
            }));
        }
        let mut command = Command::new(python);
        command.arg("-c").arg(client).args(ports.map(|p| p.to_string()));
        let done = tokio::task::spawn_blocking(move || run(&mut command, Duration::from_secs(15))).await.expect("runs");
        assert!(done.status.success() && done.said.contains("ok"), "{}", done.said);
        for task in tasks {
            task.abort();
        }
    });
}
