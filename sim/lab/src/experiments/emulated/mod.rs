//! Part B: reliable transports over emulated paths, by real programs in the lab and by our protocol code in the simulator.
//!
//! *Responsible for* the conditions ([`path`]), what is transferred and by whom ([`Stack`], [`Work`]), one transfer in the
//! lab ([`real`]) and in the simulator ([`simulated`]), sweeps over conditions ([`sweep`]), and the experiments. *Not for*
//! the links: `neater-link` has the model, for both places alike.
//!
//! *Invariants*: goodput is the payload over the time from the start of the client's process to its end (in the simulator:
//! from opening the connection to the last byte); what was sent is counted by the links, not by the programs; a transfer
//! whose payload differs from what was served is a failure; the kernel's congestion control is CUBIC in every host.

mod b1;
mod b2;
mod b3;
mod b4;
mod path;
mod real;
mod simulated;
mod sweep;

pub(super) use b1::run as b1;
pub(super) use b2::run as b2;
pub(super) use b3::run as b3;
pub(super) use b4::run as b4;

/// The columns of `runs.csv`, in the order of [`Transfer::row`].
pub(crate) const METRICS: &[&str] = &[
    "goodput_mbit",
    "seconds",
    "own_seconds",
    "sent_bytes",
    "sent_packets",
    "back_bytes",
    "back_packets",
    "queue_drops",
    "lost",
    "late_p99_us",
];

/// What one transfer gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Transfer {
    /// Bytes of payload.
    pub payload: u64,
    /// From outside: the life of the client's process.
    pub seconds: f64,
    /// By the client's own clock, from its request to the last byte; the life of the process where it tells none.
    pub own_seconds: f64,
    /// Bytes of IP packets that the server sent, and how many packets.
    pub sent: (u64, u64),
    /// What the client sent.
    pub back: (u64, u64),
    /// Packets that did not fit into the queue of the middle link, both directions.
    pub queue_drops: u64,
    /// Packets lost on it.
    pub lost: u64,
    /// How late the emulator was, 99th percentile, in microseconds; 0 in the simulator.
    pub late_p99_us: f64,
}

impl Transfer {
    /// The row of `runs.csv`.
    pub(crate) fn row(&self) -> Vec<f64> {
        vec![
            self.payload as f64 * 8.0 / 1e6 / self.seconds,
            self.seconds,
            self.own_seconds,
            self.sent.0 as f64,
            self.sent.1 as f64,
            self.back.0 as f64,
            self.back.1 as f64,
            self.queue_drops as f64,
            self.lost as f64,
            self.late_p99_us,
        ]
    }
}

/// What is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// One file of 10 MB.
    One,
    /// Ten files of 100 kB on one connection.
    Ten,
}

impl Work {
    /// How many files, and bytes of each.
    pub(crate) const fn files(self) -> (usize, u64) {
        match self {
            Self::One => (1, 10_000_000),
            Self::Ten => (10, 100_000),
        }
    }

    /// Bytes in all.
    pub(crate) const fn payload(self) -> u64 {
        let (n, size) = self.files();
        n as u64 * size
    }
}

/// Who transfers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stack {
    /// `neater serve` and `neater get`, HTTP/3 over QUIC; several files as streams at once.
    Quic,
    /// The engine with the same QUIC in the simulator; several files as streams at once.
    SimulatedQuic,
    /// The engine with the simulator's TCP; one file.
    SimulatedTcp,
    /// `neater`, HTTP/1.1 over TLS; several files one after the other.
    Tls,
    /// `neater`, HTTP/2 over TLS; several files as streams at once.
    TlsStreams,
    /// `neater`, HTTP/1.1 over TCP in the clear; several files one after the other.
    Tcp,
    /// nginx and curl, HTTP/1.1 over TCP in the clear; several files one after the other.
    CurlHttp,
    /// nginx and curl, HTTP/1.1 over TLS; several files one after the other.
    CurlHttps,
    /// nginx and curl, HTTP/2 over TLS; several files as streams at once.
    CurlStreams,
    /// nginx and curl, HTTP/1.1 over so many TCP connections at once, whose initial windows together are one's.
    CurlConnections(u8),
}

impl Stack {
    /// The name in raw data and legends.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Quic => "neater QUIC".into(),
            Self::SimulatedQuic => "neater QUIC, simulator".into(),
            Self::SimulatedTcp => "neater TCP, simulator".into(),
            Self::Tls => "neater TLS".into(),
            Self::TlsStreams => "neater HTTP/2".into(),
            Self::Tcp => "neater TCP".into(),
            Self::CurlHttp => "nginx+curl HTTP".into(),
            Self::CurlHttps => "nginx+curl HTTPS".into(),
            Self::CurlStreams => "nginx+curl HTTP/2".into(),
            Self::CurlConnections(n) => format!("nginx+curl HTTP on {n} connections"),
        }
    }

    /// All that any experiment has.
    pub(crate) const ALL: [Self; 12] = [
        Self::Quic,
        Self::SimulatedQuic,
        Self::SimulatedTcp,
        Self::Tls,
        Self::TlsStreams,
        Self::Tcp,
        Self::CurlHttp,
        Self::CurlHttps,
        Self::CurlStreams,
        Self::CurlConnections(2),
        Self::CurlConnections(5),
        Self::CurlConnections(10),
    ];

    /// The stack of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Whether it runs in the simulator.
    pub(crate) const fn is_simulated(self) -> bool {
        matches!(self, Self::SimulatedQuic | Self::SimulatedTcp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_found_by_its_name() {
        for s in Stack::ALL {
            assert_eq!(Stack::named(&s.name()), Some(s));
        }
        assert_eq!(Stack::named("nothing"), None);
    }

    #[test]
    fn a_row_has_a_value_for_each_column() {
        let t = Transfer { payload: 1_000_000, seconds: 2.0, ..Transfer::default() };
        assert_eq!(t.row().len(), METRICS.len());
        assert_eq!(t.row()[0], 4.0);
        assert_eq!((Work::One.payload(), Work::Ten.payload()), (10_000_000, 1_000_000));
    }
}
