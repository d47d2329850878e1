//! Two endpoints under faults, by seed: `SIM_SEED=n` runs one, `SIM_SEEDS=n` the first n.
//!
//! Whatever happens: what is delivered is delivered once, whole, and in order on its stream; what is not is reported; nothing
//! is left when both sides have let go.

mod support;

use bytes::Bytes;
use core::time::Duration;
use neater_base::Rng;
use neater_link::{Jitter, LinkConfig, Loss, QueueLimit, Rate};
use neater_sctp::{
    AssociationConfig, AssociationId, Burst, CloseReason, Event, Extensions, Recovery, Reliability, Scheduler,
    SendError, SendOptions,
};
use neater_sctp_wire::StreamId;
use std::collections::{BTreeMap, BTreeSet};
use support::{World, config, ms};

/// A message as its sender sees it.
#[derive(Clone, Debug)]
struct Sent {
    stream: u16,
    unordered: bool,
    payload: Vec<u8>,
    partial: bool,
    epoch: u32,
}

/// What one side has sent, and what became of it.
#[derive(Default)]
struct Ledger {
    sent: BTreeMap<u64, Sent>,
    by_id: BTreeMap<u64, u64>,
    failed: BTreeSet<u64>,
    arrived: BTreeSet<u64>,
    last_of_stream: BTreeMap<u16, u64>,
    partial_message: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

fn link(rng: &mut Rng) -> LinkConfig {
    let mut link = LinkConfig::delay(Duration::from_micros(rng.below(80_000)));
    if rng.chance(0.5) {
        link.rate = Rate::Fixed(500_000 + rng.below(50_000_000));
        link.queue = QueueLimit::Packets(10 + rng.below(100) as usize);
    }
    if rng.chance(0.6) {
        link.loss = Loss::Random(rng.unit() * 0.15);
    }
    if rng.chance(0.4) {
        link.jitter = Jitter::Uniform(Duration::from_micros(rng.below(30_000)));
        link.reorder = rng.chance(0.7);
    }
    if rng.chance(0.4) {
        link.duplicate = rng.unit() * 0.1;
    }
    if rng.chance(0.3) {
        link.corrupt = rng.unit() * 0.05;
    }
    link
}

fn association(rng: &mut Rng) -> AssociationConfig {
    let base = if rng.chance(0.4) { AssociationConfig::rfc9260() } else { AssociationConfig::default() };
    let schedulers = [
        Scheduler::FirstCome,
        Scheduler::RoundRobin,
        Scheduler::RoundRobinPerPacket,
        Scheduler::Priority,
        Scheduler::FairBandwidth,
        Scheduler::WeightedFair,
    ];
    let mut recovery = if rng.chance(0.5) { Recovery::modern() } else { Recovery::rfc9260() };
    if rng.chance(0.2) {
        recovery.burst = Burst::Unlimited;
    }
    AssociationConfig {
        receive_buffer: 5000 + rng.below(200_000) as u32,
        send_buffer: 20_000 + rng.below(500_000) as usize,
        scheduler: schedulers[rng.below(6) as usize],
        recovery,
        max_association_retransmits: 30,
        max_path_retransmits: 30,
        max_init_retransmits: 30,
        rto: neater_sctp::RtoConfig { max: Duration::from_secs(5), ..base.rto },
        extensions: Extensions {
            interleaving: rng.chance(0.5),
            partial_reliability: rng.chance(0.7),
            reconfiguration: rng.chance(0.5),
            ecn: rng.chance(0.5),
            zero_checksum: false,
        },
        ..base
    }
}

/// A payload that says which message of which side it is.
fn payload(rng: &mut Rng, number: u64, end: usize) -> Vec<u8> {
    let len = match rng.below(10) {
        0 => 1 + rng.below(12),
        1..=6 => 12 + rng.below(2000),
        7 | 8 => rng.below(10_000) + 12,
        _ => rng.below(60_000) + 12,
    };
    let mut out = vec![0; (len as usize).max(9)];
    Rng::from_number(number ^ (end as u64) << 60).fill(&mut out);
    out[..8].copy_from_slice(&number.to_be_bytes());
    out[8] = end as u8;
    out
}

struct Case {
    seed: u64,
    w: World,
    ids: [Option<AssociationId>; 2],
    ledgers: [Ledger; 2],
    epoch: u32,
    seen: [usize; 2],
    closed: [Option<CloseReason>; 2],
    trace: bool,
}

impl Case {
    fn new(seed: u64, rng: &mut Rng) -> Self {
        let configs = [config(0, 1, association(rng)), config(1, 1, association(rng))].map(|mut c| {
            c.accept = true;
            c
        });
        let mut w = World::with(seed, configs, vec![link(rng)]);
        if rng.chance(0.5) {
            w.links[1] = vec![neater_link::Link::starting_at(w.now, link(rng), seed)];
        }
        let (ledgers, closed) = (Default::default(), Default::default());
        Self { seed, w, ids: [None; 2], ledgers, epoch: 0, seen: [0; 2], closed, trace: false }
    }

    fn say(&self, what: &str) -> String {
        format!("seed {}: {what} at {:?}; replay with SIM_SEED={}", self.seed, self.w.now, self.seed)
    }

    fn send(&mut self, rng: &mut Rng, end: usize) {
        let Some(id) = self.ids[end] else { return };
        let ledger = &mut self.ledgers[end];
        let number = ledger.next;
        let stream = rng.below(8) as u16;
        let bytes = payload(rng, number, end);
        let reliability = match rng.below(8) {
            0 => Reliability::Until(self.w.now + ms(rng.below(500))),
            1 => Reliability::Retransmissions(rng.below(2) as u32),
            2 => Reliability::Priority(rng.below(5) as u32),
            _ => Reliability::Full,
        };
        let options = SendOptions {
            unordered: rng.chance(0.2),
            reliability,
            immediate: rng.chance(0.1),
            report: true,
            ..SendOptions::default()
        };
        match self.w.ends[end].send(id, StreamId(stream), Bytes::from(bytes.clone()), options) {
            Ok(message) => {
                ledger.next += 1;
                ledger.by_id.insert(message.0, number);
                ledger.sent.insert(
                    number,
                    Sent {
                        stream,
                        unordered: options.unordered,
                        payload: bytes,
                        partial: reliability != Reliability::Full,
                        epoch: self.epoch,
                    },
                );
            }
            Err(SendError::Blocked | SendError::ShuttingDown | SendError::Closed | SendError::NotPartiallyReliable) => {
            }
            Err(other) => panic!("{}", self.say(&format!("send failed: {other}"))),
        }
    }

    /// Reads what arrived at `end`, and checks it against what the other side sent.
    fn read(&mut self, end: usize) {
        let Some(id) = self.ids[end] else { return };
        while let Some(m) = self.w.ends[end].receive(id) {
            let key = m.number;
            let said = self.say("");
            let ledger = &mut self.ledgers[1 - end];
            let so_far = ledger.partial_message.entry(key).or_default();
            assert_eq!(m.first, so_far.is_empty(), "{said} parts of messages are mixed");
            so_far.extend_from_slice(&m.payload);
            if !m.last {
                continue;
            }
            let whole = ledger.partial_message.remove(&key).unwrap_or_default();
            let number = u64::from_be_bytes(whole[..8].try_into().unwrap());
            let sent = ledger.sent.get(&number).unwrap_or_else(|| panic!("{said} nobody sent {number}"));
            assert!(whole == sent.payload, "{said} message {number} arrived damaged");
            assert_eq!((m.stream.0, m.unordered), (sent.stream, sent.unordered), "{said}");
            assert!(ledger.arrived.insert(number), "{said} message {number} arrived twice");
            if !sent.unordered {
                let last = ledger.last_of_stream.insert(sent.stream, number);
                assert!(last.is_none_or(|l| l < number), "{said} message {number} came after {last:?}");
            }
            self.w.ends[end].recycle(id, m.payload);
        }
    }

    fn events(&mut self) {
        for end in 0..2 {
            while self.seen[end] < self.w.events[end].len() {
                let (id, event) = self.w.events[end][self.seen[end]].clone();
                self.seen[end] += 1;
                if self.trace {
                    println!("{:?} end {end} {id:?} {event:?}", self.w.now);
                }
                match event {
                    Event::Accepted if self.ids[end].is_none() => self.ids[end] = Some(id),
                    Event::Failed { message, .. } => {
                        let number = self.ledgers[end].by_id[&message.0];
                        assert!(self.ledgers[end].failed.insert(number), "{}", self.say("failed twice"));
                    }
                    Event::PartLost { number, .. } => {
                        self.ledgers[1 - end].partial_message.remove(&number);
                    }
                    Event::Closed(reason) => self.closed[end] = Some(reason),
                    _ => {}
                }
            }
        }
    }

    fn check_end(&mut self, graceful: bool) {
        for end in 0..2 {
            let said = self.say("");
            let ledger = &self.ledgers[end];
            for (number, sent) in &ledger.sent {
                let (arrived, failed) = (ledger.arrived.contains(number), ledger.failed.contains(number));
                let Sent { stream, unordered, partial, payload, .. } = sent;
                assert!(
                    arrived || failed,
                    "{said} message {number} of {end} is lost silently: {:?}, stream {stream}, unordered {unordered}, partial {partial}, {} bytes of {} messages",
                    self.closed,
                    payload.len(),
                    ledger.sent.len()
                );
                if graceful && !sent.partial {
                    assert!(arrived, "{said} message {number} of {end} was not delivered ({sent:?}), failed: {failed}");
                }
                let _ = sent.epoch;
            }
        }
        for end in 0..2 {
            if let Some(id) = self.ids[end] {
                self.w.ends[end].release(id);
            }
            self.w.flush();
            let e = &self.w.ends[end];
            assert_eq!((e.associations(), e.kept()), (0, 0), "{}", self.say("an association is left"));
            assert_eq!(e.next_timeout(), None, "{}", self.say("a timer is left"));
            assert!(e.is_idle(), "{}", self.say("something is left"));
        }
    }
}

fn run(seed: u64, trace: bool) {
    let mut rng = Rng::from_number(seed);
    let mut case = Case::new(seed, &mut rng);
    let both = rng.chance(0.3);
    case.trace = trace;
    if trace {
        case.w.tap = Some(support::tracer());
    }
    case.ids[0] = Some(case.w.connect(0));
    if both {
        case.w.run(Duration::from_micros(rng.below(60_000)));
        case.events();
        if case.ids[1].is_none() {
            case.ids[1] = Some(case.w.connect(1));
        }
    }
    let steps = 5 + rng.below(60);
    for _ in 0..steps {
        for end in 0..2 {
            for _ in 0..rng.below(6) {
                case.send(&mut rng, end);
            }
        }
        case.w.run(Duration::from_micros(rng.below(300_000)));
        case.events();
        for end in 0..2 {
            if rng.chance(0.8) {
                case.read(end);
            }
        }
    }
    let graceful = rng.chance(0.8);
    let who = [rng.chance(0.6), rng.chance(0.5)];
    let who = if !who[0] && (!who[1] || case.ids[1].is_none()) { [true, who[1]] } else { who };
    for (end, wants) in who.into_iter().enumerate() {
        if let Some(id) = case.ids[end].filter(|_| wants) {
            let now = case.w.now;
            if graceful {
                case.w.ends[end].shutdown(now, id);
            } else {
                case.w.ends[end].abort(id, b"enough");
            }
        }
    }
    for _ in 0..4000 {
        case.w.run(ms(250));
        case.events();
        case.read(0);
        case.read(1);
        case.events();
        if case.closed.iter().zip(&case.ids).all(|(c, id)| c.is_some() || id.is_none()) {
            break;
        }
    }
    // The other side may never hear of an abort while it is silent.
    if graceful {
        assert!(case.closed[0].is_some(), "{}", case.say("it does not end"));
        // A client that gave up before anything came across never met the server.
        let met = case.ids[1].is_some();
        let good = |c: &Option<CloseReason>| matches!(c, Some(CloseReason::Shutdown));
        let graceful = met && good(&case.closed[0]) && good(&case.closed[1]);
        case.check_end(graceful);
    } else {
        for end in 0..2 {
            if let Some(id) = case.ids[end] {
                case.w.ends[end].abort(id, b"");
            }
        }
        case.w.flush();
        case.events();
    }
}

#[test]
fn sim_messages_are_delivered_once_in_order_or_reported() {
    #[allow(clippy::disallowed_methods, reason = "the seed to replay comes from whoever runs the test")]
    let variable = |name| std::env::var(name).ok().and_then(|s: String| s.parse::<u64>().ok());
    if let Some(seed) = variable("SIM_SEED") {
        return run(seed, true);
    }
    let seeds = variable("SIM_SEEDS").unwrap_or(150);
    let first = variable("SIM_FIRST").unwrap_or(0);
    for seed in first..first + seeds {
        run(seed, false);
    }
}
