//! The keys of a link: everything that `neater_link::LinkConfig` can say, with units.

use crate::builder::Pair;
use crate::document::{Kind, Value};
use crate::error::ScenarioError;
use crate::fields::{Fields, share};
use crate::model::Direction;
use crate::units::{self, QueueSize};
use core::time::Duration;
use neater_link::{
    DeliveryTrace, Family, Filter, LinkConfig, Loss, Match, Protocol, QueueLimit, Rate, RateSteps, TooBig,
};
use std::sync::Arc;

type Result<T> = core::result::Result<T, ScenarioError>;

/// Links that are like something known, forward and backward. The values are round figures to begin with, no measurement
/// of any network.
fn preset(name: &str) -> Option<Pair> {
    let way = |rate: u64, delay_us: u64, queue: usize| Direction {
        config: LinkConfig::rate(rate, Duration::from_micros(delay_us)).with_queue(QueueLimit::Packets(queue)),
        queue_bdp: None,
    };
    let jittery = |mut d: Direction, ms: u64| {
        d.config = d.config.with_jitter(Duration::from_millis(ms));
        d
    };
    Some(match name {
        // Nothing limits: for links that are not the subject.
        "ideal" => [Direction::default(), Direction::default()],
        "ethernet" => [way(1_000_000_000, 50, 1000), way(1_000_000_000, 50, 1000)],
        // Forward is up, from the subscriber.
        "dsl" => [way(1_000_000, 10_000, 50), way(16_000_000, 10_000, 200)],
        "cable" => [way(20_000_000, 8_000, 250), way(200_000_000, 8_000, 1000)],
        "wifi" => [jittery(way(50_000_000, 2_000, 500), 3), jittery(way(50_000_000, 2_000, 500), 3)],
        "lte" => [jittery(way(10_000_000, 25_000, 300), 10), jittery(way(40_000_000, 25_000, 1000), 10)],
        "geostationary" => [way(2_000_000, 280_000, 200), way(20_000_000, 280_000, 1000)],
        "modem" => [way(56_000, 60_000, 20), way(56_000, 60_000, 20)],
        _ => return None,
    })
}

const PRESETS: &str = "ideal, ethernet, dsl, cable, wifi, lte, geostationary, modem";

/// Reads both directions: a preset, keys for both, and the tables `forward` and `backward` over them.
pub(crate) fn pair(fields: &mut Fields, base: Pair) -> Result<Pair> {
    let mut pair = base;
    if let Some(v) = fields.take("preset") {
        let key = fields.key("preset");
        let found = if let Kind::Text(t) = &v.kind { preset(t) } else { None };
        pair = found.ok_or_else(|| ScenarioError::new(v.place, key, format!("not a preset; there are {PRESETS}")))?;
    }
    let common = Keys::read(fields)?;
    for (direction, name) in pair.iter_mut().zip(["forward", "backward"]) {
        common.apply(direction);
        if let Some(mut own) = fields.table(name)? {
            Keys::read(&mut own)?.apply(direction);
            own.finish()?;
        }
    }
    Ok(pair)
}

/// What a table says of one direction; what it leaves out stays as it was.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    rate: Option<Rate>,
    delay: Option<Duration>,
    jitter: Option<Duration>,
    reorder: Option<bool>,
    loss: Option<Loss>,
    queue: Option<QueueSize>,
    mtu: Option<u32>,
    too_big: Option<TooBig>,
    filters: Option<Vec<Filter>>,
    down: Option<bool>,
}

impl Keys {
    pub(crate) fn read(f: &mut Fields) -> Result<Self> {
        Ok(Self {
            rate: rate(f)?,
            delay: f.time("delay")?,
            jitter: f.time("jitter")?,
            reorder: f.flag("reorder")?,
            loss: loss(f)?,
            queue: queue(f)?,
            mtu: f.whole("mtu", 68..=65_535)?.map(|m| m as u32),
            too_big: f.word("too-big", &[("report", TooBig::Report), ("black-hole", TooBig::BlackHole)])?,
            filters: filters(f)?,
            down: f.flag("down")?,
        })
    }

    pub(crate) fn apply(&self, direction: &mut Direction) {
        let c = &mut direction.config;
        if let Some(v) = &self.rate {
            c.rate = v.clone();
        }
        if let Some(v) = self.delay {
            c.delay = v;
        }
        if let Some(v) = self.jitter {
            c.jitter = v.into();
        }
        if let Some(v) = self.reorder {
            c.reorder = v;
        }
        if let Some(v) = &self.loss {
            c.loss = v.clone();
        }
        if let Some(v) = self.mtu {
            c.mtu = v;
        }
        if let Some(v) = self.too_big {
            c.too_big = v;
        }
        if let Some(v) = &self.filters {
            c.filters.clone_from(v);
        }
        if let Some(v) = self.down {
            c.down = v;
        }
        match self.queue {
            Some(QueueSize::Bytes(n)) => (c.queue, direction.queue_bdp) = (QueueLimit::Bytes(n), None),
            Some(QueueSize::Packets(n)) => (c.queue, direction.queue_bdp) = (QueueLimit::Packets(n), None),
            Some(QueueSize::Bdp(n)) => direction.queue_bdp = Some(n),
            None => {}
        }
    }
}

fn rate(f: &mut Fields) -> Result<Option<Rate>> {
    let key = f.key("rate");
    let Some(v) = f.take("rate") else { return Ok(None) };
    let place = v.place.clone();
    let wrong = |message: String| ScenarioError::new(place.clone(), key.clone(), message);
    match v.kind {
        Kind::Text(t) if t == "unlimited" => Ok(Some(Rate::Unlimited)),
        Kind::Text(t) => units::rate(&t).map(|r| Some(Rate::Fixed(r))).map_err(wrong),
        Kind::Table(t) => {
            let mut own = Fields::new(&key, v.place.clone(), t);
            let rate = varying_rate(&mut own)?;
            own.finish()?;
            Ok(Some(rate))
        }
        other => {
            let allowed =
                "\"10 Mbit/s\", \"unlimited\", { steps = [[\"0 s\", \"10 Mbit/s\"], ...] } or { trace = [0, 12, ...] }";
            Err(wrong(format!("is {}, but must be like {allowed}", other.name())))
        }
    }
}

/// `{ steps = [["0 s", "10 Mbit/s"], ["5 s", "2 Mbit/s"]], period = "10 s" }`, or `{ trace = [0, 12, 12, 30] }` with delivery
/// opportunities in milliseconds, as a string in mahimahi's format (one on a line) or as a list.
fn varying_rate(f: &mut Fields) -> Result<Rate> {
    let period = f.time("period")?;
    let (steps_key, trace_key) = (f.key("steps"), f.key("trace"));
    match (f.take("steps"), f.take("trace")) {
        (Some(v), None) => {
            let at = |message: String| ScenarioError::new(v.place.clone(), steps_key.clone(), message);
            let step = |v: &Value| match &v.kind {
                Kind::List(two) => match &two[..] {
                    [Value { kind: Kind::Text(t), .. }, Value { kind: Kind::Text(r), .. }] => {
                        Some((units::time(t).ok()?, units::rate(r).ok()?))
                    }
                    _ => None,
                },
                _ => None,
            };
            let Kind::List(items) = &v.kind else { return Err(at("must be a list of [time, rate]".to_owned())) };
            let steps = items.iter().map(|i| {
                step(i).ok_or_else(|| {
                    ScenarioError::new(
                        i.place.clone(),
                        steps_key.clone(),
                        "must be a time and a rate, [\"5 s\", \"2 Mbit/s\"]",
                    )
                })
            });
            let steps = steps.collect::<Result<Vec<_>>>()?;
            RateSteps::new(steps, period).map(|s| Rate::Steps(Arc::new(s))).map_err(|e| at(e.to_string()))
        }
        (None, Some(v)) => {
            let at = |message: String| ScenarioError::new(v.place.clone(), trace_key.clone(), message);
            let trace = match &v.kind {
                Kind::Text(text) => DeliveryTrace::parse(text).map_err(|e| at(e.to_string()))?,
                Kind::List(items) => {
                    let number = |v: &Value| match v.kind {
                        Kind::Number(n) if n.fract() == 0.0 && (0.0..=4e9).contains(&n) => Ok(n as u32),
                        _ => Err(ScenarioError::new(
                            v.place.clone(),
                            trace_key.clone(),
                            "must be whole milliseconds from 0",
                        )),
                    };
                    let times = items.iter().map(number).collect::<Result<Vec<_>>>()?;
                    DeliveryTrace::from_millis(times).map_err(|e| at(e.to_string()))?
                }
                other => {
                    return Err(at(format!("is {}, but must be a list or a string of milliseconds", other.name())));
                }
            };
            Ok(Rate::Trace(Arc::new(trace)))
        }
        _ => Err(f.error("needs either steps (and period, to repeat them) or trace")),
    }
}

/// `loss = "1 %"`, or `loss = { packets = [3, 7] }`.
fn loss(f: &mut Fields) -> Result<Option<Loss>> {
    let key = f.key("loss");
    let Some(v) = f.take("loss") else { return Ok(None) };
    let at = |message: String| ScenarioError::new(v.place.clone(), key.clone(), message);
    match v.kind.clone() {
        Kind::Table(t) => {
            let mut own = Fields::new(&key, v.place.clone(), t);
            let list = own.take("packets").ok_or_else(|| at("needs packets = [index, ...]".to_owned()))?;
            own.finish()?;
            let Kind::List(items) = list.kind else { return Err(at("packets must be a list of numbers".to_owned())) };
            let index = |v: Value| match v.kind {
                Kind::Number(n) if n >= 0.0 && n.fract() == 0.0 => Ok(n as u64),
                _ => Err(ScenarioError::new(v.place, key.clone(), "the index of a packet is a whole number from 0")),
            };
            Ok(Some(Loss::Indices(items.into_iter().map(index).collect::<Result<_>>()?)))
        }
        kind => {
            let p = share(&kind).map_err(at)?;
            Ok(Some(if p == 0.0 { Loss::None } else { Loss::Random(p) }))
        }
    }
}

fn queue(f: &mut Fields) -> Result<Option<QueueSize>> {
    let key = f.key("queue");
    let Some(v) = f.take("queue") else { return Ok(None) };
    match &v.kind {
        Kind::Text(t) => units::queue(t).map(Some).map_err(|e| ScenarioError::new(v.place.clone(), key, e)),
        other => {
            let message = format!("is {}, but must be like \"50 packets\", \"64 kB\" or \"1.5 BDP\"", other.name());
            Err(ScenarioError::new(v.place.clone(), key, message))
        }
    }
}

/// `drop = ["udp", "tcp/443"]` and `reject = [...]`: rejecting rules come first.
pub(crate) fn filters(f: &mut Fields) -> Result<Option<Vec<Filter>>> {
    let mut all = None;
    for (name, make) in [("reject", Filter::reject as fn(Match) -> Filter), ("drop", Filter::drop)] {
        let key = f.key(name);
        let Some(rules) = f.texts(name)? else { continue };
        let all = all.get_or_insert_with(Vec::new);
        for (text, place) in rules {
            let what = matcher(&text).ok_or_else(|| {
                let message = format!(
                    "{text:?} matches nothing known: udp, tcp, icmp, ipv4, ipv6, port/N, udp/N, tcp/N, protocol/N"
                );
                ScenarioError::new(place, key.clone(), message)
            })?;
            all.push(make(what));
        }
    }
    Ok(all)
}

fn matcher(text: &str) -> Option<Match> {
    Some(match text.split_once('/') {
        None => match text {
            "udp" => Match::Protocol(Protocol::Udp),
            "tcp" => Match::Protocol(Protocol::Tcp),
            "icmp" => Match::Protocol(Protocol::Icmp),
            "ipv4" => Match::Family(Family::V4),
            "ipv6" => Match::Family(Family::V6),
            _ => return None,
        },
        Some(("port", n)) => Match::DestinationPort(n.parse().ok()?),
        Some(("udp", n)) => Match::Service(Protocol::Udp, n.parse().ok()?),
        Some(("tcp", n)) => Match::Service(Protocol::Tcp, n.parse().ok()?),
        Some(("protocol", n)) => Match::Protocol(match n.parse().ok()? {
            17 => Protocol::Udp,
            6 => Protocol::Tcp,
            1 | 58 => Protocol::Icmp,
            other => Protocol::Other(other),
        }),
        Some(_) => return None,
    })
}
