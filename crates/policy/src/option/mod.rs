//! Options of sockets, in NEAT's words and in ours.
//!
//! Beside [`manager`](crate::manager) and [`advice`](crate::advice), which both read them, and
//! below both.

mod names;

pub(crate) use names::by_number;

use core::time::Duration;
use neater_base::net::SocketOption;
use neater_property::CapacityProfile;
use neater_property::neat::NeatValue;

/// DSCP for a capacity profile (RFC 9622 section 8.1.6; the lowest drop precedence of each class,
/// RFC 2597), as the engine sets it.
#[must_use]
pub(crate) const fn dscp_of(profile: CapacityProfile) -> u8 {
    match profile {
        CapacityProfile::Default => 0,
        CapacityProfile::Scavenger => 1,                 // LE, RFC 8622
        CapacityProfile::LowLatencyInteractive => 34,    // AF41
        CapacityProfile::LowLatencyNonInteractive => 18, // AF21
        CapacityProfile::ConstantRateStreaming => 26,    // AF31
        CapacityProfile::CapacitySeeking => 10,          // AF11
    }
}

/// Whether a property asks for an option of the socket.
pub(crate) fn is_option(key: &str) -> bool {
    key == "dscp" || key.starts_with("so/")
}

fn whole(value: &NeatValue, most: f64) -> Option<u64> {
    match value {
        NeatValue::Number(n) if n.fract() == 0.0 && (0.0..=most).contains(n) => Some(*n as u64),
        NeatValue::Bool(b) => Some(u64::from(*b)),
        _ => None,
    }
}

/// Why a property that asks for an option has no effect whatever the transport is; `None` where it
/// may have one, or asks for none.
pub(crate) fn never(key: &str, value: &NeatValue) -> Option<&'static str> {
    is_option(key).then(|| option_of(key, value, true).err()).flatten()
}

/// The option that a property of a candidate asks for; why there is none otherwise.
pub(crate) fn option_of(key: &str, value: &NeatValue, over_tcp: bool) -> Result<SocketOption, &'static str> {
    const NOT_A_NUMBER: &str = "its value is no number that this option takes";
    let number = |most: u32| whole(value, f64::from(most)).ok_or(NOT_A_NUMBER);
    if key == "dscp" {
        return number(63).map(|n| SocketOption::Dscp(n as u8)).map_err(|_| "a DSCP is a whole number from 0 to 63");
    }
    let option = key.strip_prefix("so/").unwrap_or_default();
    let option = by_number(option).ok_or("no option of this system has this name")?;
    let tcp =
        |option: Result<SocketOption, &'static str>| if over_tcp { option } else { Err("it is an option of TCP") };
    // Levels and options as Linux numbers them: IPPROTO_IP is 0, SOL_SOCKET 1, IPPROTO_TCP 6,
    // IPPROTO_IPV6 41.
    match option.as_str() {
        // The upper six bits of the byte of IPv4 and IPv6 (RFC 2474 section 3); the others are the
        // congestion control's.
        "0/1" | "41/67" => number(255).map(|n| SocketOption::Dscp(n as u8 >> 2)),
        "1/7" => number(u32::MAX).map(|n| SocketOption::SendBuffer(n as usize)),
        "1/8" => number(u32::MAX).map(|n| SocketOption::ReceiveBuffer(n as usize)),
        "1/12" => number(6).map(|n| SocketOption::Priority(n as u8)),
        "6/1" => tcp(number(1).map(|n| SocketOption::NoDelay(n == 1))),
        "6/4" => tcp(number(86_400).map(|n| SocketOption::KeepAlive((n > 0).then(|| Duration::from_secs(n))))),
        "6/18" => tcp(number(u32::MAX).map(|n| SocketOption::UserTimeout((n > 0).then(|| Duration::from_millis(n))))),
        "6/25" => tcp(number(u32::MAX).map(|n| SocketOption::NotSentLowWater(n as u32))),
        _ => Err("neater does not set this option for a policy"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_six_bits_of_the_old_byte_are_the_dscp() {
        for key in ["so/ipproto_ip/ip_tos", "so/ipproto_ipv6/ipv6_tclass"] {
            // Expedited forwarding (RFC 3246), with and without a word on congestion.
            for byte in [184.0, 186.0] {
                let option = option_of(key, &NeatValue::Number(byte), false);
                assert!(matches!(option, Ok(SocketOption::Dscp(46))), "{key} {option:?}");
            }
            assert!(never(key, &NeatValue::Number(256.0)).is_some());
        }
    }
}
