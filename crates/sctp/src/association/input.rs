//! From packets to what they ask for (RFC 9260 sections 6.10 and 8.5).

use super::{Association, Candidate, State, heartbeats};
use crate::event::{CloseReason, Event};
use crate::ids::Route;
use neater_base::{Instant, Rng};
use neater_sctp_wire::cause::{ProtocolViolation, UnrecognizedChunk, UserAbort};
use neater_sctp_wire::chunk::{Abort, Asconf, Auth, CookieAck, Data, IData, ShutdownComplete};
use neater_sctp_wire::{Cause, Chunk, Packet, RawChunk};

/// The most ERROR causes that wait to be sent.
const MAX_ERRORS: usize = 8;
/// The most events that the peer can make wait for an application that does not ask for them.
pub(super) const MAX_EVENTS: usize = 1024;
/// The longest cause that is sent, in bytes.
const MAX_CAUSE: usize = 256;

/// T: the tag is that of the sender (RFC 9260 sections 3.3.7 and 3.3.13).
pub(crate) const REFLECTED: u8 = 1;

/// What the chunks of one packet have in common.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) now: Instant,
    pub(super) route: Route,
    /// The index of the path, if the route is one.
    pub(super) path: Option<usize>,
    /// The packet had new data, or data at all.
    pub(super) new_data: bool,
    pub(super) any_data: bool,
    /// Its sender asks for a SACK chunk at once, or it should get one (duplicates, drops).
    pub(super) at_once: bool,
    /// The network has marked it.
    pub(super) marked: bool,
    /// What follows is behind an AUTH chunk that vouches for it.
    pub(super) authenticated: bool,
}

impl Association {
    /// Takes a packet whose tag is ours; `skip` chunks at its beginning have been taken before, and
    /// AUTH was among them if it is `authenticated`.
    #[allow(clippy::too_many_arguments, reason = "a packet and all that is known of it")]
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        route: Route,
        marked: bool,
        packet: &Packet<'_>,
        skip: usize,
        authenticated: bool,
        rng: &mut Rng,
    ) {
        if self.is_closed() {
            return;
        }
        let path = self.path_of(route);
        let stranger = path.is_none() && self.authenticated;
        if stranger && !self.is_invited(packet, skip) {
            return;
        }
        self.heard = now;
        let before = self.stats.bytes_received;
        self.stats.packets_received += 1;
        self.credit = heartbeats::credit(self.credit, packet.bytes().len());
        self.stats.marked += u64::from(marked);
        let mut arrived =
            Arrived { now, route, path, new_data: false, any_data: false, at_once: false, marked, authenticated };
        for raw in packet.chunks().skip(skip) {
            // A chunk that is cut short ends the packet (section 6.10).
            let Ok(raw) = raw else { break };
            if matches!(raw.kind, Abort::KIND | ShutdownComplete::KIND) {
                // This chunk's own T bit determines whose tag is to stand in the packet (section
                // 8.5.1 B and C). What else is in a packet with one is not looked at: behind a tag
                // that was sent back, it could be from any host that has seen ours.
                let tag = if raw.flags & REFLECTED == 0 { self.tag } else { self.peer_tag };
                if packet.header.tag == tag && self.challenge(&mut arrived, packet, &raw).is_none() {
                    self.handle_chunk(&mut arrived, &raw);
                }
                break;
            }
            match self.challenge(&mut arrived, packet, &raw) {
                None => {}
                Some(true) => continue,
                Some(false) => break,
            }
            if !self.handle_chunk(&mut arrived, &raw) || self.is_closed() {
                break;
            }
        }
        if let Some(several) = path.and_then(|p| self.paths.get_mut(p)?.several.as_mut()) {
            several.count.received += self.stats.bytes_received - before;
            several.last_received = Some(now);
        }
        if !self.is_closed() {
            // An ASCONF chunk may have made it a path meanwhile.
            let gone = self.addresses.is_deleted(route.remote);
            if path.is_none() && self.path_of(route).is_none() && !gone && !stranger {
                self.consider(now, route, rng);
            }
            self.after_packet(&arrived);
        }
    }

    /// Whether a packet proves that it is this peer's, although it comes by another path of a layer
    /// that authenticates: there each path has a peer of its own, and a tag that was guessed proves
    /// nothing. An AUTH chunk does, for its key follows from numbers that only the two ends of the
    /// first path have seen; the requests that open a path and their answers are behind one.
    fn is_invited(&mut self, packet: &Packet<'_>, skip: usize) -> bool {
        let auth = packet.chunks().skip(skip).map_while(Result::ok).find(|c| c.kind == Auth::KIND);
        auth.is_some_and(|auth| self.agreed.dynamic_addresses && self.check_auth(packet, &auth).is_ok())
    }

    /// What follows from all of its chunks.
    fn after_packet(&mut self, arrived: &Arrived) {
        if arrived.any_data {
            if let Some(path) = arrived.path {
                self.last_from = path;
            }
            // In SHUTDOWN-SENT each packet with data is answered by a SHUTDOWN chunk (section 9.2).
            if self.state == State::ShutdownSent {
                self.outbox.state = true;
                self.timers.t2 = None;
                self.tries = 0;
                if self.rx.arrivals.has_gaps() || arrived.at_once {
                    self.rx.arrivals.acknowledge_now();
                }
            }
            let (every, delay) = (self.config.sack_every, self.config.sack_delay);
            let at_once = arrived.at_once || !arrived.new_data;
            let several = self.multipath().is_some_and(|m| m.delayed_ack);
            self.rx.arrivals.packet(arrived.now, at_once, every, delay, several);
            if let Some(rtt) = arrived.path.and_then(|p| self.round_trip(p)) {
                self.rx.resize(arrived.now, rtt);
            }
        }
        self.finish_deferred();
        self.tell_readable();
        self.retry_reconfig();
        self.advance_shutdown(arrived.now);
        self.tell_writable();
    }

    /// Takes one chunk; false: the rest of the packet is not looked at.
    fn handle_chunk(&mut self, arrived: &mut Arrived, raw: &RawChunk<'_>) -> bool {
        let Ok(chunk) = Chunk::decode(raw) else {
            // A value that is not as its type requires: the chunk is dropped, and its sender
            // notified.
            self.queue_error(&ProtocolViolation(b"malformed chunk").into());
            return true;
        };
        // Not for a side that must see the COOKIE ACK chunk authenticated (RFC 4895).
        if matches!(self.state, State::CookieEchoed(_))
            && says_established(&chunk)
            && (arrived.authenticated || !self.requires_auth(CookieAck::KIND))
        {
            self.establish(arrived.now);
        }
        match chunk {
            Chunk::Data(data) => self.on_data(arrived, &data),
            Chunk::IData(data) => self.on_idata(arrived, &data),
            Chunk::Sack(sack) => self.on_sack(arrived.now, &sack),
            Chunk::NrSack(sack) if self.agreed.nr_sack => self.on_nr_sack(arrived.now, &sack),
            Chunk::InitAck(ack) => self.on_init_ack(arrived, &ack.0),
            Chunk::CookieAck(_) => self.on_cookie_ack(arrived.now),
            Chunk::Heartbeat(heartbeat) => self.on_heartbeat(arrived.route, heartbeat.info),
            Chunk::HeartbeatAck(ack) => self.on_heartbeat_ack(arrived, ack.info),
            Chunk::Abort(abort) => self.on_abort(&abort),
            Chunk::Error(error) => self.on_error(arrived.now, error.causes),
            Chunk::Shutdown(shutdown) => self.on_shutdown(arrived.now, shutdown.cumulative),
            Chunk::ShutdownAck(_) => self.on_shutdown_ack(arrived.route),
            Chunk::ShutdownComplete(_) => self.on_shutdown_complete(),
            Chunk::Ecne(ecne) => self.on_ecne(arrived.now, ecne.lowest),
            Chunk::Cwr(cwr) => self.on_cwr(cwr.lowest),
            Chunk::ForwardTsn(forward) => self.on_forward(arrived, &forward),
            Chunk::IForwardTsn(forward) => self.on_iforward(arrived, &forward),
            Chunk::ReConfig(reconfig) => self.on_reconfig(arrived.now, &reconfig),
            // Nothing to do: padding, and what the endpoint deals with.
            Chunk::Pad(_) | Chunk::Init(_) | Chunk::CookieEcho(_) => {}
            Chunk::Asconf(asconf) if self.agreed.dynamic_addresses => self.on_asconf(arrived, &asconf),
            Chunk::AsconfAck(ack) if self.agreed.dynamic_addresses => self.on_asconf_ack(arrived.now, &ack),
            // Not agreed (RFC 5061, RFC 4895): as if they were unknown.
            Chunk::NrSack(_) | Chunk::Asconf(_) | Chunk::AsconfAck(_) | Chunk::Auth(_) | Chunk::Unknown(_) => {
                return self.unknown(raw);
            }
        }
        true
    }

    /// A chunk of a type that we do not know (section 3.2).
    fn unknown(&mut self, raw: &RawChunk<'_>) -> bool {
        let action = raw.unknown_action();
        if action.reports() {
            let bytes = &raw.bytes[..raw.bytes.len().min(MAX_CAUSE)];
            self.queue_error(&UnrecognizedChunk(bytes).into());
        }
        !action.stops()
    }

    /// Puts a cause into an ERROR chunk that goes out with the next packet.
    pub(super) fn queue_error(&mut self, cause: &Cause<'_>) {
        if self.outbox.errors.len() >= MAX_ERRORS || matches!(self.state, State::CookieWait) {
            return;
        }
        // Written as the only cause of a chunk in a packet of its own, whose front is then cut off.
        let mut buffer = [0; MAX_CAUSE + 64];
        let header = neater_sctp_wire::CommonHeader { source_port: 1, destination_port: 1, tag: self.peer_tag };
        let Ok(mut packet) = neater_sctp_wire::PacketBuilder::new(&mut buffer, header) else { return };
        let causes = [*cause];
        if packet.push(&neater_sctp_wire::chunk::Error { causes: neater_sctp_wire::Causes::new(&causes) }).is_ok() {
            let len = packet.finish(neater_sctp_wire::Checksum::Zero);
            self.outbox.errors.push_back(buffer[16..len].to_vec());
        }
    }

    fn on_data(&mut self, arrived: &mut Arrived, data: &Data<'_>) {
        if self.agreed.interleaving {
            // RFC 8260 section 2.2.1: once agreed, DATA chunks are not used.
            return self.violation("DATA chunk although I-DATA was agreed");
        }
        self.take_data(arrived, data);
    }

    fn on_idata(&mut self, arrived: &mut Arrived, data: &IData<'_>) {
        if !self.agreed.interleaving {
            return self.violation("I-DATA chunk although it was not agreed");
        }
        self.take_idata(arrived, data);
    }

    /// The tag rules of section 8.5.1 have been applied.
    fn on_abort(&mut self, abort: &Abort<'_>) {
        let first = abort.causes.iter().flatten().next();
        let reason = match first {
            Some(Cause::UserAbort(UserAbort(reason))) => reason[..reason.len().min(256)].to_vec(),
            _ => Vec::new(),
        };
        self.close(CloseReason::PeerAborted { cause: first.map(|c| c.code()), reason });
    }

    fn on_error(&mut self, now: Instant, causes: neater_sctp_wire::Causes<'_>) {
        for cause in causes.iter().flatten() {
            match cause {
                Cause::StaleCookie(stale) => self.on_stale_cookie(now, stale.staleness_us),
                // A report about this side's offer; the handshake has dealt with it.
                Cause::UnrecognizedParameters(_) => {}
                Cause::UnrecognizedChunk(UnrecognizedChunk(bytes))
                    if bytes.first() == Some(&Asconf::KIND) && self.agreed.dynamic_addresses =>
                {
                    self.asconf_unknown(now);
                }
                other if self.events.len() < MAX_EVENTS => {
                    self.events.push_back(Event::PeerError { cause: other.code() });
                }
                _ => {}
            }
        }
    }

    /// Ends the association because the peer must not do what it did.
    pub(super) fn violation(&mut self, what: &'static str) {
        self.abort_with(&[ProtocolViolation(what.as_bytes()).into()], CloseReason::PeerMisbehaved(what));
    }

    /// A packet with our tag came from elsewhere: perhaps the peer's address has changed. It is
    /// believed when it sends back a nonce from there.
    fn consider(&mut self, now: Instant, route: Route, rng: &mut Rng) {
        let settled = matches!(self.state, State::Established | State::ShutdownPending | State::ShutdownReceived);
        if !settled || !super::is_unicast(route.remote.ip()) {
            return;
        }
        // Where addresses are announced by ASCONF one of ours counts when the peer has taken it
        // (RFC 5061 section 5.3, F1 and F10), and another one of the peer's when its authenticated
        // chunk adds it. A port may change by itself (RFC 6951 section 5.4). Its program may know
        // more addresses of ours than we have named, where all of them lead here.
        let anywhere = self.config.reached_everywhere;
        let here = |r: Route| match r.layer == route.layer {
            true => r.remote.ip() == route.remote.ip(),
            false => anywhere && r.remote == route.remote,
        };
        if self.agreed.dynamic_addresses && !self.routes().any(here) {
            return;
        }
        let rto = self.paths[self.current].rtt.rto();
        let waiting = self.candidate.is_some_and(|c| c.route == route || now < c.sent_at + rto);
        let again = self.candidate.is_some_and(|c| c.route == route && c.sent && now >= c.sent_at + rto);
        if !waiting || again {
            self.candidate = Some(Candidate { route, nonce: rng.u64(), sent_at: now, sent: false });
        }
    }
}

/// Whether only a peer whose association is up sends this: it has taken our COOKIE ECHO chunk. Its
/// COOKIE ACK chunk, which means no more than this does, was lost or overtaken.
const fn says_established(chunk: &Chunk<'_>) -> bool {
    matches!(
        chunk,
        Chunk::Data(_)
            | Chunk::IData(_)
            | Chunk::Sack(_)
            | Chunk::NrSack(_)
            | Chunk::ForwardTsn(_)
            | Chunk::IForwardTsn(_)
            | Chunk::ReConfig(_)
    )
}
