//! The command line.

use crate::sockets::Local;
use neater_peers::paced::{Asked, Load};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

const USAGE: &str =
    "usage: serve --bind IP --port PORT --credentials DIR [--rate BYTES_PER_SECOND] [--path-idle MS] [--limit SECONDS]
       get --addr IP:PORT --bytes N --local IP[%INTERFACE] [--local ...] --credentials DIR [--limit SECONDS]
       get --addr IP:PORT --load app-limited|full|idle --ms N --local IP[%INTERFACE] ...";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Sends what it is asked for, until its time is over.
    Serve,
    /// Fetches what is asked for.
    Get,
}

#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) mode: Mode,
    /// Where to listen or to connect.
    pub(crate) addr: SocketAddr,
    /// What is fetched: nothing, as long as nothing else is said.
    pub(crate) asked: Asked,
    /// The most that is sent by each path, in bytes per second: noq paces every path so, not the
    /// connection.
    pub(crate) rate: Option<u64>,
    /// After which a path on which nothing comes is abandoned; it is kept alive meanwhile. noq's default
    /// is never, and a connection ends there with the path that carried it.
    pub(crate) path_idle: Option<Duration>,
    /// From where paths begin; the connection by the first of them.
    pub(crate) local: Vec<Local>,
    /// Where the certificate of the run is.
    pub(crate) credentials: PathBuf,
    /// After which the process ends.
    pub(crate) limit: Duration,
}

impl Args {
    /// Reads the command line; ends the process when it makes no sense.
    pub(crate) fn from_env() -> Self {
        let args: Vec<String> = std::env::args().skip(1).collect();
        Self::parse(&args).unwrap_or_else(|why| {
            eprintln!("{why}\n{USAGE}");
            std::process::exit(2);
        })
    }

    fn parse(args: &[String]) -> Result<Self, String> {
        let mode = match args.first().map(String::as_str) {
            Some("serve") => Mode::Serve,
            Some("get") => Mode::Get,
            _ => return Err("unknown mode".to_owned()),
        };
        let mut a = Self {
            mode,
            addr: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            asked: Asked::Bytes(0),
            rate: None,
            path_idle: None,
            local: Vec::new(),
            credentials: PathBuf::new(),
            limit: Duration::from_secs(120),
        };
        let (mut load, mut time) = (None, None);
        let mut rest = args.iter().skip(1);
        while let Some(option) = rest.next() {
            let value = rest.next().ok_or_else(|| format!("{option} wants a value"))?;
            let wrong = || format!("{option} {value} makes no sense");
            match option.as_str() {
                "--bind" => a.addr.set_ip(value.parse().map_err(|_| wrong())?),
                "--port" => a.addr.set_port(value.parse().map_err(|_| wrong())?),
                "--addr" => a.addr = value.parse().map_err(|_| wrong())?,
                "--bytes" => a.asked = Asked::Bytes(value.parse().map_err(|_| wrong())?),
                "--load" => load = Some(Load::by_name(value).ok_or_else(wrong)?),
                "--ms" => time = Some(Duration::from_millis(value.parse().map_err(|_| wrong())?)),
                "--rate" => a.rate = Some(value.parse().map_err(|_| wrong())?),
                "--path-idle" => a.path_idle = Some(Duration::from_millis(value.parse().map_err(|_| wrong())?)),
                "--local" => a.local.push(local(value).ok_or_else(wrong)?),
                "--credentials" => a.credentials = value.into(),
                "--limit" => a.limit = Duration::from_secs(value.parse().map_err(|_| wrong())?),
                _ => return Err(format!("unknown option {option}")),
            }
        }
        if let (Some(load), Some(time)) = (load, time) {
            a.asked = Asked::Messages(load, time);
        }
        if mode == Mode::Get && (a.addr.port() == 0 || a.local.is_empty() || a.asked == Asked::Bytes(0)) {
            return Err("--addr, --bytes (or --load and --ms) or --local is missing".to_owned());
        }
        if a.local.iter().any(|l| l.ip.is_ipv4() != a.addr.is_ipv4()) {
            return Err("all addresses are of one family".to_owned());
        }
        Ok(a)
    }
}

/// `IP` or `IP%INTERFACE`.
fn local(text: &str) -> Option<Local> {
    let (ip, interface) = match text.split_once('%') {
        Some((ip, interface)) => (ip, Some(interface.to_owned())),
        None => (text, None),
    };
    Some(Local { ip: ip.parse::<IpAddr>().ok()?, interface })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_line_becomes_arguments_or_says_what_is_wrong() {
        let a = parse("get --addr 10.0.0.1:80 --bytes 5 --local 10.0.0.2%eth0 --local 10.1.0.2").expect("valid");
        assert_eq!((a.mode, a.asked, a.local.len()), (Mode::Get, Asked::Bytes(5), 2));
        assert_eq!((a.local[0].interface.as_deref(), a.local[1].interface.as_deref()), (Some("eth0"), None));
        let paced = parse("get --addr 10.0.0.1:80 --load idle --ms 5 --local 10.0.0.2").expect("valid");
        assert_eq!(paced.asked, Asked::Messages(Load::Idle, Duration::from_millis(5)));
        let served = parse("serve --bind 127.0.0.1 --port 0").expect("valid");
        assert_eq!(served.addr.to_string(), "127.0.0.1:0");
        for (line, word) in [
            ("", "mode"),
            ("get --addr 10.0.0.1:80 --bytes 5", "is missing"),
            ("get --addr 10.0.0.1:80 --bytes 5 --local ::1", "one family"),
            ("get --addr 10.0.0.1:80 --load full --local 10.0.0.2", "is missing"),
            ("get --addr 10.0.0.1:80 --load much --local 10.0.0.2", "no sense"),
            ("get --addr x --bytes 5 --local ::1", "no sense"),
            ("serve --port", "wants a value"),
            ("serve --frobnicate 1", "unknown option"),
        ] {
            let why = parse(line).expect_err(line);
            assert!(why.contains(word), "{line}: {why}");
        }
    }
}
