//! `neater ping`: how long TCP takes to connect, by each interface that leads to each address.
//!
//! *Responsible for* the probes and what they come to. *Not responsible for* choosing a transport:
//! `explain --try` races what could serve, this asks the ways themselves, one by one, again and
//! again.
//!
//! A probe is one handshake: it measures the round trip of a SYN and what the other host takes to
//! accept, by the way that data would go, through whatever lets no ICMP pass. A refusal is an
//! answer, but without a server.

pub(crate) mod ways;

use crate::args::PingArgs;
use crate::failure::{Exit, Failure};
use crate::output::{Output, ms};
use crate::resolve;
use neater::RemoteEndpoint;
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use ways::{MAX_WAYS, Way};

/// The port that is asked where none is named: what most servers answer.
const PORT: u16 = 443;
/// Results that wait to be printed.
const WAITING: usize = 256;

/// What came of one probe.
struct Probe {
    way: usize,
    number: u32,
    /// How long it took, or what a program calls the reason that it did not connect.
    result: Result<Duration, &'static str>,
}

/// What came of all probes of one way.
#[derive(Default)]
struct Tally {
    times: Vec<Duration>,
    errors: BTreeMap<&'static str, u32>,
}

impl Tally {
    fn sent(&self) -> usize {
        self.times.len() + self.errors.values().sum::<u32>() as usize
    }

    /// The least, the median and the greatest time; of an even number, the middle between both in
    /// the middle.
    fn summary(&self) -> Option<[Duration; 3]> {
        let mut times = self.times.clone();
        times.sort_unstable();
        let (lower, upper) = (times[(times.len().checked_sub(1)?) / 2], times[times.len() / 2]);
        Some([*times.first()?, (lower + upper) / 2, *times.last()?])
    }

    /// The part of the probes that did not connect, in percent.
    fn loss(&self) -> f64 {
        match self.sent() {
            0 => 0.0,
            sent => 100.0 * (sent - self.times.len()) as f64 / sent as f64,
        }
    }
}

pub(crate) async fn run(args: PingArgs, output: &Output) -> Result<Exit, Failure> {
    let (name, port, addresses) = target(&args).await?;
    let interfaces = neater_command::interfaces()?;
    ways::known(&args.interface, &interfaces)?;
    let mut found = ways::ways(&addresses, &interfaces, &args.interface);
    if found.is_empty() {
        let what = format!("none of these interfaces has an address that could lead to {name}");
        return Err(Failure::new(Exit::Failed, "interfaces", what).advise("`ip address` shows what they have"));
    }
    if found.len() > MAX_WAYS {
        let what = format!("{} ways; the first {MAX_WAYS} are asked, --interface chooses others", found.len());
        output.report("left-out", None, &what);
        found.truncate(MAX_WAYS);
    }
    announce(&name, port, &found, output);
    let mut tallies: Vec<Tally> = found.iter().map(|_| Tally::default()).collect();
    let (results, mut arriving) = mpsc::channel(WAITING);
    let tasks: Vec<_> = (found.iter().enumerate())
        .map(|(i, way)| tokio::spawn(probes(i, way.clone(), port, args.clone(), results.clone())))
        .collect();
    drop(results);
    let stop = crate::signals::interrupted();
    tokio::pin!(stop);
    let interrupted = loop {
        let probe = tokio::select! {
            probe = arriving.recv() => probe,
            () = &mut stop => break true,
        };
        let Some(probe) = probe else { break false };
        report(&probe, &found[probe.way], output);
        let tally = &mut tallies[probe.way];
        match probe.result {
            Ok(time) => tally.times.push(time),
            Err(why) => *tally.errors.entry(why).or_default() += 1,
        }
    };
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    summarise(&found, &tallies, output);
    Ok(match tallies.iter().any(|t| !t.times.is_empty()) {
        _ if interrupted => Exit::Interrupted,
        true => Exit::Ok,
        false => Exit::Failed,
    })
}

/// The name that is asked, its port, and its addresses.
async fn target(args: &PingArgs) -> Result<(String, u16, Vec<IpAddr>), Failure> {
    let endpoint = endpoint(&args.target)?;
    let mut addresses = match (endpoint.ip_address(), endpoint.host_name()) {
        (Some(addr), _) => vec![addr],
        (None, Some(host)) => {
            resolve::addresses(host, args.resolv_conf.as_deref(), args.hosts.as_deref(), Some(args.timeout))
                .await?
                .map_err(|why| Failure::new(Exit::Failed, "resolution", format!("{host} has no address: {why}")))?
        }
        (None, None) => return Err(Failure::usage(format!("{}: a host is wanted", args.target))),
    };
    addresses.sort_unstable();
    addresses.dedup();
    addresses.retain(|a| (!args.ipv4 || a.is_ipv4()) && (!args.ipv6 || a.is_ipv6()));
    if addresses.is_empty() {
        let what = format!("{} has no address of that version of IP", args.target);
        return Err(Failure::new(Exit::Failed, "resolution", what));
    }
    let name = endpoint.host_name().map_or_else(|| addresses[0].to_string(), str::to_owned);
    Ok((name, endpoint.port(), addresses))
}

/// A name or address, with a port or without.
fn endpoint(text: &str) -> Result<RemoteEndpoint, Failure> {
    if let Ok(addr) = text.parse::<IpAddr>() {
        return Ok(RemoteEndpoint::new().with_ip_address(addr).with_port(PORT));
    }
    let named = text.contains(':') && !text.ends_with(']');
    let whole = if named { text.to_owned() } else { format!("{text}:{PORT}") };
    whole.parse::<RemoteEndpoint>().map_err(|e| Failure::usage(e.to_string()))
}

/// Asks by one way, as often as is wanted. A probe that is late does not hold up the next one
/// longer than it must.
async fn probes(i: usize, way: Way, port: u16, args: PingArgs, results: mpsc::Sender<Probe>) {
    let mut ticks = interval(args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 1..=args.count {
        ticks.tick().await;
        let result = match timeout(args.timeout, connect(&way, port)).await {
            Ok(Ok(time)) => Ok(time),
            Ok(Err(e)) => Err(reason(&e)),
            Err(_) => Err("timeout"),
        };
        if results.send(Probe { way: i, number, result }).await.is_err() {
            return;
        }
    }
}

/// One handshake, and how long it took.
async fn connect(way: &Way, port: u16) -> io::Result<Duration> {
    let socket = if way.remote.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some((name, local)) = &way.by {
        socket.bind_device(Some(name.as_bytes()))?;
        socket.bind(SocketAddr::new(*local, 0))?;
    }
    let begin = std::time::Instant::now();
    let stream = socket.connect(SocketAddr::new(way.remote, port)).await?;
    let time = begin.elapsed();
    drop(stream);
    Ok(time)
}

/// What programs call a reason.
fn reason(e: &io::Error) -> &'static str {
    use io::ErrorKind as K;
    match e.kind() {
        K::ConnectionRefused => "refused",
        K::TimedOut => "timeout",
        K::NetworkUnreachable | K::HostUnreachable => "unreachable",
        K::PermissionDenied => "not-permitted",
        K::ConnectionReset => "reset",
        K::AddrNotAvailable => "no-address",
        _ => "failed",
    }
}

fn announce(name: &str, port: u16, ways: &[Way], output: &Output) {
    if output.json {
        output.event(&json!({"event": "pinging", "host": name, "port": port, "ways": ways.len()}));
    } else {
        let s = if ways.len() == 1 { "" } else { "s" };
        output.line(&format!("TCP to {name}, port {port}, by {} way{s}", ways.len()));
    }
}

fn report(probe: &Probe, way: &Way, output: &Output) {
    if output.json {
        let mut event = way.to_json();
        event["event"] = "probe".into();
        event["number"] = probe.number.into();
        match probe.result {
            Ok(time) => event["ms"] = ms(time).into(),
            Err(why) => event["error"] = why.into(),
        }
        return output.event(&event);
    }
    match probe.result {
        Ok(time) => output.line(&format!("{way}: {:.3} ms", ms(time))),
        Err(why) => output.line(&format!("{way}: {why}")),
    }
}

/// What it comes to, the best way first: by what was lost, then by the median.
fn summarise(ways: &[Way], tallies: &[Tally], output: &Output) {
    let mut order: Vec<usize> = (0..ways.len()).collect();
    let rank = |i: &usize| {
        let (lost, median) = (tallies[*i].loss(), tallies[*i].summary().map_or(Duration::MAX, |[_, median, _]| median));
        // Percents are not negative, so that their bits are in their order.
        (lost.to_bits(), median)
    };
    order.sort_by_key(rank);
    if !output.json {
        output.line("");
        output.line(&format!("{:<52} {:>5} {:>6}  {:>9} {:>9} {:>9}", "", "sent", "lost", "min ms", "median", "max"));
    }
    for i in order {
        let (way, tally) = (&ways[i], &tallies[i]);
        let times = tally.summary().map(|times| times.map(ms));
        if output.json {
            let mut event = way.to_json();
            event["event"] = "way".into();
            event["sent"] = tally.sent().into();
            event["connected"] = tally.times.len().into();
            event["loss_percent"] = ((tally.loss() * 100.0).round() / 100.0).into();
            for (name, at) in [("min_ms", 0), ("median_ms", 1), ("max_ms", 2)] {
                event[name] = times.map_or(serde_json::Value::Null, |t| t[at].into());
            }
            event["errors"] = json!(tally.errors);
            output.event(&event);
            continue;
        }
        let times = times.map_or_else(
            || tally.errors.keys().copied().collect::<Vec<_>>().join(", "),
            |[min, median, max]| format!("{min:>9.3} {median:>9.3} {max:>9.3}"),
        );
        let text = format!("{:<52} {:>5} {:>5.0}%  {times}", way.to_string(), tally.sent(), tally.loss());
        output.line(text.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_be_left_out() {
        let target_of = |text: &str| endpoint(text).map(|e| e.to_string()).unwrap_or_else(|f| f.message);
        assert_eq!(target_of("example.com"), "example.com:443");
        assert_eq!(target_of("example.com:22"), "example.com:22");
        assert_eq!(
            (target_of("::1"), target_of("[::1]"), target_of("[::1]:8")),
            ("[::1]:443".into(), "[::1]:443".into(), "[::1]:8".into())
        );
        for bad in ["", "a:b", "h:0", "h:99999", "[::1", "1::2:x"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tally_tells_what_was_seen() {
        let at = Duration::from_millis;
        let mut tally = Tally { times: vec![at(9), at(1), at(4), at(2)], errors: BTreeMap::new() };
        assert_eq!(tally.summary(), Some([at(1), at(3), at(9)]), "between 2 and 4");
        let of =
            |times: &[u64]| Tally { times: times.iter().map(|t| at(*t)).collect(), errors: BTreeMap::new() }.summary();
        assert_eq!(of(&[4, 2]), Some([at(2), at(3), at(4)]));
        assert_eq!((of(&[5]), of(&[5, 9, 1])), (Some([at(5); 3]), Some([at(1), at(5), at(9)])));
        tally.errors.insert("timeout", 1);
        assert_eq!((tally.sent(), tally.loss()), (5, 20.0));
        assert_eq!((Tally::default().summary(), Tally::default().loss()), (None, 0.0));
    }
}
