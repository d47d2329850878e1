//! Courses over time: what flows or links carried, with what changed meanwhile marked.
//!
//! *Responsible for* turning samples into a drawing that can be read: not more curves than colours, changes as lines with their
//! list in the caption. Simulator (flows, queues) and lab (links) draw the same way.

use crate::plot::{self, Axis, Curve, Drawing, Lines, Panel, Point};
use neater_scenario::{Action, NatChange, Scenario};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Curves of one panel; the others are left out, the least first, and the title says so.
const CURVES: usize = 8;
/// Changes that are marked and listed; there may be thousands.
const MARKS: usize = 12;

/// Samples of one kind: for each subject, time in seconds and value.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// What is shown.
    pub title: String,
    /// What the values are, and their unit.
    pub axis: (String, String),
    /// By subject, in order of time.
    pub subjects: BTreeMap<String, Vec<(f64, f64)>>,
}

/// What a schedule changes, in order of time: when in seconds, and in a few words what.
#[must_use]
pub fn changes(s: &Scenario) -> Vec<(f64, String)> {
    let mut all: Vec<(f64, String)> = Vec::new();
    for event in &s.events {
        let what = match &event.action {
            Action::Link { link, config, .. } => {
                format!("link {}{}", s.links[*link].name, if config.config.down { " down" } else { "" })
            }
            Action::Interface { link, end, up } => {
                let end = &s.links[*link].ends[*end];
                format!("{}.{} {}", s.nodes[end.node].name, end.interface, if *up { "up" } else { "down" })
            }
            Action::Nat { node, what } => {
                let what = match what {
                    NatChange::Rebind => "rebinds".to_owned(),
                    NatChange::Restart => "restarts".to_owned(),
                    NatChange::Move(to) => format!("moves to {to}"),
                };
                format!("{} {what}", s.nodes[*node].name)
            }
        };
        let one = (event.at.as_secs_f64(), what);
        // Both directions of a link usually change together.
        if all.last() != Some(&one) {
            all.push(one);
        }
    }
    all
}

/// The drawing.
#[must_use]
pub fn drawing(title: &str, about: &str, courses: Vec<Course>, changes: &[(f64, String)]) -> Drawing {
    let listed: Vec<String> = changes.iter().take(MARKS).map(|(at, what)| format!("{at} s {what}")).collect();
    let caption = match (listed.is_empty(), changes.len() > MARKS) {
        (true, _) => about.to_owned(),
        (false, more) => {
            let more = if more { format!(", and {} more", changes.len() - MARKS) } else { String::new() };
            format!("{about} Changes: {}{more}.", listed.join(", "))
        }
    };
    let panels = courses.into_iter().filter(|c| !c.subjects.is_empty()).map(|c| panel(c, changes)).collect();
    Drawing::new("", title, caption, panels)
}

fn panel(course: Course, changes: &[(f64, String)]) -> Panel {
    let weight = |values: &[(f64, f64)]| values.iter().map(|v| v.1).sum::<f64>();
    let mut subjects: Vec<(String, Vec<(f64, f64)>)> = course.subjects.into_iter().collect();
    let count = subjects.len();
    subjects.sort_by(|a, b| weight(&b.1).total_cmp(&weight(&a.1)));
    subjects.truncate(CURVES);
    subjects.sort_by(|a, b| a.0.cmp(&b.0));
    let (first, last) = subjects
        .iter()
        .flat_map(|(_, values)| values)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (t, _)| (low.min(*t), high.max(*t)));
    let top = subjects.iter().flat_map(|(_, values)| values).map(|v| v.1).fold(0.0, f64::max);
    let mut curves: Vec<Curve> = subjects.into_iter().map(|(name, values)| Curve::plain(name, values)).collect();
    let marked: Vec<f64> = changes.iter().take(MARKS).map(|c| c.0).filter(|t| (first..=last).contains(t)).collect();
    if !marked.is_empty() {
        // Lines from bottom to top, with gaps between them.
        let line = |t: &f64| [(*t, Some(0.0)), (*t, Some(top)), (*t, None)];
        let points = marked.iter().flat_map(line).map(|(x, y)| Point { x, y, bar: None }).collect();
        curves.push(Curve { name: "changes".to_owned(), points, steps: false });
    }
    let title =
        if count > CURVES { format!("{}, the {CURVES} largest of {count}", course.title) } else { course.title };
    let (x, y) = (Axis::linear("time", "s"), Axis::linear(course.axis.0, course.axis.1));
    Panel::Lines(Lines { title, x, y, curves })
}

/// Writes a drawing as `NAME.svg` and `NAME.png`.
///
/// # Errors
/// A file cannot be written.
pub fn write(dir: &Path, name: &str, drawing: &Drawing) -> io::Result<()> {
    let svg = plot::draw(drawing);
    let image = plot::png(&svg).map_err(|e| io::Error::other(e.to_string()))?;
    std::fs::write(dir.join(format!("{name}.svg")), svg)?;
    std::fs::write(dir.join(format!("{name}.png")), image)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(subjects: usize) -> Course {
        let values = |i: usize| (0..50).map(|t| (f64::from(t) / 10.0, (i + 1) as f64)).collect();
        Course {
            title: "Goodput".into(),
            axis: ("goodput".into(), "Mbit/s".into()),
            subjects: (0..subjects).map(|i| (format!("flow.{i}"), values(i))).collect(),
        }
    }

    #[test]
    fn changes_are_marked_and_listed_and_too_many_flows_are_told() {
        let changes = [(1.5, "link x down".to_owned()), (99.0, "after the end".to_owned())];
        let drawing = drawing("A run", "Seed 1.", vec![course(11), Course::default()], &changes);
        assert_eq!(drawing.panels.len(), 1, "what has no samples is not drawn");
        assert!(drawing.caption.contains("1.5 s link x down, 99 s after the end."), "{}", drawing.caption);
        let Panel::Lines(lines) = &drawing.panels[0] else { panic!("lines") };
        assert_eq!(lines.curves.len(), CURVES + 1);
        assert!(lines.title.ends_with("the 8 largest of 11") && !lines.curves.iter().any(|c| c.name == "flow.0"));
        let marks: Vec<_> = lines.curves[CURVES].points.iter().map(|p| (p.x, p.y)).collect();
        assert_eq!(marks, [(1.5, Some(0.0)), (1.5, Some(11.0)), (1.5, None)]);
        assert!(!plot::draw(&drawing).contains("NaN"));
    }

    #[test]
    fn a_schedule_is_told_in_words() {
        let s = Scenario::parse(neater_scenario::shipped("home-nat").expect("shipped"), &[]).expect("parses");
        let words: Vec<_> = changes(&s).into_iter().map(|(at, what)| format!("{at} {what}")).collect();
        assert_eq!(words, ["4 home rebinds", "6 home restarts", "8 home moves to 203.0.113.77"]);
        let s = Scenario::parse(neater_scenario::shipped("custom").expect("shipped"), &[]).expect("parses");
        assert!(changes(&s).contains(&(30.0, "phone.wlan0 down".to_owned())));
    }
}
