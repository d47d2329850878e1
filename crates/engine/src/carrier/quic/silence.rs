//! A silent reliable connection is not over: QUIC would end it after its idle timeout (RFC 9000
//! section 10.1), TCP does not, and no program has asked for either.
//!
//! *Responsible for* a PING when nothing was received for a third of the idle timeout (section
//! 10.1.2), as long as the program holds a stream, for the end of a session whose program has
//! limited its wait (`connTimeout`), or whose peer acknowledges nothing although its own packets
//! arrive, and for keep-alives that a program asks for when the session is established. *Not
//! responsible for* those that it asks for before, which quinn-proto sends by itself.

use super::Quic;
use crate::carrier::event::CarrierEvent;
use crate::carrier::ids::Due;
use crate::carrier::{QuicCarrier, SessionId};
use crate::closing::ABORTED;
use crate::context::Context;
use core::time::Duration;
use neater_base::net::{ErrorKind, Net, NetError};
use neater_base::{Instant, Key};
use neater_quic::{ConnectionApi, QuicError};

/// No session asks its peer more often than ten times a second, whatever its program's patience.
const LEAST: Duration = Duration::from_millis(300);

/// An idle timeout is at least three probe timeouts (section 10.1). The adapter states no probe
/// timeout: this is more where round trips vary by up to half of their time.
const ROUND_TRIPS: u32 = 10;

/// What follows from how the peer acknowledges.
enum Unacknowledged {
    /// Nothing: to be looked at again then, at the latest.
    No(Instant),
    /// The peer is to be asked, and then to be looked at again.
    Asks(Instant),
    /// Nothing of what this side sends arrives.
    TooLong,
}

impl Quic {
    /// Whether what this side sends arrives. Packets of the peer, which restart the idle timeout,
    /// do not show that: it may send for long because it receives nothing. A session ends when
    /// nothing was acknowledged for as long as total silence may last, counted from the last
    /// acknowledgement of something or from the first packet that waits for one, and not before it
    /// was asked in vain.
    fn check_acknowledged(&mut self, now: Instant, patience: Duration) -> Unacknowledged {
        let idle = self.request.setups.idle_timeout(self.client);
        let (Some(since), Some(limit)) = (self.conn.acknowledgements().waiting_since, self.give_up.or(idle)) else {
            return Unacknowledged::No(now + patience);
        };
        let Some((_, asked)) = self.unacknowledged.filter(|(of, _)| *of == since) else {
            if since + patience > now {
                return Unacknowledged::No(since + patience);
            }
            self.unacknowledged = Some((since, now));
            return Unacknowledged::Asks(now + patience);
        };
        let limit = limit.max(ROUND_TRIPS * self.conn.stats().rtt);
        let over = asked + limit.saturating_sub(patience);
        if over <= now { Unacknowledged::TooLong } else { Unacknowledged::Asks(over.min(now + patience)) }
    }

    /// When something came from the peer last.
    pub(crate) fn last_heard(&self) -> Instant {
        self.heard
    }

    /// After how much silence to ask.
    fn patience(&self) -> Option<Duration> {
        let silence = self.request.setups.silence?;
        let asked = self.give_up.map_or(silence, |limit| silence.min(limit / 3));
        // A time beyond connTimeout switches keep-alives off (RFC 9622 section 8.1.4); then this is
        // shorter anyway.
        Some(self.keep_alive.map_or(asked, |every| asked.min(every)))
    }

    /// How often quinn-proto sends keep-alives, which cannot be changed any more.
    fn fixed_keep_alive(&self) -> Option<Duration> {
        self.request.setups.quic_tuning(self.client)?.keep_alive
    }
}

impl QuicCarrier {
    /// A stream is in use: from now on silence is noticed.
    pub(super) fn watch_silence<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let now = cx.now;
        let Some(q) = self.connections.get_mut(key) else { return };
        if let (None, Some(patience)) = (q.listens_at, q.patience()) {
            q.listens_at = Some(now + patience);
            cx.timers.push(now + patience, Due::QuicSilence(key).into());
        }
    }

    /// `connTimeout` of an established session (RFC 9622 section 8.1.3): it fails when nothing was
    /// received from the peer for this long, although it was probed. The idle timeout that was
    /// agreed on holds all the same.
    pub(crate) fn limit_silence<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        key: Key,
        limit: Option<Duration>,
    ) -> Result<(), NetError> {
        cx.now = cx.net.now();
        let Some(q) = self.connections.get_mut(key) else { return Err(ErrorKind::NotConnected.into()) };
        if q.request.setups.silence.is_none() {
            // The program wants no packets that carry nothing, and silence means nothing then.
            return Err(ErrorKind::Unsupported.into());
        }
        (q.give_up, q.listens_at) = (limit.map(|l| l.max(LEAST)), None);
        self.watch_silence(cx, key);
        Ok(())
    }

    /// `keepAliveTimeout` of an established session (RFC 9622 section 8.1.4): something is sent
    /// when nothing was received for this long. `None`: nothing but what the session needs itself.
    pub(crate) fn keep_alive_every<N: Net>(
        &mut self,
        cx: &mut Context<N>,
        key: Key,
        every: Option<Duration>,
    ) -> Result<(), NetError> {
        cx.now = cx.net.now();
        let Some(q) = self.connections.get_mut(key) else { return Err(ErrorKind::NotConnected.into()) };
        let goes_on = q.fixed_keep_alive().is_some_and(|fixed| every.is_none_or(|every| every > fixed));
        if q.request.setups.silence.is_none() || goes_on {
            return Err(ErrorKind::Unsupported.into());
        }
        (q.keep_alive, q.listens_at) = (every.map(|e| e.max(LEAST)), None);
        self.watch_silence(cx, key);
        Ok(())
    }

    /// It may have been silent for too long. Whether the program still uses it is asked before
    /// anything is done about that.
    pub(crate) fn silence<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let now = cx.now;
        let Some(q) = self.connections.get_mut(key).filter(|q| q.listens_at.is_some_and(|at| at <= now)) else {
            return;
        };
        q.listens_at = None;
        if q.pin_has_failed(now) {
            let due = q.move_on(now, true);
            cx.timers.push(due, Due::QuicSilence(key).into());
            return self.mark_dirty(key);
        }
        if !self.asks_from_here(cx, key) {
            self.events.push_back(CarrierEvent::IsUsed { session: SessionId::Quic(key) });
        }
    }

    /// The answer to that: `held` returns whether the program holds a flow.
    pub(crate) fn used<N: Net>(&mut self, cx: &mut Context<N>, key: Key, held: impl Fn(Key) -> bool) {
        let now = cx.now;
        let Some(q) = self.connections.get_mut(key) else { return };
        let asked = (q.give_up.is_some() || q.keep_alive.is_some()) && q.datagrams.is_some_and(&held);
        let wanted = q.lost.is_none() && (asked || q.streams.values().any(|conn| held(*conn)));
        // The next stream begins it again.
        let (true, Some(patience)) = (wanted, q.patience()) else { return };
        let over = q.give_up.map(|limit| q.heard + limit);
        let (look, asks, in_vain) = match q.check_acknowledged(now, patience) {
            Unacknowledged::No(at) => (at, false, false),
            Unacknowledged::Asks(at) => (at, true, false),
            Unacknowledged::TooLong => (now + patience, false, true),
        };
        if (in_vain || over.is_some_and(|at| at <= now)) && q.connected {
            q.conn.close(now, ABORTED, b"");
            self.lose(key, QuicError::TimedOut);
            return self.mark_dirty(key);
        }
        let mut due = q.heard + patience;
        let silent = due <= now;
        if silent {
            due = now + patience;
        }
        due = due.min(look);
        if silent || asks {
            if q.connected {
                q.conn.ping();
                // It worked once; whether it does now is seen soon.
                due = q.ask_here(now).map_or(due, |at| due.min(at));
            }
            self.mark_dirty(key);
        }
        let due = over.filter(|at| *at > now).map_or(due, |at| at.min(due));
        if let Some(q) = self.connections.get_mut(key) {
            q.listens_at = Some(due);
        }
        cx.timers.push(due, Due::QuicSilence(key).into());
    }
}
