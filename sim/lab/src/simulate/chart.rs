//! What a sweep came to, as a drawing: curves over a parameter that is a number, else bars, with intervals of 95 %.

use super::sweep::{Mean, Row, Sweep, are_alike, mean_of};
use crate::plot::{self, Bars, Curve, Drawing, Lines, Panel, Point};
use std::collections::BTreeSet;

/// Curves of one panel: there are no more colours. The caption says what is left out.
const CURVES: usize = 8;
/// Bars of one panel.
const BARS: usize = 40;

/// What is drawn: a title, a unit, and where it is in a row.
type Metric = (&'static str, &'static str, fn(&Row) -> Option<f64>);

/// In the order of the table that is printed.
const METRICS: [Metric; 5] = [
    ("Goodput", "Mbit/s", |r| Some(r.goodput_mbit)),
    ("Mean round-trip time", "ms", |r| r.rtt_ms),
    ("Datagrams lost", "%", |r| r.loss.map(|l| l * 100.0)),
    ("Segments sent again", "per run", |r| r.retransmits.map(|n| n as f64)),
    ("Mean time of an object", "ms", |r| r.object_ms),
];

/// The number and the unit of a value like `10 Mbit/s`.
fn quantity(value: &str) -> Option<(f64, &str)> {
    let end = value.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(value.len());
    let number: f64 = value[..end].parse().ok()?;
    Some((number, value[end..].trim()))
}

/// The axis that curves run along: the first of several numbers of one unit. Its place, its numbers, and the unit.
fn numbers(sweep: &Sweep) -> Option<(usize, Vec<f64>, String)> {
    sweep.axes.iter().enumerate().find_map(|(i, axis)| {
        let all: Vec<(f64, &str)> = axis.values.iter().map(|v| quantity(v)).collect::<Option<_>>()?;
        let unit = all.first()?.1;
        let distinct: BTreeSet<u64> = all.iter().map(|(n, _)| n.to_bits()).collect();
        let usable = all.len() > 1 && distinct.len() == all.len() && all.iter().all(|(_, u)| *u == unit);
        usable.then(|| (i, all.iter().map(|(n, _)| *n).collect(), unit.to_owned()))
    })
}

/// The mean over the seeds.
fn at(rows: &[Row], point: &[String], traffic: &str, pick: fn(&Row) -> Option<f64>) -> Option<Mean> {
    let own = rows.iter().filter(|r| r.point == point && r.traffic == traffic);
    mean_of(&own.collect::<Vec<_>>(), pick)
}

fn bar(m: &Mean) -> Option<(f64, f64)> {
    m.half.map(|h| (m.mean - h, m.mean + h))
}

/// The drawing of a sweep that has been run.
#[must_use]
pub fn drawing(sweep: &Sweep, rows: &[Row], name: &str) -> Drawing {
    let mut seen = BTreeSet::new();
    let traffic: Vec<&str> = rows.iter().map(|r| r.traffic.as_str()).filter(|t| seen.insert(*t)).collect();
    let (panels, left_out) = match numbers(sweep) {
        Some((along, values, unit)) => curves(sweep, rows, &traffic, (along, &values, &unit)),
        None => bars(sweep, rows, &traffic),
    };
    let mut caption = match sweep.seeds {
        1 => format!("One run at each point, seed {}: no intervals.", sweep.seed),
        n => format!(
            "Means of {n} runs at each point (seeds {} to {}) with their intervals of 95 % by Student's t.",
            sweep.seed,
            sweep.seed + u64::from(n) - 1
        ),
    };
    let points = sweep.points();
    let alike = points.iter().filter(|p| are_alike(rows.iter().filter(|r| r.point == **p))).count();
    if alike > 0 {
        caption += &format!(
            " At {alike} of {} points all runs are alike, for nothing in them is random: no intervals.",
            points.len()
        );
    }
    if !sweep.set.is_empty() {
        let set: Vec<String> = sweep.set.iter().map(|(k, v)| format!("{k} = {v}")).collect();
        caption += &format!(" With {}.", set.join(", "));
    }
    if left_out > 0 {
        caption += &format!(" {left_out} more are in runs.csv.");
    }
    Drawing::new("", format!("{name}: a sweep"), caption, panels)
}

/// Curves over the axis `along`, one for each traffic at each combination of the others; and how many there was no room for.
fn curves(
    sweep: &Sweep,
    rows: &[Row],
    traffic: &[&str],
    (along, values, unit): (usize, &[f64], &str),
) -> (Vec<Panel>, usize) {
    let begin = |p: &Vec<String>| p[along] == sweep.axes[along].values[0];
    let lines: Vec<(Vec<String>, &str)> = sweep
        .points()
        .into_iter()
        .filter(begin)
        .flat_map(|p| traffic.iter().map(move |t| (p.clone(), *t)).collect::<Vec<_>>())
        .collect();
    let left_out = lines.len().saturating_sub(CURVES);
    let axis = &sweep.axes[along].key;
    let wide = values.iter().copied().fold(f64::INFINITY, f64::min);
    let wide = wide > 0.0 && values.iter().copied().fold(0.0, f64::max) / wide > 30.0;
    let x = if wide { plot::Axis::log(axis, unit) } else { plot::Axis::close(axis, unit) };
    let panel = |(title, of, pick): &Metric| {
        let curve = |(point, t): &(Vec<String>, &str)| {
            let others = sweep.axes.iter().zip(point).enumerate().filter(|(i, _)| *i != along);
            let words: Vec<String> = others.map(|(_, (a, v))| format!("{} {v}", a.key)).collect();
            let mut points: Vec<Point> = Vec::new();
            for (value, x) in sweep.axes[along].values.iter().zip(values) {
                let here: Vec<String> =
                    point.iter().enumerate().map(|(i, p)| if i == along { value } else { p }.clone()).collect();
                let m = at(rows, &here, t, *pick);
                points.push(Point { x: *x, y: m.map(|m| m.mean), bar: m.as_ref().and_then(bar) });
            }
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            let name = if words.is_empty() { (*t).to_owned() } else { format!("{t} at {}", words.join(" and ")) };
            Curve { name, points, steps: false }
        };
        let curves: Vec<Curve> = lines.iter().take(CURVES).map(curve).collect();
        // A traffic of which this is not known keeps its colour: it has the same in all panels.
        let known = curves.iter().flat_map(|c| &c.points).any(|p| p.y.is_some());
        let y = plot::Axis::linear(title.to_lowercase(), *of).of_means();
        known.then(|| Panel::Lines(Lines { title: format!("{title} over {axis}"), x: x.clone(), y, curves }))
    };
    (METRICS.iter().filter_map(panel).collect(), left_out)
}

/// Bars, one for each traffic at each point; and how many there was no room for.
fn bars(sweep: &Sweep, rows: &[Row], traffic: &[&str]) -> (Vec<Panel>, usize) {
    let points = sweep.points();
    let all: Vec<(&Vec<String>, &str)> = points.iter().flat_map(|p| traffic.iter().map(move |t| (p, *t))).collect();
    let panel = |(title, unit, pick): &Metric| {
        let row = |(point, t): &(&Vec<String>, &str)| {
            let m = at(rows, point, t, *pick)?;
            let label = if point.is_empty() { (*t).to_owned() } else { format!("{t}, {}", point.join(", ")) };
            let (value, interval) = (Some(m.mean), bar(&m));
            Some(plot::Row { label, series: (*t).to_owned(), value, interval, bound: None })
        };
        let rows: Vec<plot::Row> = all.iter().take(BARS).filter_map(row).collect();
        (!rows.is_empty()).then(|| Panel::Bars(Bars { title: (*title).to_owned(), unit: (*unit).to_owned(), rows }))
    };
    (METRICS.iter().filter_map(panel).collect(), all.len().saturating_sub(BARS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::sweep::Axis;
    use crate::source::Source;

    fn row(point: &[&str], seed: u64, traffic: &str, goodput: f64) -> Row {
        Row {
            point: point.iter().map(|s| (*s).to_owned()).collect(),
            seed,
            traffic: traffic.to_owned(),
            goodput_mbit: goodput,
            rtt_ms: None,
            loss: None,
            retransmits: Some(3),
            object_ms: None,
            failures: 0,
            digest: 0,
        }
    }

    fn sweep(axes: &[(&str, &[&str])]) -> Sweep {
        let axis = |(key, values): &(&str, &[&str])| Axis {
            key: (*key).to_owned(),
            values: values.iter().map(|v| (*v).to_owned()).collect(),
        };
        let axes = axes.iter().map(axis).collect();
        Sweep { source: Source::from_text(""), set: Vec::new(), axes, seed: 1, seeds: 2, jobs: 1 }
    }

    #[test]
    fn curves_run_along_the_first_parameter_that_is_a_number() {
        let s = sweep(&[("over", &["quic", "sctp"]), ("rtt", &["100 ms", "20 ms"])]);
        let mut rows = Vec::new();
        for (over, base) in [("quic", 1.0), ("sctp", 2.0)] {
            for (rtt, more) in [("100 ms", 0.5), ("20 ms", 0.0)] {
                rows.push(row(&[over, rtt], 1, "program", base + more - 0.1));
                rows.push(row(&[over, rtt], 2, "program", base + more + 0.1));
            }
        }
        let d = drawing(&s, &rows, "x");
        let [Panel::Lines(goodput), Panel::Lines(again)] = &d.panels[..] else { panic!("{d:?}") };
        assert_eq!((goodput.x.label.as_str(), goodput.x.unit.as_str(), goodput.curves.len()), ("rtt", "ms", 2));
        assert_eq!(goodput.curves[1].name, "program at over sctp");
        let got: Vec<(f64, f64)> = goodput.curves[1].points.iter().map(|p| (p.x, p.y.unwrap())).collect();
        assert_eq!(got, [(20.0, 2.0), (100.0, 2.5)], "in the order of the axis");
        let (low, high) = goodput.curves[0].points[0].bar.unwrap();
        assert!((high - low - 2.0 * 12.706 * 0.1).abs() < 1e-9, "Student's t with one degree of freedom");
        assert_eq!(again.title, "Segments sent again over rtt");
        assert!(d.caption.contains("seeds 1 to 2"), "{}", d.caption);
        let svg = plot::draw(&d);
        assert!(svg.contains("rtt (ms)") && svg.contains("mean and interval of 95 %"));
        // Runs that are all alike say nothing of chance.
        rows.iter_mut().for_each(|r| r.goodput_mbit = 7.0);
        let d = drawing(&s, &rows, "x");
        let Panel::Lines(goodput) = &d.panels[0] else { panic!("{d:?}") };
        assert!(goodput.curves.iter().flat_map(|c| &c.points).all(|p| p.bar.is_none()));
        assert!(d.caption.contains("At 4 of 4 points all runs are alike"), "{}", d.caption);
    }

    #[test]
    fn what_is_no_number_has_bars_and_what_has_no_room_is_counted() {
        let values: Vec<String> = (0..50).map(|i| format!("v{i}")).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let s = sweep(&[("queue", &values)]);
        let rows: Vec<Row> = values.iter().map(|v| row(&[v], 1, "web", 1.0)).collect();
        let d = drawing(&s, &rows, "x");
        let Panel::Bars(goodput) = &d.panels[0] else { panic!("{d:?}") };
        assert_eq!((goodput.rows.len(), goodput.rows[0].label.as_str()), (BARS, "web, v0"));
        assert!(d.caption.ends_with("10 more are in runs.csv."), "{}", d.caption);
        assert!(numbers(&sweep(&[("rate", &["1 Mbit/s", "500 kbit/s"])])).is_none(), "two units");
        assert!(numbers(&sweep(&[("rate", &["1 Mbit/s"])])).is_none(), "one point");
    }
}
