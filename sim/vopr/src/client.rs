//! Clients: they open connections as their plan says, and flows on them.

use crate::cancel::Cancel;
use crate::content::{self, HEAD, Way};
use crate::events::Events;
use crate::ledger::{Fate, Ledger};
use crate::node::Place;
use crate::pipe::Pipe;
use crate::plan::{Answer, AppPlan, First, Target};
use crate::talk::{Part, conclude};
use crate::world::{NOBODY, name};
use bytes::Bytes;
use core::time::Duration;
use futures_util::future::{Either, join_all, select};
use neater::{Connection, MessageContext, Preconnection, RemoteEndpoint};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a client waits for the echo of a datagram.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of a datagram after its head: its number, and content.
const NUMBER: usize = 4;

/// Runs a client from its start to its end.
pub(crate) async fn run(place: Place, number: usize, wait: Duration) {
    let busy = place.busy();
    place.clock.sleep(wait).await;
    let plan = place.plan.clone();
    let app = &plan.apps[number];
    for round in 0..app.rounds {
        if round > 0 {
            place.clock.sleep(PAUSE).await;
        }
        self::round(&place, app, number, round).await;
    }
    drop(busy);
}

fn preconnection(place: &Place, app: &AppPlan) -> Preconnection {
    let pre = place.preconnection(&app.service, false);
    let port = app.service.port;
    let by_name = RemoteEndpoint::new().with_host_name(&name(app.server)).with_port(port);
    match app.target {
        Target::Name => pre.remote(by_name),
        Target::Address(addr) => pre.remote(by_name.with_ip_address(addr)),
        Target::WrongAndName => {
            let wrong = RemoteEndpoint::new().with_host_name(&name(app.server)).with_ip_address(NOBODY[0]);
            pre.remote(wrong.with_port(port)).remote(by_name)
        }
    }
}

/// One connection, its clones, and all that is said on them.
async fn round(place: &Place, app: &AppPlan, number: usize, round: u32) {
    let now = || place.clock.now();
    let hosts = [app.client, app.server];
    let flow = place.ledger.open(now(), number, hosts, app.first == First::Replayable);
    let events = Arc::new(Mutex::new((Events::default(), None)));
    let seen = events.clone();
    let pre = preconnection(place, app).on_event(move |event| {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = seen.0.take(event);
        if let Err(why) = verdict {
            seen.1.get_or_insert(why);
        }
    });
    let with_head = app.first != First::None && app.service.is_stream();
    let opening = if with_head {
        let context = MessageContext::new().safely_replayable_as(app.first == First::Replayable);
        pre.initiate_with_send(Bytes::copy_from_slice(&content::head(flow)), &context)
    } else {
        pre.initiate()
    };
    let opened = match app.impatient {
        Some(ms) => match select(opening, place.clock.sleep(Duration::from_millis(ms))).await {
            Either::Left((opened, _)) => opened,
            Either::Right((_, opening)) => {
                place.ledger.note(now(), || format!("flow {flow}: given up opening"));
                place.ledger.set_fate(now(), flow, 0, Fate::GaveUp);
                drop(opening);
                return report(&place.ledger, flow, &events);
            }
        },
        None => opening.await,
    };
    match opened {
        Ok(connection) => {
            place.ledger.note(now(), || {
                let (stack, to) = (connection.stack(), connection.remote_addr());
                format!("flow {flow} of app {number} opened over {stack:?} to {to:?}")
            });
            if app.service.is_stream() {
                streams(place, app, number, round, flow, connection, with_head).await;
            } else {
                datagrams(place, app, flow, connection).await;
            }
        }
        Err(e) => {
            place.ledger.note(now(), || format!("flow {flow} of app {number} not opened: {e}"));
            place.ledger.set_fate(now(), flow, 0, Fate::Failed(e.message));
        }
    }
    report(&place.ledger, flow, &events);
}

/// Tells what was wrong with the events of a connection.
fn report(ledger: &Ledger, flow: u32, events: &Mutex<(Events, Option<String>)>) {
    let seen = events.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(why) = &seen.1 {
        ledger.fail(|| format!("flow {flow}, events: {why}"));
    }
}

async fn streams(
    place: &Place,
    app: &AppPlan,
    number: usize,
    round: u32,
    flow: u32,
    connection: Connection,
    with_head: bool,
) {
    let hosts = [app.client, app.server];
    let mut parts: Vec<core::pin::Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
    for clone in 0..app.clones {
        let flow = place.ledger.open(place.clock.now(), number, hosts, false);
        let made = connection.clone_connection();
        parts.push(Box::pin(async move {
            let ready = match made {
                Ok(c) => c.ready().await.map(|()| c),
                Err(e) => Err(e),
            };
            match ready {
                Ok(c) => speak(place, app, flow, u64::from(round * 16 + clone), c, false).await,
                Err(e) => {
                    place.ledger.note(place.clock.now(), || format!("flow {flow} of app {number} not cloned: {e}"));
                    place.ledger.set_fate(place.clock.now(), flow, 0, Fate::Failed(e.message));
                }
            }
        }));
    }
    parts.push(Box::pin(speak(place, app, flow, u64::from(round), connection, with_head)));
    join_all(parts).await;
}

/// One flow.
async fn speak(place: &Place, app: &AppPlan, flow: u32, salt: u64, connection: Connection, with_head: bool) {
    let cancel = Cancel::new(app.cancel, place.plan.seed ^ salt ^ u64::from(flow) << 40);
    let (ledger, clock) = (place.ledger.clone(), place.clock.clone());
    let made = Pipe::new(connection, app.bytes, app.service.framed, flow, Way::Up, ledger, clock, cancel);
    let mut pipe = match made {
        Ok(pipe) => pipe,
        Err(stop) => return place.ledger.set_fate(place.clock.now(), flow, 0, Fate::Failed(format!("{stop:?}"))),
    };
    if app.answer == Answer::Echo {
        pipe.hears = Way::Up;
    }
    pipe.at("saying its head");
    let said = if with_head { Ok(()) } else { pipe.say_head().await };
    let part = Part { pipe: &pipe, app, ending: app.client_end, slow: app.client_slow };
    let outcome = match said {
        Ok(()) => part.client().await,
        Err(stop) => Err(stop),
    };
    conclude(&pipe, outcome);
}

/// Sends datagrams and counts what comes back: none twice, none that was not sent.
async fn datagrams(place: &Place, app: &AppPlan, flow: u32, connection: Connection) {
    let mut echoed = BTreeSet::new();
    let twice = place.plan.duplicates() && !app.service.is_secure();
    for number in 0..app.up as u32 {
        let len = content::message_len(flow, Way::Up, u64::from(number), app.piece.min(500));
        let mut data = content::head(flow).to_vec();
        data.extend_from_slice(&number.to_be_bytes());
        data.extend_from_slice(&content::bytes(flow, Way::Up, u64::from(number) << 20, len));
        if connection.send(data).await.is_err() {
            break;
        }
        if number % 4 != 3 {
            continue;
        }
        let patience = place.clock.sleep(PATIENCE);
        let heard = match select(core::pin::pin!(connection.receive()), patience).await {
            Either::Left((Ok(Some(m)), _)) => m.data,
            Either::Left(_) => break,
            Either::Right(_) => continue,
        };
        let of = content::read_head(&heard);
        // UDP does not tell whose a datagram is that an earlier flow, which had the same port a moment ago, was still to hear.
        if of.is_some_and(|f| f < flow) && !app.service.is_secure() {
            continue;
        }
        match of.and_then(|f| check_datagram(&place.ledger, f, &heard)) {
            // The network may carry a datagram of UDP twice; QUIC's come once.
            Some(n) if n <= number && (echoed.insert(n) || twice) => place.ledger.echoed(flow),
            _ => place.ledger.fail(|| format!("flow {flow}: a datagram came twice, or was never sent")),
        }
    }
    place.ledger.set_fate(place.clock.now(), flow, 0, Fate::Done);
}

/// The number of a datagram of a flow, if it is as it was sent; it is a failure if not.
pub(crate) fn check_datagram(ledger: &Ledger, flow: u32, data: &[u8]) -> Option<u32> {
    let number = data.get(HEAD..HEAD + NUMBER)?;
    let number = u32::from_be_bytes(number.try_into().ok()?);
    let content = &data[HEAD + NUMBER..];
    if content::wrong_at(flow, Way::Up, u64::from(number) << 20, content).is_some() {
        ledger.fail(|| format!("flow {flow}: datagram {number} is not what was sent"));
        return None;
    }
    Some(number)
}
