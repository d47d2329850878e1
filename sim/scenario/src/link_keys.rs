//! The keys of a link: everything that `neater_link::LinkConfig` can say, with units.

use crate::builder::Pair;
use crate::document::Kind;
use crate::error::ScenarioError;
use crate::fields::Fields;
use crate::link_models::{discipline, filters, jitter, loss, overtaking, queue, rate};
use crate::model::Direction;
use crate::units::QueueSize;
use core::time::Duration;
use neater_link::{Discipline, Filter, Jitter, LinkConfig, Loss, Overtaking, QueueLimit, Rate, TooBig};

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
    jitter: Option<Jitter>,
    jitter_correlation: Option<f64>,
    reorder: Option<bool>,
    overtaking: Option<Overtaking>,
    loss: Option<Loss>,
    duplicate: Option<f64>,
    corrupt: Option<f64>,
    queue: Option<QueueSize>,
    discipline: Option<Discipline>,
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
            jitter: jitter(f)?,
            jitter_correlation: f.number("jitter-correlation", 0.0..=0.999_999)?,
            reorder: f.flag("reorder")?,
            overtaking: overtaking(f)?,
            loss: loss(f)?,
            duplicate: f.fraction("duplicate")?,
            corrupt: f.fraction("corrupt")?,
            queue: queue(f)?,
            discipline: discipline(f)?,
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
        if let Some(v) = &self.jitter {
            c.jitter = v.clone();
        }
        if let Some(v) = self.reorder {
            c.reorder = v;
        }
        if let Some(v) = &self.loss {
            c.loss = v.clone();
        }
        if let Some(v) = self.jitter_correlation {
            c.jitter_correlation = v;
        }
        if let Some(v) = self.overtaking {
            c.overtaking = Some(v).filter(|o| o.probability > 0.0);
        }
        if let Some(v) = self.duplicate {
            c.duplicate = v;
        }
        if let Some(v) = self.corrupt {
            c.corrupt = v;
        }
        if let Some(v) = self.discipline {
            c.discipline = v;
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
