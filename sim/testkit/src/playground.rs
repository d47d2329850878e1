//! [`Playground`]: engines on the hosts of a world, driven in virtual time, with programs on their connections.
//!
//! *Responsible for* the order of things: whoever has something to do now does it, host by host; then time moves to
//! whatever comes next. *Not for* the topology (`town`), nor for what a test is about.
//!
//! *Invariants*: a run is a function of the world's seed, the engines' seeds and the calls; programs act on events alone;
//! a host that wants a turn for ever at one instant is a failure; so is an event after the last one of a connection, and a
//! second `Ready`.

use crate::flow::{Flow, FlowId, Manner, Over, WhenEnded};
use bytes::Bytes;
use core::time::Duration;
use neater_base::Instant;
use neater_base::net::Net;
use neater_engine::{
    ConnectionId, ConnectionState, Engine, EngineConfig, EngineStats, EstablishmentError, Event, ListenerId,
    LocalEndpoint, Notice, ReceiveOutcome, RemoteEndpoint, Request, SendError, SendOptions, Source,
};
use neater_netsim::{HostId, SimNet, World};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Turns of all hosts together at one instant, before that counts as spinning.
const MAX_TURNS: usize = 100_000;
/// Bytes that a program takes at once.
const RECEIVE_MAX: usize = 64 << 10;
/// Notices that are kept per host; the oldest go first.
const MAX_LOG: usize = 1 << 16;
/// How long the last traces of a run may take to go: longer than TIME-WAIT, idle timeouts and lingering.
const AFTERLIFE: Duration = Duration::from_secs(400);
/// How much longer a TCP connection that a host's system still holds, its socket long closed, may try to deliver what it has
/// to a peer that is gone: nine waits of up to two minutes, as systems do.
const ORPHANS: Duration = Duration::from_secs(800);

/// Names a host with an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(pub(crate) usize);

struct Place<N> {
    node: Node,
    host: HostId,
    engine: Engine<N>,
    log: Vec<(Instant, Notice)>,
    manner: Manner,
    accepted: Vec<FlowId>,
    listeners: Vec<ListenerId>,
}

/// Engines in one world.
pub struct Playground<N: Net = SimNet> {
    world: World,
    places: Vec<Place<N>>,
    flows: BTreeMap<FlowId, Flow>,
    /// Turns at the present instant.
    turns: (Instant, usize),
    /// The last look at an engine began with a fast poll.
    polls_fast: bool,
    /// Programs take the streams that their groups receive.
    takes_streams: bool,
}

impl<N: Net> core::fmt::Debug for Playground<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Playground").field("flows", &self.flows.len()).finish_non_exhaustive()
    }
}

impl<N: Net> Playground<N> {
    /// A playground in this world, without engines yet.
    #[must_use]
    pub fn new(world: World) -> Self {
        let now = world.now();
        Self {
            world,
            places: Vec::new(),
            flows: BTreeMap::new(),
            turns: (now, 0),
            polls_fast: false,
            takes_streams: true,
        }
    }

    /// Gives a host an engine over `net`, which is the host's.
    pub fn add(&mut self, host: HostId, net: N, config: EngineConfig) -> Node {
        let mut engine = Engine::new(net, config);
        engine.settle();
        let node = Node(self.places.len());
        let place = Place {
            node,
            host,
            engine,
            log: Vec::new(),
            manner: Manner::default(),
            accepted: Vec::new(),
            listeners: Vec::new(),
        };
        self.places.push(place);
        node
    }

    /// The world.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.world.now()
    }

    /// How many engines there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.places.len()
    }

    /// The host of a node.
    #[must_use]
    pub fn host(&self, node: Node) -> HostId {
        self.places[node.0].host
    }

    /// From now on, no program takes the streams that its groups receive.
    pub fn take_no_streams(&mut self) {
        self.takes_streams = false;
    }

    /// The engine of a node. What is called on it takes effect with the next run.
    pub fn engine(&mut self, node: Node) -> &mut Engine<N> {
        &mut self.places[node.0].engine
    }

    /// Every event of a node so far.
    #[must_use]
    pub fn log(&self, node: Node) -> &[(Instant, Notice)] {
        &self.places[node.0].log
    }

    /// The figures of a node's engine.
    #[must_use]
    pub fn stats(&self, node: Node) -> EngineStats {
        self.places[node.0].engine.stats()
    }

    // --- programs --------------------------------------------------------------------------------------------------

    /// How the program of a node behaves on connections that it receives from now on.
    pub fn serve(&mut self, node: Node, manner: Manner) {
        self.places[node.0].manner = manner;
    }

    /// Listens.
    ///
    /// # Errors
    /// As [`Engine::listen`].
    pub fn listen(
        &mut self,
        node: Node,
        request: &Request,
        local: &[LocalEndpoint],
    ) -> Result<ListenerId, EstablishmentError> {
        let place = &mut self.places[node.0];
        let listener = place.engine.listen(request, local)?;
        place.listeners.push(listener);
        place.engine.settle();
        Ok(listener)
    }

    /// Opens a connection; its program behaves as `manner` says.
    ///
    /// # Errors
    /// As [`Engine::initiate`].
    pub fn initiate(
        &mut self,
        node: Node,
        request: &Request,
        remotes: &[RemoteEndpoint],
        manner: Manner,
    ) -> Result<FlowId, EstablishmentError> {
        self.initiate_with(node, request, remotes, None, None, manner)
    }

    /// As [`Playground::initiate`], from a local endpoint and with a first message that may be early data.
    ///
    /// # Errors
    /// As [`Engine::initiate`].
    pub fn initiate_with(
        &mut self,
        node: Node,
        request: &Request,
        remotes: &[RemoteEndpoint],
        local: Option<&LocalEndpoint>,
        first: Option<Bytes>,
        manner: Manner,
    ) -> Result<FlowId, EstablishmentError> {
        let remotes: Arc<[RemoteEndpoint]> = remotes.into();
        let conn = self.places[node.0].engine.initiate(request, &remotes, local, first)?;
        let id = FlowId { node, conn };
        let old = self.flows.insert(id, Flow::new(manner, self.world.now()));
        assert!(old.is_none(), "the engine gave the id of a connection that exists: {id:?}");
        self.greet(id);
        self.take_notices(node.0);
        Ok(id)
    }

    /// Adopts a connection that was made in another way (cloned, or a stream that was opened).
    pub fn adopt(&mut self, node: Node, conn: ConnectionId, manner: Manner) -> FlowId {
        let id = FlowId { node, conn };
        self.flows.insert(id, Flow::new(manner, self.world.now()));
        self.greet(id);
        self.take_notices(node.0);
        id
    }

    /// Lets a new program take over a connection: it behaves in its own manner and has seen nothing yet.
    pub(crate) fn restart(&mut self, id: FlowId, manner: Manner) {
        let flow = self.flow_mut(id);
        let fresh = Flow::new(manner, flow.opened_at);
        let old = core::mem::replace(flow, fresh);
        (flow.ready_at, flow.over, flow.released) = (old.ready_at, old.over, old.released);
        self.greet(id);
    }

    fn greet(&mut self, id: FlowId) {
        if let Some(greeting) = self.flows.get(&id).and_then(|f| f.manner.greeting.clone()) {
            self.say(id, greeting, SendOptions::default());
        }
    }

    /// The flows that a node has received, oldest first.
    #[must_use]
    pub fn accepted(&self, node: Node) -> &[FlowId] {
        &self.places[node.0].accepted
    }

    /// The state of a flow.
    ///
    /// # Panics
    /// If there is no such flow.
    #[must_use]
    pub fn flow(&self, id: FlowId) -> &Flow {
        self.flows.get(&id).unwrap_or_else(|| panic!("no flow {id:?}"))
    }

    /// The state of a flow, to change its manner.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn flow_mut(&mut self, id: FlowId) -> &mut Flow {
        self.flows.get_mut(&id).unwrap_or_else(|| panic!("no flow {id:?}"))
    }

    /// All flows, in order of node and slot.
    pub fn flows(&self) -> impl Iterator<Item = (FlowId, &Flow)> {
        self.flows.iter().map(|(id, f)| (*id, f))
    }

    /// Gives a flow something to say. It waits its turn, and for room.
    pub fn say(&mut self, id: FlowId, data: impl Into<Bytes>, options: SendOptions) {
        self.flow_mut(id).outbox.push_back((data.into(), options));
        self.pump(id);
        self.take_notices(id.node.0);
    }

    /// Gives a flow a stream of bytes to say, in pieces of `piece` bytes, and ends its direction after them if `last`.
    pub fn say_bytes(&mut self, id: FlowId, data: &[u8], piece: usize, last: bool) {
        let data = Bytes::copy_from_slice(data);
        let mut at = 0;
        while at < data.len() {
            let end = (at + piece.max(1)).min(data.len());
            let is_last = end == data.len();
            let options = SendOptions { end_of_message: is_last, is_final: is_last && last, ..SendOptions::default() };
            self.flow_mut(id).outbox.push_back((data.slice(at..end), options));
            at = end;
        }
        self.pump(id);
        self.take_notices(id.node.0);
    }

    /// Ends a flow's direction when it has said everything.
    pub fn finish(&mut self, id: FlowId) {
        self.flow_mut(id).finish_after = true;
        self.pump(id);
        self.take_notices(id.node.0);
    }

    /// Closes a flow when it has said everything.
    pub fn close(&mut self, id: FlowId) {
        self.flow_mut(id).close_after = true;
        self.pump(id);
        self.take_notices(id.node.0);
    }

    /// Aborts a flow.
    pub fn abort(&mut self, id: FlowId) {
        self.places[id.node.0].engine.abort(id.conn);
        self.take_notices(id.node.0);
    }

    /// Lets a flow go: its program has ended. What has been seen of it can be read until its slot is used again.
    pub fn release(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if !core::mem::replace(&mut flow.released, true) {
            self.places[id.node.0].engine.release(id.conn);
            self.take_notices(id.node.0);
        }
    }

    /// Reads a flow now, as a program does that has not waited for an event.
    pub fn read(&mut self, id: FlowId) {
        self.receive(id);
        self.take_notices(id.node.0);
    }

    /// Says what can be said.
    fn pump(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if flow.released || flow.over.is_some() {
            return;
        }
        let engine = &mut self.places[id.node.0].engine;
        while let Some((data, options)) = flow.outbox.front() {
            match engine.send(id.conn, data.clone(), *options) {
                Ok(message) => flow.given.push(message),
                Err(SendError::Blocked { .. }) => {
                    flow.blocked += 1;
                    return;
                }
                Err(error) => flow.refused.push(error),
            }
            flow.outbox.pop_front();
        }
        if core::mem::take(&mut flow.finish_after) {
            // A connection that has failed meanwhile has said so.
            let _ = engine.finish(id.conn);
        }
        if core::mem::take(&mut flow.close_after) {
            engine.close(id.conn);
        }
    }

    /// Takes what there is.
    fn receive(&mut self, id: FlowId) {
        let now = self.world.now();
        loop {
            let Some(flow) = self.flows.get_mut(&id) else { return };
            if !flow.manner.reads || flow.released || flow.ended_at.is_some() || flow.receive_error.is_some() {
                return;
            }
            let outcome = self.places[id.node.0].engine.receive(id.conn, RECEIVE_MAX);
            match outcome {
                Ok(ReceiveOutcome::Received(r)) => {
                    flow.received_at = Some(now);
                    flow.count += r.data.len();
                    flow.early += if r.early { r.data.len() } else { 0 };
                    if flow.manner.keeps {
                        flow.received.extend_from_slice(&r.data);
                        flow.partial.extend_from_slice(&r.data);
                        if r.end_of_message {
                            flow.messages.push(flow.partial.split().freeze());
                        }
                    }
                    let ended = r.is_final;
                    if flow.manner.echoes && !(ended && r.data.is_empty()) {
                        // The last piece of a byte stream is empty, and is the end.
                        let options = SendOptions { end_of_message: r.end_of_message, ..SendOptions::default() };
                        flow.outbox.push_back((r.data, options));
                        self.pump(id);
                    }
                    if ended {
                        return self.peer_ended(id, now);
                    }
                }
                Ok(ReceiveOutcome::Blocked) => return,
                Ok(ReceiveOutcome::End) => return self.peer_ended(id, now),
                Err(error) => {
                    flow.receive_error = Some(error);
                    return;
                }
            }
        }
    }

    fn peer_ended(&mut self, id: FlowId, now: Instant) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.ended_at = Some(now);
        match flow.manner.when_ended {
            WhenEnded::Stay => return,
            WhenEnded::Finish => flow.finish_after = true,
            WhenEnded::Close => flow.close_after = true,
        }
        self.pump(id);
    }

    // --- events ----------------------------------------------------------------------------------------------------

    fn take_notices(&mut self, at: usize) {
        while let Some(notice) = self.places[at].engine.poll_notice() {
            let now = self.world.now();
            let place = &mut self.places[at];
            if place.log.len() >= MAX_LOG {
                place.log.drain(..MAX_LOG / 2);
            }
            place.log.push((now, notice.clone()));
            match notice.source {
                Source::Connection(conn) => self.connection_event(FlowId { node: Node(at), conn }, notice.event, now),
                Source::Listener(_) | Source::Group(_) => {
                    let engine = &mut self.places[at].engine;
                    match (notice.source, &notice.event) {
                        (Source::Listener(l), Event::ConnectionReceived(_) | Event::GroupReceived(_)) => {
                            engine.taken(l)
                        }
                        (Source::Group(g), Event::StreamReceived(_)) if self.takes_streams => engine.taken_stream(g),
                        _ => {}
                    }
                    match notice.event {
                        Event::ConnectionReceived(conn) | Event::StreamReceived(conn) => self.received(Node(at), conn),
                        _ => {}
                    }
                }
            }
        }
        self.places[at].engine.settle();
    }

    fn received(&mut self, node: Node, conn: ConnectionId) {
        let id = FlowId { node, conn };
        let now = self.world.now();
        let place = &mut self.places[node.0];
        place.accepted.retain(|old| *old != id);
        place.accepted.push(id);
        let mut flow = Flow::new(place.manner.clone(), now);
        flow.ready_at = Some(now);
        flow.received_by = place.engine.local_addr(conn);
        self.flows.insert(id, flow);
        self.greet(id);
        self.receive(id);
    }

    fn connection_event(&mut self, id: FlowId, event: Event, now: Instant) {
        // A connection is reported before its events, unless the test opened it behind our back.
        let Some(flow) = self.flows.get_mut(&id) else { return };
        assert!(!flow.released, "an event of a connection that was released: {id:?} {event:?}");
        assert!(flow.over.is_none(), "an event after the last: {id:?} {event:?} after {:?}", flow.over);
        match event {
            Event::Ready => {
                assert!(flow.ready_at.is_none(), "ready twice: {id:?}");
                flow.ready_at = Some(now);
                self.pump(id);
                self.receive(id);
            }
            Event::Readable => self.receive(id),
            Event::Writable => {
                flow.writables += 1;
                self.pump(id);
            }
            Event::Sent(message) => flow.sent.push(message),
            Event::Expired(message) => flow.expired.push(message),
            Event::SendError(message, error) => flow.unsent.push((message, error)),
            Event::SoftError(_) => flow.soft_errors += 1,
            Event::PathChange => flow.path_changes += 1,
            Event::Closed => flow.over = Some((now, Over::Closed)),
            Event::ConnectionError(error) => flow.over = Some((now, Over::Failed(error))),
            Event::EstablishmentError(error) => flow.over = Some((now, Over::NotEstablished(error))),
            _ => {}
        }
    }

    // --- time ------------------------------------------------------------------------------------------------------

    /// Lets every host that wants a turn now have it, until none does.
    fn turns(&mut self) {
        loop {
            let mut idle = true;
            for at in 0..self.places.len() {
                self.take_notices(at);
                if self.world.has_events(self.places[at].host) {
                    idle = false;
                    self.look(at);
                    self.take_notices(at);
                    self.count_turn(at);
                }
            }
            if idle {
                return;
            }
        }
    }

    /// Lets an engine do what there is to do, every other time as whoever is within a reactor does: what is simple in a fast poll, and
    /// only the rest in a turn.
    fn look(&mut self, at: usize) {
        self.polls_fast = !self.polls_fast;
        let engine = &mut self.places[at].engine;
        if !self.polls_fast || !engine.poll_fast() {
            engine.turn();
        }
    }

    fn count_turn(&mut self, at: usize) {
        let now = self.world.now();
        if self.turns.0 == now {
            self.turns.1 += 1;
            assert!(self.turns.1 < MAX_TURNS, "host {at} spins at {now:?}: {:?}", self.places[at].engine.stats());
        } else {
            self.turns = (now, 0);
        }
    }

    /// Runs until `done` says so or `limit` has passed, and returns what it says at the end.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.world.now() + limit;
        loop {
            self.turns();
            if done(self) {
                self.turns();
                return true;
            }
            self.turns();
            let event = self.world.next_event();
            let wakeup = self.world.next_wakeup().map(|(_, at)| at);
            match (event, wakeup) {
                (Some(e), w) if e <= end && w.is_none_or(|w| e <= w) => drop(self.world.step()),
                (_, Some(w)) if w <= end => self.world.run_until(w),
                _ => {
                    self.world.run_until(end);
                    self.turns();
                    return done(self);
                }
            }
        }
    }

    /// Lets `time` pass.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Lets every flow and listener go, runs until the last trace of them is gone, and fails if one is not.
    ///
    /// # Panics
    /// If an engine or the network still has anything after all timeouts.
    pub fn end(mut self) {
        let ids: Vec<_> = self.flows.keys().copied().collect();
        for id in ids {
            self.release(id);
        }
        for at in 0..self.places.len() {
            for listener in core::mem::take(&mut self.places[at].listeners) {
                self.places[at].engine.stop(listener);
            }
        }
        self.run_until(AFTERLIFE, |p| p.world.is_empty() && p.places.iter().all(|h| is_bare(h.engine.stats())));
        for place in &self.places {
            let (stats, open) = (place.engine.stats(), self.world.open_sockets(place.host));
            let name = self.world.host_name(place.host);
            let open_flows = self.flows.keys().filter(|id| id.node == place.node).map(|id| {
                let (engine, conn) = (&place.engine, id.conn);
                (conn, engine.state(conn), engine.stack(conn), engine.connection_stats(conn))
            });
            let left: Vec<_> = open_flows.filter(|(_, state, ..)| *state != ConnectionState::Closed).collect();
            assert!(is_bare(stats) && open == 0, "{name} still has something ({open} sockets): {stats:?} {left:?}");
        }
        let gone = self.run_until(ORPHANS, |p| p.world.is_empty());
        assert!(gone, "the network still has something: next event {:?}", self.world.next_event());
    }
}

/// Whether an engine holds nothing.
fn is_bare(s: EngineStats) -> bool {
    let transports = [s.channels, s.quic_connections, s.sctp_associations];
    let held = [s.connections, s.bytes_queued, s.receive_windows, s.send_windows, s.timers, s.groups, s.listeners];
    transports == [0; 3] && held == [0; 7]
}
