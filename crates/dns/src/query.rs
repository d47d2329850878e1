//! One question's life over the servers.
//!
//! *Responsible for* tries: a fresh random id and a fresh transport for each, so that an attacker
//! off the path has to guess both the id and the port (RFC 5452 section 9.2); patience that doubles
//! with every round; the next server when one fails; TCP when an answer does not fit. *Not
//! responsible for* what an answer means ([`crate::wire`] judges it), nor for the lookups that want
//! it.
//!
//! *Invariants*: a question has ended after [`Config::longest_question`]; at most
//! [`MAX_OPEN_TRIES`] transports are open for it; a server that has failed actively (an error code,
//! an ICMP error, a closed connection) is not asked again.

use core::time::Duration;
use neater_base::net::{ErrorKind, NetError};
use neater_base::{Instant, Key, Rng};
use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

use crate::api::{Output, TransportId};
use crate::cache::Fact;
use crate::resolv_conf::MAX_SERVERS;
use crate::wire::{self, Asked, Reply};
use crate::{Config, ResolveError};

/// Transports that one question keeps open at most. Earlier tries stay open, so that a slow
/// server's late answer counts.
pub const MAX_OPEN_TRIES: usize = 3;
/// How long a server that let a question time out is asked after the others.
pub const SERVER_PENALTY: Duration = Duration::from_secs(30);
/// Messages on one TCP connection that do not answer the question, at most.
const MAX_FOREIGN: u8 = 8;

/// How a question ended: what is known and how long it may be cached.
pub(crate) type Verdict = Result<(Fact, Option<Duration>), ResolveError>;

/// Which servers have let questions time out lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    penalised_until: [Instant; MAX_SERVERS],
    turn: usize,
}

impl Health {
    /// The order in which to ask: as configured or in turn, with the lately silent servers last.
    pub(crate) fn order(&mut self, now: Instant, config: &Config) -> Vec<u8> {
        let n = config.servers.len().min(MAX_SERVERS);
        let mut order: Vec<u8> = (0..n as u8).collect();
        if config.rotate && n > 0 {
            order.rotate_left(self.turn % n);
            self.turn = self.turn.wrapping_add(1);
        }
        order.sort_by_key(|s| self.penalised_until.get(usize::from(*s)).is_some_and(|until| *until > now));
        order
    }

    fn set(&mut self, server: u8, until: Instant) {
        if let Some(u) = self.penalised_until.get_mut(usize::from(server)) {
            *u = until;
        }
    }
}

/// Which question each open transport belongs to.
#[derive(Debug, Default)]
pub(crate) struct Transports {
    next: u32,
    owners: BTreeMap<TransportId, Key>,
}

impl Transports {
    /// The question that a transport was opened for.
    pub(crate) fn owner(&self, transport: TransportId) -> Option<Key> {
        self.owners.get(&transport).copied()
    }

    fn open(&mut self, owner: Key) -> TransportId {
        loop {
            let id = TransportId(self.next);
            self.next = self.next.wrapping_add(1);
            // Far fewer than 2³² are open, so this ends.
            if let Entry::Vacant(place) = self.owners.entry(id) {
                place.insert(owner);
                return id;
            }
        }
    }
}

/// What a question needs from the resolver while it is being driven.
pub(crate) struct Io<'a> {
    pub(crate) me: Key,
    pub(crate) rng: &'a mut Rng,
    pub(crate) transports: &'a mut Transports,
    pub(crate) health: &'a mut Health,
    pub(crate) out: &'a mut VecDeque<Output>,
}

#[derive(Debug)]
struct Try {
    transport: TransportId,
    server: u8,
    id: u16,
    edns: bool,
    /// Present for TCP.
    stream: Option<Stream>,
}

#[derive(Debug, Default)]
struct Stream {
    connected: bool,
    /// The two-byte length and as much of the message as has come; never more than one message.
    buffer: Vec<u8>,
    foreign: u8,
}

impl Stream {
    /// Takes bytes off `data` until one message is complete.
    fn message(&mut self, data: &mut &[u8]) -> Option<Vec<u8>> {
        loop {
            let wanted = match self.buffer.as_slice() {
                [a, b, rest @ ..] => {
                    let length = usize::from(u16::from_be_bytes([*a, *b]));
                    if rest.len() == length {
                        let message = rest.to_vec();
                        self.buffer.clear();
                        return Some(message);
                    }
                    2 + length
                }
                _ => 2,
            };
            let (head, tail) = data.split_at(data.len().min(wanted - self.buffer.len()));
            if head.is_empty() {
                return None;
            }
            self.buffer.extend_from_slice(head);
            *data = tail;
        }
    }
}

/// A question on its way.
#[derive(Debug)]
pub(crate) struct Query {
    asked: Asked,
    config: Arc<Config>,
    interface: Option<u32>,
    order: Vec<u8>,
    /// The next turn; a round is one turn for each server.
    turn: usize,
    /// Servers that have failed actively, by bit.
    failed: u16,
    edns: bool,
    tries: VecDeque<Try>,
    /// No turn is left; only answers to what was asked count.
    exhausted: bool,
    due: Instant,
    deadline: Instant,
    /// The most specific failure so far.
    error: Option<ResolveError>,
}

impl Query {
    /// A question that has not been asked yet. `config` is clamped.
    pub(crate) fn new(now: Instant, asked: Asked, interface: Option<u32>, config: Arc<Config>, order: Vec<u8>) -> Self {
        let deadline = now + config.longest_question();
        Self {
            asked,
            interface,
            order,
            turn: 0,
            failed: 0,
            edns: config.edns,
            tries: VecDeque::new(),
            exhausted: false,
            due: deadline,
            deadline,
            error: None,
            config,
        }
    }

    /// When [`Query::on_timeout`] has something to do.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Asks the first server.
    pub(crate) fn start(&mut self, now: Instant, io: &mut Io<'_>) -> Option<Verdict> {
        if self.order.is_empty() {
            return Some(Err(ResolveError::NoServers));
        }
        self.advance(now, io)
    }

    /// The present try has taken too long.
    pub(crate) fn on_timeout(&mut self, now: Instant, io: &mut Io<'_>) -> Option<Verdict> {
        if now < self.due {
            return None;
        }
        if let Some(t) = self.tries.back() {
            io.health.set(t.server, now + SERVER_PENALTY);
        }
        if self.exhausted || now >= self.deadline {
            return Some(Err(self.error.unwrap_or(ResolveError::Timeout)));
        }
        self.advance(now, io)
    }

    /// A datagram has come in on one of the transports.
    pub(crate) fn on_datagram(
        &mut self,
        now: Instant,
        transport: TransportId,
        data: &[u8],
        io: &mut Io<'_>,
    ) -> Option<Verdict> {
        let t = self.tries.iter().find(|t| t.transport == transport && t.stream.is_none())?;
        let reply = wire::judge(data, t.id, &self.asked, t.edns, false);
        self.act(now, t.server, transport, reply, io)
    }

    /// A connection is made: the question goes out.
    pub(crate) fn on_connected(&mut self, transport: TransportId, io: &mut Io<'_>) {
        let Some(t) = self.tries.iter_mut().find(|t| t.transport == transport) else { return };
        let Some(stream) = t.stream.as_mut().filter(|s| !s.connected) else { return };
        stream.connected = true;
        if let Some(question) = wire::question(t.id, &self.asked, t.edns, self.config.trust_ad) {
            // RFC 1035 section 4.2.2: a two-byte length goes before the message. Both go out
            // together (RFC 7766 section 8).
            let mut data = Vec::with_capacity(2 + question.len());
            data.extend_from_slice(&(question.len() as u16).to_be_bytes());
            data.extend_from_slice(&question);
            io.out.push_back(Output::Send { transport, data });
        }
    }

    /// Bytes have come in on a connection.
    pub(crate) fn on_stream(
        &mut self,
        now: Instant,
        transport: TransportId,
        mut data: &[u8],
        io: &mut Io<'_>,
    ) -> Option<Verdict> {
        loop {
            let t = self.tries.iter_mut().find(|t| t.transport == transport)?;
            let (server, id, edns) = (t.server, t.id, t.edns);
            let stream = t.stream.as_mut()?;
            let message = stream.message(&mut data)?;
            let mut reply = wire::judge(&message, id, &self.asked, edns, true);
            if reply == Reply::Foreign {
                stream.foreign += 1;
                if stream.foreign < MAX_FOREIGN {
                    continue;
                }
                reply = Reply::Useless(ResolveError::Malformed);
            }
            return self.act(now, server, transport, reply, io);
        }
    }

    /// A transport is gone: an ICMP error, a refused or closed connection, no descriptor left.
    pub(crate) fn on_failed(
        &mut self,
        now: Instant,
        transport: TransportId,
        error: Option<NetError>,
        io: &mut Io<'_>,
    ) -> Option<Verdict> {
        let server = self.tries.iter().find(|t| t.transport == transport)?.server;
        let error = error.unwrap_or(ErrorKind::ConnectionReset.into());
        self.fail(now, server, ResolveError::Unreachable(error), io)
    }

    /// Closes every transport.
    pub(crate) fn close(&mut self, io: &mut Io<'_>) {
        while let Some(t) = self.tries.pop_front() {
            close(t.transport, io);
        }
    }

    fn act(
        &mut self,
        now: Instant,
        server: u8,
        transport: TransportId,
        reply: Reply,
        io: &mut Io<'_>,
    ) -> Option<Verdict> {
        match reply {
            // Whatever its source, it is no reason to stop waiting for the true answer.
            Reply::Foreign => None,
            Reply::Answer(fact, lifetime) => {
                io.health.set(server, Instant::ZERO);
                Some(Ok((fact, lifetime)))
            }
            Reply::Hopeless(error) => Some(Err(error)),
            Reply::Useless(error) => self.fail(now, server, error, io),
            Reply::Truncated => {
                self.drop_tries(io, |t| t.transport == transport);
                self.open(server, true, io);
                self.wait(now, self.patience());
                None
            }
            Reply::Plainer => {
                let stream = self.tries.iter().any(|t| t.transport == transport && t.stream.is_some());
                self.drop_tries(io, |t| t.transport == transport);
                // RFC 6891 section 7 lets us ask again without the option; this can happen once for
                // each server.
                self.edns = false;
                self.open(server, stream, io);
                None
            }
        }
    }

    /// A server has failed: it is not asked again, and the next one is, if it is not being asked
    /// already.
    fn fail(&mut self, now: Instant, server: u8, error: ResolveError, io: &mut Io<'_>) -> Option<Verdict> {
        self.failed |= bit(server);
        self.error = Some(error);
        let waited_for_it = self.tries.back().is_some_and(|t| t.server == server);
        self.drop_tries(io, |t| t.server == server);
        if waited_for_it { self.advance(now, io) } else { None }
    }

    /// Takes the next turn, or settles down to wait for what has been asked.
    fn advance(&mut self, now: Instant, io: &mut Io<'_>) -> Option<Verdict> {
        if let Some((turn, server)) = self.upcoming() {
            self.turn = turn + 1;
            self.open(server, self.config.use_tcp, io);
            self.exhausted = self.upcoming().is_none();
            self.wait(now, self.patience());
            return None;
        }
        if self.tries.is_empty() {
            return Some(Err(self.error.unwrap_or(ResolveError::Timeout)));
        }
        if !self.exhausted {
            self.exhausted = true;
            self.wait(now, self.config.timeout);
        }
        None
    }

    /// How long the present try may take.
    fn patience(&self) -> Duration {
        let round = self.turn.saturating_sub(1) / self.order.len().max(1);
        if self.exhausted { self.config.timeout } else { self.config.wait(round) }
    }

    /// The next turn of a server that has not failed.
    fn upcoming(&self) -> Option<(usize, u8)> {
        let turns = self.order.len() * usize::from(self.config.attempts);
        let order = self.order.iter().copied().cycle().take(turns).enumerate();
        order.skip(self.turn).find(|(_, server)| self.failed & bit(*server) == 0)
    }

    /// Opens a transport for a new try; a datagram goes out at once, a connection has to be made
    /// first.
    fn open(&mut self, server: u8, tcp: bool, io: &mut Io<'_>) {
        let Some(addr) = self.config.servers.get(usize::from(server)).copied() else { return };
        while self.tries.len() >= MAX_OPEN_TRIES {
            if let Some(oldest) = self.tries.pop_front() {
                close(oldest.transport, io);
            }
        }
        let (transport, id, interface) = (io.transports.open(io.me), io.rng.u16(), self.interface);
        let stream = tcp.then(Stream::default);
        self.tries.push_back(Try { transport, server, id, edns: self.edns, stream });
        if tcp {
            io.out.push_back(Output::OpenTcp { transport, server: addr, interface });
        } else {
            io.out.push_back(Output::OpenUdp { transport, server: addr, interface });
            if let Some(data) = wire::question(id, &self.asked, self.edns, self.config.trust_ad) {
                io.out.push_back(Output::Send { transport, data });
            }
        }
    }

    fn drop_tries(&mut self, io: &mut Io<'_>, which: impl Fn(&Try) -> bool) {
        self.tries.retain(|t| {
            let gone = which(t);
            if gone {
                close(t.transport, io);
            }
            !gone
        });
    }

    fn wait(&mut self, now: Instant, patience: Duration) {
        self.due = (now + patience).min(self.deadline);
    }
}

const fn bit(server: u8) -> u16 {
    1u16 << (server % 16)
}

fn close(transport: TransportId, io: &mut Io<'_>) {
    io.transports.owners.remove(&transport);
    io.out.push_back(Output::Close { transport });
}

const _: () = assert!(MAX_SERVERS <= 16, "a server is a bit of a u16");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_MESSAGE;

    #[test]
    fn a_stream_gives_whole_messages_however_the_bytes_arrive() {
        let bytes = [0, 3, 1, 2, 3, 0, 0, 0, 1, 9];
        for chunk in 1..=bytes.len() {
            let mut stream = Stream::default();
            let mut got = Vec::new();
            for mut data in bytes.chunks(chunk) {
                while let Some(m) = stream.message(&mut data) {
                    got.push(m);
                }
            }
            assert_eq!(got, [vec![1, 2, 3], vec![], vec![9]], "chunks of {chunk}");
        }
    }

    #[test]
    fn a_stream_never_buffers_more_than_one_message() {
        let mut stream = Stream::default();
        let flood = vec![0xff; 100_000];
        let mut data = flood.as_slice();
        assert_eq!(stream.message(&mut data).map(|m| m.len()), Some(MAX_MESSAGE));
        assert_eq!(stream.message(&mut data), None);
        assert!(stream.buffer.len() < 2 + MAX_MESSAGE);
    }

    #[test]
    fn silent_servers_go_to_the_end_and_rotation_takes_turns() {
        let addr = "10.0.0.1:53".parse().unwrap();
        let mut config = Config { servers: vec![addr; 3], ..Config::default() };
        let mut health = Health::default();
        let now = Instant::from_nanos(5);
        health.set(0, now + SERVER_PENALTY);
        assert_eq!(health.order(now, &config), [1, 2, 0]);
        assert_eq!(health.order(now + SERVER_PENALTY, &config), [0, 1, 2]);
        config.rotate = true;
        let later = now + SERVER_PENALTY;
        let firsts: Vec<u8> = (0..4).map(|_| health.order(later, &config)[0]).collect();
        assert_eq!(firsts, [0, 1, 2, 0]);
    }
}
