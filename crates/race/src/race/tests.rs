//! The behaviours of a race, each by an example.

mod doubting;
mod ending;
mod properties;
mod resolving;
mod staggering;
mod world;
