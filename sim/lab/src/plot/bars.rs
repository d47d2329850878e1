//! Horizontal bars of one unit with intervals and bounds.

use super::canvas::{Anchor, Canvas, MARGIN, Stroke, TEXT, WIDTH, width_of};
use super::scale::{Scale, Spread};
use super::style::Look;
use crate::report::number;

const ROW: f64 = 24.0;

/// One bar.
#[derive(Clone, Debug)]
pub struct Row {
    /// What stands before it.
    pub label: String,
    /// Which series it belongs to, for its colour.
    pub series: String,
    /// Its length; `None` draws the word "missing".
    pub value: Option<f64>,
    /// Its interval.
    pub interval: Option<(f64, f64)>,
    /// The bound it is held against.
    pub bound: Option<f64>,
}

/// Bars of one unit.
#[derive(Clone, Debug)]
pub struct Bars {
    /// What is shown.
    pub title: String,
    /// The unit of the axis.
    pub unit: String,
    /// From top to bottom.
    pub rows: Vec<Row>,
}

/// What the legend says about bars: the series in order, and what the lines mean.
pub(super) fn legend<'a>(bars: &'a Bars, series: &mut Vec<&'a str>) -> (bool, bool) {
    for row in &bars.rows {
        if !series.contains(&row.series.as_str()) {
            series.push(&row.series);
        }
    }
    (bars.rows.iter().any(|r| r.bound.is_some()), bars.rows.iter().any(|r| r.interval.is_some()))
}

/// How wide the labels of the rows are.
pub(super) fn label_width(bars: &Bars) -> f64 {
    bars.rows.iter().map(|r| width_of(&r.label, TEXT, false)).fold(0.0, f64::max)
}

/// Draws the bars below `top`, their labels to the left of `left`; returns where they end.
pub(super) fn draw(out: &mut Canvas, bars: &Bars, series: &[&str], left: f64, top: f64) -> f64 {
    out.text((MARGIN, top + 4.0), Anchor::Start, 14.0, true, &format!("{} ({})", bars.title, bars.unit));
    // To the right of the longest bar there is room for its value.
    let longest = bars.rows.iter().filter_map(|r| r.value).map(|v| width_of(&number(v), TEXT, false));
    let right = (WIDTH - MARGIN - 16.0 - longest.fold(0.0, f64::max)).max(left + 120.0);
    let ends = |r: &Row| {
        let (low, high) = r.interval.unzip();
        [r.value, low, high, r.bound]
    };
    let scale = Scale::new(bars.rows.iter().flat_map(ends).flatten(), Spread::Linear, (left, right), 6.0);
    let first = top + 16.0;
    let bottom = first + ROW * bars.rows.len() as f64;
    // Marks whose words would touch are left out.
    let mut free = f64::MIN;
    for (mark, words) in scale.marks().iter().zip(scale.labels()) {
        let x = scale.at(*mark);
        out.grid((x, first), (x, bottom));
        let half = width_of(&words, TEXT, false) / 2.0;
        if x - half > free {
            out.words((x, bottom + 17.0), Anchor::Middle, &words);
            free = x + half + 8.0;
        }
    }
    for (i, row) in bars.rows.iter().enumerate() {
        let y = first + ROW * i as f64;
        out.words((left - 10.0, y + 16.5), Anchor::End, &row.label);
        let Some(value) = row.value else {
            out.words((scale.at(0.0) + 6.0, y + 16.5), Anchor::Start, "missing");
            continue;
        };
        let (a, b) = (scale.at(value.min(0.0)), scale.at(value.max(0.0)));
        let index = series.iter().position(|s| *s == row.series).unwrap_or(0);
        out.rect((a, y + 4.0), ((b - a).max(1.0), ROW - 8.0), Look::of(&row.series, index).colour);
        let mut end = b;
        if let Some((low, high)) = row.interval {
            let (l, h, mid) = (scale.at(low), scale.at(high), y + ROW / 2.0);
            out.line((l, mid), (h, mid), Stroke::INK);
            out.line((l, mid - 4.0), (l, mid + 4.0), Stroke::INK);
            out.line((h, mid - 4.0), (h, mid + 4.0), Stroke::INK);
            end = end.max(h);
        }
        let words = number(value);
        if let Some(bound) = row.bound {
            let x = scale.at(bound);
            out.line((x, y + 1.0), (x, y + ROW - 1.0), Stroke::BOUND);
            // The value stands behind the bound if it would cover it.
            if x >= end - 4.0 && x < end + 16.0 + width_of(&words, TEXT, false) {
                end = x;
            }
        }
        out.words((end + 8.0, y + 16.5), Anchor::Start, &words);
    }
    bottom + 22.0
}

#[cfg(test)]
mod tests {
    use super::super::{Drawing, Panel, draw, tests};
    use super::*;

    fn row(label: &str, value: f64) -> Row {
        let bound = Some(2.0 * value);
        Row { label: label.into(), series: "libuv".into(), value: Some(value), interval: None, bound }
    }

    #[test]
    fn bars_are_drawn_with_what_is_missing_and_nothing_overlaps() {
        let mut rows = vec![row("libuv <1>", 945.0), row("tokio", 3650.0)];
        rows.push(Row { label: "neater".into(), series: "neater".into(), value: None, interval: None, bound: None });
        rows.push(Row { interval: Some((-10.0, 40.0)), ..row("below zero", 12.0) });
        let panels = vec![Panel::Bars(Bars { title: "t".into(), unit: "instructions".into(), rows })];
        let svg = draw(&Drawing::new("", "A1 & more", "a note", panels));
        assert!(svg.contains("A1 &amp; more") && svg.contains("libuv &lt;1&gt;"));
        assert!(svg.contains("missing") && svg.contains("(instructions)") && !svg.contains("NaN"));
        tests::check_text(&svg);
    }

    #[test]
    fn bars_are_as_long_as_their_values_say() {
        let panels = |values: &[f64]| {
            let rows = values.iter().map(|v| Row { bound: None, ..row("a", *v) }).collect();
            vec![Panel::Bars(Bars { title: "t".into(), unit: "1".into(), rows })]
        };
        let svg = draw(&Drawing::new("", "t", "", panels(&[100.0, 50.0])));
        let widths: Vec<f64> = svg
            .lines()
            .filter(|l| l.starts_with("<rect x") && l.contains("height=\"16.0\""))
            .map(|l| tests::attribute(l, "width"))
            .collect();
        assert_eq!(widths.len(), 2, "{svg}");
        assert!((widths[0] - 2.0 * widths[1]).abs() < 0.2, "{widths:?}");
    }
}
