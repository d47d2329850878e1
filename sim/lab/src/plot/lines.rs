//! Charts: curves over a parameter with error bars, distributions, and courses over time.

use super::canvas::{Anchor, Canvas, MARGIN, Stroke, TEXT, WIDTH, width_of};
use super::scale::{Scale, Spread};
use super::style::{Look, Marker};

/// Height of the field of a chart, in pixels.
const HEIGHT: f64 = 280.0;
/// Points of different curves at one place stand this far beside each other, in pixels, so that error bars can be read.
const DODGE: f64 = 4.0;
/// A curve of more points has markers at some of them only.
const MARKED: usize = 40;

/// One axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows.
    pub label: String,
    /// In which unit; empty for ratios.
    pub unit: String,
    /// How values are spread.
    pub spread: Spread,
    /// What the error bars of values on it show, for the legend.
    pub bars: &'static str,
}

impl Axis {
    /// An axis from zero.
    #[must_use]
    pub fn linear(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { label: label.into(), unit: unit.into(), spread: Spread::Linear, bars: "min – median – max" }
    }

    /// A logarithmic axis.
    #[must_use]
    pub fn log(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { spread: Spread::Log, ..Self::linear(label, unit) }
    }

    /// A linear axis about the data, which need not contain zero.
    #[must_use]
    pub fn close(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { spread: Spread::Close, ..Self::linear(label, unit) }
    }

    /// The same, for values whose error bars are intervals for the mean.
    #[must_use]
    pub fn of_means(self) -> Self {
        Self { bars: "mean and interval of 95 %", ..self }
    }

    fn words(&self) -> String {
        if self.unit.is_empty() { self.label.clone() } else { format!("{} ({})", self.label, self.unit) }
    }
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The parameter.
    pub x: f64,
    /// The value; `None` interrupts the curve.
    pub y: Option<f64>,
    /// The error bar, from and to.
    pub bar: Option<(f64, f64)>,
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in the order in which they are joined.
    pub points: Vec<Point>,
    /// Whether it goes from point to point in steps, as a distribution does.
    pub steps: bool,
}

impl Curve {
    /// A curve without error bars.
    #[must_use]
    pub fn plain(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = points.into_iter().map(|(x, y)| Point { x, y: Some(y), bar: None }).collect();
        Self { name: name.into(), points, steps: false }
    }

    /// The distribution of samples: for each, the part of all that is not larger.
    #[must_use]
    pub fn distribution(name: impl Into<String>, samples: &[f64]) -> Self {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len() as f64;
        let mut points: Vec<(f64, f64)> = sorted.first().map(|v| (*v, 0.0)).into_iter().collect();
        points.extend(sorted.iter().enumerate().map(|(i, v)| (*v, (i + 1) as f64 / n)));
        Self { steps: true, ..Self::plain(name, points) }
    }
}

/// Curves over one axis.
#[derive(Clone, Debug)]
pub struct Lines {
    /// What is shown.
    pub title: String,
    /// The parameter.
    pub x: Axis,
    /// The values.
    pub y: Axis,
    /// In the order of the legend.
    pub curves: Vec<Curve>,
}

impl Lines {
    fn looks(&self) -> Vec<Look> {
        self.curves.iter().enumerate().map(|(i, c)| Look::of(&c.name, i)).collect()
    }
}

/// Draws the legend in rows below `y`; returns where it ends.
fn legend(out: &mut Canvas, lines: &Lines, y: f64) -> f64 {
    let (mut x, mut y) = (MARGIN, y);
    let mut entry = |out: &mut Canvas, words: &str, draw: &dyn Fn(&mut Canvas, f64, f64)| {
        let wide = 40.0 + width_of(words, TEXT, false) + 18.0;
        if x > MARGIN && x + wide - 18.0 > WIDTH - MARGIN {
            x = MARGIN;
            y += 20.0;
        }
        draw(out, x, y);
        out.words((x + 40.0, y + 4.5), Anchor::Start, words);
        x += wide;
    };
    for (curve, look) in lines.curves.iter().zip(lines.looks()) {
        entry(out, &curve.name, &|out, x, y| {
            out.line((x, y), (x + 34.0, y), Stroke { colour: Some(look.colour), width: 2.0, dash: look.dash });
            mark(out, look, (x + 17.0, y));
        });
    }
    if lines.curves.iter().flat_map(|c| &c.points).any(|p| p.bar.is_some()) {
        entry(out, lines.y.bars, &|out, x, y| whisker(out, x + 17.0, (y - 7.0, y + 7.0), "#000000"));
    }
    y + 12.0
}

fn mark(out: &mut Canvas, look: Look, at: (f64, f64)) {
    if look.marker != Marker::None {
        let crossed = matches!(look.marker, Marker::Plus | Marker::Cross);
        out.shape(&look.marker.path(at), look.colour, look.open && !crossed);
    }
}

fn whisker(out: &mut Canvas, x: f64, (y1, y2): (f64, f64), colour: &str) {
    let colour = (colour != "#000000").then_some(colour);
    let stroke = Stroke { colour, width: 1.3, dash: "" };
    out.line((x, y1), (x, y2), stroke);
    out.line((x - 3.5, y1), (x + 3.5, y1), stroke);
    out.line((x - 3.5, y2), (x + 3.5, y2), stroke);
}

/// Draws a chart below `top`; returns where it ends.
pub(super) fn draw(out: &mut Canvas, lines: &Lines, top: f64) -> f64 {
    out.text((MARGIN, top + 4.0), Anchor::Start, 14.0, true, &lines.title);
    let first = legend(out, lines, top + 24.0);
    out.words((MARGIN, first + 14.0), Anchor::Start, &lines.y.words());
    let field = (first + 24.0, first + 24.0 + HEIGHT);
    let points = || lines.curves.iter().flat_map(|c| &c.points);
    let values = points().flat_map(|p| {
        let (low, high) = p.bar.unzip();
        [p.y, low, high]
    });
    let y = Scale::new(values.flatten(), lines.y.spread, (field.1, field.0), 6.0);
    let labels = y.labels();
    let widest = labels.iter().map(|l| width_of(l, TEXT, false)).fold(0.0, f64::max);
    let (left, right) = (MARGIN + widest + 10.0, WIDTH - MARGIN - 12.0);
    // The outermost points stand inside the field, with their whiskers.
    let x = Scale::new(points().map(|p| p.x), lines.x.spread, (left + 14.0, right - 14.0), 8.0);
    for (m, words) in y.marks().iter().zip(&labels) {
        out.grid((left, y.at(*m)), (right, y.at(*m)));
        out.words((left - 6.0, y.at(*m) + 4.5), Anchor::End, words);
    }
    let mut free = f64::MIN;
    for (m, words) in x.marks().iter().zip(x.labels()) {
        let (px, half) = (x.at(*m), width_of(&words, TEXT, false) / 2.0);
        out.grid((px, field.0), (px, field.1));
        if px - half > free && px + half <= WIDTH {
            out.words((px, field.1 + 18.0), Anchor::Middle, &words);
            free = px + half + 8.0;
        }
    }
    out.line((left, field.1), (right, field.1), Stroke::INK);
    out.line((left, field.0), (left, field.1), Stroke::INK);
    let barred = lines.curves.iter().filter(|c| c.points.iter().any(|p| p.bar.is_some())).count();
    let mut place = 0;
    for (curve, look) in lines.curves.iter().zip(lines.looks()) {
        let mut shift = 0.0;
        if curve.points.iter().any(|p| p.bar.is_some()) {
            shift = (place as f64 - (barred as f64 - 1.0) / 2.0) * DODGE;
            place += 1;
        }
        draw_curve(out, curve, look, shift, (&x, &y));
    }
    out.words(((left + right) / 2.0, field.1 + 38.0), Anchor::Middle, &lines.x.words());
    field.1 + 46.0
}

fn draw_curve(out: &mut Canvas, curve: &Curve, look: Look, shift: f64, (x, y): (&Scale, &Scale)) {
    let stroke = Stroke { colour: Some(look.colour), width: 2.0, dash: look.dash };
    let place = |p: &Point| p.y.filter(|v| y.has(*v) && x.has(p.x)).map(|v| (x.at(p.x) + shift, y.at(v)));
    let mut run: Vec<(f64, f64)> = Vec::new();
    for p in &curve.points {
        match place(p) {
            Some(at) => {
                if let Some(before) = run.last().copied().filter(|_| curve.steps) {
                    run.push((at.0, before.1));
                }
                run.push(at);
            }
            None => out.polyline(&std::mem::take(&mut run), stroke),
        }
    }
    out.polyline(&run, stroke);
    let every = curve.points.len().div_ceil(MARKED).max(1);
    for p in curve.points.iter().step_by(every) {
        let Some(at) = place(p) else { continue };
        if let Some((low, high)) = p.bar.filter(|(l, h)| l.is_finite() && h.is_finite()) {
            whisker(out, at.0, (y.at(low), y.at(high)), look.colour);
        }
        mark(out, look, at);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Drawing, Panel, draw, tests};
    use super::*;

    fn chart(curves: Vec<Curve>) -> String {
        let (x, y) = (Axis::log("round trip", "ms"), Axis::linear("goodput", "Mbit/s"));
        let lines = Lines { title: "10 MB".into(), x, y, curves };
        draw(&Drawing::new("", "B1", "a caption", vec![Panel::Lines(lines)]))
    }

    fn curve(name: &str, values: &[(f64, f64)]) -> Curve {
        let points = values.iter().map(|(x, y)| Point { x: *x, y: Some(*y), bar: Some((y * 0.9, y * 1.1)) }).collect();
        Curve { name: name.into(), points, steps: false }
    }

    #[test]
    fn a_chart_has_axes_with_units_and_a_legend_that_overlaps_nothing() {
        let names =
            ["neater QUIC", "neater QUIC, simulator", "neater TLS", "neater TCP", "nginx+curl HTTP", "link rate"];
        let curves = names.map(|n| curve(n, &[(80.0, 9.0), (200.0, 8.0), (800.0, 5.5)])).to_vec();
        let svg = chart(curves);
        tests::check_text(&svg);
        for words in ["goodput (Mbit/s)", "round trip (ms)", "min – median – max", ">1,000<", ">50<"] {
            assert!(svg.contains(words), "{words}");
        }
        let field_top = svg.lines().filter(|l| l.starts_with("<polyline")).count();
        assert_eq!(field_top, names.len());
    }

    #[test]
    fn a_missing_point_interrupts_the_curve_and_bars_of_several_curves_stand_side_by_side() {
        let mut broken = curve("a", &[(80.0, 9.0), (100.0, 9.0), (200.0, 8.0), (400.0, 8.0), (800.0, 5.5)]);
        broken.points[2].y = None;
        let svg = chart(vec![broken, curve("b", &[(80.0, 9.0), (800.0, 3.0)])]);
        assert_eq!(svg.matches("<polyline").count(), 3, "{svg}");
        let places: Vec<&str> = svg
            .lines()
            .filter(|l| l.starts_with("<polyline"))
            .filter_map(|l| l.split('"').nth(1).and_then(|p| p.split(',').next()))
            .collect();
        assert_ne!(places[0], places[2], "the first points of both curves");
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn a_distribution_rises_in_steps_from_nothing_to_all() {
        let c = Curve::distribution("x", &[3.0, 1.0, 2.0, 2.0]);
        let points: Vec<_> = c.points.iter().map(|p| (p.x, p.y.unwrap_or(f64::NAN))).collect();
        assert_eq!(points, [(1.0, 0.0), (1.0, 0.25), (2.0, 0.5), (2.0, 0.75), (3.0, 1.0)]);
        assert!(Curve::distribution("x", &[]).points.is_empty());
        let svg = chart(vec![c]);
        let line = svg.lines().find(|l| l.starts_with("<polyline")).expect("a line");
        assert_eq!(line.split('"').nth(1).map(|p| p.split(' ').count()), Some(9), "a corner between two points");
    }

    #[test]
    fn nothing_to_draw_is_drawn_as_an_empty_field() {
        let svg = chart(vec![Curve::plain("empty", []), Curve::plain("zero on a log axis", [(0.0, 1.0)])]);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        tests::check_text(&svg);
    }
}
