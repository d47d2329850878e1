//! Logs of connections in the qlog format (draft-ietf-quic-qlog-main-schema), which quinn-proto writes.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

/// Which connection a log is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QlogOf {
    /// Whether this side has initiated it.
    pub client: bool,
    /// The peer's address at first.
    pub remote: SocketAddr,
}

/// Gives each new connection something to write its log to; `None`: it is not logged. What is written may be much and must
/// not block.
pub type Qlog = Arc<dyn Fn(&QlogOf) -> Option<Box<dyn Write + Send + Sync>> + Send + Sync>;
