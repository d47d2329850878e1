//! The interfaces of this host, as they change.

use super::{Shared, now};
use crate::failure::{Exit, Failure};
use neater_base::net::{Net, NetEvent};
use neater_net::OsNet;
use std::io;
use std::sync::Arc;
use tokio::io::unix::AsyncFd;

/// Tells the daemon of the interfaces as they are, and gives what tells of changes.
pub(super) fn begin(shared: &Shared) -> Result<AsyncFd<OsNet>, Failure> {
    let failed = |e: io::Error| Failure::new(Exit::Failed, "local", format!("the interfaces of this host: {e}"));
    let net = OsNet::new().map_err(failed)?;
    shared.daemon().set_interfaces(net.interfaces(), now());
    // What takes its place is unsafe; the network owns its descriptor and keeps it open, which is what that asks for.
    #[expect(deprecated, reason = "the command has no unsafe code")]
    let registered = AsyncFd::try_new(net);
    registered.map_err(|e| failed(e.into()))
}

/// Tells of changes for as long as the program runs.
pub(super) async fn follow(mut net: AsyncFd<OsNet>, shared: Arc<Shared>) {
    let mut events = Vec::new();
    loop {
        let Ok(mut ready) = net.readable_mut().await else { return };
        let inner = ready.get_inner_mut();
        events.clear();
        let again = inner.poll(&mut events);
        if events.iter().any(|e| matches!(e, NetEvent::PathsChanged)) {
            shared.daemon().set_interfaces(inner.interfaces(), now());
            if shared.output.json {
                let interfaces = inner.interfaces().iter().filter(|i| i.up).map(|i| i.name.as_str());
                let up: Vec<&str> = interfaces.collect();
                shared.output.event(&serde_json::json!({"event": "interfaces", "up": up}));
            }
        }
        inner.arm(None, again);
        ready.clear_ready();
        if again {
            tokio::task::yield_now().await;
        }
    }
}
