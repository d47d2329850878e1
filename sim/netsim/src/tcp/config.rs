//! Which TCP a host speaks: every mechanism has a switch.

use core::time::Duration;
use neater_cc::{Config, Controller, Cubic, CubicConfig, IdleRule, InitialWindow, NewReno, NewRenoConfig, Reduction};

/// The congestion control policy of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TcpController {
    /// NewReno (RFC 5681).
    NewReno(NewRenoConfig),
    /// CUBIC (RFC 9438).
    Cubic(CubicConfig),
}

impl TcpController {
    pub(crate) fn make(self) -> Box<dyn Controller> {
        match self {
            Self::NewReno(config) => Box::new(NewReno::new(config)),
            Self::Cubic(config) => Box::new(Cubic::new(config)),
        }
    }
}

/// What the least retransmission timeout bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtoFloor {
    /// The timeout (RFC 6298 section 2, rule 2.4).
    Timeout,
    /// The part for the variation: the timeout is the round-trip time and at least this much, as in Linux.
    Variation,
}

/// When a receiver acknowledges in-order data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayedAck {
    /// As Linux: the first 16 segments at once, then every second full segment, or after 40 ms; adaptive up to 200 ms when
    /// data come slowly; compressed (at most 1 ms) while there are holes.
    Linux,
    /// Every `every`th full segment, or after `delay` (RFC 1122 section 4.2.3.2: at least every second, at most 500 ms).
    Fixed {
        /// Full segments until an acknowledgment is sent, at least 1.
        every: u32,
        /// The longest that one waits.
        delay: Duration,
    },
}

/// Whether a connection uses explicit congestion notification (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnMode {
    /// Never.
    Off,
    /// When the peer asks for it: Linux's default.
    Accept,
    /// Asked for, and accepted.
    Request,
}

/// The size of a socket buffer, in bytes of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferSize {
    /// Always this much.
    Fixed(usize),
    /// At first `start`, growing with what the connection needs up to `most`, as Linux tunes it.
    Tuned {
        /// The first size.
        start: usize,
        /// The largest size.
        most: usize,
    },
}

impl BufferSize {
    pub(crate) const fn start(self) -> usize {
        match self {
            Self::Fixed(n) | Self::Tuned { start: n, .. } => n,
        }
    }
}

/// Everything about a host's TCP that can be chosen. A socket has the choice that its host had when it was opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpConfig {
    /// The congestion control policy.
    pub controller: TcpController,
    /// The rules around it: initial window, reduction, idleness, pacing.
    pub congestion: Config,
    /// Selective acknowledgments, both ways, with duplicates reported (RFC 2018, RFC 6675, RFC 2883).
    pub sack: bool,
    /// Losses are found by time (RACK, RFC 8985); otherwise by counting (RFC 6675 with `sack`, RFC 6582 without). Needs
    /// `sack`.
    pub rack: bool,
    /// The tail of a flight is probed (TLP, RFC 8985 section 7). Needs `sack`.
    pub tail_loss_probe: bool,
    /// New data for the first duplicate acknowledgments (RFC 3042); RACK and TLP do without.
    pub limited_transmit: bool,
    /// Timestamps (RFC 7323 section 3).
    pub timestamps: bool,
    /// Window scaling (RFC 7323 section 2).
    pub window_scaling: bool,
    /// A congestion event that proves spurious, by timestamps or duplicate reports, is undone (RFC 4015, RFC 3522, RFC 3708).
    pub undo: bool,
    /// After a timeout, new data find out whether it was spurious (F-RTO, RFC 5682). Needs `sack`.
    pub frto: bool,
    /// Explicit congestion notification.
    pub ecn: EcnMode,
    /// The least retransmission timeout: 200 ms in Linux, a second in RFC 6298.
    pub min_rto: Duration,
    /// What the least timeout bounds.
    pub rto_floor: RtoFloor,
    /// When acknowledgments are sent.
    pub delayed_ack: DelayedAck,
    /// The receive buffer, unless the socket sets one.
    pub receive_buffer: BufferSize,
    /// The send buffer, unless the socket sets one.
    pub send_buffer: BufferSize,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self::linux()
    }
}

impl TcpConfig {
    /// Linux 6 with CUBIC and its defaults: the profile that is calibrated (`sim/netsim/calibration`).
    #[must_use]
    pub const fn linux() -> Self {
        Self {
            controller: TcpController::Cubic(CubicConfig::linux()),
            congestion: Config {
                initial_window: InitialWindow::Segments(10),
                reduction: Reduction::Proportional,
                idle: IdleRule::Decay,
                grow_unused: false,
                pacing: None,
            },
            sack: true,
            rack: true,
            tail_loss_probe: true,
            limited_transmit: true,
            timestamps: true,
            window_scaling: true,
            undo: true,
            frto: true,
            ecn: EcnMode::Accept,
            min_rto: Duration::from_millis(200),
            rto_floor: RtoFloor::Variation,
            delayed_ack: DelayedAck::Linux,
            // tcp_rmem: half of a buffer is window (tcp_scaling_ratio before anything is known).
            receive_buffer: BufferSize::Tuned { start: 65_536, most: 3 << 20 },
            // tcp_wmem: room for two initial windows with their bookkeeping, up to 4 MB.
            send_buffer: BufferSize::Tuned { start: 87_040, most: 4 << 20 },
        }
    }

    /// The same with NewReno, Linux's `reno`.
    #[must_use]
    pub const fn linux_reno() -> Self {
        Self { controller: TcpController::NewReno(NewRenoConfig::linux()), ..Self::linux() }
    }

    /// The letter of the standards of today: RFC 9438, 9406, 8985, 9937 and a least timeout of a second.
    #[must_use]
    pub const fn standards() -> Self {
        Self {
            controller: TcpController::Cubic(CubicConfig::rfc9438()),
            congestion: Config {
                initial_window: InitialWindow::Rfc6928,
                idle: IdleRule::Restart,
                ..Self::linux().congestion
            },
            min_rto: Duration::from_secs(1),
            rto_floor: RtoFloor::Timeout,
            delayed_ack: DelayedAck::Fixed { every: 2, delay: Duration::from_millis(200) },
            ..Self::linux()
        }
    }

    /// The TCP that the founding documents measured (Natarajan 2009, chapter 2): FreeBSD's NewReno with SACK, packets counted,
    /// an initial window of RFC 3390, acknowledgments delayed by 200 ms, a least timeout of a second, 64 kB buffers; no RACK,
    /// no tail loss probe, no proportional reduction.
    #[must_use]
    pub const fn year_2008() -> Self {
        Self {
            controller: TcpController::NewReno(NewRenoConfig::packets()),
            congestion: Config {
                initial_window: InitialWindow::Rfc3390,
                reduction: Reduction::Instant,
                idle: IdleRule::Restart,
                grow_unused: true,
                pacing: None,
            },
            rack: false,
            tail_loss_probe: false,
            undo: false,
            frto: false,
            ecn: EcnMode::Off,
            min_rto: Duration::from_secs(1),
            rto_floor: RtoFloor::Timeout,
            delayed_ack: DelayedAck::Fixed { every: 2, delay: Duration::from_millis(200) },
            receive_buffer: BufferSize::Fixed(65_535),
            send_buffer: BufferSize::Fixed(65_535),
            ..Self::linux()
        }
    }
}
