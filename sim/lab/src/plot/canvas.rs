//! What all drawings are made of: text of a known width, lines, shapes, and words broken into lines.
//!
//! *Invariants*: what is drawn in ink, grid or paper has a class of that name, so that a page can draw it for a dark
//! background; no text is smaller than [`TEXT`]; whatever is given as text is escaped.

use std::fmt::Write as _;

/// Size of the smallest text, in pixels.
pub const TEXT: f64 = 13.0;
/// Width of every drawing, in pixels.
pub const WIDTH: f64 = 800.0;
/// What is left free at the edges, in pixels.
pub(super) const MARGIN: f64 = 16.0;

/// Advance widths of the printable ASCII characters in the bundled font, in thousandths of the size.
const ADVANCE: [u16; 95] = [
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636, 636, 636, 636, 636,
    636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863,
    748, 787, 603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635,
    615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636,
    337, 636, 838,
];
/// Bold characters are wider by at most this.
const BOLD: f64 = 1.16;

/// How wide words are, in pixels. Other fonts that a viewer may have instead are narrower.
#[must_use]
pub fn width_of(words: &str, size: f64, bold: bool) -> f64 {
    let advance = |c: char| {
        let at = (c as usize).checked_sub(0x20);
        // The widest other signs that are used are arrows and comparisons; an ellipsis is wider, and rare.
        f64::from(at.and_then(|i| ADVANCE.get(i)).copied().unwrap_or(838)) / 1000.0
    };
    words.chars().map(advance).sum::<f64>() * size * if bold { BOLD } else { 1.0 }
}

/// Words as lines that are no wider than `width` pixels at size [`TEXT`]; a longer word has a line of its own.
#[must_use]
pub(super) fn wrap(words: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(l) if width_of(l, TEXT, false) + width_of(" ", TEXT, false) + width_of(word, TEXT, false) <= width => {
                l.push(' ');
                l.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Text that may stand between tags and in attributes.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Where text stands relative to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stroke<'a> {
    /// A colour, or `None` for ink.
    pub(super) colour: Option<&'a str>,
    pub(super) width: f64,
    /// As in SVG; empty is a whole line.
    pub(super) dash: &'a str,
}

impl Stroke<'_> {
    pub(super) const INK: Stroke<'static> = Stroke { colour: None, width: 1.5, dash: "" };
    pub(super) const BOUND: Stroke<'static> = Stroke { colour: None, width: 2.0, dash: "4 3" };

    fn attributes(&self) -> String {
        let dash = if self.dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{}\"", self.dash) };
        let colour = match self.colour {
            Some(c) => format!("stroke=\"{c}\""),
            None => "class=\"line\" stroke=\"#000000\"".to_owned(),
        };
        format!("{colour} stroke-width=\"{}\"{dash}", self.width)
    }
}

/// A drawing that grows downwards.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    out: String,
}

impl Canvas {
    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, size: f64, bold: bool, words: &str) {
        let weight = if bold { " font-weight=\"bold\"" } else { "" };
        let _ = writeln!(
            self.out,
            "<text class=\"ink\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{}\"{weight}>{}</text>",
            anchor.name(),
            escape(words)
        );
    }

    /// Text of the smallest size.
    pub(super) fn words(&mut self, at: (f64, f64), anchor: Anchor, words: &str) {
        self.text(at, anchor, TEXT, false, words);
    }

    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), stroke: Stroke<'_>) {
        let style = stroke.attributes();
        let _ = writeln!(self.out, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>");
    }

    /// A line of the grid.
    pub(super) fn grid(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(
            self.out,
            "<line class=\"grid\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#d0d0d0\" \
             stroke-width=\"1\"/>"
        );
    }

    pub(super) fn polyline(&mut self, points: &[(f64, f64)], stroke: Stroke<'_>) {
        if points.len() < 2 {
            return;
        }
        let places: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let style = stroke.attributes();
        let _ = writeln!(
            self.out,
            "<polyline points=\"{}\" fill=\"none\" stroke-linejoin=\"round\" {style}/>",
            places.join(" ")
        );
    }

    pub(super) fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), fill: &str) {
        let class = if fill == "#000000" { "class=\"ink\" " } else { "" };
        let _ = writeln!(
            self.out,
            "<rect {class}x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" fill=\"{fill}\"/>"
        );
    }

    /// A closed shape; open ones are filled with paper.
    pub(super) fn shape(&mut self, path: &str, colour: &str, open: bool) {
        let ink = colour == "#000000";
        let class = match (open, ink) {
            (true, true) => "class=\"paper line\" ",
            (true, false) => "class=\"paper\" ",
            (false, true) => "class=\"ink line\" ",
            (false, false) => "",
        };
        let fill = if open { "#ffffff" } else { colour };
        let _ =
            writeln!(self.out, "<path {class}d=\"{path}\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
    }

    /// The whole drawing.
    pub(super) fn finish(self, title: &str, height: f64) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" aria-label=\"{}\" \
             font-family=\"'DejaVu Sans', Verdana, sans-serif\" fill=\"#000000\">\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
            escape(title),
            self.out
        )
    }
}
