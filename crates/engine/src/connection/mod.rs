//! Connections.

pub(crate) mod fast_path;
