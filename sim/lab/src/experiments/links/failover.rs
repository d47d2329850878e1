//! A link dies without a word under a flow over two: how long it takes until something arrives that
//! had to be sent again.

use super::transfer::Flow;
use bytes::Bytes;
use neater_base::{Instant, Rng};
use neater_link::{LinkConfig, QueueLimit};
use neater_peers::paced::Load;
use neater_sctp::Multipath;
use std::time::Duration;

/// Both links: Mbit/s, the round trip, and queues of one bandwidth-delay product in packets.
const RATE: u64 = 20_000_000;
const RTT: Duration = Duration::from_millis(50);
const QUEUE: usize = 83;
/// What an application sends at once; so many in a second are half of what one link carries.
const MESSAGE: usize = 1250;
const EVERY: Duration = Duration::from_millis(1);
/// The first death is no sooner than this after the connection call, and later by up to a second.
const DIES: Duration = Duration::from_secs(3);
/// How long one is waited for.
const LIMIT: Duration = Duration::from_secs(20);
/// The delay of acknowledgments, which a probe timeout allows for where one packet is under way
/// (RFC 8985 section 7.2).
const ACK_DELAY: Duration = Duration::from_millis(100);
/// What is granted beyond round trips and the probe timeout.
const GRANTED: Duration = Duration::from_millis(25);

/// After which time it went on, and after which it should have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resumed {
    pub(super) after: Duration,
    pub(super) bound: Duration,
}

/// One direction of one link.
pub(in crate::experiments) fn link() -> LinkConfig {
    LinkConfig::rate(RATE, RTT / 2).with_queue(QueueLimit::Packets(QUEUE))
}

/// After which time something must have arrived: two round trips of the survivor, one probe timeout of
/// the sender (RFC 8985 section 7.2), and what is granted beyond these.
pub(super) fn bound(load: Load, survivor: Duration, dead: Duration) -> Duration {
    let single = if load == Load::Idle { ACK_DELAY } else { Duration::ZERO };
    2 * survivor + 2 * dead + single + GRANTED
}

/// One death. `None`: the flow did not go on.
pub(super) fn run(load: Load, seed: u64) -> Option<Resumed> {
    let link = link();
    let mut rng = Rng::from_number(seed);
    let mut flow = Flow::open(&[link.clone(), link], &[], Some(Multipath::aggregate()), seed)?;
    let payload = Bytes::from(vec![7; MESSAGE]);
    let dies = flow.begin + DIES + Duration::from_micros(rng.below(1_000_000));
    drive(&mut flow, load, &payload, dies);
    let paths = flow.world.ends[0].paths(flow.ours);
    // The one that carries the most now: in idleness the one that the next message goes.
    let dead = match load {
        Load::Idle => (0..paths.len()).min_by_key(|i| (paths[*i].srtt, *i))?,
        _ => (0..paths.len()).max_by_key(|i| (paths[*i].in_flight, usize::MAX - i))?,
    };
    let survivor = paths.get(1 - dead)?.srtt?;
    let bound = bound(load, survivor, paths[dead].srtt?);
    flow.world.set_down(dead, true);
    let before = flow.world.course.len();
    let from = if load == Load::Idle { dies + Duration::from_millis(500 + rng.below(2000)) } else { dies };
    if load == Load::Idle {
        flow.run_to(from);
        let most = flow.sent + MESSAGE as u64;
        flow.fill(&payload, most);
        let until = flow.world.now + LIMIT;
        while flow.world.course.len() == before && flow.world.now < until {
            let next = flow.world.now + EVERY;
            flow.run_to(next);
        }
        let (at, _) = *flow.world.course.get(before)?;
        return Some(Resumed { after: at - from, bound });
    }
    drive(&mut flow, load, &payload, from + Duration::from_secs(3));
    // What was under way at the time of death is missing: nothing is in order until that has been
    // sent again.
    let mut last = from;
    let mut longest = (Duration::ZERO, from);
    for (at, _) in &flow.world.course[before..] {
        longest = longest.max((*at - last, *at));
        last = *at;
    }
    let went_on = flow.world.now - last < Duration::from_secs(1);
    went_on.then(|| Resumed { after: longest.1 - from, bound })
}

/// The application sends until then.
fn drive(flow: &mut Flow, load: Load, payload: &Bytes, until: Instant) {
    while flow.world.now < until {
        let most = match load {
            Load::AppLimited => {
                let ticks = (flow.world.now - flow.begin).as_nanos() / EVERY.as_nanos();
                MESSAGE as u64 * ticks as u64
            }
            Load::Full => u64::MAX,
            // Something before, so that the path is known.
            Load::Idle => 100 * MESSAGE as u64,
        };
        flow.fill(payload, most.max(flow.sent));
        let next = (flow.world.now + EVERY).min(until);
        flow.run_to(next);
    }
}
