//! What must happen after the lock is released: nothing of the program's runs while the engine is
//! borrowed.

use super::slots::Slot;
use crate::EventHandler;
use crate::waiting::Waiter;
use bytes::Bytes;
use neater_engine::{MisroutedDatagram, Spent};
use std::task::Waker;

/// What must happen after the lock is released: nothing of the program's runs while the engine is
/// borrowed.
#[derive(Default)]
pub(super) struct After {
    pub(super) wakers: Wakers,
    /// Events wait for the program's own functions.
    pub(super) calls: bool,
    pub(super) wake_fd: bool,
    /// This is a child of `fork`: the waiting tasks are in the parent.
    pub(super) forked: bool,
    pub(super) discarded: Vec<Discarded>,
    /// What has arrived here and is for other engines.
    pub(super) misrouted: Vec<MisroutedDatagram>,
    /// The program's data that the engine has finished with, likewise.
    pub(super) spent: Option<Spent>,
    /// And what it had finished with before this turn.
    pub(super) earlier: Option<Spent>,
}

/// The wakers to be called: mostly one, or a few, or none, which takes no memory.
#[derive(Default)]
pub(super) struct Wakers {
    first: Option<Waker>,
    /// In order, from the front.
    few: [Option<Waker>; 3],
    more: Vec<Waker>,
}

impl Wakers {
    pub(super) fn push(&mut self, waker: Waker) {
        if self.first.is_none() {
            self.first = Some(waker);
            return;
        }
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(waker),
            None => self.more.push(waker),
        }
    }

    /// Adds a waiter, if there is one.
    #[inline]
    pub(super) fn take(&mut self, waiter: Option<Waiter>) {
        if let Some(waiter) = waiter {
            self.push(waiter.waker);
        }
    }

    pub(super) fn wake(self) {
        // Not chained: what that keeps account of costs more than it does for one.
        if let Some(waker) = self.first {
            waker.wake();
        }
        for waker in self.few {
            let Some(waker) = waker else { break };
            waker.wake();
        }
        if !self.more.is_empty() {
            self.more.into_iter().for_each(Waker::wake);
        }
    }
}

impl Extend<Waker> for Wakers {
    fn extend<T: IntoIterator<Item = Waker>>(&mut self, wakers: T) {
        for waker in wakers {
            self.push(waker);
        }
    }
}

/// Something of the program's, to be dropped when the lock is released.
#[allow(dead_code, reason = "it is only dropped")]
pub(super) enum Discarded {
    Waker(Waker),
    Slot(Box<Slot>),
    Handler(EventHandler),
    Data(Bytes),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use std::task::Wake;

    struct Named(usize, Arc<Mutex<Vec<usize>>>);

    impl Wake for Named {
        fn wake(self: Arc<Self>) {
            self.1.lock().expect("whole").push(self.0);
        }
    }

    #[test]
    fn all_are_woken_in_order_however_many_they_are() {
        for n in 0..9 {
            let woken = Arc::new(Mutex::new(Vec::new()));
            let mut wakers = Wakers::default();
            wakers.extend((0..n).map(|i| Waker::from(Arc::new(Named(i, woken.clone())))));
            wakers.wake();
            assert_eq!(*woken.lock().expect("whole"), (0..n).collect::<Vec<_>>());
        }
    }
}
