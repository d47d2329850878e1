//! Connections.

pub(crate) mod fast_path;
pub(crate) mod state;
