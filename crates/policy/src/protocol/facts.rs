//! Facts in frames.

use super::wire::{Malformed, Rest, put_count, put_text};
use crate::advice::{Fact, Figure, Known, LEAST, LIFETIME, MAX_OUTCOMES, RaceOutcome};
use core::time::Duration;
use neater_base::WallTime;

/// How many facts one frame carries.
pub const MAX_FACTS_OF_FRAME: usize = 64;
/// The longest names of interfaces, other ends and transports.
const MAX_INTERFACE: usize = 64;
const MAX_END: usize = 255;
const MAX_TRANSPORT: usize = 32;
/// The greatest round trip (s) and rate (bit/s) that are believed.
const MAX_RTT: f64 = 3600.0;
const MAX_RATE: f64 = 1e15;

fn seconds(until: WallTime, now: WallTime) -> u16 {
    u16::try_from(until.0.saturating_sub(now.0).as_secs()).unwrap_or(u16::MAX)
}

/// Adds what is known of a way.
fn put_fact(out: &mut Vec<u8>, interface: &str, end: &str, known: &Known, now: WallTime) {
    put_text(out, interface);
    put_text(out, end);
    let figures = [known.rtt, known.rate, known.loss];
    out.push(figures.iter().enumerate().map(|(i, f)| u8::from(f.is_some()) << i).sum());
    for figure in figures.into_iter().flatten() {
        out.extend(figure.value.to_le_bytes());
        out.extend(seconds(figure.until, now).to_le_bytes());
    }
    put_count(out, known.outcomes.len());
    for o in &known.outcomes {
        out.extend(o.port.to_le_bytes());
        out.push(u8::from(o.won));
        put_text(out, &o.transport);
        out.extend(seconds(o.until, now).to_le_bytes());
    }
}

/// Adds the payload of a program's facts: at most [`MAX_FACTS_OF_FRAME`], the rest is left out.
pub fn put_told(out: &mut Vec<u8>, facts: &[Fact], now: WallTime) {
    let facts = &facts[..facts.len().min(MAX_FACTS_OF_FRAME)];
    put_count(out, facts.len());
    facts.iter().for_each(|f| put_fact(out, &f.interface, &f.end, &f.known, now));
}

/// Adds the payload of a page of news: up to which change it goes, whether there is more, and the
/// facts, by interface and other end.
pub fn put_news<'a>(
    out: &mut Vec<u8>,
    number: u64,
    more: bool,
    facts: impl ExactSizeIterator<Item = (&'a str, &'a str, Known)>,
    now: WallTime,
) {
    out.extend(number.to_le_bytes());
    out.push(u8::from(more));
    put_count(out, facts.len());
    facts.for_each(|(interface, end, known)| put_fact(out, interface, end, &known, now));
}

fn until(rest: &mut Rest<'_>, now: WallTime) -> Result<WallTime, Malformed> {
    let seconds = Duration::from_secs(rest.short()?.into());
    Ok(WallTime(now.0.saturating_add(seconds.min(LIFETIME))))
}

fn name<'a>(rest: &mut Rest<'a>, most: usize) -> Result<&'a str, Malformed> {
    let text = rest.text()?;
    let good = !text.is_empty() && text.len() <= most && !text.chars().any(char::is_control);
    if good { Ok(text) } else { Err(Malformed::Value) }
}

fn fact(rest: &mut Rest<'_>, now: WallTime) -> Result<Fact, Malformed> {
    let (interface, end) = (name(rest, MAX_INTERFACE)?.to_owned(), name(rest, MAX_END)?.to_ascii_lowercase());
    let flags = rest.byte()?;
    if flags > 7 {
        return Err(Malformed::Value);
    }
    let mut figures = [None; 3];
    for (i, most) in [MAX_RTT, MAX_RATE, 1.0].into_iter().enumerate().filter(|(i, _)| flags >> i & 1 == 1) {
        let value = rest.finite()?;
        if !(0.0..=most).contains(&value) {
            return Err(Malformed::Value);
        }
        // What is as little as this is nothing, and no number to reckon with.
        let value = if value < LEAST { 0.0 } else { value };
        figures[i] = Some(Figure { value, until: until(rest, now)? });
    }
    let count = rest.count()?;
    if count > MAX_OUTCOMES {
        return Err(Malformed::TooMany);
    }
    let mut outcomes = Vec::with_capacity(count);
    for _ in 0..count {
        let (port, won) = (rest.short()?, rest.byte()?);
        if won > 1 {
            return Err(Malformed::Value);
        }
        let transport = name(rest, MAX_TRANSPORT)?.to_owned();
        outcomes.push(RaceOutcome { port, transport, won: won == 1, until: until(rest, now)? });
    }
    let [rtt, rate, loss] = figures;
    Ok(Fact { interface, end, known: Known { rtt, rate, loss, outcomes } })
}

fn facts(rest: &mut Rest<'_>, now: WallTime) -> Result<Vec<Fact>, Malformed> {
    let count = rest.count()?;
    if count > MAX_FACTS_OF_FRAME {
        return Err(Malformed::TooMany);
    }
    (0..count).map(|_| fact(rest, now)).collect()
}

/// Reads the facts that a program sends at `now`.
///
/// # Errors
/// [`Malformed`].
pub fn told(payload: &[u8], now: WallTime) -> Result<Vec<Fact>, Malformed> {
    let mut rest = Rest::of(payload);
    let all = facts(&mut rest, now)?;
    rest.end()?;
    Ok(all)
}

/// Reads a page of news: up to which change it goes, whether there is more, and the facts.
pub(crate) fn news(payload: &[u8], now: WallTime) -> Result<(u64, bool, Vec<Fact>), Malformed> {
    let mut rest = Rest::of(payload);
    let (number, more) = (rest.long()?, rest.byte()?);
    let all = facts(&mut rest, now)?;
    rest.end()?;
    if more > 1 { Err(Malformed::Value) } else { Ok((number, more == 1, all)) }
}
