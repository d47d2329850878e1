//! The link and both ends of it, in virtual time.

use super::name;
use crate::{ClientConfig, Event, ServerConfig, Session};
use core::time::Duration;
use neater_base::{Instant, Rng};

#[derive(Clone, Copy)]
pub(crate) struct Faults {
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    /// Up to so much more than the usual delay, so that datagrams overtake each other.
    pub(crate) delay: Duration,
    /// The chance that a bit of a datagram is flipped.
    pub(crate) damage: f64,
}

impl Faults {
    pub(crate) const NONE: Self = Self { loss: 0.0, duplicate: 0.0, delay: Duration::ZERO, damage: 0.0 };
}

const DELAY: Duration = Duration::from_millis(10);

pub(crate) struct Pair {
    pub(crate) client: Session,
    pub(crate) server: Session,
    pub(crate) now: Instant,
    pub(crate) rng: Rng,
    pub(crate) faults: Faults,
    /// When, in which order, to the server?, what.
    flying: Vec<(Instant, u64, bool, Vec<u8>)>,
    number: u64,
    pub(crate) events: Vec<(bool, Event)>,
    /// When, by the client?, how long: what went over the link.
    pub(crate) trace: Vec<(u64, bool, usize)>,
    /// Kept, so that tests can send them again.
    pub(crate) recorded: Vec<(bool, Vec<u8>)>,
}

impl Pair {
    pub(crate) fn new(client: &ClientConfig, server: &ServerConfig, seed: u64, faults: Faults) -> Self {
        let mut rng = Rng::from_number(seed);
        let now = Instant::ZERO + Duration::from_secs(1000);
        let client = Session::client(client, name(), now, &mut rng);
        let server = Session::server(server, now, &mut rng);
        Self::of(client, server, (now, rng), faults)
    }

    /// Another session, by the client of this one.
    pub(crate) fn beside(&self, client: &ClientConfig, server: &ServerConfig) -> Option<Self> {
        let mut rng = Rng::from_number(77);
        let client = Session::beside(&self.client, client, self.now, &mut rng)?;
        let server = Session::server(server, self.now, &mut rng);
        Some(Self::of(client, server, (self.now, rng), self.faults))
    }

    fn of(client: Session, server: Session, (now, rng): (Instant, Rng), faults: Faults) -> Self {
        Self {
            client,
            server,
            now,
            rng,
            faults,
            flying: Vec::new(),
            number: 0,
            events: Vec::new(),
            trace: Vec::new(),
            recorded: Vec::new(),
        }
    }

    fn launch(&mut self, by_client: bool, datagram: &[u8]) {
        if self.rng.chance(self.faults.loss) {
            return;
        }
        let mut datagram = datagram.to_vec();
        if self.rng.chance(self.faults.damage) {
            let at = self.rng.below(datagram.len() as u64) as usize;
            datagram[at] ^= 1 << self.rng.below(8);
        }
        let extra = self.faults.delay.mul_f64(self.rng.unit());
        self.number += 1;
        self.flying.push((self.now + DELAY + extra, self.number, by_client, datagram));
    }

    pub(crate) fn collect(&mut self) {
        for by_client in [true, false] {
            loop {
                let end = if by_client { &mut self.client } else { &mut self.server };
                let Some(datagram) = end.poll_transmit() else { break };
                self.trace.push((self.now.as_nanos(), by_client, datagram.len()));
                self.recorded.push((by_client, datagram.clone()));
                self.launch(by_client, &datagram);
                if self.rng.chance(self.faults.duplicate) {
                    self.launch(by_client, &datagram);
                }
            }
            let end = if by_client { &mut self.client } else { &mut self.server };
            while let Some(event) = end.poll_event() {
                self.events.push((by_client, event));
            }
        }
    }

    /// Lets everything happen that is due until `until`, and not more than that.
    pub(crate) fn run_until(&mut self, until: Instant, done: impl Fn(&Self) -> bool) {
        loop {
            self.collect();
            if done(self) {
                return;
            }
            let timers = [self.client.next_timeout(), self.server.next_timeout()].into_iter().flatten();
            let next = self.flying.iter().map(|f| f.0).chain(timers).min();
            let Some(next) = next.filter(|n| *n <= until) else { break };
            self.now = next.max(self.now);
            self.flying.sort();
            while self.flying.first().is_some_and(|f| f.0 <= self.now) {
                let (_, _, by_client, datagram) = self.flying.remove(0);
                let end = if by_client { &mut self.server } else { &mut self.client };
                end.handle_datagram(self.now, &datagram);
                self.collect();
            }
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
        }
        self.now = until;
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span, |_| false);
    }

    pub(crate) fn run_until_connected(&mut self) {
        let until = self.now + Duration::from_secs(5);
        self.run_until(until, |p| p.client.is_connected() && p.server.is_connected());
        assert!(self.client.is_connected() && self.server.is_connected(), "{:?}", self.events);
        self.run_for(Duration::from_millis(50));
    }

    pub(crate) fn happened(&self, event: Event) -> bool {
        self.events.iter().any(|(_, e)| *e == event)
    }
}
