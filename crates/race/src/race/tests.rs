//! The behaviours of a race, each by an example.

mod ending;
mod properties;
mod resolving;
mod staggering;
mod world;
