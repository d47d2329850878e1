//! The resolver against servers in virtual time.

mod basic;
mod hostile;
mod https;
mod patience;
mod random;
mod world;
