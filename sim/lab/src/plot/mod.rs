//! Drawings as SVG and PNG: bars with bounds ([`Bars`]), boxes with what became of something ([`Grid`]), curves over a parameter with
//! error bars, distributions and courses over time ([`Lines`]).
//!
//! *Invariants*: a drawing is a function of its data; legends stand outside the field, so they never cover data; series are
//! told apart by colour, marker and dashes ([`style`]); no text is smaller than [`TEXT`], and none overlaps another.

mod bars;
mod canvas;
mod grid;
mod lines;
mod png;
mod scale;
pub mod style;

pub use bars::{Bars, Row};
pub use canvas::{TEXT, WIDTH, escape, width_of};
pub use grid::{Box3, Fill, Grid};
pub use lines::{Axis, Curve, Lines, Point};
pub use png::{PngError, png};
pub use scale::Spread;

use canvas::{Anchor, Canvas, MARGIN, Stroke};
use style::Look;

/// Between panels.
const GAP: f64 = 26.0;

/// One part of a drawing.
#[derive(Clone, Debug)]
pub enum Panel {
    /// Bars.
    Bars(Bars),
    /// Curves.
    Lines(Lines),
    /// Boxes.
    Grid(Grid),
}

/// A drawing: panels below each other under a title and a caption.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// What tells it from other drawings of the experiment, in the name of its file; empty for the main one.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// What a reader must know.
    pub caption: String,
    /// From top to bottom.
    pub panels: Vec<Panel>,
}

impl Drawing {
    /// A drawing.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        title: impl Into<String>,
        caption: impl Into<String>,
        panels: Vec<Panel>,
    ) -> Self {
        Self { name: name.into(), title: title.into(), caption: caption.into(), panels }
    }
}

/// The SVG of a drawing.
#[must_use]
pub fn draw(drawing: &Drawing) -> String {
    let mut out = Canvas::default();
    out.text((MARGIN, 28.0), Anchor::Start, 17.0, true, &drawing.title);
    let mut y = 50.0;
    for part in canvas::wrap(&drawing.caption, WIDTH - 2.0 * MARGIN) {
        out.words((MARGIN, y), Anchor::Start, &part);
        y += 18.0;
    }
    let bars = || drawing.panels.iter().filter_map(|p| if let Panel::Bars(b) = p { Some(b) } else { None });
    let mut series = Vec::new();
    let (mut bounds, mut intervals) = (false, false);
    for b in bars() {
        let (bound, interval) = bars::legend(b, &mut series);
        (bounds, intervals) = (bounds | bound, intervals | interval);
    }
    y = legend(&mut out, &series, bounds, intervals, y + 6.0);
    let left = MARGIN + bars().map(bars::label_width).fold(0.0, f64::max) + 10.0;
    for panel in &drawing.panels {
        y = match panel {
            Panel::Bars(b) => bars::draw(&mut out, b, &series, left, y + GAP),
            Panel::Lines(l) => lines::draw(&mut out, l, y + GAP),
            Panel::Grid(g) => grid::draw(&mut out, g, y + GAP),
        };
    }
    out.finish(&drawing.title, y + 12.0)
}

/// Draws which colour is which series of bars; returns where it ends.
fn legend(out: &mut Canvas, series: &[&str], bounds: bool, intervals: bool, y: f64) -> f64 {
    if series.is_empty() {
        return y - 12.0;
    }
    let (mut x, mut y) = (MARGIN, y);
    let mut place = |words: &str| {
        let wide = 38.0 + width_of(words, TEXT, false);
        if x > MARGIN && x + wide > WIDTH - MARGIN {
            x = MARGIN;
            y += 20.0;
        }
        let at = x;
        x += wide;
        (at, y)
    };
    for (i, s) in series.iter().enumerate() {
        let (at, y) = place(s);
        out.rect((at, y), (14.0, 14.0), Look::of(s, i).colour);
        out.words((at + 20.0, y + 12.0), Anchor::Start, s);
    }
    if bounds {
        let (at, y) = place("bound");
        out.line((at + 7.0, y - 2.0), (at + 7.0, y + 16.0), Stroke::BOUND);
        out.words((at + 20.0, y + 12.0), Anchor::Start, "bound");
    }
    if intervals {
        let (at, y) = place("95 % interval");
        out.line((at, y + 7.0), (at + 14.0, y + 7.0), Stroke::INK);
        out.words((at + 20.0, y + 12.0), Anchor::Start, "95 % interval");
    }
    y + 14.0
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn attribute(element: &str, name: &str) -> f64 {
        let at = element.find(&format!(" {name}=\"")).expect(name) + name.len() + 3;
        element[at..].split('"').next().and_then(|v| v.parse().ok()).expect("a number")
    }

    /// Checks that text is large enough, inside the drawing, and apart from other text.
    pub(crate) fn check_text(svg: &str) {
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        let mut boxes: Vec<(f64, f64, f64, f64, String)> = Vec::new();
        let height = attribute(svg.lines().next().expect("a line"), "height");
        for t in svg.lines().filter(|l| l.starts_with("<text")) {
            let (x, y, size) = (attribute(t, "x"), attribute(t, "y"), attribute(t, "font-size"));
            assert!(size >= TEXT, "{t}");
            let words = t.split('>').nth(1).and_then(|w| w.split('<').next()).expect("words");
            let words = words.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
            let wide = width_of(&words, size, t.contains("bold"));
            let left = match () {
                () if t.contains("\"end\"") => x - wide,
                () if t.contains("\"middle\"") => x - wide / 2.0,
                () => x,
            };
            assert!(left >= 0.0 && left + wide <= WIDTH && y <= height, "{t}");
            boxes.push((left, y - size * 0.75, left + wide, y + 1.0, words));
        }
        for (i, a) in boxes.iter().enumerate() {
            for b in &boxes[i + 1..] {
                assert!(a.2 <= b.0 || b.2 <= a.0 || a.3 <= b.1 || b.3 <= a.1, "{a:?} {b:?}\n{svg}");
            }
        }
    }

    #[test]
    fn the_same_data_is_the_same_drawing() {
        let lines = || Lines {
            title: "t".into(),
            x: Axis::linear("x", "s"),
            y: Axis::close("y", ""),
            curves: vec![Curve::plain("a", [(0.0, 1.0), (1.0, 2.0)])],
        };
        let drawing = || Drawing::new("n", "title", "caption", vec![Panel::Lines(lines())]);
        assert_eq!(draw(&drawing()), draw(&drawing()));
    }
}
