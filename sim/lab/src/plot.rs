//! A small SVG writer: panels of horizontal bars with intervals and bounds.
//!
//! *Invariants*: no text is smaller than [`TEXT`] pixels; colours are those of Okabe and Ito, told apart by colour-blind
//! readers, and every bar is labelled in words as well; rows have places of their own, so nothing overlaps.

use crate::report::number;
use std::fmt::Write as _;

/// Size of the smallest text, in pixels.
pub const TEXT: u32 = 13;
/// Width of a character at most, in pixels, for text of size [`TEXT`].
const CHAR: f64 = 7.8;
const WIDTH: f64 = 860.0;
const ROW: f64 = 24.0;
const GAP: f64 = 26.0;

/// The palette of Okabe and Ito, without yellow, which is hard to see on white.
pub const PALETTE: [&str; 7] = ["#0072B2", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#D55E00", "#000000"];

/// The colour of a series, the same in every drawing.
#[must_use]
pub fn colour(series: &str) -> &'static str {
    match series {
        "neater" => PALETTE[0],
        "neater-fd" => PALETTE[1],
        "libuv" => PALETTE[2],
        "epoll" => PALETTE[3],
        "tokio" | "tokio-rustls" => PALETTE[4],
        "quinn" => PALETTE[5],
        _ => PALETTE[6],
    }
}

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
pub struct Panel {
    /// What is shown.
    pub title: String,
    /// The unit of the axis.
    pub unit: String,
    /// From top to bottom.
    pub rows: Vec<Row>,
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, size: u32, bold: bool, words: &str) {
    let weight = if bold { " font-weight=\"bold\"" } else { "" };
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\"{weight}>{}</text>",
        escape(words)
    );
}

fn line(out: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str) {
    let _ = writeln!(out, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>");
}

/// Where values are, and where the axis has its marks.
struct Scale {
    left: f64,
    width: f64,
    low: f64,
    high: f64,
    step: f64,
}

impl Scale {
    /// A scale from zero (or the least value, if that is less) to the largest.
    fn new(rows: &[Row], left: f64, width: f64) -> Self {
        let ends = |r: &Row| {
            let (low, high) = r.interval.unzip();
            [r.value, low, high, r.bound]
        };
        let all = || rows.iter().flat_map(ends).flatten().filter(|v| v.is_finite());
        let high = all().fold(0.0, f64::max);
        let low = all().fold(0.0, f64::min);
        let span = if high - low > 0.0 { high - low } else { 1.0 };
        let power = 10f64.powf((span / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * power).into_iter().find(|s| span / s <= 6.0).unwrap_or(span);
        Self { left, width, low: (low / step).floor() * step, high: (high / step).ceil().max(1.0) * step, step }
    }

    fn x(&self, v: f64) -> f64 {
        self.left + (v.clamp(self.low, self.high) - self.low) / (self.high - self.low) * self.width
    }

    fn marks(&self) -> impl Iterator<Item = f64> + '_ {
        let n = ((self.high - self.low) / self.step).round() as usize;
        (0..=n).map(|i| self.low + self.step * i as f64)
    }
}

/// The drawing of an experiment.
#[must_use]
pub fn draw(title: &str, note: &str, panels: &[Panel]) -> String {
    let labels = panels.iter().flat_map(|p| &p.rows).map(|r| r.label.chars().count()).max().unwrap_or(0) as f64;
    let left = 16.0 + labels * CHAR + 10.0;
    // To the right of the longest bar there is room for its value.
    let width = (WIDTH - left - 16.0 - 16.0 * CHAR).max(120.0);
    let mut body = String::new();
    text(&mut body, 16.0, 28.0, "start", 18, true, title);
    let mut y = 50.0;
    for part in wrap(note, ((WIDTH - 32.0) / CHAR) as usize) {
        text(&mut body, 16.0, y, "start", TEXT, false, &part);
        y += 18.0;
    }
    y = legend(&mut body, panels, y + 6.0);
    for panel in panels {
        y = draw_panel(&mut body, panel, left, width, y + GAP);
    }
    let height = y + 12.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {WIDTH:.0} {height:.0}\" font-family=\"sans-serif\" fill=\"#000000\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

fn wrap(words: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(l) if l.chars().count() + 1 + word.chars().count() <= width => {
                l.push(' ');
                l.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Draws which colour is which series; returns where it ends.
fn legend(out: &mut String, panels: &[Panel], y: f64) -> f64 {
    let mut series: Vec<&str> = Vec::new();
    for row in panels.iter().flat_map(|p| &p.rows) {
        if !series.contains(&row.series.as_str()) {
            series.push(&row.series);
        }
    }
    let (mut x, mut y) = (16.0, y);
    let mut place = |words: &str, y: &mut f64| {
        let wide = 34.0 + words.chars().count() as f64 * CHAR;
        if x + wide > WIDTH - 16.0 {
            x = 16.0;
            *y += 20.0;
        }
        let at = x;
        x += wide;
        at
    };
    for s in series {
        let at = place(s, &mut y);
        let _ = writeln!(out, "<rect x=\"{at:.1}\" y=\"{y:.1}\" width=\"14\" height=\"14\" fill=\"{}\"/>", colour(s));
        text(out, at + 20.0, y + 12.0, "start", TEXT, false, s);
    }
    let rows = || panels.iter().flat_map(|p| &p.rows);
    if rows().any(|r| r.bound.is_some()) {
        let at = place("bound", &mut y);
        line(out, (at + 7.0, y - 2.0), (at + 7.0, y + 16.0), BOUND);
        text(out, at + 20.0, y + 12.0, "start", TEXT, false, "bound");
    }
    if rows().any(|r| r.interval.is_some()) {
        let at = place("95 % interval", &mut y);
        line(out, (at, y + 7.0), (at + 14.0, y + 7.0), WHISKER);
        text(out, at + 20.0, y + 12.0, "start", TEXT, false, "95 % interval");
    }
    y + 14.0
}

const BOUND: &str = "stroke=\"#000000\" stroke-width=\"2\" stroke-dasharray=\"4 3\"";
const WHISKER: &str = "stroke=\"#000000\" stroke-width=\"1.5\"";

fn draw_panel(out: &mut String, panel: &Panel, left: f64, width: f64, top: f64) -> f64 {
    text(out, 16.0, top + 4.0, "start", 14, true, &format!("{} ({})", panel.title, panel.unit));
    let scale = Scale::new(&panel.rows, left, width);
    let first = top + 16.0;
    let bottom = first + ROW * panel.rows.len() as f64;
    // Marks whose words would touch are left out.
    let mut free = f64::MIN;
    for mark in scale.marks() {
        let (x, words) = (scale.x(mark), number(mark));
        line(out, (x, first), (x, bottom), "stroke=\"#cccccc\" stroke-width=\"1\"");
        let half = words.chars().count() as f64 * CHAR / 2.0;
        if x - half > free {
            text(out, x, bottom + 17.0, "middle", TEXT, false, &words);
            free = x + half + 8.0;
        }
    }
    for (i, row) in panel.rows.iter().enumerate() {
        let y = first + ROW * i as f64;
        text(out, left - 10.0, y + 16.5, "end", TEXT, false, &row.label);
        let Some(value) = row.value else {
            text(out, scale.x(0.0) + 6.0, y + 16.5, "start", TEXT, false, "missing");
            continue;
        };
        let (a, b) = (scale.x(value.min(0.0)), scale.x(value.max(0.0)));
        let _ = writeln!(
            out,
            "<rect x=\"{a:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
            y + 4.0,
            (b - a).max(1.0),
            ROW - 8.0,
            colour(&row.series)
        );
        let mut end = b;
        if let Some((low, high)) = row.interval {
            let (l, h, mid) = (scale.x(low), scale.x(high), y + ROW / 2.0);
            line(out, (l, mid), (h, mid), WHISKER);
            line(out, (l, mid - 4.0), (l, mid + 4.0), WHISKER);
            line(out, (h, mid - 4.0), (h, mid + 4.0), WHISKER);
            end = end.max(h);
        }
        if let Some(bound) = row.bound {
            let x = scale.x(bound);
            line(out, (x, y + 1.0), (x, y + ROW - 1.0), BOUND);
            // The value stands behind the bound if it would cover it.
            if x >= end && x < end + 16.0 * CHAR {
                end = x;
            }
        }
        text(out, end + 8.0, y + 16.5, "start", TEXT, false, &number(value));
    }
    bottom + 22.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, value: f64) -> Row {
        Row {
            label: label.into(),
            series: "libuv".into(),
            value: Some(value),
            interval: None,
            bound: Some(2.0 * value),
        }
    }

    fn drawing() -> String {
        let mut rows = vec![row("libuv <1>", 945.0), row("tokio", 3650.0)];
        rows.push(Row { label: "neater".into(), series: "neater".into(), value: None, interval: None, bound: None });
        rows.push(Row { interval: Some((-10.0, 40.0)), ..row("below zero", 12.0) });
        draw("A1 & more", "a note", &[Panel { title: "t".into(), unit: "instructions".into(), rows }])
    }

    fn attribute(element: &str, name: &str) -> f64 {
        let at = element.find(&format!(" {name}=\"")).expect(name) + name.len() + 3;
        element[at..].split('"').next().and_then(|v| v.parse().ok()).expect("a number")
    }

    #[test]
    fn a_drawing_is_well_formed_and_escapes_what_it_is_given() {
        let svg = drawing();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("A1 &amp; more") && svg.contains("libuv &lt;1&gt;"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(svg.contains("missing") && svg.contains("(instructions)"));
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn text_is_large_enough_and_inside_and_does_not_overlap() {
        let svg = drawing();
        let mut boxes: Vec<(f64, f64, f64, f64)> = Vec::new();
        let height = attribute(svg.lines().next().expect("a line"), "height");
        for t in svg.lines().filter(|l| l.starts_with("<text")) {
            let (x, y, size) = (attribute(t, "x"), attribute(t, "y"), attribute(t, "font-size"));
            assert!(size >= 12.0, "{t}");
            let words = t.split('>').nth(1).and_then(|w| w.split('<').next()).expect("words");
            let wide = words.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").chars().count() as f64
                * size
                * 0.55;
            let left = match () {
                () if t.contains("\"end\"") => x - wide,
                () if t.contains("\"middle\"") => x - wide / 2.0,
                () => x,
            };
            assert!(left >= 0.0 && left + wide <= WIDTH && y <= height, "{t}");
            boxes.push((left, y - size * 0.8, left + wide, y));
        }
        for (i, a) in boxes.iter().enumerate() {
            for b in &boxes[i + 1..] {
                assert!(a.2 <= b.0 || b.2 <= a.0 || a.3 <= b.1 || b.3 <= a.1, "{a:?} {b:?}\n{svg}");
            }
        }
    }

    #[test]
    fn bars_are_as_long_as_their_values_say() {
        let rows = [row("a", 100.0), row("b", 50.0)];
        let scale = Scale::new(&rows, 0.0, 200.0);
        assert_eq!(scale.x(100.0), 2.0 * scale.x(50.0));
        assert!(scale.marks().count() <= 8);
        assert_eq!(scale.x(0.0), 0.0);
    }
}
