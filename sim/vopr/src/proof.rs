//! Proofs of life: when all is over and nothing is wrong any more, what can be reached is reached.
//!
//! *Responsible for* which programs are run for that, and for what must have come of them. *Not for* running them (`run`).
//!
//! Without them a world in which nothing works would pass: a connection may always fail with an error while something is
//! wrong, and programs that began then may end with one in the calm.

use crate::ledger::{Fate, Ledger};
use crate::plan::{Answer, AppPlan, Ending, First, Plan, Target};
use crate::world::address;
use std::net::IpAddr;

/// Bytes that a proof sends and gets back.
const BYTES: u64 = 3_000;
/// Datagrams that a proof sends. Of each four one answer is waited for; one must come.
const DATAGRAMS: u64 = 16;

/// The programs that prove a plan's world alive: each service that a host uses at another is used once more, with an echo
/// that both sides end in order, if nothing between the two stops it for ever.
pub(crate) fn proofs(plan: &Plan) -> Vec<AppPlan> {
    let mut proofs: Vec<AppPlan> = Vec::new();
    for app in &plan.apps {
        let same = |p: &AppPlan| (p.client, p.server, p.service.port) == (app.client, app.server, app.service.port);
        if proofs.iter().any(same) {
            continue;
        }
        let Some(to) = reachable(plan, app.client, app.server) else { continue };
        proofs.push(AppPlan {
            target: Target::Address(to),
            at: plan.calm_at,
            rounds: 1,
            first: First::None,
            impatient: None,
            clones: 0,
            up: if app.service.is_stream() { BYTES } else { DATAGRAMS },
            down: 0,
            piece: 700,
            answer: Answer::Echo,
            // Whoever closes before it has seen the other's end abandons what the other has still to say.
            client_end: Ending::Finish,
            server_end: Ending::Close,
            client_slow: 0,
            server_slow: 0,
            cancel: false,
            bytes: false,
            ..app.clone()
        });
    }
    proofs
}

/// An address at which a host reaches another in the calm; `None` if middleboxes stand at either, which stay, or if they
/// have no family of addresses in common.
fn reachable(plan: &Plan, client: usize, server: usize) -> Option<IpAddr> {
    let (near, far) = (&plan.hosts[client].ifaces, &plan.hosts[server].ifaces);
    if near.iter().chain(far).any(|i| i.up.blocked.is_some() || i.down.blocked.is_some()) {
        return None;
    }
    let common = |v4: bool| {
        let has = |i: &crate::plan::IfacePlan| if v4 { i.v4 } else { i.v6 };
        let number = far.iter().position(has)?;
        near.iter().any(has).then(|| address(server, number, v4, 1))
    };
    common(true).or_else(|| common(false))
}

/// Whether a proof's flow came to what it must; what it came to instead, if not.
pub(crate) fn judge(ledger: &Ledger, flow: u32, app: &AppPlan) -> Result<(), String> {
    let (fates, back) = ledger
        .with(|b| {
            let f = b.flows.get(flow as usize)?;
            Some((f.fates().clone(), f.came_back()))
        })
        .unwrap_or(([Fate::None, Fate::None], 0));
    let well = if app.service.is_stream() {
        // The server is over, and has no say: it may lose sight of whoever has everything and goes, before it knows that
        // (a QUIC connection that is closed says nothing of what has arrived, RFC 9000 section 10.2).
        let over = !matches!(fates[1], Fate::None | Fate::At(_));
        fates[0] == Fate::Done && over && back == app.up
    } else {
        fates[0] == Fate::Done && back > 0
    };
    if well {
        return Ok(());
    }
    let [client, server] = fates;
    Err(format!(
        "nothing is wrong any more, and flow {flow} fails ({app}): client {client:?}, server {server:?}, {back} came back"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Way;
    use crate::plan::Block;
    use neater_base::Instant;

    /// A plan with a proof for a service that streams, or not.
    fn plan(streams: bool) -> (Plan, AppPlan) {
        let found = (0..500).map(Plan::draw).find_map(|plan| {
            let proof = proofs(&plan).into_iter().find(|p| p.service.is_stream() == streams && p.client != p.server)?;
            Some((plan, proof))
        });
        found.expect("one of the seeds has one")
    }

    #[test]
    fn who_is_behind_a_middlebox_proves_nothing_and_others_once() {
        let (mut plan, proof) = plan(true);
        let count = |plan: &Plan| {
            let same = |p: &&AppPlan| (p.client, p.server, p.service) == (proof.client, proof.server, proof.service);
            proofs(plan).iter().filter(same).count()
        };
        plan.apps.extend(plan.apps.clone());
        assert_eq!(count(&plan), 1);
        plan.hosts[proof.client].ifaces[0].down.blocked = Some(Block::V6);
        assert_eq!(count(&plan), 0);
    }

    #[test]
    fn what_does_not_come_back_is_no_life() {
        let now = Instant::from_nanos(1);
        for streams in [true, false] {
            let (_, app) = plan(streams);
            let ledger = Ledger::new(now, false);
            assert!(judge(&ledger, 0, &app).is_err(), "no flow");
            let flow = ledger.open(now, 0, [app.client, app.server], false);
            ledger.set_fate(now, flow, 0, Fate::Done);
            assert!(judge(&ledger, flow, &app).is_err_and(|why| why.contains("0 came back")));
            if streams {
                ledger.offer(flow, Way::Down, BYTES);
                let data = crate::content::bytes(flow, Way::Up, 0, BYTES as usize);
                ledger.hear(now, flow, Way::Down, Way::Up, 0, &data);
                assert!(judge(&ledger, flow, &app).is_err(), "nobody took it");
                ledger.set_fate(now, flow, 1, Fate::At("closing"));
                assert!(judge(&ledger, flow, &app).is_err(), "the server is not over");
                ledger.set_fate(now, flow, 1, Fate::Done);
            } else {
                ledger.echoed(flow);
            }
            assert_eq!(judge(&ledger, flow, &app), Ok(()));
            ledger.set_fate(now, flow, 0, Fate::Failed("refused".into()));
            assert!(judge(&ledger, flow, &app).is_err_and(|why| why.contains("refused")));
        }
    }
}
