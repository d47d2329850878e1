//! Numbers with units.
//!
//! A quantity is a number and a unit, and may be multiplied or divided by plain numbers: `10 Mbit/s`, `50 ms`,
//! `1.5 BDP`, `100 ms / 2`. Decimal prefixes count in thousands (k, M, G), binary ones in 1,024 (Ki, Mi, Gi).

use core::time::Duration;

/// How much may wait in a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueSize {
    /// Bytes of IP packets.
    Bytes(u64),
    /// Packets.
    Packets(usize),
    /// Multiples of the bandwidth-delay product of the link's rate and the round trip through it.
    Bdp(f64),
}

type Parsed<T> = Result<T, String>;

/// A number and what stands behind it, after products and quotients.
fn split(text: &str) -> Parsed<(f64, &str)> {
    let text = text.trim();
    let end = text
        .char_indices()
        .find(|(i, c)| {
            let exponent =
                matches!(c, 'e' | 'E') && text[i + 1..].starts_with(|n: char| n.is_ascii_digit() || n == '-');
            let sign = matches!(c, '-' | '+') && (*i == 0 || text[..*i].ends_with(['e', 'E']));
            !(c.is_ascii_digit() || matches!(c, '.' | '_') || exponent || sign)
        })
        .map_or(text.len(), |(i, _)| i);
    let number = text[..end].replace('_', "");
    let mut number: f64 = number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    let mut rest = text[end..].trim();
    // "Mbit/s" is not a quotient: what stands behind an operator must be a number.
    while let Some(at) = rest.rfind(['*', '/']) {
        let Ok(factor) = rest[at + 1..].trim().parse::<f64>() else { break };
        number = if rest.as_bytes()[at] == b'*' { number * factor } else { number / factor };
        rest = rest[..at].trim_end();
    }
    if !number.is_finite() {
        return Err(format!("{text:?} is not a finite number"));
    }
    Ok((number, rest))
}

fn scaled(text: &str, what: &str, allowed: &str, factor: impl Fn(&str) -> Option<f64>) -> Parsed<f64> {
    let (number, unit) = split(text).map_err(|e| format!("{e}; {what} is a number and one of {allowed}"))?;
    let factor = factor(unit).ok_or_else(|| {
        if unit.is_empty() {
            format!("{text:?} has no unit; {what} is a number and one of {allowed}")
        } else {
            format!("{unit:?} is not a unit of {what}; it is one of {allowed}")
        }
    })?;
    let value = number * factor;
    if value < 0.0 || !value.is_finite() {
        return Err(format!("{text:?}: {what} cannot be negative or infinite"));
    }
    Ok(value)
}

const RATES: &str = "bit/s, kbit/s, Mbit/s, Gbit/s";
const TIMES: &str = "ns, us, ms, s, min, h";
const SIZES: &str = "B, kB, MB, GB, KiB, MiB, GiB";

/// The longest time that a scenario may name: 1,000 days.
pub const MAX_TIME: Duration = Duration::from_secs(86_400_000);
/// The highest rate, in bits per second: 1 Tbit/s.
pub const MAX_RATE: u64 = 1_000_000_000_000;
/// The largest amount of data, in bytes: 1 PB.
pub const MAX_SIZE: u64 = 1_000_000_000_000_000;

/// Bits per second.
///
/// # Errors
/// A sentence that says what is wrong and which units there are.
pub fn rate(text: &str) -> Parsed<u64> {
    let value = scaled(text, "a rate", RATES, |unit| {
        Some(match unit {
            "bit/s" => 1.0,
            "kbit/s" => 1e3,
            "Mbit/s" => 1e6,
            "Gbit/s" => 1e9,
            _ => return None,
        })
    })?;
    if value > MAX_RATE as f64 {
        return Err(format!("{text:?} is more than 1,000 Gbit/s"));
    }
    Ok(value.round() as u64)
}

/// A time, exact to the nanosecond.
///
/// # Errors
/// As [`rate`].
pub fn time(text: &str) -> Parsed<Duration> {
    let nanos = scaled(text, "a time", TIMES, |unit| {
        Some(match unit {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "min" => 60e9,
            "h" => 3600e9,
            _ => return None,
        })
    })?;
    if nanos > MAX_TIME.as_nanos() as f64 {
        return Err(format!("{text:?} is longer than 1,000 days"));
    }
    Ok(Duration::from_nanos(nanos.round() as u64))
}

/// Bytes.
///
/// # Errors
/// As [`rate`].
pub fn size(text: &str) -> Parsed<u64> {
    let value = scaled(text, "an amount of data", SIZES, size_factor)?;
    if value > MAX_SIZE as f64 {
        return Err(format!("{text:?} is more than 1,000,000 GB"));
    }
    Ok(value.round() as u64)
}

fn size_factor(unit: &str) -> Option<f64> {
    Some(match unit {
        "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        _ => return None,
    })
}

/// A part of the whole, 0 to 1, from `2.5 %` or `0.025`.
///
/// # Errors
/// As [`rate`].
pub fn fraction(text: &str) -> Parsed<f64> {
    let (number, unit) = split(text).map_err(|e| format!("{e}; a share is like \"2.5 %\" or 0.025"))?;
    let value = match unit {
        "%" => number / 100.0,
        "" => number,
        other => return Err(format!("{other:?} is not a unit of a share; it is like \"2.5 %\" or 0.025")),
    };
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(format!("{text:?} is not between 0 and 100 %")) }
}

/// A queue: `64 kB`, `50 packets`, `1.5 BDP`.
///
/// # Errors
/// As [`rate`].
pub fn queue(text: &str) -> Parsed<QueueSize> {
    let allowed = "a queue is a number and one of packets, BDP, B, kB, MB, KiB, MiB";
    let (number, unit) = split(text).map_err(|e| format!("{e}; {allowed}"))?;
    if number < 0.0 {
        return Err(format!("{text:?} is negative"));
    }
    match unit {
        "packets" | "packet" if number.fract() != 0.0 => Err(format!("{text:?} is not a whole number of packets")),
        "packets" | "packet" => Ok(QueueSize::Packets(number.min(1e9) as usize)),
        "BDP" if number > 1e6 => Err(format!("{text:?} is more than 1,000,000 BDP")),
        "BDP" => Ok(QueueSize::Bdp(number)),
        _ => size_factor(unit)
            .map(|factor| QueueSize::Bytes((number * factor).min(MAX_SIZE as f64).round() as u64))
            .ok_or_else(|| format!("{text:?} is not a queue: {allowed}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_mean_what_they_say() {
        assert_eq!(rate("10 Mbit/s"), Ok(10_000_000));
        assert_eq!(rate("1.5Gbit/s"), Ok(1_500_000_000));
        assert_eq!(rate("10 Mbit/s / 4"), Ok(2_500_000));
        assert_eq!(rate("1e3 kbit/s"), Ok(1_000_000));
        assert_eq!(time("50 ms"), Ok(Duration::from_millis(50)));
        assert_eq!(time("100 ms / 2"), Ok(Duration::from_millis(50)));
        assert!(time("3 * 2 s").is_err());
        assert_eq!(time("2 s * 3"), Ok(Duration::from_secs(6)));
        assert_eq!(time("10 ms*3/2"), Ok(Duration::from_millis(15)));
        assert_eq!(size("20 kB"), Ok(20_000));
        assert_eq!(size("2 KiB"), Ok(2048));
        assert_eq!(fraction("2.5 %"), Ok(0.025));
        assert_eq!(fraction("0.5"), Ok(0.5));
        assert_eq!(queue("50 packets"), Ok(QueueSize::Packets(50)));
        assert_eq!(queue("1.5 BDP"), Ok(QueueSize::Bdp(1.5)));
        assert_eq!(queue("64 kB"), Ok(QueueSize::Bytes(64_000)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_units_that_there_are() {
        for bad in ["", "fast", "10", "10 Mb/s", "-1 Mbit/s", "1e300 Gbit/s", "10 Mbit/s / 0", "nan bit/s"] {
            let error = rate(bad).unwrap_err();
            assert!(!error.is_empty(), "{bad}");
        }
        assert!(rate("10 Mb/s").unwrap_err().contains("Mbit/s"));
        assert!(time("50").unwrap_err().contains("no unit"));
        assert!(fraction("101 %").is_err() && fraction("-1 %").is_err());
        assert!(queue("1.5 packets").is_err() && queue("-1 BDP").is_err() && queue("3").is_err());
        assert!(time("2000000 h").is_err());
    }
}
