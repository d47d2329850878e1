//! Servers: they take whoever comes, and do for each flow what its plan says.

use crate::cancel::Cancel;
use crate::content::{self, HEAD, Way};
use crate::ledger::{Fate, Ledger};
use crate::node::{Place, everywhere};
use crate::pipe::Pipe;
use crate::plan::Service;
use crate::talk::{Part, conclude};
use bytes::Bytes;
use core::time::Duration;
use futures_util::future::{Either, select};
use neater::{Accepted, Connection, Group};

/// How long a server waits for the next datagram of a peer.
const QUIET: Duration = Duration::from_secs(10);
/// How long it waits before it tries to listen again.
pub(crate) const LISTEN_AGAIN: Duration = Duration::from_millis(500);

/// Serves at one port until the world ends. What cannot be listened on now (no descriptor, no address) is tried again.
pub(crate) async fn serve(place: Place, service: Service) {
    loop {
        let pre = place.preconnection(&service, true).local(everywhere(service.port));
        match pre.listen() {
            Ok(listener) => {
                listener.deliver_groups(service.groups);
                while let Some(accepted) = listener.accept_any().await {
                    match accepted {
                        Accepted::Connection(c) => take(&place, service, c),
                        Accepted::Group(g) => place.spawner.spawn(place.host, take_group(place.clone(), service, g)),
                    }
                }
                place.ledger.note(place.clock.now(), || format!("h{}:{} stopped", place.index, service.port));
            }
            Err(e) => {
                place
                    .ledger
                    .note(place.clock.now(), || format!("h{}:{} cannot listen: {e}", place.index, service.port));
            }
        }
        place.clock.sleep(LISTEN_AGAIN).await;
    }
}

async fn take_group(place: Place, service: Service, group: Group) {
    let _busy = place.busy();
    while let Ok(c) = group.accept().await {
        take(&place, service, c);
    }
}

fn take(place: &Place, service: Service, connection: Connection) {
    let (own, busy) = (place.clone(), place.busy());
    place.spawner.spawn(place.host, async move {
        if service.is_stream() {
            stream(&own, service, connection).await;
        } else {
            datagrams(&own, connection).await;
        }
        drop(busy);
    });
}

/// Reads the head of a flow, and does what the flow wants.
async fn stream(place: &Place, service: Service, connection: Connection) {
    let now = || place.clock.now();
    let mut early = false;
    let mut head = Vec::new();
    let mut rest = Bytes::new();
    while head.len() < HEAD {
        match connection.receive().await {
            Ok(Some(mut m)) => {
                early |= m.context.is_early_data();
                rest = m.data.split_off(m.data.len().min(HEAD - head.len()));
                head.extend_from_slice(&m.data);
            }
            // Whoever opened it has thought better of it: before its head, and not within it.
            Ok(None) => return end_before(&place.ledger, &head),
            Err(e) => {
                place.ledger.note(now(), || format!("h{} no head: {e}", place.index));
                return;
            }
        }
        if service.framed && head.len() != HEAD {
            break;
        }
    }
    let Some(flow) = content::read_head(&head) else {
        place.ledger.fail(|| format!("h{}:{}: a head that nobody has said: {head:02x?}", place.index, service.port));
        return;
    };
    let Some(app) = place.ledger.take(now(), flow, place.index) else { return };
    let app = &place.plan.apps[app];
    place.ledger.note(now(), || {
        let how = if early { " as early data" } else { "" };
        format!("flow {flow} taken by h{} over {:?}{how}", place.index, connection.stack())
    });
    if app.service != service {
        place.ledger.fail(|| format!("flow {flow} to port {} arrived at {}", app.service.port, service.port));
        return;
    }
    let cancel = Cancel::new(app.cancel, place.plan.seed ^ u64::from(flow) << 32);
    let (ledger, clock) = (place.ledger.clone(), place.clock.clone());
    let bytes = app.bytes && rest.is_empty();
    match Pipe::new(connection, bytes, service.framed, flow, Way::Down, ledger, clock, cancel) {
        Ok(mut pipe) => {
            if app.answer == crate::plan::Answer::Echo {
                pipe.hears = Way::Up;
            }
            let part = Part { pipe: &pipe, app, ending: app.server_end, slow: app.server_slow };
            let outcome = part.server(&rest).await;
            conclude(&pipe, outcome);
        }
        Err(stop) => {
            place.ledger.set_fate(now(), flow, 1, Fate::Failed(format!("{stop:?}")));
        }
    }
}

/// A flow has ended in order after so much of its head: a head is said whole, or its connection is lost with an error.
fn end_before(ledger: &Ledger, head: &[u8]) {
    if !head.is_empty() {
        ledger
            .fail(|| format!("an end was heard within a head, after {} of its {HEAD} bytes: {head:02x?}", head.len()));
    }
}

/// Sends back every datagram, until there are no more.
async fn datagrams(place: &Place, connection: Connection) {
    loop {
        let quiet = place.clock.sleep(QUIET);
        let heard = match select(core::pin::pin!(connection.receive()), quiet).await {
            Either::Left((heard, _)) => heard,
            Either::Right(_) => return,
        };
        let Ok(Some(m)) = heard else { return };
        let Some(flow) = content::read_head(&m.data) else {
            place.ledger.fail(|| format!("h{}: a datagram that nobody has sent", place.index));
            return;
        };
        let way = crate::client::check_datagram(&place.ledger, flow, &m.data);
        if way.is_none() || connection.send(m.data).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neater_base::Instant;

    #[test]
    fn an_end_within_a_head_is_a_failure_and_one_before_it_is_none() {
        let failed = |len: usize| {
            let ledger = Ledger::new(Instant::from_nanos(1), false);
            end_before(&ledger, &content::head(7)[..len]);
            ledger.has_failed()
        };
        assert!(!failed(0) && failed(1) && failed(HEAD - 1));
    }
}
