//! F1: mobile broadband. The score tables of the founding document as shipped, and what choosing by them is worth where
//! metadata say more or less of the rate.
//!
//! The scores come from the policy manager with the ready-made policies; table 3 stands here a second time, as thresholds,
//! and knows nothing of them.

use super::{Lab, Outcome};
use crate::measure::stats::{bootstrap, median, quantile};
use crate::measure::{MeasureError, Result};
use crate::plot::Row;
use crate::report::record::Beside;
use crate::report::{Bound, Figure};
use neater_base::{Rng, WallTime};
use neater_policy::manager::{Limits, Manager, Node, Requests, add_ready};
use serde_json::{Value, json};
use std::time::Duration;

const NOW: WallTime = WallTime(Duration::from_secs(1_800_000_000));
/// Decisions of a trace: half an hour, one every ten seconds.
const STEPS: usize = 180;
/// How much of a modem's state is left after a step: it forgets half of it in 65 s.
const MEMORY: f64 = 0.9;
/// Mean and deviation of the logarithm of the rate: a median of 10 Mbit/s, two thirds within a factor of 2.2.
const RATE: (f64, f64) = (16.118, 0.8);
/// Mean and deviation of the logarithm of the round trip, which falls where the rate rises: a median of 50 ms.
const RTT: (f64, f64) = (-2.996, 0.4);
/// How far the round trip follows the rate.
const RTT_FOLLOWS: f64 = 0.7;
const SOURCE: &str = "NEAT, Final Version of Use Cases, 2018, table 7";

/// What a modem says of itself (table 2).
#[derive(Clone, Copy, Debug)]
struct Modem {
    quality: i64,
    mode: &'static str,
    frequency: i64,
    rsrp: i64,
    rsrq: i64,
    rssi: i64,
}

impl Modem {
    fn node(&self, name: &str) -> Result<Node> {
        let fields: Value = json!({
            "interface": {"value": name, "precedence": 2}, "quality_indicator": {"value": self.quality},
            "mode": {"value": self.mode}, "frequency": {"value": self.frequency}, "rsrp": {"value": self.rsrp},
            "rsrq": {"value": self.rsrq}, "rssi": {"value": self.rssi},
        });
        let node = json!({"uid": name, "root": true, "expire": -1, "properties": fields});
        Node::from_json(node, "", "", NOW).map(|(node, _)| node).map_err(|e| other(&e.to_string()))
    }

    /// Table 3, by thresholds.
    fn table_3(&self) -> i64 {
        let step =
            |x: i64, low: i64, high: i64, points: [i64; 3]| points[usize::from(x >= low) + usize::from(x >= high)];
        let frequency = match self.frequency {
            1800 => 1,
            800 => 3,
            _ => 7,
        };
        let (mode, radio) = match self.mode {
            "4G" => (20, step(self.rsrp, -111, -84, [0, 3, 8]) + step(self.rsrq, -10, -5, [0, 3, 8])),
            "3G" => (10, step(self.rssi, -94, -69, [0, 5, 15])),
            _ => (1, step(self.rssi, -94, -69, [0, 5, 15])),
        };
        step(self.quality, 1, 2, [0, 5, 30]) + frequency + mode + radio
    }

    /// A 4G modem whose metadata are as good as `m`, a standard normal number, says. All of the signal fields follow it;
    /// mode and frequency are the same for both modems, so that they decide nothing.
    fn from_signal(m: f64) -> Self {
        // RSRP -100 dBm and RSRQ -9 dB in the middle, which is ordinary; both move as far as the table's steps.
        let clamped = |x: f64, low: f64, high: f64| x.clamp(low, high).round() as i64;
        let quality = i64::from(m > -0.5) + i64::from(m > 0.5);
        let (rsrp, rsrq) = (clamped(-98.0 + 12.0 * m, -140.0, 0.0), clamped(-8.0 + 3.0 * m, -20.0, 0.0));
        Self { quality, mode: "4G", frequency: 800, rsrp, rsrq, rssi: -70 }
    }
}

fn other(what: &str) -> MeasureError {
    MeasureError::from(std::io::Error::other(what.to_owned()))
}

/// The manager with the ready-made policies, and what it says of modems.
struct Scorer {
    manager: Manager,
    request: Requests,
}

impl Scorer {
    fn new() -> Result<Self> {
        let mut manager = Manager::new(Limits::default());
        let report = add_ready(&mut manager);
        if let Some(fault) = report.faults.first() {
            return Err(other(&fault.to_string()));
        }
        let request = Requests::from_text(r#"[{"transport": {"value": "TCP"}}]"#).map_err(|e| other(&e.to_string()))?;
        Ok(Self { manager, request })
    }

    fn tell(&mut self, name: &str, modem: &Modem) -> Result<()> {
        self.manager.insert_node(modem.node(name)?, NOW);
        Ok(())
    }

    /// The interfaces in rank order, with their points.
    fn ranked(&mut self) -> Result<Vec<(String, f64)>> {
        let decision = self.manager.decide(&self.request, NOW).map_err(|e| other(&e.to_string()))?;
        let of = |i: usize| {
            let name = decision.get(i, "interface")?.value.to_string().trim_matches('"').to_owned();
            Some((name, decision.score(i)?.evaluated))
        };
        Ok((0..decision.len()).filter_map(of).collect())
    }

    fn points(&mut self, modem: &Modem) -> Result<f64> {
        self.tell("wwan0", modem)?;
        let ranked = self.ranked()?;
        let found = ranked.iter().find(|(name, _)| name == "wwan0");
        found.map(|(_, points)| *points).ok_or_else(|| other("no candidate uses the modem"))
    }
}

/// A standard normal number (Box and Muller).
fn normal(rng: &mut Rng) -> f64 {
    let uniform = |rng: &mut Rng| (rng.below(1 << 52) as f64 + 0.5) / (1u64 << 52) as f64;
    let (a, b) = (uniform(rng), uniform(rng));
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

/// A standard normal state that wanders.
struct Wander(f64);

impl Wander {
    fn new(rng: &mut Rng) -> Self {
        Self(normal(rng))
    }

    fn step(&mut self, rng: &mut Rng) -> f64 {
        self.0 = MEMORY * self.0 + (1.0 - MEMORY * MEMORY).sqrt() * normal(rng);
        self.0
    }
}

/// Gains in percent of the choice over a fixed modem, and what the score really knew of the rate.
struct Gains {
    rate: f64,
    rtt: f64,
    scores: Vec<f64>,
    rates: Vec<f64>,
}

/// One trace of two modems.
fn trace(scorer: &mut Scorer, correlation: f64, rng: &mut Rng) -> Result<Gains> {
    let mut states: [(Wander, Wander, Wander); 2] =
        std::array::from_fn(|_| (Wander::new(rng), Wander::new(rng), Wander::new(rng)));
    let (mut rate_sums, mut rtt_sums) = ([0.0; 2], [0.0; 2]);
    let (mut chosen_rate, mut chosen_rtt) = (0.0, 0.0);
    let (mut scores, mut rates) = (Vec::new(), Vec::new());
    let mut current = 0;
    for _ in 0..STEPS {
        let mut now = [(0.0, 0.0); 2];
        for (i, (rate, noise, rtt)) in states.iter_mut().enumerate() {
            let (z, w, v) = (rate.step(rng), noise.step(rng), rtt.step(rng));
            let follows = -RTT_FOLLOWS * z + (1.0 - RTT_FOLLOWS * RTT_FOLLOWS).sqrt() * v;
            now[i] = ((RATE.0 + RATE.1 * z).exp(), (RTT.0 + RTT.1 * follows).exp());
            let said = correlation * z + (1.0 - correlation * correlation).sqrt() * w;
            scorer.tell(["wwan0", "wwan1"][i], &Modem::from_signal(said))?;
            rates.push(z);
        }
        let ranked = scorer.ranked()?;
        let points = |i: usize| {
            let found = ranked.iter().find(|(name, _)| name == ["wwan0", "wwan1"][i]);
            found.map_or(f64::NEG_INFINITY, |(_, points)| *points)
        };
        scores.extend([points(0), points(1)]);
        // Equals are no reason to change.
        if points(1 - current) > points(current) {
            current = 1 - current;
        }
        chosen_rate += now[current].0;
        chosen_rtt += now[current].1;
        for i in 0..2 {
            rate_sums[i] += now[i].0;
            rtt_sums[i] += now[i].1;
        }
    }
    // Over the mean of both, which is what a fixed choice has on average. The mean of the two ratios would be a gain even for
    // whoever chooses blindly: a half of 1/a and 1/b is more than one over a half of a and b.
    let over = |sums: [f64; 2], chosen: f64| 100.0 * (chosen / f64::midpoint(sums[0], sums[1]) - 1.0);
    // A shorter round trip is the gain.
    Ok(Gains { rate: over(rate_sums, chosen_rate), rtt: -over(rtt_sums, chosen_rtt), scores, rates })
}

/// Pearson's correlation.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        ab += (x - ma) * (y - mb);
        aa += (x - ma).powi(2);
        bb += (y - mb).powi(2);
    }
    ab / (aa * bb).sqrt()
}

fn scores(lab: &Lab, out: &mut Outcome) -> Result<()> {
    let mut scorer = Scorer::new()?;
    let example = Modem { quality: 2, mode: "4G", frequency: 800, rsrp: -87, rsrq: -4, rssi: -60 };
    let points = scorer.points(&example)?;
    let figure = Figure::new("F1", "score", "seed_example", "points").value(points, 1);
    // Exactly 64: what is more is as wrong as what is less.
    let figure = if points > 64.0 { figure.judge(Bound::AtMost(64.0)) } else { figure.judge(Bound::AtLeast(64.0)) };
    out.figures.push(figure.with("table_3", example.table_3()).published("64"));
    let (mut rng, mut agreeing, mut seen) = (lab.rng(1), 0, std::collections::BTreeSet::new());
    for _ in 0..20 {
        let mut pick = |from: i64, to: i64| from + rng.below((to - from + 1) as u64) as i64;
        let (quality, mode) = (pick(0, 2), ["2G", "3G", "4G"][pick(0, 2) as usize]);
        let frequency = [800, 1800, 2600][pick(0, 2) as usize];
        let modem = Modem { quality, mode, frequency, rsrp: pick(-140, 0), rsrq: pick(-20, 0), rssi: pick(-128, 0) };
        let (got, expected) = (scorer.points(&modem)?, modem.table_3());
        agreeing += u32::from(got == expected as f64);
        if got != expected as f64 {
            out.remarks.push(format!("{modem:?} has {got} points and should have {expected}"));
        }
        seen.insert(expected);
    }
    let figure = Figure::new("F1", "agreeing_modems", "table_3", "1").value(f64::from(agreeing) / 20.0, 20);
    out.figures.push(figure.judge(Bound::AtLeast(1.0)).with("different_scores", seen.len() as u64));
    Ok(())
}

pub(super) fn run(lab: &Lab) -> Result<Outcome> {
    let mut out = Outcome::default();
    scores(lab, &mut out)?;
    let runs = lab.seeds.unwrap_or(if lab.quick { 20 } else { 200 });
    let mut rows: [Vec<Row>; 2] = Default::default();
    let mut ours = Vec::new();
    for (at, rho) in [0.0, 0.3, 0.6, 0.9].into_iter().enumerate() {
        (lab.progress)(&format!("{runs} traces, correlation {rho}"));
        let (mut rng, mut scorer) = (lab.rng(10 + at as u64), Scorer::new()?);
        let variant = format!("correlation-{rho}");
        let (mut gains, mut scores, mut rates): ([Vec<f64>; 2], _, _) = (Default::default(), Vec::new(), Vec::new());
        for run in 0..runs {
            let got = trace(&mut scorer, rho, &mut rng)?;
            out.sample("rate_gain", "scores of table 3", &variant, run, got.rate);
            out.sample("rtt_gain", "scores of table 3", &variant, run, got.rtt);
            gains[0].push(got.rate);
            gains[1].push(got.rtt);
            scores.extend(got.scores);
            rates.extend(got.rates);
        }
        let known = correlation(&scores, &rates);
        for (i, name) in ["rate_gain", "rtt_gain"].into_iter().enumerate() {
            let values = &gains[i];
            let mean = |x: &[f64], _: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
            let figure = Figure::new("F1", name, &variant, "%");
            let figure = match bootstrap(values, values, &mut rng, mean) {
                Some(e) => figure.estimate(e, runs),
                None => figure.value(median(values), runs),
            };
            // Nothing can be gained by what says nothing, and nothing is lost by it either.
            let figure = match figure.ci_high.is_some_and(|high| high < 0.0) {
                // What says nearly everything must be worth something.
                _ if rho >= 0.9 => figure.judge(Bound::LowAtLeast(0.0)),
                _ if rho != 0.0 => figure,
                true => figure.judge(Bound::AtLeast(0.0)),
                false => figure.judge(Bound::LowAtMost(0.0)),
            };
            let figure = figure.with("least", quantile(values, 0.0)).with("most", quantile(values, 1.0));
            let figure = figure.with("tenth", quantile(values, 0.1)).with("ninth", quantile(values, 0.9));
            let figure = figure.with("correlation_of_score", known);
            let interval = Some((quantile(values, 0.1), quantile(values, 0.9)));
            let label = format!("correlation {rho}");
            rows[i].push(Row { label, series: "scores of table 3".into(), value: figure.value, interval, bound: None });
            ours.push((i, rho, figure.value.unwrap_or(f64::NAN), quantile(values, 0.1), quantile(values, 0.9)));
            out.figures.push(figure);
        }
    }
    let [rate, rtt] = rows;
    out.bars("Rate gained over a fixed modem (mean; a tenth of the traces lies on each side of the line)", "%", rate);
    out.bars("Round trip gained, likewise", "%", rtt);
    beside(&mut out, &ours);
    out.runs = Some(runs);
    Ok(out)
}

/// Table 7, its negative rows among them, and what correlation they would speak for here.
fn beside(out: &mut Outcome, ours: &[(usize, f64, f64, f64, f64)]) {
    let of = |which: usize| {
        let all = ours.iter().filter(|(i, ..)| *i == which);
        let text = all.map(|(_, rho, mean, low, high)| format!("{rho}: {mean:.1} ({low:.1} to {high:.1})"));
        text.collect::<Vec<_>>().join(", ")
    };
    let row = |what: &str, published: &str, ours: String| Beside {
        what: what.into(),
        published: published.into(),
        ours,
        source: SOURCE.into(),
    };
    let rate = "policy 1: 21.7, 38.7; policy 2: 4.1, 1.8, 8.0, 9.9, 4.6, 46.7, -0.2; policy 3: 11.0, 8.9, 7.7, -4.3, -2.0, 3.7";
    let rtt = "policy 1: 5.7, 11.5; policy 2: -10.4, 17.1, 18.9, 1.3, 20.6, 19.9, 15.1; policy 3: -4.2, -10.6, 11.8, -11.4, 23.3, 23.2";
    out.beside = vec![
        row("gain in throughput, % (ours by correlation, mean and the middle 80 %)", rate, of(0)),
        row("gain in round trip, % (likewise)", rtt, of(1)),
        row(
            "runs with a loss: throughput 3 of 15, round trip 4 of 15",
            "-0.2, -4.3, -2.0; -10.4, -4.2, -10.6, -11.4",
            "single traces lose where metadata say little: see the lower ends above".into(),
        ),
    ];
}
