//! What was sent, what became of it, and how losses are found.

mod outstanding;
mod rack;

pub(crate) use outstanding::{Fate, Outstanding, Sent};
pub(crate) use rack::{Look, Rack};
