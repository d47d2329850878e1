//! The command line: that of the other peers, and what only this one has.

use std::net::SocketAddr;

const USAGE: &str = "usage: MODE(send|recv|client|server|memory) --addr IP:PORT [--flows N] [--rounds R] [--bytes B] \
                     [--object SIZE] [--mark] [--hold] [--limit SECONDS]
       [--mtu BYTES] [--buffer BYTES] [--socket-buffer BYTES] [--no-gso] [--streams N] [--seconds S]";
/// The largest number of associations that this peer takes: each has an SCTP port of its own.
const FLOWS_MAX: u64 = 50_000;

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Sends `bytes` in messages of `object` bytes over one association.
    Send,
    /// Receives one association to its end.
    Recv,
    /// Opens `flows` associations at once, waits until all are up, ends them in order; `rounds` times.
    Client,
    /// Takes associations; ends after `flows * rounds`, or, with 0 flows, with its input.
    Server,
    /// Both sides in this process: what idle associations, and streams that were used, hold.
    Memory,
}

/// The command line.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) mode: Mode,
    pub(crate) addr: SocketAddr,
    pub(crate) flows: u64,
    pub(crate) rounds: u64,
    pub(crate) bytes: u64,
    pub(crate) object: usize,
    pub(crate) mark: bool,
    pub(crate) hold: bool,
    pub(crate) limit: u32,
    /// The largest IP packet.
    pub(crate) mtu: u16,
    /// The most that the association buffers, each way.
    pub(crate) buffer: u32,
    /// Asked of the kernel for the socket; 0: its default.
    pub(crate) socket_buffer: usize,
    /// The kernel may cut trains of packets up.
    pub(crate) gso: bool,
    /// `send` stops after so many seconds whatever there is left, and until then keeps no more in its queue than the path wants: twice
    /// the congestion window, as a program with the engine does and as the kernel's TCP has it. 0: it sends all.
    pub(crate) seconds: f64,
    /// Streams that carry a message each way, for `memory`.
    pub(crate) streams: u16,
}

impl Args {
    /// Reads the command line and sets the time limit; ends the process when the line makes no sense.
    pub(crate) fn from_env() -> Self {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let parsed = Self::parse(&args).unwrap_or_else(|why| {
            eprintln!("{why}\n{USAGE}");
            std::process::exit(2);
        });
        // SAFETY: alarm has no preconditions; the default action of SIGALRM ends the process.
        unsafe { libc::alarm(parsed.limit) };
        parsed
    }

    /// Parses a command line without the program's name.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mode = match args.first().map(String::as_str) {
            Some("send") => Mode::Send,
            Some("recv") => Mode::Recv,
            Some("client") => Mode::Client,
            Some("server") => Mode::Server,
            Some("memory") => Mode::Memory,
            _ => return Err("unknown mode".to_owned()),
        };
        let mut a = Self {
            mode,
            addr: SocketAddr::from(([0; 4], 0)),
            flows: 1,
            rounds: 1,
            bytes: 0,
            object: 65_536,
            mark: false,
            hold: false,
            limit: 120,
            mtu: 1500,
            buffer: 64 << 20,
            socket_buffer: 4 << 20,
            gso: true,
            seconds: 0.0,
            streams: 0,
        };
        let mut addr = (mode == Mode::Memory).then_some(a.addr);
        let mut rest = args.iter().skip(1);
        while let Some(option) = rest.next() {
            match option.as_str() {
                "--mark" => a.mark = true,
                "--hold" => a.hold = true,
                "--no-gso" => a.gso = false,
                _ => {
                    let value = rest.next().ok_or_else(|| format!("{option} wants a value"))?;
                    let number = || value.parse::<u64>().map_err(|_| format!("{option} wants a number"));
                    let narrow = || u32::try_from(number()?).map_err(|_| format!("{option} is too large"));
                    let port = || u16::try_from(number()?).map_err(|_| format!("{option} is too large"));
                    match option.as_str() {
                        "--addr" => addr = Some(value.parse().map_err(|_| "--addr wants IP:PORT".to_owned())?),
                        "--flows" => a.flows = number()?,
                        "--rounds" => a.rounds = number()?,
                        "--bytes" => a.bytes = number()?,
                        "--object" => a.object = narrow()? as usize,
                        "--limit" => a.limit = narrow()?,
                        "--mtu" => a.mtu = port()?,
                        "--buffer" => a.buffer = narrow()?,
                        "--socket-buffer" => a.socket_buffer = narrow()? as usize,
                        "--streams" => a.streams = port()?,
                        "--seconds" => {
                            let all = |s: &f64| s.is_finite() && (0.0..=3600.0).contains(s);
                            let seconds = value.parse().ok().filter(all);
                            a.seconds = seconds.ok_or_else(|| "--seconds wants a number up to 3600".to_owned())?;
                        }
                        _ => return Err(format!("unknown option {option}")),
                    }
                }
            }
        }
        a.addr = addr.ok_or_else(|| "--addr is missing".to_owned())?;
        let none = a.flows == 0 && mode != Mode::Server;
        if none || a.flows > FLOWS_MAX || a.rounds == 0 || a.object == 0 || a.object > 16 << 20 {
            return Err("a number is out of range".to_owned());
        }
        Ok(a)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_line_becomes_arguments_or_says_what_is_wrong() {
        let a = parse("send --addr 127.0.0.1:80 --bytes 80 --object 7 --no-gso --mtu 1280").expect("valid");
        assert_eq!((a.mode, a.bytes, a.object, a.gso, a.mtu), (Mode::Send, 80, 7, false, 1280));
        assert!(parse("memory --flows 10").is_ok());
        for (line, word) in [
            ("", "mode"),
            ("send", "--addr is missing"),
            ("send --addr x", "IP:PORT"),
            ("client --addr 127.0.0.1:1 --flows 0", "out of range"),
            ("send --addr 127.0.0.1:1 --object 0", "out of range"),
            ("send --addr 127.0.0.1:1 --mtu 70000", "too large"),
            ("send --addr 127.0.0.1:1 --what 1", "unknown option"),
            ("send --addr 127.0.0.1:1 --seconds -1", "--seconds wants"),
        ] {
            let why = parse(line).expect_err(line);
            assert!(why.contains(word), "{line}: {why}");
        }
    }
}
