//! Streams that are reset and added (RFC 6525).
//!
//! One request of ours is under way at a time (section 5.1.1). A reset of outgoing streams waits
//! until what was sent on them is acknowledged; messages that have not begun wait with it and are
//! renumbered. SSN/TSN resets are refused and never asked for.

use super::input::MAX_EVENTS;
use super::{Association, State};
use crate::error::ReconfigError;
use crate::event::Event;
use neater_base::Instant;
use neater_sctp_wire::chunk::ReConfig;
use neater_sctp_wire::parameter::{
    AddIncoming, AddOutgoing, IncomingReset, OutgoingReset, ReconfigResponse, ReconfigResult,
};
use neater_sctp_wire::{Array, Full, PacketBuilder, Parameter, Parameters, ReconfigSeq, StreamId, Tsn};
use std::collections::VecDeque;

/// The most answers that wait to be sent.
const MAX_ANSWERS: usize = 4;
/// The most streams that one request names: they must fit into one packet.
const MAX_STREAMS: usize = 128;

/// A request of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Our outgoing streams restart; in answer to the peer's request of this number. Once it was
    /// sent, with the last TSN before it: that must not move when it is sent again (section 5.1.2,
    /// A3), or with other traffic the peer would never have everything.
    Outgoing { streams: Vec<StreamId>, asked: Option<ReconfigSeq>, last: Option<Tsn> },
    /// The peer's outgoing streams are to restart.
    Incoming { streams: Vec<StreamId> },
    /// We want more outgoing streams.
    AddOutgoing { more: u16 },
    /// The peer is to have more outgoing streams.
    AddIncoming { more: u16 },
}

/// A reset of the peer's outgoing streams that waits for what was sent before it (section 5.2.2,
/// E2).
#[derive(Debug)]
struct Deferred {
    request: ReconfigSeq,
    last_tsn: u64,
    streams: Vec<StreamId>,
}

/// Both directions of requests.
#[derive(Debug)]
pub(super) struct Reconfig {
    /// The number of our next request, or of the one under way.
    ours: ReconfigSeq,
    /// The number of the peer's next request.
    theirs: ReconfigSeq,
    /// How the peer's last request ended.
    last: Option<ReconfigResult>,
    pending: Option<Request>,
    /// The request is to be sent, once or once more.
    wanted: bool,
    /// The peer has reported that it is in progress, and has been asked once more at most since.
    in_progress: bool,
    answers: VecDeque<(ReconfigSeq, ReconfigResult)>,
    deferred: Option<Deferred>,
}

impl Default for Reconfig {
    fn default() -> Self {
        Self::new(Tsn(0), Tsn(0))
    }
}

impl Reconfig {
    /// Requests are numbered from the initial TSNs on (section 4.1).
    pub(super) const fn new(ours: Tsn, theirs: Tsn) -> Self {
        Self {
            ours: ReconfigSeq(ours.0),
            theirs: ReconfigSeq(theirs.0),
            last: None,
            pending: None,
            wanted: false,
            in_progress: false,
            answers: VecDeque::new(),
            deferred: None,
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted || !self.answers.is_empty()
    }

    fn answer(&mut self, request: ReconfigSeq, result: ReconfigResult) {
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push_back((request, result));
        }
    }
}

impl Association {
    /// Restarts the numbers of our messages on these streams, of all if there are none, after the
    /// messages that wait now.
    pub(crate) fn reset_outgoing(&mut self, streams: &[StreamId]) -> Result<(), ReconfigError> {
        let known = streams.iter().all(|s| s.0 < self.queues.count());
        self.may_reconfigure(known && streams.len() <= MAX_STREAMS)?;
        self.begin_outgoing(streams.to_vec(), None);
        Ok(())
    }

    /// Asks the peer to restart the numbering of its messages on these streams, on all if there are
    /// none.
    pub(crate) fn reset_incoming(&mut self, streams: &[StreamId]) -> Result<(), ReconfigError> {
        let known = streams.iter().all(|s| s.0 < self.rx.streams());
        self.may_reconfigure(known && streams.len() <= MAX_STREAMS)?;
        self.reconfig.pending = Some(Request::Incoming { streams: streams.to_vec() });
        self.reconfig.wanted = true;
        Ok(())
    }

    /// Asks for more outgoing streams.
    pub(crate) fn add_outgoing(&mut self, more: u16) -> Result<(), ReconfigError> {
        self.may_reconfigure(more > 0 && self.queues.count().checked_add(more).is_some())?;
        self.reconfig.pending = Some(Request::AddOutgoing { more });
        self.reconfig.wanted = true;
        Ok(())
    }

    /// Asks the peer to have more outgoing streams.
    pub(crate) fn add_incoming(&mut self, more: u16) -> Result<(), ReconfigError> {
        self.may_reconfigure(more > 0 && self.rx.streams().checked_add(more).is_some())?;
        self.reconfig.pending = Some(Request::AddIncoming { more });
        self.reconfig.wanted = true;
        Ok(())
    }

    fn may_reconfigure(&self, possible: bool) -> Result<(), ReconfigError> {
        if self.state != State::Established || self.is_another() {
            return Err(ReconfigError::NotEstablished);
        }
        if !self.agreed.reconfiguration {
            return Err(ReconfigError::NotSupported);
        }
        if self.reconfig.pending.is_some() {
            return Err(ReconfigError::Busy);
        }
        if possible { Ok(()) } else { Err(ReconfigError::Streams) }
    }

    fn begin_outgoing(&mut self, streams: Vec<StreamId>, asked: Option<ReconfigSeq>) {
        let named = self.named(&streams);
        self.queues.hold(&named);
        self.reconfig.pending = Some(Request::Outgoing { streams, asked, last: None });
        self.reconfig.wanted = true;
    }

    /// The outbound streams that a list means.
    fn named(&mut self, streams: &[StreamId]) -> Vec<StreamId> {
        if streams.is_empty() { (0..self.queues.count()).map(StreamId).collect() } else { streams.to_vec() }
    }

    /// Writes answers, and the request if its time has come.
    pub(super) fn write_reconfig(&mut self, now: Instant, packet: &mut PacketBuilder<'_>) -> Result<(), Full> {
        while let Some((response, result)) = self.reconfig.answers.front().copied() {
            let answer = [ReconfigResponse { response, result, next_tsns: None }.into()];
            packet.push(&ReConfig { parameters: Parameters::new(&answer) })?;
            self.reconfig.answers.pop_front();
        }
        if !self.reconfig.wanted {
            return Ok(());
        }
        // It is looked at again when something is acknowledged.
        self.reconfig.wanted = false;
        let request = self.reconfig.ours;
        let Some(pending) = self.reconfig.pending.clone() else { return Ok(()) };
        let mut sent = None;
        let parameter: Parameter<'_> = match &pending {
            Request::Outgoing { streams, asked, last } => {
                let busy = if last.is_some() {
                    false
                } else if streams.is_empty() {
                    !self.out.is_empty() || self.queues.is_any_unfinished()
                } else {
                    streams.iter().any(|s| self.out.has_stream(*s) || self.queues.is_unfinished(*s))
                };
                if busy {
                    return Ok(());
                }
                let last_tsn = last.unwrap_or(Tsn((self.out.next() - 1) as u32));
                sent = Some(last_tsn);
                let response = asked.unwrap_or(ReconfigSeq(self.reconfig.theirs.0.wrapping_sub(1)));
                OutgoingReset { request, response, last_tsn, streams: Array::from(&streams[..]) }.into()
            }
            Request::Incoming { streams } => IncomingReset { request, streams: Array::from(&streams[..]) }.into(),
            Request::AddOutgoing { more } => AddOutgoing { request, streams: *more }.into(),
            Request::AddIncoming { more } => AddIncoming { request, streams: *more }.into(),
        };
        let written = packet.push(&ReConfig { parameters: Parameters::new(&[parameter]) });
        self.reconfig.wanted = written.is_err();
        if written.is_ok() {
            if let Some(Request::Outgoing { last, .. }) = self.reconfig.pending.as_mut() {
                *last = sent;
            }
            self.timers.reconfig = Some(now + self.paths[self.current].rtt.rto());
        }
        written
    }

    /// What was sent on a stream may have been acknowledged, or given up: a reset that waits for
    /// that is looked at again.
    pub(super) fn retry_reconfig(&mut self) {
        let waits = matches!(self.reconfig.pending, Some(Request::Outgoing { .. })) && self.timers.reconfig.is_none();
        self.reconfig.wanted |= waits;
    }

    pub(super) fn reconfig_timeout(&mut self) {
        self.timers.reconfig = None;
        if matches!(self.state, State::ShutdownSent | State::ShutdownAckSent) {
            // The peer need not answer any more, and its silence is no evidence.
            let request = self.forget_request();
            return self.tell_forgotten(request);
        }
        self.reconfig.wanted = self.reconfig.pending.is_some();
        if core::mem::take(&mut self.reconfig.in_progress) {
            // It has answered: that is no error, neither its own nor the path's (section 5.2.7,
            // H2).
            return;
        }
        let current = self.current;
        self.paths[current].rtt.back_off();
        self.failed(current, true);
    }

    pub(super) fn on_reconfig(&mut self, now: Instant, chunk: &ReConfig<'_>) {
        let ending = self.state == State::ShutdownSent;
        let open = matches!(self.state, State::Established | State::ShutdownPending | State::ShutdownReceived);
        if !(open || ending) || !self.agreed.reconfiguration {
            return;
        }
        for parameter in chunk.parameters.iter().flatten().take(2) {
            match parameter {
                Parameter::ReconfigResponse(r) => self.on_response(now, r.response, r.result),
                Parameter::OutgoingReset(r) => {
                    let answered = matches!(self.reconfig.pending, Some(Request::Incoming { .. }))
                        && r.response == self.reconfig.ours;
                    if answered {
                        self.finish_request();
                    }
                    self.on_request(r.request, |a| a.incoming_begins_anew(&r));
                }
                // No further answer is sent.
                Parameter::IncomingReset(IncomingReset { request, .. })
                | Parameter::AddIncoming(AddIncoming { request, .. })
                    if ending =>
                {
                    self.on_request(request, |_| Some(ReconfigResult::DENIED));
                }
                Parameter::IncomingReset(r) => self.on_request(r.request, |a| a.asked_to_reset(&r)),
                Parameter::AddOutgoing(r) => self.on_request(r.request, |a| {
                    let fits = u32::from(a.rx.streams()) + u32::from(r.streams) <= u32::from(a.config.inbound_streams);
                    if !fits {
                        return Some(ReconfigResult::DENIED);
                    }
                    a.rx.add_streams(r.streams);
                    Some(ReconfigResult::PERFORMED)
                }),
                Parameter::AddIncoming(r) => self.on_request(r.request, |a| {
                    if a.reconfig.pending.is_some() {
                        return Some(a.busy());
                    }
                    let most = a.config.outbound_streams;
                    if u32::from(a.queues.count()) + u32::from(r.streams) > u32::from(most) {
                        return Some(ReconfigResult::DENIED);
                    }
                    a.reconfig.pending = Some(Request::AddOutgoing { more: r.streams });
                    a.reconfig.wanted = true;
                    Some(ReconfigResult::PERFORMED)
                }),
                Parameter::SsnTsnReset(r) => self.on_request(r.request, |_| Some(ReconfigResult::DENIED)),
                _ => {}
            }
        }
    }

    /// Checks the number of the peer's request and answers it (section 5.2.1). `None`: the answer
    /// is a request of ours.
    fn on_request(&mut self, request: ReconfigSeq, act: impl FnOnce(&mut Self) -> Option<ReconfigResult>) {
        let theirs = self.reconfig.theirs;
        if request == theirs {
            let result = act(self);
            if result != Some(ReconfigResult::IN_PROGRESS) {
                self.reconfig.deferred = None;
                self.reconfig.theirs = theirs.next();
                self.reconfig.last = result;
            }
            if let Some(result) = result {
                self.reconfig.answer(request, result);
            }
        } else if request.next() == theirs {
            // Our answer was lost.
            match self.reconfig.last {
                Some(result) => self.reconfig.answer(request, result),
                None => self.reconfig.wanted |= self.reconfig.pending.is_some(),
            }
        } else {
            self.reconfig.answer(request, ReconfigResult::BAD_SEQUENCE_NUMBER);
        }
    }

    /// The peer's outgoing streams restart (section 5.2.2).
    fn incoming_begins_anew(&mut self, reset: &OutgoingReset<'_>) -> Option<ReconfigResult> {
        if reset.streams.iter().any(|s| s.0 >= self.rx.streams()) {
            return Some(ReconfigResult::WRONG_SSN);
        }
        let last_tsn = self.rx.arrivals.unwrap(reset.last_tsn);
        let streams: Vec<StreamId> = reset.streams.iter().collect();
        if last_tsn > self.rx.arrivals.cumulative() || self.events.len() >= MAX_EVENTS {
            // The first word counts: streams that are reset are silent, whatever else is sent
            // meanwhile.
            self.reconfig.deferred.get_or_insert(Deferred { request: reset.request, last_tsn, streams });
            return Some(ReconfigResult::IN_PROGRESS);
        }
        self.begin_incoming_anew(streams);
        Some(ReconfigResult::PERFORMED)
    }

    fn begin_incoming_anew(&mut self, streams: Vec<StreamId>) {
        let (cut, number) = self.rx.reset_streams(&streams);
        self.tell_cut(&cut);
        self.events.push_back(Event::IncomingReset { streams, number });
    }

    /// Does the reset that was waiting, if everything before it has come, and reports that without
    /// being asked again (section 5.2.2, E3 to E6).
    pub(super) fn finish_deferred(&mut self) {
        let (cumulative, room) = (self.rx.arrivals.cumulative(), self.events.len() < MAX_EVENTS);
        let Some(reset) = self.reconfig.deferred.take_if(|d| d.last_tsn <= cumulative && room) else { return };
        self.begin_incoming_anew(reset.streams);
        self.reconfig.theirs = reset.request.next();
        self.reconfig.last = Some(ReconfigResult::PERFORMED);
        self.reconfig.answer(reset.request, ReconfigResult::PERFORMED);
    }

    /// The answer to a request for one of ours while another one is under way. If that waits for a
    /// request of the peer's, the peer must not wait for ours as well: both would wait for ever.
    fn busy(&self) -> ReconfigResult {
        match self.reconfig.pending {
            Some(Request::Incoming { .. } | Request::AddIncoming { .. }) => ReconfigResult::ALREADY_IN_PROGRESS,
            _ => ReconfigResult::IN_PROGRESS,
        }
    }

    /// The peer wants our outgoing streams to restart (section 5.2.3).
    fn asked_to_reset(&mut self, reset: &IncomingReset<'_>) -> Option<ReconfigResult> {
        if let Some(Request::Outgoing { streams, .. }) = &self.reconfig.pending
            && (streams.is_empty() || !reset.streams.is_empty() && reset.streams.iter().all(|s| streams.contains(&s)))
        {
            return Some(ReconfigResult::NOTHING_TO_DO);
        }
        if self.reconfig.pending.is_some() {
            return Some(self.busy());
        }
        if reset.streams.iter().any(|s| s.0 >= self.queues.count()) || reset.streams.len() > MAX_STREAMS {
            return Some(ReconfigResult::WRONG_SSN);
        }
        self.begin_outgoing(reset.streams.iter().collect(), Some(reset.request));
        None
    }

    fn finish_request(&mut self) -> Option<Request> {
        self.reconfig.ours = self.reconfig.ours.next();
        (self.reconfig.wanted, self.reconfig.in_progress) = (false, false);
        self.timers.reconfig = None;
        self.errors = 0;
        self.reconfig.pending.take()
    }

    /// The peer that was asked has lost its memory.
    pub(super) fn forget_request(&mut self) -> Option<Request> {
        self.reconfig.pending.take()
    }

    /// A request was not done, because the peer has forgotten it; there are as many streams now as
    /// it and we have agreed since.
    pub(super) fn tell_forgotten(&mut self, request: Option<Request>) {
        match request {
            Some(Request::Outgoing { streams, .. }) => {
                self.events.push_back(Event::OutgoingReset { streams, done: false });
            }
            Some(Request::AddOutgoing { .. }) => {
                self.events.push_back(Event::StreamsAdded { outbound: self.queues.count(), done: false });
            }
            Some(Request::Incoming { streams }) => self.events.push_back(Event::IncomingResetRefused { streams }),
            Some(Request::AddIncoming { more }) => self.events.push_back(Event::IncomingAddRefused { more }),
            None => {}
        }
    }

    fn on_response(&mut self, now: Instant, response: ReconfigSeq, result: ReconfigResult) {
        if response != self.reconfig.ours || self.reconfig.pending.is_none() {
            return;
        }
        if result == ReconfigResult::IN_PROGRESS {
            // The same request again, after a while; the peer is alive.
            self.errors = 0;
            self.reconfig.in_progress = true;
            self.timers.reconfig = Some(now + self.paths[self.current].rtt.rto());
            return;
        }
        let done = matches!(result, ReconfigResult::PERFORMED | ReconfigResult::NOTHING_TO_DO);
        match self.finish_request() {
            Some(Request::Outgoing { streams, .. }) => {
                for stream in self.named(&streams) {
                    if done {
                        self.queues.restart_numbers(stream);
                    }
                    self.queues.let_go(stream);
                }
                self.events.push_back(Event::OutgoingReset { streams, done });
            }
            Some(Request::AddOutgoing { more }) => {
                if done {
                    self.queues.add_streams(more);
                }
                self.events.push_back(Event::StreamsAdded { outbound: self.queues.count(), done });
            }
            Some(Request::Incoming { streams }) if !done => {
                self.events.push_back(Event::IncomingResetRefused { streams });
            }
            Some(Request::AddIncoming { more }) if !done => self.events.push_back(Event::IncomingAddRefused { more }),
            Some(Request::Incoming { .. } | Request::AddIncoming { .. }) | None => {}
        }
    }
}
