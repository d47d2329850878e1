//! How much a QUIC connection keeps: of what it has sent, until its peer has it, and of what has
//! come, until the program reads it.
//!
//! *Sending.* The window follows the path: twice what the congestion controller allows in flight,
//! from [`Tuning::SEND_WINDOW_MIN`] to [`Tuning::SEND_WINDOW_MAX`]. What all windows have grown
//! together stays within what queues leave of [`crate::Limits::engine_bytes`], or half of it: peers
//! that take a lot and then acknowledge nothing cannot make a process keep 64 MB for each of them.
//! Connections that have nothing to keep give back what they do not need, when others need it.
//!
//! *Receiving.* Every connection lets its peer send [`Tuning::RECEIVE_WINDOW_MIN`] ahead of the
//! program, and more while the program reads that much, or streams that it does not read hold up
//! others. The sum of what is more stays within [`crate::Limits::engine_bytes`], and none gets more
//! than half of what is left, so that there is something for the next. What a peer was allowed
//! cannot be taken back: it counts until so much was read, or the connection is over.

use crate::carrier::QuicCarrier;
use crate::context::Context;
use neater_base::Key;
use neater_base::net::Net;
use neater_quic::{ConnectionApi, Tuning};

impl QuicCarrier {
    /// Lets the window of a connection follow the path.
    pub(super) fn tune<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(q) = self.connections.get(key) else { return };
        let want = (2 * q.conn.stats().congestion_window).clamp(Tuning::SEND_WINDOW_MIN, Tuning::SEND_WINDOW_MAX);
        let (window, step) = (q.window, q.window / 4);
        if want <= window + step {
            return;
        }
        let room = self.find_room(cx, want - window, key);
        // Not for every byte that becomes free.
        let grown = want.min(window.saturating_add(room));
        if grown > window + step {
            self.set_window(cx, key, grown);
        }
    }

    /// By how much the window of a connection may grow now, after those that need less have given
    /// back if that is little.
    fn find_room<N: Net>(&mut self, cx: &mut Context<N>, wanted: u64, of: Key) -> u64 {
        let room = cx.room_for_windows();
        if room >= wanted || !cx.may_look_at_windows() {
            return room;
        }
        self.take_back_windows(cx, Some(of));
        cx.room_for_windows()
    }

    /// Whether windows were looked at since this carrier has looked at its own.
    pub(crate) fn is_to_take_back<N>(&self, cx: &Context<N>) -> bool {
        self.looked != cx.windows.looks
    }

    /// Makes the windows small again of connections that have nothing to keep, but for that of one.
    pub(crate) fn take_back_windows<N: Net>(&mut self, cx: &mut Context<N>, but: Option<Key>) {
        self.looked = cx.windows.looks;
        for key in self.connections.keys() {
            // The report of one stream holds for the connection.
            if let Some(q) = self.connections.get_mut(key)
                && Some(key) != but
                && q.window > Tuning::SEND_WINDOW_MIN
                && !q.streams.keys().any(|s| q.conn.has_unacknowledged(*s))
            {
                self.set_window(cx, key, Tuning::SEND_WINDOW_MIN);
            }
        }
    }

    /// A connection is over.
    pub(super) fn give_back<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        self.set_window(cx, key, Tuning::SEND_WINDOW_MIN);
        if let Some(q) = self.connections.get_mut(key) {
            cx.windows.granted -= core::mem::take(&mut q.granted);
        }
    }

    /// Lets the receive window of a connection follow what the program reads, and what it does not.
    pub(crate) fn tune_receiving<N: Net>(&mut self, cx: &mut Context<N>, key: Key) {
        let Some(q) = self.connections.get_mut(key) else { return };
        let all = cx.limits.engine_bytes as u64;
        let room = all.saturating_sub(cx.windows.granted);
        if let Some(want) = q.conn.suitable_receive_window(cx.now, q.streams.len(), room < all / 4) {
            let (window, _) = q.conn.receive_window();
            let set = want.min(window.saturating_add(room / 2));
            // Not for every byte that becomes free.
            if set < window || set == want || set > window + window / 4 {
                q.conn.set_receive_window(set);
            }
        }
        let granted = q.conn.receive_window().1.saturating_sub(Tuning::RECEIVE_WINDOW_MIN);
        cx.windows.granted = cx.windows.granted + granted - q.granted;
        q.granted = granted;
    }

    fn set_window<N: Net>(&mut self, cx: &mut Context<N>, key: Key, window: u64) {
        if let Some(q) = self.connections.get_mut(key)
            && q.window != window
        {
            cx.windows.grown = cx.windows.grown + window - q.window;
            q.window = window;
            q.conn.set_send_window(window);
        }
    }
}
