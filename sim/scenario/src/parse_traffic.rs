//! `[traffic.NAME]` and TCP settings.

use crate::document::Kind;
use crate::error::ScenarioError;
use crate::fields::{Fields, quantity};
use crate::model::Scenario;
use crate::traffic::{
    Carrier, Controller, Distribution, OnOff, RtoFloor, TcpSettings, Traffic, TrafficKind, Video, Web,
};
use crate::units;
use core::time::Duration;

type Result<T> = core::result::Result<T, ScenarioError>;

#[derive(Clone, Copy)]
enum Word {
    Bulk,
    Web,
    Video,
    OnOff,
    Ping,
}

/// Reads one table.
pub(crate) fn traffic(name: &str, mut f: Fields, s: &Scenario) -> Result<Traffic> {
    let kinds = [
        ("bulk", Word::Bulk),
        ("web", Word::Web),
        ("video", Word::Video),
        ("on-off", Word::OnOff),
        ("ping", Word::Ping),
    ];
    let word = f.word("kind", &kinds)?.unwrap_or(Word::Bulk);
    let kind = match word {
        Word::Bulk => {
            let carriers = [
                ("model", Carrier::Model),
                ("tcp", Carrier::Tcp),
                ("tls", Carrier::Tls),
                ("quic", Carrier::Quic),
                ("sctp", Carrier::Sctp),
            ];
            TrafficKind::Bulk { bytes: f.size("bytes")?, over: f.word("over", &carriers)?.unwrap_or_default() }
        }
        Word::Web => TrafficKind::Web(web(&mut f)?),
        Word::Video => TrafficKind::Video(Video {
            rate: f.rate("rate")?.filter(|r| *r > 0).ok_or_else(|| f.error("needs a rate above 0"))?,
            frames_per_second: f.number("frames-per-second", 0.1..=1000.0)?.unwrap_or(25.0),
            packet: f.whole("packet", 16..=1452)?.unwrap_or(1200) as u32,
        }),
        Word::OnOff => TrafficKind::OnOff(on_off(&mut f)?),
        Word::Ping => TrafficKind::Ping {
            interval: f.time("interval")?.unwrap_or(Duration::from_millis(100)).max(Duration::from_micros(10)),
            size: f.whole("size", 0..=1452)?.unwrap_or(56) as u32,
        },
    };
    let mut host = |key: &'static str| -> Result<usize> {
        let (name, place) = match f.texts(key)?.as_deref() {
            Some([one]) => one.clone(),
            _ => return Err(f.error(format!("needs {key} = \"HOST\""))),
        };
        let found = s.node(&name).filter(|n| s.nodes[*n].kind == crate::NodeKind::Host);
        found.ok_or_else(|| {
            let hosts: Vec<_> = s.hosts().take(20).map(|h| s.nodes[h].name.as_str()).collect();
            let message = format!("no host {name:?}; there are {}", hosts.join(", "));
            ScenarioError::new(place, f.key(key), message)
        })
    };
    let (from, to) = (host("from")?, host("to")?);
    if from == to {
        return Err(f.error("from and to are the same host"));
    }
    let traffic = Traffic {
        name: name.to_owned(),
        from,
        to,
        v6: match f.whole("ip", 4..=6)?.unwrap_or(4) {
            4 => false,
            6 => true,
            _ => return Err(f.error("ip is 4 or 6")),
        },
        flows: f.whole("flows", 1..=100_000)?.unwrap_or(1) as u32,
        start: f.time("start")?.unwrap_or_default(),
        start_within: f.time("start-within")?.unwrap_or_default(),
        stop: f.time("stop")?,
        kind,
        tcp: tcp(&mut f)?,
    };
    if let TrafficKind::Bulk { over, .. } = &traffic.kind
        && over.is_program()
        && traffic.tcp != TcpSettings::default()
    {
        return Err(f.error("tcp has settings, and a program has the TCP of its host: say them there"));
    }
    f.finish()?;
    Ok(traffic)
}

/// Reads the keys of TCP, which stand beside others in the table of a host or of traffic.
pub(crate) fn tcp(f: &mut Fields) -> Result<TcpSettings> {
    let Some(mut f) = f.table("tcp")? else { return Ok(TcpSettings::default()) };
    let controllers = [("newreno", Controller::NewReno), ("reno", Controller::NewReno), ("cubic", Controller::Cubic)];
    let settings = TcpSettings {
        controller: f.word("congestion", &controllers)?,
        sack: f.flag("sack")?,
        rack: f.flag("rack")?,
        ecn: f.flag("ecn")?,
        timestamps: f.flag("timestamps")?,
        delayed_ack: f.flag("delayed-ack")?,
        initial_window: f.whole("initial-window", 1..=1000)?.map(|n| n as u32),
        min_rto: f.time("min-rto")?,
        rto_floor: f.word("rto-floor", &[("timeout", RtoFloor::Timeout), ("variation", RtoFloor::Variation)])?,
        send_buffer: f.size("send-buffer")?,
        receive_buffer: f.size("receive-buffer")?,
    };
    f.finish()?;
    Ok(settings)
}

fn web(f: &mut Fields) -> Result<Web> {
    let usual = Web::default();
    Ok(Web {
        object: distribution(f, "object", Unit::Bytes)?.unwrap_or(usual.object),
        objects: distribution(f, "objects", Unit::Count)?.unwrap_or(usual.objects),
        think: distribution(f, "think", Unit::Seconds)?.unwrap_or(usual.think),
        request: distribution(f, "request", Unit::Bytes)?.unwrap_or(usual.request),
    })
}

fn on_off(f: &mut Fields) -> Result<OnOff> {
    // A shape of 1.5 lies between 1 and 2, where on/off sources sum up to self-similar traffic.
    let usual = |mean: f64| Distribution::Pareto { scale: mean / 3.0, shape: 1.5, max: f64::INFINITY };
    let mut packets = OnOff::packet_mix();
    let key = f.key("packets");
    if let Some(v) = f.take("packets") {
        let wrong = || {
            ScenarioError::new(
                v.place.clone(),
                key.clone(),
                "must be a list like [[44, 0.5], [1500, 0.5]]: bytes and weight, bytes from 28 (48 for IPv6) to 1500",
            )
        };
        let Kind::List(items) = &v.kind else { return Err(wrong()) };
        packets = Vec::new();
        for item in items {
            let Kind::List(two) = &item.kind else { return Err(wrong()) };
            let [Kind::Number(bytes), Kind::Number(weight)] =
                [two.first(), two.get(1)].map(|v| v.map_or(&Kind::Bool(false), |v| &v.kind))
            else {
                return Err(wrong());
            };
            if !(28.0..=1500.0).contains(bytes)
                || bytes.fract() != 0.0
                || !(0.0..=1e6).contains(weight)
                || two.len() != 2
            {
                return Err(wrong());
            }
            packets.push((*bytes as u32, *weight));
        }
        if packets.is_empty() || packets.len() > 64 || packets.iter().map(|p| p.1).sum::<f64>() <= 0.0 {
            return Err(wrong());
        }
    }
    Ok(OnOff {
        rate: f.rate("rate")?.filter(|r| *r > 0).ok_or_else(|| f.error("needs a rate above 0"))?,
        on: distribution(f, "on", Unit::Seconds)?.unwrap_or_else(|| usual(0.5)),
        off: distribution(f, "off", Unit::Seconds)?.unwrap_or_else(|| usual(0.5)),
        packets,
    })
}

/// What the numbers of a distribution count.
#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    Seconds,
    Count,
}

impl Unit {
    fn read(self, kind: &Kind) -> core::result::Result<f64, String> {
        match self {
            Self::Bytes => units::size(&quantity(kind, "like \"20 kB\"")?).map(|n| n as f64),
            Self::Seconds => units::time(&quantity(kind, "like \"50 ms\"")?).map(|t| t.as_secs_f64()),
            Self::Count => match kind {
                Kind::Number(n) if *n >= 0.0 => Ok(*n),
                _ => Err("must be a number from 0".to_owned()),
            },
        }
    }
}

#[derive(Clone, Copy)]
enum Law {
    Uniform,
    Exponential,
    Pareto,
    LogNormal,
}

/// A quantity, or a table such as `{ law = "pareto", mean = "12 kB", shape = 1.2, max = "20 MB" }`.
fn distribution(f: &mut Fields, name: &'static str, unit: Unit) -> Result<Option<Distribution>> {
    let key = f.key(name);
    let Some(v) = f.take(name) else { return Ok(None) };
    let Kind::Table(table) = v.kind else {
        return unit
            .read(&v.kind)
            .map(|x| Some(Distribution::Constant(x)))
            .map_err(|e| ScenarioError::new(v.place, key, e));
    };
    let mut f = Fields::new(&key, v.place, table);
    let laws = [
        ("uniform", Law::Uniform),
        ("exponential", Law::Exponential),
        ("pareto", Law::Pareto),
        ("log-normal", Law::LogNormal),
    ];
    let law =
        f.word("law", &laws)?.ok_or_else(|| f.error("needs law, one of uniform, exponential, pareto, log-normal"))?;
    let mut value = |name: &'static str| -> Result<Option<f64>> {
        let key = f.key(name);
        f.take(name).map(|v| unit.read(&v.kind).map_err(|e| ScenarioError::new(v.place, key, e))).transpose()
    };
    let (min, max, mean, scale, median) =
        (value("min")?, value("max")?, value("mean")?, value("scale")?, value("median")?);
    let bound = max.unwrap_or(f64::INFINITY);
    let positive = |x: Option<f64>| x.filter(|x| *x > 0.0);
    let result = match law {
        Law::Uniform => match (min, max) {
            (Some(min), Some(max)) if min <= max => Distribution::Uniform { min, max },
            _ => return Err(f.error("uniform needs min and max, the least first")),
        },
        Law::Exponential => match positive(mean) {
            Some(mean) => Distribution::Exponential { mean, max: bound },
            None => return Err(f.error("exponential needs a mean above 0")),
        },
        Law::LogNormal => match (positive(median), f.number("sigma", 0.0..=10.0)?) {
            (Some(median), Some(sigma)) => Distribution::LogNormal { median, sigma, max: bound },
            _ => return Err(f.error("log-normal needs a median above 0 and sigma, 0 to 10")),
        },
        Law::Pareto => {
            let shape = f.number("shape", 0.1..=100.0)?.ok_or_else(|| f.error("pareto needs a shape, 0.1 to 100"))?;
            let scale = match (positive(scale), positive(mean)) {
                (Some(scale), None) => scale,
                (None, Some(mean)) if shape > 1.0 => mean * (shape - 1.0) / shape,
                (None, Some(_)) => return Err(f.error("a shape of 1 or less has no mean: give scale and max")),
                _ => return Err(f.error("pareto needs either scale (its least value) or mean, above 0")),
            };
            if shape <= 1.0 && max.is_none() {
                return Err(f.error("a shape of 1 or less has no mean: give max"));
            }
            Distribution::Pareto { scale, shape, max: bound }
        }
    };
    f.finish()?;
    Ok(Some(result))
}
