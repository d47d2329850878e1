//! Who sends what: bulk transfers, web sessions, video, on/off sources, echoes.

use crate::model::NodeIndex;
use core::time::Duration;

/// Some flows of one kind between two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Its name, unique among traffic.
    pub name: String,
    /// The host that sends the data (the server of web sessions, the asker of echoes).
    pub from: NodeIndex,
    /// The host that receives them.
    pub to: NodeIndex,
    /// Over IPv6 instead of IPv4.
    pub v6: bool,
    /// How many flows, sessions or sources like this run side by side.
    pub flows: u32,
    /// The earliest start, from the start of the run (warm-up included).
    pub start: Duration,
    /// Each flow starts at a time of its own, uniform in `start ..= start + start_within`.
    pub start_within: Duration,
    /// When it stops; `None` is the end of the run.
    pub stop: Option<Duration>,
    /// What it sends.
    pub kind: TrafficKind,
    /// Settings of its TCP senders and receivers over the hosts'.
    pub tcp: TcpSettings,
}

/// What a flow sends.
#[derive(Clone, Debug, PartialEq)]
pub enum TrafficKind {
    /// A transfer as fast as it goes.
    Bulk {
        /// This much, and then the end; `None` goes on until the stop.
        bytes: Option<u64>,
        /// What carries it.
        over: Carrier,
    },
    /// Web sessions over TCP: pages of some objects, one after another on a connection for the page, then a time to think.
    Web(Web),
    /// UDP in frames at a set rate, whatever the network does.
    Video(Video),
    /// UDP at a set rate in bursts: on and off for random times.
    OnOff(OnOff),
    /// UDP echoes, for round-trip times.
    Ping {
        /// Between two of them.
        interval: Duration,
        /// Payload, in bytes.
        size: u32,
    },
}

/// What carries a bulk transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// The simulator's TCP, without a program on it.
    #[default]
    Model,
    /// A program on neater's engine, over TCP in the clear. The TCP is the simulator's here too.
    Tcp,
    /// A program on neater's engine, over TLS.
    Tls,
    /// A program on neater's engine, over QUIC.
    Quic,
    /// A program on neater's engine, over SCTP over UDP in the clear.
    Sctp,
}

impl Carrier {
    /// Whether a program on neater's engine carries it.
    #[must_use]
    pub const fn is_program(self) -> bool {
        !matches!(self, Self::Model)
    }
}

/// A random size or time: a number in bytes or seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Always the same.
    Constant(f64),
    /// Uniform between two numbers.
    Uniform {
        /// The least.
        min: f64,
        /// The most.
        max: f64,
    },
    /// Exponential.
    Exponential {
        /// The mean.
        mean: f64,
        /// What is larger becomes this.
        max: f64,
    },
    /// Pareto: P(X > x) = (scale / x)^shape for x > scale. Its mean is scale * shape / (shape - 1) for a shape above 1, and
    /// infinite otherwise, which `max` makes finite.
    Pareto {
        /// The least value.
        scale: f64,
        /// The tail's exponent: below 2 the variance is infinite ("heavy-tailed").
        shape: f64,
        /// What is larger becomes this.
        max: f64,
    },
    /// The exponential of a normal variable.
    LogNormal {
        /// The median: exp(mu).
        median: f64,
        /// The standard deviation of the logarithm.
        sigma: f64,
        /// What is larger becomes this.
        max: f64,
    },
}

impl Distribution {
    /// The value at two uniform random numbers of `[0, 1)` (the second is used by the log-normal alone, by the method of
    /// Box and Muller 1958). Computed in software, so that a run does not depend on the C library of a machine.
    #[must_use]
    pub fn at(&self, u: f64, v: f64) -> f64 {
        match *self {
            Self::Constant(x) => x,
            Self::Uniform { min, max } => min + (max - min) * u,
            Self::Exponential { mean, max } => (-mean * libm::log(1.0 - u)).min(max),
            Self::Pareto { scale, shape, max } => (scale * libm::pow(1.0 - u, -1.0 / shape)).min(max),
            Self::LogNormal { median, sigma, max } => {
                let normal = (-2.0 * libm::log(1.0 - u)).sqrt() * libm::cos(core::f64::consts::TAU * v);
                (median * libm::exp(sigma * normal)).min(max)
            }
        }
    }

    /// The mean, if it has a closed form here: the bound of exponential and log-normal is taken as far away.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match *self {
            Self::Constant(x) => x,
            Self::Uniform { min, max } => f64::midpoint(min, max),
            Self::Exponential { mean, .. } => mean,
            // With the mass beyond `max` put at `max`: the integral of P(X > x) from 0 to max.
            Self::Pareto { scale, max, .. } if max <= scale => max,
            Self::Pareto { scale, shape, max } if (shape - 1.0).abs() < 1e-9 => scale * (1.0 + (max / scale).ln()),
            Self::Pareto { scale, shape, max } if max.is_finite() => {
                scale + scale / (shape - 1.0) * (1.0 - (scale / max).powf(shape - 1.0))
            }
            Self::Pareto { scale, shape, .. } if shape > 1.0 => scale * shape / (shape - 1.0),
            Self::Pareto { .. } => f64::INFINITY,
            Self::LogNormal { median, sigma, .. } => median * (sigma * sigma / 2.0).exp(),
        }
    }
}

/// Web sessions. The defaults follow the user equivalents of SURGE (Barford and Crovella 1998, "Generating representative
/// web workloads for network and server performance evaluation", the table of distributions): objects log-normal in the
/// body with a Pareto tail, objects of a page Pareto with shape 2.43, time to think Pareto with shape 1.5. The size here is
/// one Pareto distribution with shape 1.2 and mean 12 kB, as heavy-tailed as transferred files were found to be (Crovella
/// and Bestavros 1997: shape 1.0 to 1.3), bounded so that one object does not outlast a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Web {
    /// Bytes of an object.
    pub object: Distribution,
    /// Objects of a page, fetched one after another; at least one.
    pub objects: Distribution,
    /// Seconds between the end of a page and the next request.
    pub think: Distribution,
    /// Bytes of a request.
    pub request: Distribution,
}

impl Default for Web {
    fn default() -> Self {
        Self {
            object: Distribution::Pareto { scale: 2_000.0, shape: 1.2, max: 20e6 },
            objects: Distribution::Pareto { scale: 1.0, shape: 2.43, max: 100.0 },
            think: Distribution::Pareto { scale: 1.0, shape: 1.5, max: 300.0 },
            request: Distribution::Constant(350.0),
        }
    }
}

/// Video at a set rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Video {
    /// Bits per second of UDP payload.
    pub rate: u64,
    /// Frames per second; a frame leaves at once, in packets.
    pub frames_per_second: f64,
    /// The most payload of a packet, in bytes.
    pub packet: u32,
}

/// Bursts at a set rate. Many of them with heavy-tailed times make self-similar traffic (Willinger, Taqqu, Sherman and
/// Wilson 1997); the default sizes are the mix of 44, 576 and 1,500 byte packets of the second founding document
/// (section 4.5.1).
#[derive(Clone, Debug, PartialEq)]
pub struct OnOff {
    /// Bits per second of IP packets while on.
    pub rate: u64,
    /// Seconds on.
    pub on: Distribution,
    /// Seconds off.
    pub off: Distribution,
    /// IP packet sizes in bytes, and how often each: weights.
    pub packets: Vec<(u32, f64)>,
}

impl OnOff {
    /// The default mix of packet sizes.
    #[must_use]
    pub fn packet_mix() -> Vec<(u32, f64)> {
        vec![(44, 0.5), (576, 0.25), (1500, 0.25)]
    }
}

/// Which congestion controller a TCP sender uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// NewReno (RFC 5681, RFC 6582); the kernel calls it `reno`.
    NewReno,
    /// CUBIC (RFC 9438).
    Cubic,
}

/// What the least retransmission timeout bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtoFloor {
    /// The timeout (RFC 6298 section 2, rule 2.4).
    Timeout,
    /// The part for the variation, as in Linux: the timeout is the round-trip time and at least this much.
    Variation,
}

/// What a scenario says of TCP; what it leaves out is as the stack has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TcpSettings {
    /// The congestion controller.
    pub controller: Option<Controller>,
    /// Selective acknowledgments (RFC 2018).
    pub sack: Option<bool>,
    /// Loss detection by time, with tail loss probes (RFC 8985).
    pub rack: Option<bool>,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: Option<bool>,
    /// Timestamps (RFC 7323).
    pub timestamps: Option<bool>,
    /// Acknowledge every second segment, or after a delay; otherwise every segment at once.
    pub delayed_ack: Option<bool>,
    /// Initial window, in segments.
    pub initial_window: Option<u32>,
    /// The least retransmission timeout.
    pub min_rto: Option<Duration>,
    /// What it bounds.
    pub rto_floor: Option<RtoFloor>,
    /// Send buffer, in bytes of payload: fixed instead of growing.
    pub send_buffer: Option<u64>,
    /// Receive buffer, in bytes of payload, which is the window: fixed instead of growing.
    pub receive_buffer: Option<u64>,
}

impl TcpSettings {
    /// These, and where they say nothing, `under`.
    #[must_use]
    pub fn over(self, under: Self) -> Self {
        Self {
            controller: self.controller.or(under.controller),
            sack: self.sack.or(under.sack),
            rack: self.rack.or(under.rack),
            ecn: self.ecn.or(under.ecn),
            timestamps: self.timestamps.or(under.timestamps),
            delayed_ack: self.delayed_ack.or(under.delayed_ack),
            initial_window: self.initial_window.or(under.initial_window),
            min_rto: self.min_rto.or(under.min_rto),
            rto_floor: self.rto_floor.or(under.rto_floor),
            send_buffer: self.send_buffer.or(under.send_buffer),
            receive_buffer: self.receive_buffer.or(under.receive_buffer),
        }
    }
}
