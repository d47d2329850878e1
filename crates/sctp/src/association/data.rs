//! Data that arrives (RFC 9260 sections 6.2 and 6.5, RFC 8260 section 2, RFC 3758 section 3.6).

use super::Association;
use super::input::Arrived;
use crate::event::{CloseReason, Event};
use crate::receive::{Fragment, Place, Taken};
use neater_sctp_wire::cause::{InvalidStream, NoUserData};
use neater_sctp_wire::chunk::{Data, ForwardTsn, IData, IForwardTsn, Part};
use neater_sctp_wire::{Mid, Ppid, StreamId, Tsn};

impl Association {
    /// Free space below this is not worth advertising (RFC 1122 section 4.2.3.3).
    pub(super) fn silly(&self) -> usize {
        usize::from(self.paths[self.current].room)
    }

    pub(super) fn take_data(&mut self, arrived: &mut Arrived, data: &Data<'_>) {
        let tsn = self.rx.arrivals.unwrap(data.tsn);
        let fragment = Fragment {
            place: Place::data(tsn),
            stream: data.stream,
            unordered: data.unordered,
            number: u32::from(data.ssn.0),
            ppid: data.ppid,
            begins: data.beginning,
            ends: data.ending,
            payload: data.payload,
        };
        self.take(arrived, data.tsn, tsn, data.immediate, &fragment);
    }

    pub(super) fn take_idata(&mut self, arrived: &mut Arrived, data: &IData<'_>) {
        let tsn = self.rx.arrivals.unwrap(data.tsn);
        let (begins, fsn, ppid) = match data.part {
            Part::First(ppid) => (true, 0, ppid),
            Part::Later(fsn) => (false, fsn.0.wrapping_add(u32::from(self.config.linux_fragments)), Ppid(0)),
        };
        if !begins && fsn == 0 {
            return self.violation("a later fragment has the number of the first (a Linux peer? see linux_fragments)");
        }
        let Mid(mid) = data.mid;
        let fragment = Fragment {
            place: Place::idata(data.stream, data.unordered, mid, fsn),
            stream: data.stream,
            unordered: data.unordered,
            number: mid,
            ppid,
            begins,
            ends: data.ending,
            payload: data.payload,
        };
        self.take(arrived, data.tsn, tsn, data.immediate, &fragment);
    }

    fn take(&mut self, arrived: &mut Arrived, wire: Tsn, tsn: u64, immediate: bool, fragment: &Fragment<'_>) {
        if !self.is_receiving() {
            return;
        }
        if fragment.payload.is_empty() {
            let reason = CloseReason::PeerMisbehaved("a chunk has no data");
            return self.abort_with(&[NoUserData { tsn: wire }.into()], reason);
        }
        arrived.any_data = true;
        arrived.at_once |= immediate;
        if arrived.marked && self.agreed.ecn {
            let lowest = self.outbox.ecne.unwrap_or(wire);
            self.outbox.ecne = Some(if wire < lowest { wire } else { lowest });
        }
        match self.rx.take(tsn, fragment) {
            Ok(Taken::New) => {
                arrived.new_data = true;
                self.stats.chunks_received += 1;
                self.stats.bytes_received += fragment.payload.len() as u64;
                let lost = self.rx.take_lost();
                self.tell_cut(&lost);
            }
            Ok(Taken::Duplicate) => self.stats.duplicates += 1,
            Ok(Taken::Dropped) => {
                self.stats.dropped += 1;
                arrived.at_once = true;
            }
            Ok(Taken::NoSuchStream) => {
                arrived.new_data = true;
                self.queue_error(&InvalidStream { stream: fragment.stream }.into());
            }
            Err(misfit) => self.violation(misfit.0),
        }
    }

    /// The marked data has been answered by a reduction.
    pub(super) fn on_cwr(&mut self, lowest: Tsn) {
        if self.outbox.ecne.is_some_and(|e| e <= lowest) {
            self.outbox.ecne = None;
        }
    }

    /// Where the cumulative TSN is to be moved, if that is ahead of us. It may be any distance
    /// ahead (less than half of all TSNs): what a peer has sent and given up we need not have seen,
    /// and if it has not sent it, it skips its own messages and no one else's.
    fn forward_to(&mut self, arrived: &mut Arrived, cumulative: Tsn) -> Option<u64> {
        if !self.is_receiving() {
            return None;
        }
        if !self.rx.may_give_up() {
            self.violation("FORWARD TSN although it was not agreed");
            return None;
        }
        let tsn = self.rx.arrivals.unwrap(cumulative);
        arrived.any_data = true;
        // An old one is answered at once: perhaps the SACK chunk was lost (RFC 3758 section 3.6).
        arrived.at_once = true;
        arrived.new_data |= tsn > self.rx.arrivals.cumulative();
        (tsn > self.rx.arrivals.cumulative()).then_some(tsn)
    }

    pub(super) fn on_forward(&mut self, arrived: &mut Arrived, forward: &ForwardTsn<'_>) {
        if self.agreed.interleaving {
            return self.violation("FORWARD TSN although I-DATA was agreed");
        }
        if let Some(tsn) = self.forward_to(arrived, forward.cumulative) {
            let skipped = forward.skipped.iter().map(|s| (s.stream, u32::from(s.ssn.0)));
            self.rx.skip_data(tsn, skipped);
            let lost = self.rx.take_lost();
            self.tell_cut(&lost);
        }
    }

    pub(super) fn on_iforward(&mut self, arrived: &mut Arrived, forward: &IForwardTsn<'_>) {
        if !self.agreed.interleaving {
            return self.violation("I-FORWARD-TSN although I-DATA was not agreed");
        }
        if let Some(tsn) = self.forward_to(arrived, forward.cumulative) {
            let skipped = forward.skipped.iter().map(|s| (s.stream, s.unordered, s.mid.0));
            let cut = self.rx.skip_messages(tsn, skipped);
            self.tell_cut(&cut);
        }
    }

    pub(super) fn tell_cut(&mut self, cut: &[(StreamId, u64)]) {
        self.events.extend(cut.iter().map(|(stream, number)| Event::PartLost { stream: *stream, number: *number }));
    }
}
