//! The models behind the keys of a link: what has parameters of its own.

use crate::document::{Kind, Value};
use crate::error::{Place, ScenarioError};
use crate::fields::{Fields, quantity, share};
use crate::files::FileContent;
use crate::units::{self, QueueSize};
use core::time::Duration;
use neater_link::{
    Codel, DeliveryTrace, Discipline, Family, Filter, FqCodel, Jitter, Loss, Match, Overtaking, Protocol, Rate,
    RateSteps, Red,
};
use std::sync::Arc;

type Result<T> = core::result::Result<T, ScenarioError>;

/// `"10 Mbit/s"`, `"unlimited"`, or a table.
pub(crate) fn rate(f: &mut Fields) -> Result<Option<Rate>> {
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
            let allowed = "\"10 Mbit/s\", \"unlimited\", { steps = [[\"0 s\", \"10 Mbit/s\"], ...] }, { trace = [0, 12, ...] } \
                 or { trace-file = \"my.trace\" }";
            Err(wrong(format!("is {}, but must be like {allowed}", other.name())))
        }
    }
}

/// `{ steps = [["0 s", "10 Mbit/s"], ["5 s", "2 Mbit/s"]], period = "10 s" }`, or `{ trace = [0, 12, 12, 30] }` with delivery
/// opportunities in milliseconds, as a string in mahimahi's format (one on a line) or as a list, or `{ trace-file = "NAME" }` with
/// the name of a file in that format.
fn varying_rate(f: &mut Fields) -> Result<Rate> {
    if let Some(v) = f.take("trace-file") {
        let Kind::File(FileContent::Trace(trace)) = v.kind else {
            return Err(ScenarioError::new(v.place, f.key("trace-file"), "must be the name of a file"));
        };
        return Ok(Rate::Trace(trace));
    }
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
        _ => Err(f.error("needs steps (and period, to repeat them), trace or trace-file")),
    }
}

/// `"1 %"`; or a table: `packets`, `every`, `to-bad` and `to-good` with `loss-good` and `loss-bad`, or `length` with `start` or
/// `at`.
pub(crate) fn loss(f: &mut Fields) -> Result<Option<Loss>> {
    let key = f.key("loss");
    let Some(v) = f.take("loss") else { return Ok(None) };
    let Kind::Table(t) = v.kind else {
        let p = share(&v.kind).map_err(|e| ScenarioError::new(v.place, key, e))?;
        return Ok(Some(if p == 0.0 { Loss::None } else { Loss::Random(p) }));
    };
    let mut own = Fields::new(&key, v.place, t);
    let (to_bad, to_good) = (own.fraction("to-bad")?, own.fraction("to-good")?);
    let (good, bad) = (own.fraction("loss-good")?, own.fraction("loss-bad")?);
    let (packets, every) = (numbers(&mut own, "packets")?, own.whole("every", 1..=1_000_000_000)?);
    let length = own.whole("length", 1..=1_000_000)?.map(|n| n as u32);
    let (start, at) = (own.fraction("start")?, times(&mut own, "at")?);
    let loss = match (packets, every, to_bad, to_good, length, start, at) {
        (Some(list), None, None, None, None, None, None) => Loss::Indices(Arc::new(list.into_iter().collect())),
        (None, Some(n), None, None, None, None, None) => Loss::EveryNth(n),
        (None, None, Some(to_bad), Some(to_good), None, None, None) => {
            Loss::GilbertElliott { to_bad, to_good, loss_good: good.unwrap_or(0.0), loss_bad: bad.unwrap_or(1.0) }
        }
        (None, None, None, None, Some(length), Some(start), None) => Loss::Bursts { start, length },
        (None, None, None, None, Some(length), None, Some(times)) => Loss::BurstsAt { times: times.into(), length },
        _ => {
            return Err(own.error(
                "must have one of: packets = [...]; every = N; to-bad and to-good (with loss-good, loss-bad); length with \
                 start = \"0.1 %\" or at = [\"1 s\", ...]",
            ));
        }
    };
    if !matches!(loss, Loss::GilbertElliott { .. }) && (good.is_some() || bad.is_some()) {
        return Err(own.error("loss-good and loss-bad belong to to-bad and to-good"));
    }
    own.finish()?;
    Ok(Some(loss))
}

/// `"5 ms"`, uniform; or `{ law = "normal", deviation = "2 ms" }`, `{ law = "pareto", scale = "1 ms", shape = 2.5 }`,
/// `{ values = ["1 ms", ...] }`, or `{ values-file = "NAME" }` with the name of a file of such values.
pub(crate) fn jitter(f: &mut Fields) -> Result<Option<Jitter>> {
    let key = f.key("jitter");
    let Some(v) = f.take("jitter") else { return Ok(None) };
    let table = match v.kind {
        Kind::Table(t) => t,
        Kind::Number(0.0) => return Ok(Some(Jitter::None)),
        kind => {
            let most = quantity(&kind, "a time like \"5 ms\", or a table").and_then(|t| units::time(&t));
            return most.map(|t| Some(t.into())).map_err(|e| ScenarioError::new(v.place, key, e));
        }
    };
    let mut own = Fields::new(&key, v.place, table);
    let law = own.word("law", &[("uniform", 0), ("normal", 1), ("pareto", 2)])?;
    let (most, deviation) = (own.time("max")?, own.time("deviation")?);
    let (scale, shape) = (own.time("scale")?, own.number("shape", 0.1..=100.0)?);
    let values = match (times(&mut own, "values")?, own.take("values-file")) {
        (values, None) => values.map(Into::into),
        (None, Some(Value { kind: Kind::File(FileContent::Times(times)), .. })) => Some(times),
        (None, Some(v)) => {
            return Err(ScenarioError::new(v.place, own.key("values-file"), "must be the name of a file"));
        }
        (Some(_), Some(_)) => return Err(own.error("has values and values-file, and can have one of them")),
    };
    let jitter = match (law, values, most, deviation, scale.zip(shape)) {
        (None, Some(values), None, None, None) if !values.is_empty() => Jitter::Values(values),
        (Some(0), None, Some(most), None, None) => most.into(),
        (Some(1), None, None, Some(deviation), None) => Jitter::Normal(deviation),
        (Some(2), None, None, None, Some((scale, shape))) => Jitter::Pareto { scale, shape },
        _ => {
            return Err(own.error(
                "must be law = \"uniform\" with max, \"normal\" with deviation, \"pareto\" with scale and shape, values = [...], or \
                 values-file = \"my.jitter\"",
            ));
        }
    };
    own.finish()?;
    Ok(Some(jitter))
}

/// `{ probability = "1 %", gap = 5 }`.
pub(crate) fn overtaking(f: &mut Fields) -> Result<Option<Overtaking>> {
    let Some(mut own) = f.table("overtaking")? else { return Ok(None) };
    let probability = own.fraction("probability")?.ok_or_else(|| own.error("needs probability = \"1 %\""))?;
    let gap = own.whole("gap", 0..=1_000_000)?.unwrap_or(0) as u32;
    own.finish()?;
    Ok(Some(Overtaking { probability, gap }))
}

/// `"codel"`, or with its parameters, `{ kind = "codel", target = "5 ms", interval = "100 ms", ecn = true }`.
pub(crate) fn discipline(f: &mut Fields) -> Result<Option<Discipline>> {
    #[derive(Clone, Copy)]
    enum Word {
        DropTail,
        HeadDrop,
        Codel,
        FqCodel,
        Red,
    }
    let words = [
        ("drop-tail", Word::DropTail),
        ("head-drop", Word::HeadDrop),
        ("codel", Word::Codel),
        ("fq-codel", Word::FqCodel),
        ("red", Word::Red),
    ];
    let key = f.key("discipline");
    let Some(v) = f.take("discipline") else { return Ok(None) };
    let table = match v.kind {
        Kind::Table(t) => t,
        kind => vec![("kind".to_owned(), v.place.clone(), Value { place: v.place.clone(), kind })],
    };
    let mut own = Fields::new(&key, v.place, table);
    let word =
        own.word("kind", &words)?.ok_or_else(|| own.error("needs kind: drop-tail, head-drop, codel, fq-codel, red"))?;
    let codel = |own: &mut Fields, usual: Codel| -> Result<Codel> {
        Ok(Codel {
            target: own.time("target")?.unwrap_or(usual.target),
            interval: own.time("interval")?.unwrap_or(usual.interval),
            ecn: own.flag("ecn")?.unwrap_or(usual.ecn),
        })
    };
    let discipline = match word {
        Word::DropTail => Discipline::DropTail,
        Word::HeadDrop => Discipline::HeadDrop,
        Word::Codel => Discipline::Codel(codel(&mut own, Codel::default())?),
        Word::FqCodel => {
            let usual = FqCodel::default();
            Discipline::FqCodel(FqCodel {
                codel: codel(&mut own, usual.codel)?,
                flows: own.whole("flows", 1..=65_535)?.map_or(usual.flows, |n| n as u16),
                quantum: own.whole("quantum", 256..=1 << 20)?.map_or(usual.quantum, |n| n as u32),
            })
        }
        Word::Red => {
            let need = |own: &Fields| own.error("red needs min and max, in the unit of the queue (packets, or bytes)");
            let min = own.whole("min", 0..=1 << 40)?.ok_or_else(|| need(&own))?;
            let max = own.whole("max", 1..=1 << 40)?.filter(|max| *max > min).ok_or_else(|| need(&own))?;
            let usual = Red::new(min, max);
            Discipline::Red(Red {
                max_probability: own.fraction("max-probability")?.unwrap_or(usual.max_probability),
                weight: own.fraction("weight")?.unwrap_or(usual.weight),
                gentle: own.flag("gentle")?.unwrap_or(usual.gentle),
                ecn: own.flag("ecn")?.unwrap_or(usual.ecn),
                ..usual
            })
        }
    };
    own.finish()?;
    Ok(Some(discipline))
}

/// A list of whole numbers.
fn numbers(f: &mut Fields, name: &'static str) -> Result<Option<Vec<u64>>> {
    let key = f.key(name);
    let Some(v) = f.take(name) else { return Ok(None) };
    let Kind::List(items) = v.kind else { return Err(ScenarioError::new(v.place, key, "must be a list of numbers")) };
    let one = |v: Value| match v.kind {
        Kind::Number(n) if n >= 0.0 && n.fract() == 0.0 => Ok(n as u64),
        _ => Err(ScenarioError::new(v.place, key.clone(), "must be a whole number from 0")),
    };
    items.into_iter().map(one).collect::<Result<_>>().map(Some)
}

/// A list of times.
fn times(f: &mut Fields, name: &'static str) -> Result<Option<Vec<Duration>>> {
    let key = f.key(name);
    let one =
        |(text, place): (String, Place)| units::time(&text).map_err(|e| ScenarioError::new(place, key.clone(), e));
    f.texts(name)?.map(|all| all.into_iter().map(one).collect()).transpose()
}

pub(crate) fn queue(f: &mut Fields) -> Result<Option<QueueSize>> {
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

/// `drop = ["udp", { what = "tcp/443", larger-than = 1000, after = 10 }]` and `reject = [...]`: rejecting rules come first.
pub(crate) fn filters(f: &mut Fields) -> Result<Option<Vec<Filter>>> {
    let mut all = None;
    for (name, make) in [("reject", Filter::reject as fn(Match) -> Filter), ("drop", Filter::drop)] {
        let key = f.key(name);
        let Some(v) = f.take(name) else { continue };
        let all = all.get_or_insert_with(Vec::new);
        let rules = match v.kind {
            Kind::List(items) => items,
            kind => vec![Value { place: v.place, kind }],
        };
        for rule in rules {
            let place = rule.place.clone();
            let (text, larger_than, after) = match rule.kind {
                Kind::Text(text) => (text, 0, 0),
                kind => {
                    let mut own = Fields::of(&key, Value { place: rule.place, kind })?;
                    let text = own.text("what")?.ok_or_else(|| own.error("needs what = \"udp\""))?;
                    let larger = own.whole("larger-than", 0..=65_535)?.unwrap_or(0) as u32;
                    let after = own.whole("after", 0..=1 << 53)?.unwrap_or(0);
                    own.finish()?;
                    (text, larger, after)
                }
            };
            let what = matcher(&text).ok_or_else(|| {
                let known = "any, udp, tcp, icmp, ipv4, ipv6, port/N, udp/N, tcp/N, protocol/N";
                ScenarioError::new(place, key.clone(), format!("{text:?} matches nothing known: {known}"))
            })?;
            all.push(make(what).larger_than(larger_than).after(after));
        }
    }
    Ok(all)
}

fn matcher(text: &str) -> Option<Match> {
    Some(match text.split_once('/') {
        None => match text {
            "any" => Match::Any,
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
