//! Drawings as PNG, for where SVG cannot be shown.
//!
//! The font is ours (`fonts/`), so a drawing has its words on a machine without fonts, and looks the same on all.

use resvg::{tiny_skia, usvg};
use std::fmt;
use std::sync::{Arc, OnceLock};

const FONTS: [&[u8]; 2] =
    [include_bytes!("../../fonts/DejaVuSans.ttf"), include_bytes!("../../fonts/DejaVuSans-Bold.ttf")];
/// Pixels of the image per pixel of the drawing: sharp on dense screens and in print.
const ZOOM: f32 = 2.0;
/// The largest side of an image, in pixels. A drawing that is larger is not one of ours.
const SIDE_MAX: f32 = 20_000.0;

/// Why there is no image.
#[derive(Debug)]
pub enum PngError {
    /// The SVG cannot be read.
    Svg(usvg::Error),
    /// It is empty or too large.
    Size,
    /// It cannot be encoded.
    Encode(String),
}

impl fmt::Display for PngError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Svg(e) => write!(f, "the drawing is no valid SVG: {e}"),
            Self::Size => write!(f, "the drawing is empty, or larger than {SIDE_MAX} pixels"),
            Self::Encode(e) => write!(f, "the image cannot be written: {e}"),
        }
    }
}

impl std::error::Error for PngError {}

fn fonts() -> Arc<usvg::fontdb::Database> {
    static DATABASE: OnceLock<Arc<usvg::fontdb::Database>> = OnceLock::new();
    let load = || {
        let mut database = usvg::fontdb::Database::new();
        for font in FONTS {
            database.load_font_data(font.to_vec());
        }
        database.set_sans_serif_family("DejaVu Sans");
        Arc::new(database)
    };
    Arc::clone(DATABASE.get_or_init(load))
}

/// The image of an SVG, at twice its size.
///
/// # Errors
/// [`PngError`].
pub fn png(svg: &str) -> Result<Vec<u8>, PngError> {
    let options = usvg::Options { fontdb: fonts(), font_family: "DejaVu Sans".to_owned(), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(svg, &options).map_err(PngError::Svg)?;
    let (w, h) = (tree.size().width() * ZOOM, tree.size().height() * ZOOM);
    if !(1.0..=SIDE_MAX).contains(&w) || !(1.0..=SIDE_MAX).contains(&h) {
        return Err(PngError::Size);
    }
    let mut image = tiny_skia::Pixmap::new(w.ceil() as u32, h.ceil() as u32).ok_or(PngError::Size)?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(ZOOM, ZOOM), &mut image.as_mut());
    image.encode_png().map_err(|e| PngError::Encode(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Curve, Drawing, Lines, Panel, draw};
    use super::*;

    fn dark_pixels(svg: &str) -> usize {
        let image = tiny_skia::Pixmap::decode_png(&png(svg).expect("an image")).expect("a PNG");
        image.pixels().iter().filter(|p| p.red() < 100 && p.green() < 100 && p.blue() < 100).count()
    }

    #[test]
    fn words_are_in_the_image_without_any_font_of_the_system() {
        let with = |title: &str| {
            let axes = (Axis::linear("x", "s"), Axis::linear("y", ""));
            let curves = vec![Curve::plain("a", [(0.0, 1.0), (1.0, 2.0)])];
            let lines = Lines { title: title.into(), x: axes.0, y: axes.1, curves };
            draw(&Drawing::new("", "", "", vec![Panel::Lines(lines)]))
        };
        assert!(dark_pixels(&with("min – median – max ≤ 5 µs")) > dark_pixels(&with("")) + 500);
    }

    #[test]
    fn what_is_no_drawing_is_an_error() {
        assert!(matches!(png("<svg"), Err(PngError::Svg(_))));
        let huge = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1e6\" height=\"10\"/>";
        assert!(matches!(png(huge), Err(PngError::Size)), "{huge}");
    }
}
