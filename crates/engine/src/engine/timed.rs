//! What happens to connections by the clock: idle timeouts, lifetimes of messages, rates.
//!
//! *Invariants*: of the deadlines of one kind a connection has set one, the earliest; what finds
//! that it has come sets the next.

use crate::conn::Conn;
use crate::event::{ConnectionError, Event};
use crate::rate::{Bucket, Rates};
use crate::timer::Timer;
use crate::{ConnectionId, Engine};
use core::time::Duration;
use neater_base::net::Net;
use neater_base::{Instant, Key};

impl<N: Net> Engine<N> {
    /// How much is left of the lifetime of a message for which there was no room,
    /// [`crate::Event::Writable`] following at its end at the latest; `None`: it has ended. `until`
    /// keeps when that is, and is empty at first.
    pub fn lifetime_left(
        &mut self,
        conn: ConnectionId,
        lifetime: Duration,
        until: &mut Option<Instant>,
    ) -> Option<Duration> {
        self.cx.now = self.cx.net.now();
        let now = self.cx.now;
        let at = *until.get_or_insert(now + lifetime);
        if now >= at {
            return None;
        }
        // One deadline for all that wait: a waiter that is woken by another's sets its own.
        if let Some(c) = self.conns.get_mut(conn.0)
            && c.cold().look_armed.is_none_or(|armed| at < armed)
        {
            c.cold().look_armed = Some(at);
            self.cx.timers.push(at, Timer::Look(conn.0));
        }
        Some(at - now)
    }

    /// A waiter has waited for room for as long as it would.
    pub(crate) fn look_due(&mut self, conn: Key) {
        let now = self.cx.now;
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.cold().look_armed.is_some_and(|at| at > now) {
            return;
        }
        c.cold().look_armed = None;
        self.notify(conn, Event::Writable);
    }

    pub(crate) fn idle_timeout(&mut self, conn: Key) {
        let now = self.cx.now;
        let Some(c) = self.conns.get_mut(conn) else { return };
        let Some(cold) = &mut *c.cold else { return };
        let Some(timeout) = cold.idle_timeout else { return };
        // A peer may do nothing but listen. If the program has set a time, it wants to know.
        let spoke = cold.spoke.filter(|_| c.request.idle_timeout.is_none());
        let at = spoke.map_or(cold.last_activity, |s| s.max(cold.last_activity)) + timeout;
        if at > now {
            self.cx.timers.push(at, Timer::Idle(conn));
        } else {
            cold.idle_armed = false;
            self.fail_connection(conn, ConnectionError::TimedOut);
        }
    }

    /// Takes expired messages out of the queue, if none of their bytes was written.
    pub(crate) fn expire_messages(&mut self, conn: Key) {
        let now = self.cx.now;
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.cold().expiry_armed.is_some_and(|at| at > now) {
            // Another deadline is for that.
            return;
        }
        c.cold().expiry_armed = None;
        let mut expired = Vec::new();
        let mut dropping = None;
        let mut bytes = 0;
        let mut spent = Vec::new();
        c.tx.queue.retain_mut(|s| {
            if let Some((at, id)) = s.expires
                && at <= now
            {
                dropping = Some(id);
                expired.push(id);
            }
            let drop = dropping.is_some();
            if drop {
                bytes += s.data.len();
                spent.push(core::mem::take(&mut s.data));
                if s.completes.is_some() && s.completes == dropping {
                    dropping = None;
                }
            }
            !drop
        });
        c.tx.bytes -= bytes;
        c.tx.spent.append(&mut spent);
        // What has become free is room, whether the transport takes something now or not.
        let room =
            c.wants_room && c.is_open() && !expired.is_empty() && c.tx.waiting() < self.cx.limits.send_buffer / 2;
        self.recount(conn);
        for id in expired {
            self.notify(conn, Event::Expired(id));
        }
        if room {
            self.wake_sender(conn);
        }
        self.flush_and_report(conn);
        let next = self.conns.get(conn).and_then(|c| c.tx.queue.iter().filter_map(|s| Some(s.expires?.0)).min());
        if let Some(at) = next {
            self.arm_expiry(conn, at);
        }
    }

    /// A message expires then.
    pub(crate) fn arm_expiry(&mut self, conn: Key, at: Instant) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        if c.cold().expiry_armed.is_none_or(|armed| at < armed) {
            c.cold().expiry_armed = Some(at);
            self.cx.timers.push(at, Timer::Expiry(conn));
        }
    }

    /// Limits a connection to these rates, in bit/s, from now on; `None`: unlimited.
    pub(crate) fn limit_rates(&mut self, conn: Key, send: Option<u64>, receive: Option<u64>) {
        let now = self.cx.now;
        let Some(c) = self.conns.get_mut(conn) else { return };
        if send.is_none() && receive.is_none() && c.cold.as_ref().is_none_or(|e| e.rates.is_none()) {
            return;
        }
        let bucket = |rate: Option<u64>| rate.map(|r| Bucket::new(r, now));
        let waiting = c.receive_bucket().is_some_and(|b| b.waiting);
        c.cold().rates = Some(Box::new(Rates { send: bucket(send), receive: bucket(receive) }));
        // A waiter at an old bucket looks at the new one.
        self.cx.timers.push(now, Timer::Rate(conn));
        if waiting {
            self.notify(conn, Event::Readable);
        }
    }

    /// The rates of a connection's request begin to count.
    #[cold]
    pub(crate) fn begin_rates(&mut self, conn: Key) {
        let new = |c: &&Conn| c.cold.as_ref().is_none_or(|e| e.rates.is_none());
        if let Some((send, receive)) = self.conns.get(conn).filter(new).map(|c| c.request.rates) {
            self.limit_rates(conn, send, receive);
        }
    }

    /// Something waits to be sent, `bytes` of it at once: until the rate allows it, if that is what
    /// it waits for.
    pub(crate) fn wait_to_send(&mut self, conn: Key, bytes: usize) {
        let Some(b) = self.conns.get_mut(conn).and_then(Conn::send_bucket) else { return };
        if !b.waiting
            && let Some(at) = b.wait(bytes)
        {
            b.waiting = true;
            self.cx.timers.push(at, Timer::Rate(conn));
        }
    }

    /// Something waits to be read until the rate allows it.
    pub(crate) fn wait_to_receive(&mut self, conn: Key) {
        let Some(b) = self.conns.get_mut(conn).and_then(Conn::receive_bucket) else { return };
        if !b.waiting
            && let Some(at) = b.wait(1)
        {
            b.waiting = true;
            self.cx.timers.push(at, Timer::Rate(conn));
        }
    }

    /// The rate may allow more now.
    pub(crate) fn rate_timeout(&mut self, conn: Key) {
        let Some(c) = self.conns.get_mut(conn) else { return };
        let receiving = c.receive_bucket().is_some_and(|b| core::mem::take(&mut b.waiting));
        if let Some(b) = c.send_bucket() {
            b.waiting = false;
        }
        if receiving {
            self.notify(conn, Event::Readable);
        }
        self.conn_ready_stream(conn, false);
    }
}
