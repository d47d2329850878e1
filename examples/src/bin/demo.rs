//! The demonstration: one program, one request ("reliable, encrypted, low delay"), three networks.
//!
//! Everything runs on loopback, without root and without the Internet. The server and the client are the `neater` command
//! as users have it. What is blocked is really blocked, by sockets that swallow what they are sent:
//!
//! The name server answers for IPv6 at once and for IPv4 a little later, as resolvers often do: so IPv6 has had its chance
//! with every transport before IPv4 gets one, and it shows what is dead. (When both answers are there, the second attempt
//! already goes to the other family, over the other transport.)
//!
//! * UDP is blocked by a bound UDP socket that nobody reads, with a plain TCP relay beside it to the same server;
//! * IPv6 is dead because its TCP listener's accept queue is full, so that SYNs go unanswered, and its UDP is not read.
#![allow(clippy::print_stdout, reason = "a demonstration is for reading")]

use neater_dns::{Zone, answer};
use std::io::{BufRead, IsTerminal, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const NAME: &str = "demo.neater.test";
/// How long the file is, in MB, and what may be asked for instead.
const SIZE: u64 = 200;
const SIZES: core::ops::RangeInclusive<u64> = 1..=10_000;
/// How much later than the other answers the one with the IPv4 address comes. More than the delay between two attempts.
const A_LATER: Duration = Duration::from_millis(300);

/// What is left to be put away: the server, and the folder of files.
static LEFT: Mutex<(Option<Child>, Option<PathBuf>)> = Mutex::new((None, None));

/// Ends the server and removes the files: when the demonstration is over, and when somebody ends it.
fn put_away() {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mut server) = left.0.take() {
        let _ = server.kill();
        let _ = server.wait();
    }
    if let Some(place) = left.1.take() {
        let _ = std::fs::remove_dir_all(place);
    }
}

/// Puts away, whatever happens.
struct Place(PathBuf);
impl Drop for Place {
    fn drop(&mut self) {
        put_away();
    }
}

/// Ctrl-C and SIGTERM end it, too, and leave nothing.
fn put_away_when_interrupted() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut terminate = {
        let _entered = runtime.enter();
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        });
        put_away();
        std::process::exit(130);
    });
    Ok(())
}

/// How long the file is to be: the one argument, in MB.
fn size(argument: Option<&str>) -> Result<u64, String> {
    let size = argument.map_or(Some(SIZE), |text| text.parse().ok()).filter(|size| SIZES.contains(size));
    size.ok_or_else(|| format!("the length of the file is a number of MB from {} to {}", SIZES.start(), SIZES.end()))
}

fn main() -> ExitCode {
    let size = match size(std::env::args().nth(1).as_deref()) {
        Ok(size) => size,
        Err(why) => {
            eprintln!("demo: {why}");
            return ExitCode::from(2);
        }
    };
    match run(size) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("demo: {e}");
            ExitCode::FAILURE
        }
    }
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn run(size: u64) -> Outcome<()> {
    let neater = std::env::current_exe()?.with_file_name("neater");
    if !neater.exists() {
        return Err(format!("{} is not built; use ./demo", neater.display()).into());
    }
    put_away_when_interrupted()?;
    let place = Place(std::env::temp_dir().join(format!("neater-demo-{}", std::process::id())));
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).1 = Some(place.0.clone());
    std::fs::create_dir_all(place.0.join("files"))?;
    println!("Making a file of {size} MB and starting `neater serve` on loopback ...");
    make_file(&place.0.join("files/film.bin"), size)?;

    let v6 = TcpListener::bind("[::1]:0").is_ok();
    if !v6 {
        println!("(This machine has no IPv6 loopback: its part of the demonstration is left out.)");
    }
    let port = free_port(v6)?;
    let ca = start_server(&neater, &place.0, port)?;

    // Each network has a port of its own; the HTTPS record of each promises HTTP/3 and HTTP/2 there.
    let (blocked, dead) = (free_port(v6)?, free_port(v6)?);
    let mut zone = format!("{NAME} A 127.0.0.1\n");
    if v6 {
        zone += &format!("{NAME} AAAA ::1\n");
    }
    for p in [port, blocked, dead] {
        zone += &format!("_{p}._https.{NAME} HTTPS 1 {NAME} alpn=h3,h2 port={p}\n");
    }
    let dns = start_resolver(&zone, if v6 { A_LATER } else { Duration::ZERO })?;
    std::fs::write(place.0.join("resolv.conf"), format!("nameserver {}#{}\n", dns.ip(), dns.port()))?;
    std::fs::write(place.0.join("hosts"), "")?;

    println!(
        "The name server tells the IPv6 address at once, and the IPv4 address {} ms later.",
        if v6 { A_LATER.as_millis() } else { 0 }
    );
    scene("1. Every transport works", "IPv6 and IPv4, UDP and TCP all reach the server.");
    fetch(&neater, &place.0, &ca, port, Chosen::Best(" over QUIC from "))?;

    scene(
        "2. QUIC is blocked",
        "On this port a UDP socket that nobody reads swallows every QUIC packet; TCP reaches the server.",
    );
    let mut held = Network::default();
    held.swallow_udp("127.0.0.1", blocked)?;
    held.relay_tcp("127.0.0.1", blocked, port)?;
    if v6 {
        held.swallow_udp("::1", blocked)?;
        held.relay_tcp("::1", blocked, port)?;
    }
    fetch(&neater, &place.0, &ca, blocked, Chosen::Only(" over TLS/TCP from "))?;

    scene(
        "3. QUIC is blocked and IPv6 is dead",
        "As before, and the accept queue behind IPv6 is full: connections there are never answered.",
    );
    held.swallow_udp("127.0.0.1", dead)?;
    held.relay_tcp("127.0.0.1", dead, port)?;
    if v6 {
        held.swallow_udp("::1", dead)?;
        held.full_queue_v6(dead)?;
    }
    fetch(&neater, &place.0, &ca, dead, Chosen::Only(" over TLS/TCP from 127.0.0.1:"))?;
    println!("\nThe program was the same each time, and so was its request. It never named a protocol.");
    Ok(())
}

fn scene(title: &str, text: &str) {
    let (bold, plain) = if std::io::stdout().is_terminal() { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    println!("\n{bold}{title}{plain}\n{text}\n");
}

/// Bytes that do not compress, from a small generator: nothing here needs to be unpredictable.
fn make_file(path: &Path, size: u64) -> Outcome<()> {
    let mut file = std::io::BufWriter::with_capacity(1_000_000, std::fs::File::create(path)?);
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut block = vec![0u8; 1_000_000];
    for _ in 0..size {
        for chunk in block.chunks_exact_mut(8) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            chunk.copy_from_slice(&x.to_le_bytes());
        }
        file.write_all(&block)?;
    }
    Ok(file.flush()?)
}

/// A port number that is free for TCP and UDP, on both families.
fn free_port(v6: bool) -> Outcome<u16> {
    for _ in 0..64 {
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let port = tcp.local_addr()?.port();
        let udp = UdpSocket::bind(("127.0.0.1", port)).is_ok();
        let six = !v6 || (TcpListener::bind(("::1", port)).is_ok() && UdpSocket::bind(("::1", port)).is_ok());
        if udp && six {
            return Ok(port);
        }
    }
    Err("no port is free for both TCP and UDP".into())
}

fn start_server(neater: &Path, place: &Path, port: u16) -> Outcome<PathBuf> {
    let certificates = place.join("certificate");
    let mut command = Command::new(neater);
    command.arg("serve").arg(place.join("files")).args(["--json", "--port", &port.to_string(), "--name", NAME]);
    command.arg("--cert-dir").arg(&certificates).stdout(Stdio::piped());
    let mut server = command.spawn()?;
    let mut first = String::new();
    let output = server.stdout.take().ok_or("the server has no output")?;
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).0 = Some(server);
    std::io::BufReader::new(output).read_line(&mut first)?;
    if !first.contains("\"serving\"") {
        return Err(format!("neater serve did not start: {first}").into());
    }
    let found = std::fs::read_dir(&certificates)?.flatten().map(|e| e.path());
    let mut found =
        found.filter(|p| p.to_string_lossy().ends_with(".pem") && !p.to_string_lossy().ends_with(".key.pem"));
    let certificate = found.next().ok_or("neater serve made no certificate")?;
    Ok(certificate)
}

/// A name server for the demonstration's one name, whose IPv4 address it tells later than the rest.
fn start_resolver(zone: &str, a_later: Duration) -> Outcome<SocketAddr> {
    let zone = Zone::parse(zone).map_err(|e| e.to_string())?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let addr = socket.local_addr()?;
    std::thread::spawn(move || {
        let mut buf = [0; 1500];
        while let Ok((n, from)) = socket.recv_from(&mut buf) {
            let Some(reply) = answer(&buf[..n], &zone) else { continue };
            if asks_for_a(&buf[..n]) {
                let Ok(socket) = socket.try_clone() else { continue };
                std::thread::spawn(move || {
                    std::thread::sleep(a_later);
                    let _ = socket.send_to(&reply, from);
                });
            } else {
                let _ = socket.send_to(&reply, from);
            }
        }
    });
    Ok(addr)
}

/// Whether a query is for an IPv4 address: type 1 behind the name (RFC 1035 section 4.1.2).
fn asks_for_a(query: &[u8]) -> bool {
    let mut at = 12;
    while let Some(length) = query.get(at).filter(|l| **l > 0) {
        at += 1 + usize::from(*length);
    }
    query.get(at + 1..at + 3) == Some(&[0, 1])
}

/// Runs `neater get` as a user would, and lets it speak for itself. Where its errors do not go to a terminal, it must
/// say what this network leaves: `chosen`.
fn fetch(neater: &Path, place: &Path, ca: &Path, port: u16, chosen: Chosen) -> Outcome<()> {
    let url = format!("https://{NAME}:{port}/film.bin");
    let (conf, hosts) = (place.join("resolv.conf"), place.join("hosts"));
    println!(
        "$ neater get -v --needs \"reliable, encrypted, low-delay\" --ca {} --resolv-conf {} --hosts {} -o /dev/null {url}",
        ca.display(),
        conf.display(),
        hosts.display()
    );
    let mut get = Command::new(neater);
    // The networks are this program's own.
    get.env("no_proxy", "*")
        .args(["get", "-v", "--needs", "reliable, encrypted, low-delay", "-o", "/dev/null"])
        .arg("--ca")
        .arg(ca)
        .arg("--resolv-conf")
        .arg(conf)
        .arg("--hosts")
        .arg(hosts)
        .arg(&url);
    // It draws its progress on a terminal, and on nothing else.
    let looked_at = std::io::stderr().is_terminal();
    if !looked_at {
        get.stderr(Stdio::piped());
    }
    let mut get = get.spawn()?;
    let mut said = String::new();
    for line in get.stderr.take().map(std::io::BufReader::new).into_iter().flat_map(BufRead::lines) {
        let line = line?;
        eprintln!("{line}");
        said += &(line + "\n");
    }
    let status = get.wait()?;
    if !status.success() {
        return Err(format!("neater get ended with {status}").into());
    }
    match chosen {
        Chosen::Only(words) if !looked_at && !said.contains(words) => {
            Err(format!("neater get does not say `{}`, and this network leaves nothing else", words.trim()).into())
        }
        Chosen::Best(words) if !looked_at && !said.contains(words) => {
            println!("(Not{words}the server: on this machine, now, it was not up within its head start.)");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// What `neater get` says at the end about the transport that it used.
#[derive(Clone, Copy)]
enum Chosen {
    /// Another wins where the best is slow, as it is on a busy machine.
    Best(&'static str),
    Only(&'static str),
}

/// What makes a network bad, held open as long as the demonstration lasts.
#[derive(Default)]
struct Network {
    deaf: Vec<UdpSocket>,
    queues: Vec<(TcpListener, Vec<TcpStream>)>,
}

impl Network {
    /// Takes every datagram and answers none.
    fn swallow_udp(&mut self, host: &str, port: u16) -> Outcome<()> {
        self.deaf.push(UdpSocket::bind((host, port))?);
        Ok(())
    }

    /// Passes TCP on to the server on its own port.
    fn relay_tcp(&mut self, host: &'static str, port: u16, to: u16) -> Outcome<()> {
        let listener = TcpListener::bind((host, port))?;
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let Ok(server) = TcpStream::connect((host, to)) else { return };
                    let (Ok(a), Ok(b)) = (client.try_clone(), server.try_clone()) else { return };
                    let up = std::thread::spawn(move || pump(a, b));
                    pump(server, client);
                    let _ = up.join();
                });
            }
        });
        Ok(())
    }

    /// A listener that never accepts, with its queue filled: further connections are not answered.
    fn full_queue_v6(&mut self, port: u16) -> Outcome<()> {
        let listener = listen_v6(port)?;
        let addr = listener.local_addr()?;
        let mut held = Vec::new();
        for _ in 0..8 {
            match TcpStream::connect_timeout(&addr, Duration::from_millis(200)) {
                Ok(s) => held.push(s),
                Err(_) => break,
            }
        }
        self.queues.push((listener, held));
        Ok(())
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    let mut buf = vec![0; 256 << 10];
    while let Ok(n) = from.read(&mut buf) {
        if n == 0 || to.write_all(&buf[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// A listener with the shortest queue that the system allows; the standard library's is long.
fn listen_v6(port: u16) -> Outcome<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None)?;
    socket.set_only_v6(true)?;
    socket.bind(&SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port)).into())?;
    socket.listen(0)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        assert_eq!((size(None), size(Some("8"))), (Ok(200), Ok(8)));
        for bad in ["", "0", "-1", "10001", "8 MB"] {
            assert!(size(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_questions_for_ipv4_are_answered_later() {
        let query = |name: &[u8], kind: u8| [&[0; 12][..], name, &[0, kind, 0, 1]].concat();
        assert!(asks_for_a(&query(b"\x04demo\x04test\0", 1)));
        assert!(!asks_for_a(&query(b"\x04demo\x04test\0", 28)));
        for cut in 0..20 {
            assert!(!asks_for_a(&query(b"\x04demo\x04test\0", 1)[..cut]));
        }
    }
}
