//! The networks of this host, as they change: its interfaces, and the provisioning domains of
//! routers.

use super::domains::Listener;
use super::{Shared, now};
use neater_base::Instant;
use neater_base::net::{Net, NetEvent};
use neater_command::failure::{Exit, Failure};
use neater_net::OsNet;
use std::io;
use std::sync::Arc;
use tokio::io::unix::AsyncFd;

/// Reports the interfaces to the daemon as they are, and returns the source of changes.
pub(super) fn begin(shared: &Shared) -> Result<AsyncFd<OsNet>, Failure> {
    let failed = |e: io::Error| Failure::new(Exit::Failed, "local", format!("the interfaces of this host: {e}"));
    let net = OsNet::new().map_err(failed)?;
    shared.daemon().set_interfaces(net.interfaces(), now());
    // What takes its place is unsafe; the network owns its descriptor and keeps it open, which is
    // what that asks for.
    #[expect(deprecated, reason = "the command has no unsafe code")]
    let registered = AsyncFd::try_new(net);
    registered.map_err(|e| failed(e.into()))
}

/// Reports changes for as long as the program runs.
pub(super) async fn follow(mut net: AsyncFd<OsNet>, mut listener: Option<Listener>, shared: Arc<Shared>) {
    let mut events = Vec::new();
    if let Some(listener) = &mut listener {
        listener.set_interfaces(net.get_ref().interfaces());
    }
    loop {
        let time = net.get_ref().now();
        let heard = async {
            match &mut listener {
                Some(listener) => listener.next(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ready = net.readable_mut() => {
                let Ok(mut ready) = ready else { return };
                let inner = ready.get_inner_mut();
                events.clear();
                let again = inner.poll(&mut events);
                if events.iter().any(|e| matches!(e, NetEvent::PathsChanged)) {
                    let interfaces = inner.interfaces();
                    if let Some(listener) = &mut listener {
                        listener.set_interfaces(interfaces);
                    }
                    if shared.output.json {
                        let up: Vec<&str> = interfaces.iter().filter(|i| i.up).map(|i| i.name.as_str()).collect();
                        shared.output.event(&serde_json::json!({"event": "interfaces", "up": up}));
                    }
                }
                inner.arm(None, again);
                ready.clear_ready();
                if again {
                    tokio::task::yield_now().await;
                }
            }
            () = heard => {}
        }
        report(&mut net, &mut listener, &shared);
    }
}

/// What the networks are now, to the daemon. What has not changed costs it a comparison.
fn report(net: &mut AsyncFd<OsNet>, listener: &mut Option<Listener>, shared: &Arc<Shared>) {
    let net = net.get_ref();
    let time: Instant = net.now();
    let domains = listener.as_mut().map_or_else(Vec::new, |l| l.turn(time, now(), shared));
    shared.daemon().set_networks(net.interfaces(), &domains, now());
}
