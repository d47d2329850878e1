//! Messages by a plan over this project's API, over SCTP or TCP with whatever paths both hosts have: a
//! server that sends what it is asked for, and a client that reports when each message has come.
//!
//! `serve --bind IP --port PORT [--limit SECONDS]`, and
//! `get --addr IP:PORT --transport SCTP|TCP --load LOAD --ms N [--limit SECONDS]`: one line when the
//! connection is there, and one with the arrivals ([`neater_peers::paced`]).

use neater::{Connection, FramerSpec, Neater, Preconnection, SecurityParameters, Stack};
use neater_peers::paced::{Arrivals, Asked, Load, MESSAGE, Messages};
use neater_peers::peer::fail;
use neater_property::TransportProperties;
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const USAGE: &str = "usage: peer-paced serve --bind IP --port PORT [--limit SECONDS]
       peer-paced get --addr IP:PORT --transport SCTP|TCP --load app-limited|full|idle --ms N [--limit SECONDS]";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (mode, options) = read(&args).unwrap_or_else(|why| {
        eprintln!("{why}\n{USAGE}");
        std::process::exit(2);
    });
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap_or_else(|e| fail("runtime", &e));
    let limit = options.get("limit").and_then(|s| s.parse().ok()).map_or(Duration::from_secs(120), Duration::from_secs);
    let work = async {
        match mode {
            "serve" => serve(&options).await,
            _ => get(&options).await,
        }
    };
    match runtime.block_on(async { tokio::time::timeout(limit, work).await }) {
        Ok(Ok(())) => {}
        Ok(Err(e)) => fail("neater", &e),
        Err(_) => fail("neater", &format!("not done after {limit:?}")),
    }
}

type Options<'a> = BTreeMap<&'a str, &'a str>;

/// The mode, and the options by their names.
fn read(args: &[String]) -> Result<(&str, Options<'_>), String> {
    const NAMES: [&str; 7] = ["bind", "port", "addr", "transport", "load", "ms", "limit"];
    let mode = args.first().map(String::as_str).filter(|m| ["serve", "get"].contains(m)).ok_or("unknown mode")?;
    let mut options = Options::new();
    for pair in args[1..].chunks(2) {
        let name = pair[0].strip_prefix("--").filter(|n| NAMES.contains(n));
        let name = name.ok_or_else(|| format!("unknown option {}", pair[0]))?;
        options.insert(name, pair.get(1).ok_or_else(|| format!("{} wants a value", pair[0]))?);
    }
    Ok((mode, options))
}

fn number<T: std::str::FromStr>(options: &Options<'_>, name: &str) -> io::Result<T> {
    let value = options.get(name).and_then(|v| v.parse().ok());
    value.ok_or_else(|| io::Error::other(format!("--{name} is missing or makes no sense\n{USAGE}")))
}

/// What both ends ask for: messages in order, over every path there is.
fn preconnection(neater: &Neater, stacks: &[Stack]) -> io::Result<Preconnection> {
    let mut needs = TransportProperties::new();
    for (name, value) in [("multipath", "Active"), ("multipathPolicy", "Aggregate")] {
        needs.set(name, value).map_err(io::Error::other)?;
    }
    let framer = FramerSpec::LengthPrefixed { width: 4, max: MESSAGE as u64 };
    let p = neater.preconnection().properties(needs).security(SecurityParameters::disabled()).stacks(stacks);
    // SCTP keeps messages apart itself.
    Ok(if stacks.contains(&Stack::Tcp) { p.framer(framer) } else { p })
}

async fn serve(options: &Options<'_>) -> io::Result<()> {
    let neater = Neater::builder().build()?;
    let at = SocketAddr::new(number::<IpAddr>(options, "bind")?, number(options, "port")?);
    let listen = |stack| preconnection(&neater, &[stack])?.local(at).listen().map_err(io::Error::other);
    let (sctp, tcp) = (listen(Stack::Sctp)?, listen(Stack::Tcp)?);
    println!("{}", json!({ "listening": at.to_string() }));
    loop {
        let accepted = tokio::select! {
            c = sctp.accept() => c,
            c = tcp.accept() => c,
        };
        let connection = accepted.ok_or_else(|| io::Error::other("the listener has stopped"))?;
        tokio::spawn(async move {
            if let Err(e) = answer(&connection).await {
                eprintln!("a connection has failed: {e}");
            }
        });
    }
}

/// Sends what the first message asks for.
async fn answer(connection: &Connection) -> io::Result<()> {
    let first = connection.receive().await.map_err(io::Error::other)?;
    let asked = first.as_deref().and_then(Asked::decode);
    let Some(Asked::Messages(load, time)) = asked else { return Err(io::Error::other("it asked for nothing")) };
    let paths = || connection.paths().iter().map(|p| (p.remote.ip(), p.rtt)).collect();
    let mut messages = Messages::new(load, time);
    while let Some(message) = messages.next(paths).await {
        connection.send(message).await.map_err(io::Error::other)?;
    }
    connection.close().await.map_err(io::Error::other)
}

async fn get(options: &Options<'_>) -> io::Result<()> {
    let stack = match options.get("transport") {
        Some(&"SCTP") => Stack::Sctp,
        Some(&"TCP") => Stack::Tcp,
        _ => return Err(io::Error::other(format!("--transport is SCTP or TCP\n{USAGE}"))),
    };
    let load = options.get("load").and_then(|name| Load::by_name(name));
    let load = load.ok_or_else(|| io::Error::other(format!("--load makes no sense\n{USAGE}")))?;
    let asked = Asked::Messages(load, Duration::from_millis(number(options, "ms")?));
    let neater = Neater::builder().build()?;
    let remote: SocketAddr = number(options, "addr")?;
    let connection = preconnection(&neater, &[stack])?.remote(remote).initiate().await.map_err(io::Error::other)?;
    connection.send(asked.encode().to_vec()).await.map_err(io::Error::other)?;
    println!("{}", json!({ "open": true }));
    let mut arrivals = Arrivals::default();
    let whole = loop {
        match connection.receive().await {
            Ok(Some(message)) => arrivals.note(&message),
            Ok(None) => break true,
            Err(e) => {
                eprintln!("{e}");
                break false;
            }
        }
    };
    arrivals.print(whole);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_becomes_options_or_says_what_is_wrong() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let line = words("get --ms 5 --load full");
        let (mode, options) = read(&line).unwrap();
        assert_eq!((mode, options["load"], number::<u64>(&options, "ms").unwrap()), ("get", "full", 5));
        assert!(number::<u64>(&options, "port").unwrap_err().to_string().contains("--port is missing"));
        for (line, word) in [("", "mode"), ("get --x 1", "unknown option"), ("get --ms", "wants a value")] {
            assert!(read(&words(line)).unwrap_err().contains(word), "{line}");
        }
    }
}
