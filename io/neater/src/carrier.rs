//! What carries a connection, for reports of how it served.

use crate::shared::Handle;
use neater_engine::{ConnectionId, PathInfo, ServiceOutcome, Stack};
use std::net::SocketAddr;

/// The candidate that carries a connection. A program can report on it also when the connection is
/// over, or was handed to another library, such as one for HTTP.
///
/// Only a program knows whether a connection is of use. Without reports, a peer that accepts and
/// then is silent, or sends nonsense, counts as a success, and the next connection to the same
/// endpoint tries it first.
///
/// ```no_run
/// # async fn example(connection: neater::Connection) -> Result<(), Box<dyn std::error::Error>> {
/// use neater::ServiceOutcome;
/// use std::time::Duration;
///
/// connection.send("question").await?;
/// match tokio::time::timeout(Duration::from_secs(5), connection.receive()).await {
///     Ok(answer) => drop(answer?),
///     // The next connection tries other addresses and protocols first.
///     Err(_) => connection.report(ServiceOutcome::Silent),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Carrier {
    handle: Handle,
    conn: ConnectionId,
    inner: neater_engine::Carrier,
}

impl Carrier {
    pub(crate) fn new(handle: Handle, conn: ConnectionId, inner: neater_engine::Carrier) -> Self {
        Self { handle, conn, inner }
    }

    /// The protocol stack.
    #[must_use]
    pub fn stack(&self) -> Stack {
        self.inner.stack()
    }

    /// The remote address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.inner.addr()
    }

    /// The paths of the transport, as [`Connection::paths`](crate::Connection::paths); none when
    /// the connection is gone.
    #[must_use]
    pub fn paths(&self) -> Vec<PathInfo> {
        self.handle.with(|s| s.engine.paths(self.conn))
    }

    /// Reports how it has served. A report against it is advice to later races to the same
    /// endpoint, for the same needs, on the same network: other candidates are tried first, though
    /// none in the clear before one that is encrypted. The candidate is never excluded, and the
    /// report has no effect where there is no other. The advice holds for a minute, and for up to
    /// ten when the same happens again; [`ServiceOutcome::WantsOther`] holds for ten at once.
    pub fn report(&self, outcome: ServiceOutcome) {
        self.handle.with(|s| s.engine.report_service(&self.inner, outcome));
    }
}
