//! Boxes in rows and columns: what became of things that were tried one after the other, and in which order.

use super::canvas::{Anchor, Canvas, MARGIN, Stroke, TEXT, WIDTH, width_of};
use super::style::PALETTE;

const ROW: f64 = 38.0;
const BOX: f64 = 26.0;
/// Between groups of columns.
const GROUP_GAP: f64 = 10.0;

/// What became of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// It succeeded.
    Good,
    /// It failed.
    Bad,
    /// It was not tried.
    Empty,
}

impl Fill {
    const fn colour(self) -> &'static str {
        match self {
            Self::Good => PALETTE[2],
            Self::Bad => PALETTE[1],
            Self::Empty => "#ffffff",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Good => "success",
            Self::Bad => "failure",
            Self::Empty => "not attempted",
        }
    }
}

/// A box.
#[derive(Clone, Debug)]
pub struct Box3 {
    /// What became of it.
    pub fill: Fill,
    /// What stands in it: a few characters.
    pub text: String,
}

/// Boxes in rows and columns. Those of a row that are not empty are joined in the order of the columns.
#[derive(Clone, Debug)]
pub struct Grid {
    /// What is shown.
    pub title: String,
    /// The groups of columns with the names of their columns, from left to right.
    pub columns: Vec<(String, Vec<String>)>,
    /// The rows with their boxes, from top to bottom; as many boxes as there are columns.
    pub rows: Vec<(String, Vec<Box3>)>,
}

/// Draws the boxes below `top`; returns where they end.
pub(super) fn draw(out: &mut Canvas, grid: &Grid, top: f64) -> f64 {
    out.text((MARGIN, top + 4.0), Anchor::Start, 14.0, true, &grid.title);
    let mut x = MARGIN;
    let y = top + 16.0;
    for fill in [Fill::Good, Fill::Bad, Fill::Empty] {
        boxed(out, (x, y), (14.0, 14.0), fill);
        out.words((x + 20.0, y + 12.0), Anchor::Start, fill.words());
        x += 40.0 + width_of(fill.words(), TEXT, false);
    }
    let labels = grid.rows.iter().map(|(name, _)| width_of(name, TEXT, false)).fold(0.0, f64::max);
    let left = MARGIN + labels + 14.0;
    let columns: usize = grid.columns.iter().map(|(_, names)| names.len()).sum();
    let gaps = GROUP_GAP * grid.columns.len().saturating_sub(1) as f64;
    let wide = (WIDTH - MARGIN - left - gaps) / columns.max(1) as f64;
    // Where each column begins.
    let (mut at, mut x) = (Vec::new(), left);
    let head = y + 36.0;
    for (group, names) in &grid.columns {
        let span = wide * names.len() as f64;
        out.text((x + span / 2.0, head), Anchor::Middle, TEXT, true, group);
        for name in names {
            out.words((x + wide / 2.0, head + 17.0), Anchor::Middle, name);
            at.push(x);
            x += wide;
        }
        out.grid((x - span, head + 23.0), (x - 2.0, head + 23.0));
        x += GROUP_GAP;
    }
    let first = head + 30.0;
    for (n, (name, boxes)) in grid.rows.iter().enumerate() {
        let y = first + ROW * n as f64;
        let middle = y + BOX / 2.0;
        out.words((left - 10.0, middle + 4.5), Anchor::End, name);
        let tried: Vec<(f64, f64)> = boxes
            .iter()
            .zip(&at)
            .filter(|(b, _)| b.fill != Fill::Empty)
            .map(|(_, x)| (x + wide / 2.0, middle))
            .collect();
        out.polyline(&tried, Stroke { width: 3.0, ..Stroke::INK });
        for (b, x) in boxes.iter().zip(&at) {
            boxed(out, (x + 3.0, y), (wide - 6.0, BOX), b.fill);
            out.words((x + wide / 2.0, middle + 4.5), Anchor::Middle, &b.text);
        }
    }
    first + ROW * grid.rows.len() as f64
}

/// A box with an outline, so that an empty one is seen.
fn boxed(out: &mut Canvas, (x, y): (f64, f64), (w, h): (f64, f64), fill: Fill) {
    let path = format!("M{x:.1} {y:.1}h{w:.1}v{h:.1}h-{w:.1}z");
    match fill {
        Fill::Empty => out.shape(&path, "#8a8a8a", true),
        fill => out.shape(&path, fill.colour(), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Drawing, Panel, draw};

    #[test]
    fn every_box_is_drawn_and_those_that_were_tried_are_joined() {
        let one = |fill, text: &str| Box3 { fill, text: text.into() };
        let grid = Grid {
            title: "A day".into(),
            columns: vec![("Here".into(), vec!["a".into(), "b".into()]), ("There".into(), vec!["a".into()])],
            rows: vec![
                ("call".into(), vec![one(Fill::Bad, "20 s"), one(Fill::Empty, ""), one(Fill::Good, "5 s *")]),
                ("film".into(), vec![one(Fill::Empty, ""), one(Fill::Empty, ""), one(Fill::Good, "7 s")]),
            ],
        };
        let svg = draw(&Drawing::new("", "Title", "Caption", vec![Panel::Grid(grid)]));
        assert_eq!(svg.matches("<path").count(), 3 + 6, "a legend of three, and six boxes");
        assert_eq!(svg.matches("<polyline").count(), 1, "one row was tried twice");
        assert!(svg.contains(">5 s *<") && svg.contains(">There<"));
    }
}
