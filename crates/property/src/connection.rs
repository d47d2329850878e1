//! Connection Properties (RFC 9622 section 8).
//!
//! *Responsible for* their types, ranges, defaults and names. *Not for* applying them, which is the
//! engine's, nor for the read-only ones (section 8.1.11), which a connection reports itself.
//!
//! *Invariants*: `None` is the RFC's Disabled, Unlimited or Full Coverage; a refused value changes
//! nothing.

use crate::value::{PropertyError, Value, invalid, is_name, is_word};
use core::fmt;
use core::time::Duration;

/// The longest time a property takes, in seconds: ten years. Longer is what `Disabled` and
/// `Infinite` are for.
pub const MAX_SECONDS: u64 = 315_360_000;
/// The highest rate a property takes, in bit/s: 1 Pbit/s. Higher is what `Unlimited` is for.
pub const MAX_BIT_RATE: u64 = 1_000_000_000_000_000;
/// The longest user timeout: 32,767 minutes, which is what the 15 bits of the option hold (RFC 5482
/// section 3).
const MAX_USER_TIMEOUT: Duration = Duration::from_secs(32_767 * 60);

/// How the network is asked to treat a connection (RFC 9622 section 8.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapacityProfile {
    /// Nothing is known: best effort.
    #[default]
    Default,
    /// Not urgent: gives way to everything else.
    Scavenger,
    /// Response time matters more than efficiency; a user waits for each answer.
    LowLatencyInteractive,
    /// Delay matters more than loss, and no user waits for an answer.
    LowLatencyNonInteractive,
    /// A constant rate with little delay and little variation of it.
    ConstantRateStreaming,
    /// As much as can be had over a long time.
    CapacitySeeking,
}

impl CapacityProfile {
    /// All six.
    pub const ALL: [Self; 6] = [
        Self::Default,
        Self::Scavenger,
        Self::LowLatencyInteractive,
        Self::LowLatencyNonInteractive,
        Self::ConstantRateStreaming,
        Self::CapacitySeeking,
    ];

    /// The name as RFC 9622 has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "Default",
            Self::Scavenger => "Scavenger",
            Self::LowLatencyInteractive => "Low Latency/Interactive",
            Self::LowLatencyNonInteractive => "Low Latency/Non-Interactive",
            Self::ConstantRateStreaming => "Constant-Rate Streaming",
            Self::CapacitySeeking => "Capacity-Seeking",
        }
    }

    /// Reads a profile in any case and with any separators; `interactive` alone is Low
    /// Latency/Interactive.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        if is_word(text, "interactive") {
            return Some(Self::LowLatencyInteractive);
        }
        Self::ALL.into_iter().find(|p| is_word(text, p.as_str()))
    }

    /// Whether delay matters more than throughput.
    #[must_use]
    pub const fn is_low_latency(self) -> bool {
        matches!(self, Self::LowLatencyInteractive | Self::LowLatencyNonInteractive | Self::ConstantRateStreaming)
    }

    pub(crate) const EXPECTED: &'static str = "Default, Scavenger, Low Latency/Interactive, Low Latency/Non-Interactive, \
                                               Constant-Rate Streaming or Capacity-Seeking";

    pub(crate) fn from_value(property: &'static str, value: &Value) -> Result<Self, PropertyError> {
        match value {
            Value::Text(t) => Self::from_text(t),
            _ => None,
        }
        .ok_or_else(|| invalid(property, Self::EXPECTED, value))
    }
}

impl fmt::Display for CapacityProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How the connections of a group share their transport: the schedulers of RFC 8260 section 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheduler {
    /// SCTP_SS_FCFS (3.1).
    FirstComeFirstServed,
    /// SCTP_SS_RR (3.2).
    RoundRobin,
    /// SCTP_SS_RR_PKT (3.3).
    RoundRobinPerPacket,
    /// SCTP_SS_PRIO (3.4).
    PriorityBased,
    /// SCTP_SS_FC (3.5).
    FairCapacity,
    /// SCTP_SS_WFQ (3.6).
    #[default]
    WeightedFairQueueing,
}

impl Scheduler {
    /// All six.
    pub const ALL: [Self; 6] = [
        Self::FirstComeFirstServed,
        Self::RoundRobin,
        Self::RoundRobinPerPacket,
        Self::PriorityBased,
        Self::FairCapacity,
        Self::WeightedFairQueueing,
    ];

    /// The name as the headings of RFC 8260 section 3 have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FirstComeFirstServed => "First-Come, First-Served",
            Self::RoundRobin => "Round-Robin",
            Self::RoundRobinPerPacket => "Round-Robin per Packet",
            Self::PriorityBased => "Priority-Based",
            Self::FairCapacity => "Fair Capacity",
            Self::WeightedFairQueueing => "Weighted Fair Queueing",
        }
    }

    /// The abbreviation in the headings of RFC 8260 section 3, without `SCTP_SS_`.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::FirstComeFirstServed => "FCFS",
            Self::RoundRobin => "RR",
            Self::RoundRobinPerPacket => "RR_PKT",
            Self::PriorityBased => "PRIO",
            Self::FairCapacity => "FC",
            Self::WeightedFairQueueing => "WFQ",
        }
    }

    fn from_value(property: &'static str, value: &Value) -> Result<Self, PropertyError> {
        let named = |s: &Self| {
            value.is_text(s.as_str()) || value.is_text(s.short()) || value.is_text(&s.as_str().replace(',', ""))
        };
        Self::ALL
            .into_iter()
            .find(named)
            .ok_or_else(|| invalid(property, "a scheduler of RFC 8260: FCFS, RR, RR_PKT, PRIO, FC or WFQ", value))
    }
}

/// What several paths are used for (RFC 9622 section 8.1.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MultipathPolicy {
    /// Another path only when the first is lost.
    #[default]
    Handover,
    /// Several paths to cut latency, weighed against their cost.
    Interactive,
    /// Several paths at once for their capacity.
    Aggregate,
}

impl MultipathPolicy {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Handover, Self::Interactive, Self::Aggregate];

    /// The name as RFC 9622 has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handover => "Handover",
            Self::Interactive => "Interactive",
            Self::Aggregate => "Aggregate",
        }
    }
}

/// The settable Connection Properties by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectionProperty {
    /// recvChecksumLen (8.1.1).
    RecvChecksumLen,
    /// connPriority (8.1.2).
    ConnPriority,
    /// connTimeout (8.1.3).
    ConnTimeout,
    /// keepAliveTimeout (8.1.4).
    KeepAliveTimeout,
    /// connScheduler (8.1.5).
    ConnScheduler,
    /// connCapacityProfile (8.1.6).
    ConnCapacityProfile,
    /// multipathPolicy (8.1.7).
    MultipathPolicy,
    /// minSendRate (8.1.8).
    MinSendRate,
    /// minRecvRate (8.1.8).
    MinRecvRate,
    /// maxSendRate (8.1.8).
    MaxSendRate,
    /// maxRecvRate (8.1.8).
    MaxRecvRate,
    /// groupConnLimit (8.1.9).
    GroupConnLimit,
    /// isolateSession (8.1.10).
    IsolateSession,
    /// tcp.userTimeoutValue (8.2.1).
    TcpUserTimeoutValue,
    /// tcp.userTimeoutEnabled (8.2.2).
    TcpUserTimeoutEnabled,
    /// tcp.userTimeoutChangeable (8.2.3).
    TcpUserTimeoutChangeable,
}

use ConnectionProperty as C;

impl ConnectionProperty {
    /// All, in the order of RFC 9622.
    pub const ALL: [Self; 16] = [
        C::RecvChecksumLen,
        C::ConnPriority,
        C::ConnTimeout,
        C::KeepAliveTimeout,
        C::ConnScheduler,
        C::ConnCapacityProfile,
        C::MultipathPolicy,
        C::MinSendRate,
        C::MinRecvRate,
        C::MaxSendRate,
        C::MaxRecvRate,
        C::GroupConnLimit,
        C::IsolateSession,
        C::TcpUserTimeoutValue,
        C::TcpUserTimeoutEnabled,
        C::TcpUserTimeoutChangeable,
    ];

    /// The name as RFC 9622 has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            C::RecvChecksumLen => "recvChecksumLen",
            C::ConnPriority => "connPriority",
            C::ConnTimeout => "connTimeout",
            C::KeepAliveTimeout => "keepAliveTimeout",
            C::ConnScheduler => "connScheduler",
            C::ConnCapacityProfile => "connCapacityProfile",
            C::MultipathPolicy => "multipathPolicy",
            C::MinSendRate => "minSendRate",
            C::MinRecvRate => "minRecvRate",
            C::MaxSendRate => "maxSendRate",
            C::MaxRecvRate => "maxRecvRate",
            C::GroupConnLimit => "groupConnLimit",
            C::IsolateSession => "isolateSession",
            C::TcpUserTimeoutValue => "tcp.userTimeoutValue",
            C::TcpUserTimeoutEnabled => "tcp.userTimeoutEnabled",
            C::TcpUserTimeoutChangeable => "tcp.userTimeoutChangeable",
        }
    }

    /// Finds a property by name, in any case, also as snake_case or kebab-case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| is_name(name, p.name()))
    }
}

/// The Connection Properties, with the defaults of RFC 9622.
///
/// Set on a Preconnection they are what its Connections begin with; most can be set again later
/// (section 8).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionProperties {
    /// recvChecksumLen: bytes that a checksum must cover for a Message to be delivered; `None` is
    /// full coverage.
    pub recv_checksum_len: Option<u32>,
    /// connPriority: rank within the group, lower first. Not shared by the group.
    pub priority: u32,
    /// connTimeout: how long delivery may stall before the connection has failed; `None` is
    /// disabled.
    pub timeout: Option<Duration>,
    /// keepAliveTimeout: how long the connection may be idle before a keep-alive; `None` is
    /// disabled.
    pub keep_alive_timeout: Option<Duration>,
    /// connScheduler: how the connections of the group share their transport.
    pub scheduler: Scheduler,
    /// connCapacityProfile: how the network is asked to treat the connection.
    pub capacity_profile: CapacityProfile,
    /// multipathPolicy: what several paths are used for, unless multipath is disabled.
    pub multipath_policy: MultipathPolicy,
    /// minSendRate, in bit/s: below it the connection is of no use. `None` is unlimited.
    pub min_send_rate: Option<u64>,
    /// minRecvRate, in bit/s: below it the connection is of no use. `None` is unlimited.
    pub min_recv_rate: Option<u64>,
    /// maxSendRate, in bit/s: never exceeded. `None` is unlimited.
    pub max_send_rate: Option<u64>,
    /// maxRecvRate, in bit/s: never exceeded. `None` is unlimited.
    pub max_recv_rate: Option<u64>,
    /// groupConnLimit: how many connections the peer may have added to the group at a time. One
    /// that both sides have ended in order counts no more; one that the peer has reset does until
    /// the program lets go of it. `None` is unlimited.
    pub group_conn_limit: Option<u32>,
    /// isolateSession: whether cached state of other groups is left alone.
    pub isolate_session: bool,
    /// tcp.userTimeoutValue: advertised in the User Timeout Option of RFC 5482; `None` is TCP's
    /// default.
    pub tcp_user_timeout_value: Option<Duration>,
    /// tcp.userTimeoutEnabled: whether the option is sent and used.
    pub tcp_user_timeout_enabled: bool,
    /// tcp.userTimeoutChangeable: whether a received option may change connTimeout; false once
    /// connTimeout is set.
    pub tcp_user_timeout_changeable: bool,
}

impl Default for ConnectionProperties {
    fn default() -> Self {
        Self {
            recv_checksum_len: None,
            priority: 100,
            timeout: None,
            keep_alive_timeout: None,
            scheduler: Scheduler::default(),
            capacity_profile: CapacityProfile::default(),
            multipath_policy: MultipathPolicy::default(),
            min_send_rate: None,
            min_recv_rate: None,
            max_send_rate: None,
            max_recv_rate: None,
            group_conn_limit: None,
            isolate_session: false,
            tcp_user_timeout_value: None,
            tcp_user_timeout_enabled: false,
            tcp_user_timeout_changeable: true,
        }
    }
}

impl ConnectionProperties {
    /// Sets a property by its name of RFC 9622. Overrides an earlier value.
    ///
    /// # Errors
    /// [`PropertyError`] when there is no such Connection Property, it is read-only, or the value
    /// is of another type or out of range.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) -> Result<(), PropertyError> {
        match C::from_name(name) {
            Some(property) => self.set_property(property, &value.into()),
            None => Err(crate::catalogue::not_settable(name)),
        }
    }

    /// Reads a property by its name of RFC 9622; `None` when there is no such Connection Property.
    /// The read-only ones belong to a connection, not to this structure.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value> {
        C::from_name(name).map(|p| self.property(p))
    }

    /// As [`set`](Self::set), by id.
    ///
    /// # Errors
    /// [`PropertyError::Invalid`] when the value is of another type or out of range.
    pub fn set_property(&mut self, property: ConnectionProperty, value: &Value) -> Result<(), PropertyError> {
        let name = property.name();
        match property {
            C::RecvChecksumLen => self.recv_checksum_len = checksum_len(name, value)?,
            C::ConnPriority => self.priority = priority(name, value)?,
            C::ConnTimeout => {
                self.timeout = seconds_or(name, value, "disabled", "a positive number of seconds or Disabled")?;
                // RFC 9622 section 8.2.3: once connTimeout is used, the peer may no longer change
                // it.
                if self.timeout.is_some() {
                    self.tcp_user_timeout_changeable = false;
                }
            }
            C::KeepAliveTimeout => {
                self.keep_alive_timeout =
                    seconds_or(name, value, "disabled", "a positive number of seconds or Disabled")?;
            }
            C::ConnScheduler => self.scheduler = Scheduler::from_value(name, value)?,
            C::ConnCapacityProfile => self.capacity_profile = CapacityProfile::from_value(name, value)?,
            C::MultipathPolicy => {
                self.multipath_policy = MultipathPolicy::ALL
                    .into_iter()
                    .find(|p| value.is_text(p.as_str()))
                    .ok_or_else(|| invalid(name, "Handover, Interactive or Aggregate", value))?;
            }
            C::MinSendRate => self.min_send_rate = bit_rate(name, value)?,
            C::MinRecvRate => self.min_recv_rate = bit_rate(name, value)?,
            C::MaxSendRate => self.max_send_rate = bit_rate(name, value)?,
            C::MaxRecvRate => self.max_recv_rate = bit_rate(name, value)?,
            C::GroupConnLimit => {
                self.group_conn_limit = if value.is_text("unlimited") {
                    None
                } else {
                    let limit = value.as_integer().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
                    Some(limit.ok_or_else(|| invalid(name, "a positive integer below 2^32 or Unlimited", value))?)
                };
            }
            C::IsolateSession => self.isolate_session = boolean(name, value)?,
            C::TcpUserTimeoutValue => {
                const EXPECTED: &str = "1 to 1966020 seconds or Default";
                let timeout = seconds_or(name, value, "default", EXPECTED)?;
                if timeout.is_some_and(|t| t.subsec_nanos() != 0 || t > MAX_USER_TIMEOUT) {
                    return Err(invalid(name, EXPECTED, value));
                }
                self.tcp_user_timeout_value = timeout;
            }
            C::TcpUserTimeoutEnabled => self.tcp_user_timeout_enabled = boolean(name, value)?,
            C::TcpUserTimeoutChangeable => self.tcp_user_timeout_changeable = boolean(name, value)?,
        }
        Ok(())
    }

    /// As [`get`](Self::get), by id.
    #[must_use]
    pub fn property(&self, property: ConnectionProperty) -> Value {
        let or = |value: Option<Value>, otherwise: &str| value.unwrap_or_else(|| otherwise.into());
        match property {
            C::RecvChecksumLen => or(self.recv_checksum_len.map(Value::from), "Full Coverage"),
            C::ConnPriority => self.priority.into(),
            C::ConnTimeout => or(self.timeout.map(Value::from), "Disabled"),
            C::KeepAliveTimeout => or(self.keep_alive_timeout.map(Value::from), "Disabled"),
            C::ConnScheduler => self.scheduler.as_str().into(),
            C::ConnCapacityProfile => self.capacity_profile.as_str().into(),
            C::MultipathPolicy => self.multipath_policy.as_str().into(),
            C::MinSendRate => or(self.min_send_rate.map(Value::from), "Unlimited"),
            C::MinRecvRate => or(self.min_recv_rate.map(Value::from), "Unlimited"),
            C::MaxSendRate => or(self.max_send_rate.map(Value::from), "Unlimited"),
            C::MaxRecvRate => or(self.max_recv_rate.map(Value::from), "Unlimited"),
            C::GroupConnLimit => or(self.group_conn_limit.map(Value::from), "Unlimited"),
            C::IsolateSession => self.isolate_session.into(),
            C::TcpUserTimeoutValue => or(self.tcp_user_timeout_value.map(|d| Value::from(d.as_secs())), "Default"),
            C::TcpUserTimeoutEnabled => self.tcp_user_timeout_enabled.into(),
            C::TcpUserTimeoutChangeable => self.tcp_user_timeout_changeable.into(),
        }
    }
}

pub(crate) fn boolean(property: &'static str, value: &Value) -> Result<bool, PropertyError> {
    value.as_bool().ok_or_else(|| invalid(property, "true or false", value))
}

pub(crate) fn priority(property: &'static str, value: &Value) -> Result<u32, PropertyError> {
    let number = value.as_integer().and_then(|n| u32::try_from(n).ok());
    number.ok_or_else(|| invalid(property, "an integer from 0 to 4294967295, lower first", value))
}

pub(crate) fn checksum_len(property: &'static str, value: &Value) -> Result<Option<u32>, PropertyError> {
    if value.is_text("full coverage") || value.is_text("full") {
        return Ok(None);
    }
    let bytes = value.as_integer().and_then(|n| u32::try_from(n).ok());
    bytes.map(Some).ok_or_else(|| invalid(property, "a number of bytes below 2^32 or Full Coverage", value))
}

/// A positive time of at most [`MAX_SECONDS`], or `None` for the word `without`.
pub(crate) fn seconds_or(
    property: &'static str,
    value: &Value,
    without: &str,
    expected: &'static str,
) -> Result<Option<Duration>, PropertyError> {
    if value.is_text(without) {
        return Ok(None);
    }
    let in_range = |d: &Duration| !d.is_zero() && *d <= Duration::from_secs(MAX_SECONDS);
    value.as_duration().filter(in_range).map(Some).ok_or_else(|| invalid(property, expected, value))
}

fn bit_rate(property: &'static str, value: &Value) -> Result<Option<u64>, PropertyError> {
    if value.is_text("unlimited") {
        return Ok(None);
    }
    let rate = value.as_bit_rate().filter(|r| (1..=MAX_BIT_RATE).contains(r));
    rate.map(Some).ok_or_else(|| invalid(property, "1 to 10^15 bit/s or Unlimited", value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_value_leaves_the_earlier_one() {
        let mut p = ConnectionProperties::default();
        p.set("connTimeout", 30.0).unwrap();
        for wrong in [Value::from(0.0), (-1.0).into(), f64::NAN.into(), 1e30.into(), true.into(), "soon".into()] {
            assert!(matches!(p.set("connTimeout", wrong), Err(PropertyError::Invalid { property: "connTimeout", .. })));
        }
        assert_eq!(p.timeout, Some(Duration::from_secs(30)));
        p.set("conn_timeout", "Disabled").unwrap();
        assert_eq!(p.timeout, None);
    }

    #[test]
    fn using_conn_timeout_takes_the_peers_right_to_change_it() {
        let mut p = ConnectionProperties::default();
        assert_eq!(p.get("tcp.userTimeoutChangeable"), Some(true.into()));
        p.set("connTimeout", 30.0).unwrap();
        assert_eq!(p.get("TCP.user_timeout_changeable"), Some(false.into()));
    }

    #[test]
    fn read_only_properties_say_so() {
        let mut p = ConnectionProperties::default();
        assert_eq!(p.set("canSend", true), Err(PropertyError::ReadOnly { property: "canSend" }));
        assert!(matches!(p.set("reliability", true), Err(PropertyError::Unknown { .. })));
    }

    #[test]
    fn every_enumeration_is_read_back_from_its_name() {
        let mut p = ConnectionProperties::default();
        for profile in CapacityProfile::ALL {
            p.set("connCapacityProfile", profile.as_str()).unwrap();
            assert_eq!(p.capacity_profile, profile);
        }
        p.set("connCapacityProfile", "low-latency-interactive").unwrap();
        assert_eq!(p.capacity_profile, CapacityProfile::LowLatencyInteractive);
        for scheduler in Scheduler::ALL {
            for name in [scheduler.as_str(), scheduler.short()] {
                p.set("connScheduler", name).unwrap();
                assert_eq!(p.scheduler, scheduler);
            }
        }
        p.set("connScheduler", "first-come-first-served").unwrap();
        assert_eq!(p.scheduler, Scheduler::FirstComeFirstServed);
        for policy in MultipathPolicy::ALL {
            p.set("multipathPolicy", policy.as_str()).unwrap();
            assert_eq!(p.multipath_policy, policy);
        }
    }

    #[test]
    fn a_user_timeout_fits_the_option() {
        let mut p = ConnectionProperties::default();
        p.set("tcp.userTimeoutValue", 1_966_020u32).unwrap();
        for wrong in [Value::from(1_966_021u32), 0u32.into(), 1.5.into()] {
            assert!(p.set("tcp.userTimeoutValue", wrong).is_err());
        }
    }
}
