//! The resolver configuration: which servers, which suffixes, how patiently.
//!
//! *Responsible for* reading `resolv.conf(5)` leniently (one bad line costs that line) and for the
//! schedule that follows from it. *Not responsible for* finding or watching the file.

use core::fmt;
use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::name;

/// Servers that are asked at most. The C library stops at 3; containers and VPNs list more.
pub const MAX_SERVERS: usize = 8;
/// Search domains at most.
pub const MAX_SEARCH: usize = 6;
/// Bytes in a line at most, longer ones are ignored.
pub const MAX_LINE: usize = 4096;
/// Lines that are read at most.
const MAX_LINES: usize = 4096;
/// Warnings that are kept at most.
const MAX_WARNINGS: usize = 32;
/// `ndots` at most, as in the C library.
const MAX_NDOTS: u8 = 15;
/// `attempts` at most, as in the C library.
const MAX_ATTEMPTS: u8 = 5;
/// `timeout` at most, as in the C library.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);
/// Waiting less than this would only multiply traffic.
const MIN_WAIT: Duration = Duration::from_millis(50);
/// The port of DNS (RFC 1035 section 4.2).
const DNS_PORT: u16 = 53;

/// How names are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Recursive servers, in order of preference; the first [`MAX_SERVERS`] count.
    pub servers: Vec<SocketAddr>,
    /// Suffixes to try for names with fewer than `ndots` dots; the first [`MAX_SEARCH`] count.
    pub search: Vec<String>,
    /// A name with at least this many dots is first tried as it is; 0 to 15.
    pub ndots: u8,
    /// The longest wait for one server's answer, and the wait after the last try; 50 ms to 30 s.
    pub timeout: Duration,
    /// The wait for one server's answer in the first round; it doubles with every round, up to
    /// `timeout`.
    pub retry: Duration,
    /// Rounds over all servers; 1 to 5.
    pub attempts: u8,
    /// Whether questions start at the servers in turn instead of always at the first.
    pub rotate: bool,
    /// Whether to ask over TCP from the start (`use-vc`).
    pub use_tcp: bool,
    /// Whether to send an EDNS option record (RFC 6891), which allows answers of up to
    /// [`crate::EDNS_PAYLOAD`] bytes over UDP.
    pub edns: bool,
    /// Whether to set the AD bit in questions (`trust-ad`). The answer's AD bit is not reported.
    pub trust_ad: bool,
    /// Whether no IPv6 addresses are asked for (`no-aaaa`): names have none but in the hosts file.
    pub no_aaaa: bool,
}

impl Default for Config {
    /// No servers, no search list, and the usual patience.
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            retry: Duration::from_secs(1),
            attempts: 2,
            rotate: false,
            use_tcp: false,
            edns: true,
            trust_ad: false,
            no_aaaa: false,
        }
    }
}

/// A line of the configuration that was not obeyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resolver configuration, line {}: {}", self.line, self.problem)
    }
}

impl Config {
    /// Reads the text of a `resolv.conf`. Never fails: what cannot be understood is left out and
    /// warned of.
    ///
    /// Beyond `resolv.conf(5)`, a server may carry a port: `192.0.2.1#5353`, `192.0.2.1:5353`,
    /// `[2001:db8::1]:5353`.
    #[must_use]
    pub fn parse(resolv_conf: &[u8]) -> (Self, Vec<Warning>) {
        Self::parse_with(resolv_conf, |_| None)
    }

    /// The same, with the index of an interface by its name, for servers at link-local addresses:
    /// `fe80::1%eth0` (RFC 4007 section 11). Without, only numbers are understood.
    #[must_use]
    pub fn parse_with(resolv_conf: &[u8], zone: impl Fn(&str) -> Option<u32>) -> (Self, Vec<Warning>) {
        let mut config = Self::default();
        let mut warnings = Vec::new();
        for (i, line) in resolv_conf.split(|b| *b == b'\n').take(MAX_LINES).enumerate() {
            let mut warn = |problem| {
                if warnings.len() < MAX_WARNINGS {
                    warnings.push(Warning { line: i + 1, problem });
                }
            };
            if line.len() > MAX_LINE {
                warn("longer than 4 kB, ignored");
                continue;
            }
            match core::str::from_utf8(line) {
                Ok(text) => config.line(text, &zone, &mut warn),
                Err(_) => warn("not text, ignored"),
            }
        }
        (config, warnings)
    }

    /// The configuration of a host from the text of its file, as [`Config::parse_with`]: where the
    /// text names no server, one on this host is meant (`resolv.conf(5)`). Without any text
    /// (`/dev/null`, no file), no server is to be asked.
    #[must_use]
    pub fn of_host(resolv_conf: &[u8], zone: impl Fn(&str) -> Option<u32>) -> (Self, Vec<Warning>) {
        let (mut config, warnings) = Self::parse_with(resolv_conf, zone);
        if config.servers.is_empty() && !resolv_conf.is_empty() {
            config.servers.push(SocketAddr::from((Ipv4Addr::LOCALHOST, DNS_PORT)));
        }
        (config, warnings)
    }

    fn line(&mut self, text: &str, zone: &impl Fn(&str) -> Option<u32>, warn: &mut impl FnMut(&'static str)) {
        // The C library accepts comments only at the start of a line, but people write them
        // elsewhere. `#` also introduces a port, so it is a comment only after white space.
        let text = text.split(';').next().unwrap_or_default();
        let mut words = text.split_ascii_whitespace().take_while(|w| !w.starts_with('#'));
        match words.next() {
            None => {}
            Some("nameserver") => match words.next().and_then(|w| server(w, zone)) {
                Some(_) if self.servers.len() == MAX_SERVERS => warn("more than 8 servers, ignored"),
                Some(server) => self.servers.push(server),
                None => warn("the server's address cannot be read, or its interface is not there: ignored"),
            },
            // The last of several lines counts, and the two words replace each other.
            Some("search") => self.set_search(words, MAX_SEARCH, warn),
            Some("domain") => self.set_search(words, 1, warn),
            Some("options") => words.for_each(|w| self.option(w, warn)),
            Some(_) => warn("unknown keyword, ignored"),
        }
    }

    fn set_search<'a>(
        &mut self,
        words: impl Iterator<Item = &'a str>,
        limit: usize,
        warn: &mut impl FnMut(&'static str),
    ) {
        self.search.clear();
        for word in words {
            let suffix = word.strip_suffix('.').unwrap_or(word);
            if suffix.is_empty() {
                // `search .` is how "no suffix" is written.
            } else if name::check(suffix).is_err() {
                warn("the domain is not a valid name, ignored");
            } else if self.search.len() == limit {
                warn("too many domains, the rest is ignored");
                break;
            } else {
                self.search.push(suffix.to_ascii_lowercase());
            }
        }
    }

    fn option(&mut self, word: &str, warn: &mut impl FnMut(&'static str)) {
        let (key, value) = word.split_once(':').map_or((word, None), |(k, v)| (k, v.parse::<u32>().ok()));
        match (key, value) {
            ("ndots", Some(n)) => self.ndots = n.min(MAX_NDOTS.into()) as u8,
            ("timeout", Some(s)) => {
                self.timeout = Duration::from_secs(s.max(1).into()).min(MAX_TIMEOUT);
            }
            ("attempts", Some(n)) => self.attempts = n.clamp(1, MAX_ATTEMPTS.into()) as u8,
            ("ndots" | "timeout" | "attempts", None) => warn("the option needs a number after a colon, ignored"),
            ("rotate", _) => self.rotate = true,
            ("use-vc", _) => self.use_tcp = true,
            ("edns0", _) => self.edns = true,
            ("trust-ad", _) => self.trust_ad = true,
            ("no-aaaa", _) => self.no_aaaa = true,
            _ => warn("unknown option, ignored"),
        }
    }

    /// The same configuration with every number in its range.
    pub(crate) fn clamped(mut self) -> Self {
        self.servers.truncate(MAX_SERVERS);
        self.search.truncate(MAX_SEARCH);
        self.ndots = self.ndots.min(MAX_NDOTS);
        self.attempts = self.attempts.clamp(1, MAX_ATTEMPTS);
        self.timeout = self.timeout.clamp(MIN_WAIT, MAX_TIMEOUT);
        self.retry = self.retry.clamp(MIN_WAIT, self.timeout);
        self
    }

    /// How long to wait for a server's answer in `round`, counted from 0.
    pub(crate) fn wait(&self, round: usize) -> Duration {
        let factor = 1u32.checked_shl(u32::try_from(round).unwrap_or(u32::MAX)).unwrap_or(u32::MAX);
        self.retry.saturating_mul(factor).min(self.timeout)
    }

    /// After how long one question has failed with [`crate::ResolveError::Timeout`] when no server
    /// answers: every try's wait, and `timeout` for the last one. 9 s with the default patience and
    /// two servers.
    #[must_use]
    pub fn silence(&self) -> Duration {
        let c = self.clone().clamped();
        let n = c.servers.len();
        let tries = n * usize::from(c.attempts);
        (0..tries.saturating_sub(1)).map(|turn| c.wait(turn / n)).sum::<Duration>() + c.timeout
    }

    /// After how long one question has ended whatever the servers do: [`Config::silence`], and one
    /// `timeout` more for an answer that has to be fetched over TCP.
    #[must_use]
    pub fn longest_question(&self) -> Duration {
        self.silence() + self.clone().clamped().timeout
    }
}

/// A server's address with an optional port, in any of the notations that are in use.
fn server(word: &str, zone: &impl Fn(&str) -> Option<u32>) -> Option<SocketAddr> {
    if let Ok(addr) = word.parse::<SocketAddr>() {
        return Some(addr);
    }
    let (host, port) = match word.split_once('#') {
        Some((host, port)) => (host, port.parse().ok().filter(|p| *p != 0)?),
        None => (word, DNS_PORT),
    };
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if let Some((addr, scope)) = host.split_once('%') {
        let (addr, scope) = (addr.parse::<Ipv6Addr>().ok()?, zone(scope).or_else(|| scope.parse().ok())?);
        return Some(SocketAddrV6::new(addr, port, 0, scope).into());
    }
    Some(SocketAddr::new(host.parse::<IpAddr>().ok()?, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Config, Vec<Warning>) {
        Config::parse(text.as_bytes())
    }

    #[test]
    fn a_link_local_server_may_name_its_interface() {
        let zone = |name: &str| (name == "eth0").then_some(7);
        let text =
            b"nameserver fe80::1%eth0\nnameserver fe80::2%9\nnameserver [fe80::3%eth0]#5353\nnameserver fe80::4%eth1\n";
        let (c, w) = Config::parse_with(text, zone);
        let at = |n: u16, port, scope| SocketAddrV6::new([0xfe80, 0, 0, 0, 0, 0, 0, n].into(), port, 0, scope).into();
        assert_eq!(c.servers, [at(1, 53, 7), at(2, 53, 9), at(3, 5353, 7)]);
        assert!(matches!(&w[..], [w] if w.line == 4 && w.problem.contains("interface")), "{w:?}");
    }

    #[test]
    fn an_ordinary_file_is_understood() {
        let (c, w) = parse(
            "# made by a tool\n; another comment\nnameserver 192.0.2.1\nnameserver 2001:db8::1 # office\n\
             search Example.TEST. corp.test\noptions ndots:2 timeout:3 attempts:4 rotate use-vc edns0 trust-ad\n",
        );
        assert_eq!(w, []);
        assert_eq!(c.servers, ["192.0.2.1:53".parse().unwrap(), "[2001:db8::1]:53".parse().unwrap()]);
        assert_eq!(c.search, ["example.test", "corp.test"]);
        assert_eq!((c.ndots, c.timeout, c.attempts), (2, Duration::from_secs(3), 4));
        assert!(c.rotate && c.use_tcp && c.edns && c.trust_ad);
    }

    #[test]
    fn ports_are_accepted_in_every_usual_notation() {
        let (c, w) = parse(
            "nameserver 1.2.3.4#5353\nnameserver [::1]:5353\nnameserver ::1#5353\nnameserver 1.2.3.4:99\n\
             nameserver fe80::1%3\nnameserver [fe80::1%3]#54\n",
        );
        assert_eq!(w, []);
        let got: Vec<String> = c.servers.iter().map(ToString::to_string).collect();
        assert_eq!(got, ["1.2.3.4:5353", "[::1]:5353", "[::1]:5353", "1.2.3.4:99", "[fe80::1%3]:53", "[fe80::1%3]:54"]);
    }

    #[test]
    fn what_is_not_understood_is_ignored_with_a_warning() {
        let (c, w) = parse("nameserver here\nsortlist 10.0.0.0\noptions ndots rotate:x debug\nnameserver 1.2.3.4#0\n");
        assert_eq!(c.servers, []);
        let lines: Vec<usize> = w.iter().map(|w| w.line).collect();
        assert_eq!(lines, [1, 2, 3, 3, 4]);
        assert!(c.rotate);
        assert_eq!(parse("").0, Config::default());
    }

    #[test]
    fn counts_and_lengths_are_bounded() {
        let many: String = (0..20).map(|i| format!("nameserver 10.0.0.{i}\n")).collect();
        assert_eq!(parse(&many).0.servers.len(), MAX_SERVERS);
        let (c, w) = parse("search a b c d e f g h\n");
        assert_eq!(c.search.len(), MAX_SEARCH);
        assert_eq!(w.len(), 1);
        let long = format!("nameserver 10.0.0.1{}\nnameserver 10.0.0.2\n", " ".repeat(MAX_LINE));
        assert_eq!(parse(&long).0.servers, ["10.0.0.2:53".parse().unwrap()]);
        let (c, _) = parse("options ndots:99 timeout:9999 attempts:77\n");
        assert_eq!((c.ndots, c.timeout, c.attempts), (15, Duration::from_secs(30), 5));
        let (c, w) = Config::parse(&[0xff; 10_000]);
        assert_eq!(c, Config::default());
        assert_eq!(w.len(), 1);
        assert!(parse(&"x\n".repeat(10_000)).1.len() <= MAX_WARNINGS);
    }

    #[test]
    fn search_and_domain_replace_each_other() {
        assert_eq!(parse("search a.test b.test\ndomain c.test\n").0.search, ["c.test"]);
        assert_eq!(parse("domain c.test\nsearch .\n").0.search, [""; 0]);
    }

    #[test]
    fn the_longest_silence_is_the_sum_of_the_waits() {
        let two = parse("nameserver 10.0.0.1\nnameserver 10.0.0.2\n").0;
        // 1 + 1 in the first round, 2 in the second, and 5 for the last try.
        assert_eq!(two.silence(), Duration::from_secs(9));
        assert_eq!(two.longest_question(), Duration::from_secs(14));
    }
}
