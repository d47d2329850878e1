//! How series are told apart: by colour, by marker and by the kind of line, so that readers who see no colours, and
//! printers that have none, tell them apart as well.

/// The palette of Okabe and Ito, without yellow, which is hard to see on white.
pub const PALETTE: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];

/// The shape at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A circle.
    Circle,
    /// A square.
    Square,
    /// A triangle that stands on its side.
    Up,
    /// A square on its corner.
    Diamond,
    /// A triangle that stands on its corner.
    Down,
    /// A plus.
    Plus,
    /// A cross.
    Cross,
    /// None: a line alone.
    None,
}

impl Marker {
    /// The shape around a place, as an SVG path.
    pub(super) fn path(self, (x, y): (f64, f64)) -> String {
        let r = 4.5;
        match self {
            Self::Circle => {
                format!("M{:.1} {y:.1}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z", x - r, d = 2.0 * r)
            }
            Self::Square => format!("M{:.1} {:.1}h8v8h-8z", x - 4.0, y - 4.0),
            Self::Up => format!("M{x:.1} {:.1}l5 9h-10z", y - 5.5),
            Self::Diamond => format!("M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5 -5.5z", y - 5.5),
            Self::Down => format!("M{x:.1} {:.1}l5 -9h-10z", y + 5.5),
            Self::Plus => format!("M{:.1} {y:.1}h10m-5 -5v10", x - 5.0),
            Self::Cross => format!("M{:.1} {:.1}l8 8m-8 0l8 -8", x - 4.0, y - 4.0),
            Self::None => String::new(),
        }
    }
}

/// How a series looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its colour.
    pub colour: &'static str,
    /// Its marker.
    pub marker: Marker,
    /// Its dashes, as in SVG; empty is a whole line.
    pub dash: &'static str,
    /// Whether its markers are hollow.
    pub open: bool,
}

/// What was published, beside ours: thin dots in black.
const PUBLISHED: Look = Look { colour: PALETTE[6], marker: Marker::Cross, dash: "2 3", open: true };
/// What no series can exceed.
const LIMIT: Look = Look { colour: "#8a8a8a", marker: Marker::None, dash: "8 4", open: true };

const MARKERS: [Marker; 7] =
    [Marker::Circle, Marker::Square, Marker::Up, Marker::Diamond, Marker::Down, Marker::Plus, Marker::Cross];
const DASHES: [&str; 4] = ["", "9 3", "4 3", "9 3 2 3"];

/// The place in the palette of what has a place of its own, the same in every drawing.
fn place(series: &str) -> Option<usize> {
    let base = series.split(',').next().unwrap_or(series).trim();
    Some(match base {
        "neater" | "neater QUIC" => 0,
        "quinn" | "nginx+curl HTTP" => 1,
        "neater-fd" | "neater TLS" => 2,
        "tokio" | "tokio-rustls" | "nginx+curl HTTPS" => 3,
        "libuv" | "neater TCP" => 4,
        "epoll" | "nginx+curl HTTP/2" => 5,
        "neater HTTP/2" => 6,
        _ => return None,
    })
}

/// What a series has beside the colour of the one it is a variant of: several connections in place of one.
fn parallel(series: &str) -> Option<(&str, Marker, &'static str)> {
    let (base, rest) = series.split_once(" on ")?;
    let count = rest.strip_suffix(" connections")?;
    let (marker, dash) = match count {
        "2" => (Marker::Down, DASHES[2]),
        "5" => (Marker::Diamond, DASHES[1]),
        _ => (Marker::Cross, DASHES[3]),
    };
    Some((base, marker, dash))
}

impl Look {
    /// The look of a series; `index` is its number in the drawing, for those without a look of their own. What stands
    /// after a comma is where it was measured: a simulated series has the colour of the real one, with hollow markers
    /// on a broken line.
    #[must_use]
    pub fn of(series: &str, index: usize) -> Self {
        if series.starts_with("published") {
            let marker = if series.ends_with("HTTPS") { Marker::Plus } else { PUBLISHED.marker };
            return Self { marker, ..PUBLISHED };
        }
        if series == "link rate" || series == "bound" {
            return LIMIT;
        }
        if let Some((base, marker, dash)) = parallel(series)
            && let Some(n) = place(base)
        {
            return Self { colour: PALETTE[n], marker, dash, open: false };
        }
        let known = place(series);
        let n = known.unwrap_or(index);
        let simulated = series.contains("simulator");
        let dash = match (simulated, known) {
            (true, _) => "6 4",
            (false, Some(_)) => "",
            // More series than colours differ by their dashes.
            (false, None) => DASHES[(n / PALETTE.len()) % DASHES.len()],
        };
        Self { colour: PALETTE[n % PALETTE.len()], marker: MARKERS[n % MARKERS.len()], dash, open: simulated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_one_drawing_differ_without_their_colours() {
        let one =
            ["neater QUIC", "neater QUIC, simulator", "neater TLS", "neater TCP", "nginx+curl HTTP", "published QUIC"];
        let many = ["nginx+curl HTTPS", "nginx+curl HTTP/2", "neater HTTP/2", "nginx+curl HTTP on 2 connections"];
        let more = ["nginx+curl HTTP on 5 connections", "nginx+curl HTTP on 10 connections"];
        let names: Vec<&str> = one.into_iter().chain(many).chain(more).collect();
        let looks: Vec<_> = names.iter().enumerate().map(|(i, n)| Look::of(n, i)).collect();
        for (i, a) in looks.iter().enumerate() {
            for b in &looks[i + 1..] {
                assert!((a.marker, a.dash, a.open) != (b.marker, b.dash, b.open), "{a:?} {b:?}");
            }
        }
        assert_eq!(looks[0].colour, looks[1].colour);
    }

    #[test]
    fn a_series_looks_the_same_in_every_drawing() {
        assert_eq!(Look::of("neater TLS", 0), Look::of("neater TLS", 5));
        assert_ne!(Look::of("x", 0), Look::of("x", 1));
        assert_ne!(Look::of("x", 0), Look::of("x", 7), "the eighth series has the first colour and other dashes");
    }
}
